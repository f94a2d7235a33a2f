//! Agent runtime service: a streaming chat endpoint with a tool loop, and a messenger proxy. It is stateless.

mod chat;
mod messenger;
mod tools;

use std::sync::Arc;

use agent_client::models::{HostedVendor, OllamaServer};
use agent_core::clock::Clock;
use agent_core::tool_loop::LoopLimits;
use agent_mcp::client::DiscoveryCache;
use http::request;

use crate::auth::BearerAuth;
use crate::cors::Origins;
use crate::endpoint::{self, Authenticate, CredentialClass, Endpoint, ServiceState};
use crate::error::HttpError;
use crate::metrics::Metrics;
use crate::probe::{self, HealthState};
use crate::request::BodyLimits;
use crate::service::HttpService;
use crate::stream::StreamLimits;

pub use chat::PROVIDERS;
pub use messenger::BotApi;

/// Tag of the runtime's operations.
const TAG: &str = "runtime";

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
    /// Tool servers whose protocol revision is known.
    pub discoveries: DiscoveryCache,
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

impl ServiceState for RuntimeState {
    fn body_limits(&self) -> &BodyLimits {
        &self.body
    }

    fn json_depth(&self) -> usize {
        self.json_depth
    }

    fn origins(&self) -> &Origins {
        &self.origins
    }

    fn metrics(&self) -> &Arc<Metrics> {
        self.probe.metrics()
    }
}

/// `RUNTIME_SECRET` as bearer token, if the runtime has one.
#[derive(Clone, Copy)]
struct RuntimeSecret;

impl Authenticate<RuntimeState> for RuntimeSecret {
    const CLASS: CredentialClass = CredentialClass::RuntimeSecret;
    type Verified = ();

    async fn authenticate(self, runtime: &RuntimeState, head: &request::Parts) -> Result<(), HttpError> {
        Ok(runtime.bearer_auth.check(&head.headers)?)
    }
}

/// Returns all endpoints of the runtime.
pub(crate) fn endpoints() -> Vec<Endpoint<RuntimeState>> {
    let health =
        probe::endpoints(|runtime: Arc<RuntimeState>, route| async move { runtime.probe.respond(route) });
    let mut all = vec![
        Endpoint::post("/chat", RuntimeSecret, chat::post, chat::describe),
        Endpoint::post("/messenger/call", RuntimeSecret, messenger::post, messenger::describe),
    ];
    all.extend(health);
    all
}

/// Creates the runtime's HTTP service.
pub fn service(runtime: Arc<RuntimeState>) -> impl HttpService {
    endpoint::service(runtime, endpoints(), crate::mcp::CORS_HEADERS)
}
