//! The application service: chat and management endpoints for agents.

mod agents;
mod answer;
mod assignments;
mod assistants;
mod caps;
mod chat;
mod cron;
mod debug;
mod documents;
mod legacy;
mod mcp;
mod pulse;
mod resource;
mod runs;
mod tokens;

use std::sync::Arc;

use agent_core::turn::Platform;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::token::Tokens;
use futures_util::future::BoxFuture;
use http::{Method, Request};

use crate::auth::Authenticator;
use crate::body::Body;
use crate::cors::{self, Origins};
use crate::metrics;
use crate::probe::{self, HealthState};
use crate::request::{BodyLimits, Route, RouteTable};
use crate::service::{HandlerResult, HttpService, service_fn};
use crate::stream::StreamLimits;

pub(crate) use agents::AgentPage;
pub(crate) use assignments::{AssignmentPage, AssignmentView};
pub use caps::RunRateLimits;
pub(crate) use cron::CronStatus;
pub(crate) use documents::DocumentPage;
pub use mcp::McpEndpoint;
pub(crate) use pulse::{JobPageSchema, PulseStatus};
pub use pulse::{SchedulerLink, SchedulerLinkConfig, run_maintenance};
pub use runs::RunRegistry;
pub(crate) use tokens::{CreatedToken, TokenPage, TokenRequest};

/// Shared state of the application's HTTP routes.
pub struct App {
    /// Runs chat turns.
    pub platform: Platform,
    /// The store of agents (roles).
    pub roles: Arc<dyn RoleStore>,
    /// The store of all other records.
    pub records: Arc<dyn Records>,
    /// Widget and MCP tokens.
    pub tokens: Arc<Tokens>,
    /// Authenticates requests.
    pub auth: Authenticator,
    /// Run ids that have been used.
    pub runs: RunRegistry,
    /// Rate limits of widget tokens.
    pub caps: RunRateLimits,
    /// The MCP server for agents' tools.
    pub tools: McpEndpoint,
    /// The scheduler client, and the state of the scheduler's callback.
    pub pulse: SchedulerLink,
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// Limits on response streams.
    pub stream: StreamLimits,
    /// Health, readiness and metrics endpoints.
    pub probe: HealthState,
    /// Exact origins that may call from a browser with credentials.
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Agents(resource::Route),
    Assignments(resource::Route),
    Pulse(pulse::Route),
    Cron,
    Chat,
    Mcp,
    ToolAudit,
    Documents(resource::Route),
    Tokens(tokens::Route),
    LegacyChat,
    Preview,
    PreviewBody,
    Assistants,
    Probe(probe::HealthRoute),
}

/// Paths that answer a CORS preflight from any origin. The origins of the widget token are checked on the request
/// itself.
const ANY_ORIGIN_PREFLIGHT_PATHS: &[&str] = &[chat::PATH, legacy::PATH];

fn routes() -> RouteTable<Handler> {
    let own = [
        Route::new(Method::POST, chat::PATH, Handler::Chat),
        Route::new(Method::POST, legacy::PATH, Handler::LegacyChat),
        Route::new(Method::GET, debug::DEBUG_PATH, Handler::Preview),
        Route::new(Method::GET, debug::PREVIEW_PATH, Handler::Preview),
        Route::new(Method::POST, debug::PREVIEW_PATH, Handler::PreviewBody),
        Route::new(Method::GET, assistants::STATUS_PATH, Handler::Assistants),
        Route::new(Method::GET, assistants::ACTION_PATH, Handler::Assistants),
        Route::new(Method::POST, assistants::ACTION_PATH, Handler::Assistants),
        Route::new(Method::GET, mcp::PATH, Handler::Mcp).without_head(),
        Route::new(Method::POST, mcp::PATH, Handler::Mcp),
        Route::new(Method::DELETE, mcp::PATH, Handler::Mcp),
        Route::new(Method::GET, mcp::AUDIT_PATH, Handler::ToolAudit),
        Route::new(Method::GET, cron::PATH, Handler::Cron),
    ];
    RouteTable::new(
        own.into_iter()
            .chain(agents::routes(Handler::Agents))
            .chain(tokens::routes(Handler::Tokens))
            .chain(assignments::routes(Handler::Assignments))
            .chain(pulse::routes(Handler::Pulse))
            .chain(documents::routes(Handler::Documents))
            .chain(probe::routes(Handler::Probe)),
    )
}

/// Returns the methods and patterns of all routes, for comparison with the OpenAPI description.
#[cfg(test)]
pub(crate) fn route_patterns() -> Vec<(Method, &'static str)> {
    routes().routes().map(|route| (route.method.clone(), route.pattern)).collect()
}

/// Creates the application's HTTP service.
pub fn service(app: Arc<App>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(app.origins.clone(), ANY_ORIGIN_PREFLIGHT_PATHS, crate::mcp::CORS_HEADERS);
    let routes = Arc::new(routes());
    let metrics = app.probe.metrics().clone();
    let service = service_fn(move |request| handle(app.clone(), routes.clone(), request));
    metrics::count_requests(metrics, cors.layer(service))
}

async fn handle(app: Arc<App>, routes: Arc<RouteTable<Handler>>, request: Request<Body>) -> HandlerResult {
    let (handler, params) = routes.find(&request)?;
    // Boxed per handler, so that the future of a request is not as large as that of the largest handler.
    let answer: BoxFuture<'_, HandlerResult> = match *handler {
        Handler::Agents(route) => Box::pin(agents::handle(&app, route, &params, request)),
        Handler::Assignments(route) => Box::pin(assignments::answer(&app, route, &params, request)),
        Handler::Pulse(route) => Box::pin(pulse::answer(&app, route, &params, request)),
        Handler::Cron => Box::pin(cron::get(&app, request)),
        Handler::Documents(route) => Box::pin(documents::answer(&app, route, &params, request)),
        Handler::Tokens(route) => Box::pin(tokens::answer(&app, route, &params, request)),
        Handler::Chat => Box::pin(chat::post(&app, request)),
        Handler::Mcp => Box::pin(mcp::serve(&app, request)),
        Handler::ToolAudit => Box::pin(mcp::audit(&app, request)),
        Handler::LegacyChat => Box::pin(legacy::post(&app, request)),
        Handler::Preview => Box::pin(debug::get(&app, request)),
        Handler::PreviewBody => Box::pin(debug::post(&app, request)),
        Handler::Assistants => Box::pin(assistants::answer(&app, request)),
        Handler::Probe(route) => return app.probe.respond(route),
    };
    answer.await
}
