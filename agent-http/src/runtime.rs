//! The agent runtime service: one streaming endpoint with a tool loop, and a way to a messenger; no data of its
//! own.

mod chat;
mod messenger;
mod tools;

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::tool_loop::LoopLimits;
use http::{Method, Request};

use crate::auth::BearerGate;
use crate::cors::{self, Origins};
use crate::model::{HostedVendor, OllamaServer};
use crate::probe::{self, Probe};
use crate::request::{self, BodyLimits, Handled, Route, RouteTable};
use crate::serve::{Body, HttpService};
use crate::stream::StreamLimits;

pub use chat::PROVIDERS;
pub use messenger::BotApi;

/// What the runtime's routes work with.
pub struct Runtime {
    /// The hosted vendor.
    pub hosted: HostedVendor,
    /// How Ollama is used; every request names its server.
    pub ollama: OllamaServer,
    /// The messenger's bot API, where there is one.
    pub bot_api: Option<BotApi>,
    /// Asks for `RUNTIME_SECRET`, where it is set.
    pub gate: BearerGate,
    /// Bounds of the tool loop.
    pub limits: LoopLimits,
    /// Measures the tool calls' time-outs.
    pub clock: Arc<dyn Clock>,
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// How deep a request's JSON may nest.
    pub json_depth: usize,
    /// Bounds of answers.
    pub stream: StreamLimits,
    /// Health.
    pub probe: Probe,
    /// The exact origins that may call from a browser.
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Chat,
    Messenger,
    Probe(probe::Route),
}

fn routes() -> RouteTable<Handler> {
    let own = [
        Route::new(Method::POST, "/chat", Handler::Chat),
        Route::new(Method::POST, "/messenger/call", Handler::Messenger),
    ];
    RouteTable::new(own.into_iter().chain(probe::routes(Handler::Probe)))
}

/// The methods and patterns of all routes, to be held against their description.
#[cfg(test)]
pub(crate) fn described() -> Vec<(Method, &'static str)> {
    routes().routes().map(|route| (route.method.clone(), route.pattern)).collect()
}

/// The runtime's service.
pub fn service(runtime: Arc<Runtime>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(runtime.origins.clone(), &[]);
    let routes = Arc::new(routes());
    cors.layer(request::service(move |request| handle(runtime.clone(), routes.clone(), request)))
}

async fn handle(runtime: Arc<Runtime>, routes: Arc<RouteTable<Handler>>, request: Request<Body>) -> Handled {
    let (handler, _params) = routes.lookup(request.method(), request.uri().path()).or_refuse()?;
    match *handler {
        Handler::Probe(route) => runtime.probe.answer(route),
        Handler::Chat => {
            runtime.gate.check(request.headers())?;
            chat::post(&runtime, request).await
        }
        Handler::Messenger => {
            runtime.gate.check(request.headers())?;
            messenger::post(&runtime, request).await
        }
    }
}
