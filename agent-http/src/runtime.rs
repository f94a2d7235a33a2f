//! Agent runtime service: a streaming chat endpoint with a tool loop, and a messenger proxy. It is stateless.

mod chat;
mod messenger;
mod tools;

use std::sync::Arc;

use agent_client::models::{HostedVendor, OllamaServer};
use agent_core::clock::Clock;
use agent_core::tool_loop::LoopLimits;
use http::{Method, Request};

use crate::auth::BearerAuth;
use crate::body::Body;
use crate::cors::{self, Origins};
use crate::probe::{self, HealthState};
use crate::request::{BodyLimits, Route, RouteTable};
use crate::service::{HandlerResult, HttpService, service_fn};
use crate::stream::StreamLimits;
use crate::{mcp, metrics};

pub use chat::PROVIDERS;
pub use messenger::BotApi;

/// State of the runtime's handlers.
pub struct RuntimeState {
    /// Hosted model vendor.
    pub hosted: HostedVendor,
    /// Ollama client settings; every request names its server.
    pub ollama: OllamaServer,
    /// The messenger's bot API, if configured.
    pub bot_api: Option<BotApi>,
    /// Checks `RUNTIME_SECRET`, if it is set.
    pub bearer_auth: BearerAuth,
    /// Limits of the tool loop.
    pub limits: LoopLimits,
    /// Clock for the timeouts of tool calls.
    pub clock: Arc<dyn Clock>,
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// Limits of streamed responses.
    pub stream: StreamLimits,
    /// State of the health endpoints.
    pub probe: HealthState,
    /// Exact origins whose pages may send requests (CORS).
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Chat,
    Messenger,
    Probe(probe::HealthRoute),
}

fn routes() -> RouteTable<Handler> {
    let own = [
        Route::new(Method::POST, "/chat", Handler::Chat),
        Route::new(Method::POST, "/messenger/call", Handler::Messenger),
    ];
    RouteTable::new(own.into_iter().chain(probe::routes(Handler::Probe)))
}

/// Returns the methods and patterns of all routes, to compare them with the OpenAPI document.
#[cfg(test)]
pub(crate) fn described_routes() -> Vec<(Method, &'static str)> {
    routes().routes().map(|route| (route.method.clone(), route.pattern)).collect()
}

/// Creates the runtime's HTTP service.
pub fn service(runtime: Arc<RuntimeState>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(runtime.origins.clone(), &[], mcp::CORS_HEADERS);
    let routes = Arc::new(routes());
    let metrics = runtime.probe.metrics().clone();
    let service = service_fn(move |request| handle(runtime.clone(), routes.clone(), request));
    metrics::count_requests(metrics, cors.layer(service))
}

async fn handle(
    runtime: Arc<RuntimeState>,
    routes: Arc<RouteTable<Handler>>,
    request: Request<Body>,
) -> HandlerResult {
    let (handler, _params) = routes.find(&request)?;
    match *handler {
        Handler::Probe(route) => runtime.probe.respond(route),
        Handler::Chat => {
            runtime.bearer_auth.check(request.headers())?;
            chat::post(&runtime, request).await
        }
        Handler::Messenger => {
            runtime.bearer_auth.check(request.headers())?;
            messenger::post(&runtime, request).await
        }
    }
}
