//! The application server: chat in, one stream out.

mod answer;
mod assistants;
mod caps;
mod chat;
mod debug;
mod legacy;
mod runs;

use std::sync::Arc;

use agent_core::turn::Platform;
use http::{Method, Request};

use crate::auth::Authenticator;
use crate::cors::{self, Origins};
use crate::probe::{self, Probe};
use crate::request::{self, BodyLimits, Handled, Route, RouteTable};
use crate::serve::{Body, HttpService};
use crate::stream::StreamLimits;

pub use caps::RunCaps;
pub use runs::RunRegistry;

/// What the application's routes work with.
pub struct App {
    /// Runs the turns.
    pub platform: Platform,
    /// Tells who asks.
    pub auth: Authenticator,
    /// The runs that there have been.
    pub runs: RunRegistry,
    /// How often widgets may be used.
    pub caps: RunCaps,
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// How deep a request's JSON may nest.
    pub json_depth: usize,
    /// Bounds of answers.
    pub stream: StreamLimits,
    /// Health.
    pub probe: Probe,
    /// The exact origins that may call from a browser with credentials.
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Chat,
    PrivateChat,
    Preview,
    PreviewBody,
    Assistants,
    Probe(probe::Route),
}

/// Where a widget's page may send a preflight from, whoever it is: the widget token's origins decide
/// the request itself.
const OPEN_TO_WIDGETS: &[&str] = &[chat::PATH, legacy::PATH];

fn routes() -> RouteTable<Handler> {
    let own = [
        Route::new(Method::POST, chat::PATH, Handler::Chat),
        Route::new(Method::POST, legacy::PATH, Handler::PrivateChat),
        Route::new(Method::GET, debug::DEBUG_PATH, Handler::Preview),
        Route::new(Method::GET, debug::PREVIEW_PATH, Handler::Preview),
        Route::new(Method::POST, debug::PREVIEW_PATH, Handler::PreviewBody),
        Route::new(Method::GET, assistants::STATUS_PATH, Handler::Assistants),
        Route::new(Method::GET, assistants::ACTION_PATH, Handler::Assistants),
        Route::new(Method::POST, assistants::ACTION_PATH, Handler::Assistants),
    ];
    RouteTable::new(own.into_iter().chain(probe::routes(Handler::Probe)))
}

/// The application's service.
pub fn service(app: Arc<App>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(app.origins.clone(), OPEN_TO_WIDGETS);
    let routes = Arc::new(routes());
    cors.layer(request::service(move |request| handle(app.clone(), routes.clone(), request)))
}

async fn handle(app: Arc<App>, routes: Arc<RouteTable<Handler>>, request: Request<Body>) -> Handled {
    let (handler, _params) = routes.lookup(request.method(), request.uri().path()).or_refuse()?;
    match *handler {
        Handler::Chat => chat::post(&app, request).await,
        Handler::PrivateChat => legacy::post(&app, request).await,
        Handler::Preview => debug::get(&app, request).await,
        Handler::PreviewBody => debug::post(&app, request).await,
        Handler::Assistants => assistants::answer(&app, request).await,
        Handler::Probe(route) => app.probe.answer(route),
    }
}
