//! Agent runtime service: a streaming chat endpoint with a tool loop, and proxies of a messenger and of a coding
//! subscription. It is stateless.

mod chat;
mod coding_auth;
mod coding_chat;
mod messenger;
mod proxy;
mod tools;

use std::sync::Arc;

use agent_client::models::{HostedVendor, OllamaServer};
use agent_core::clock::Clock;
use agent_core::event::OutputLimits;
use agent_core::tool_loop::LoopLimits;
use agent_mcp::client::DiscoveryCache;
use agent_mcp::server::HostGuard;
use http::request;

use crate::auth::BearerAuth;
use crate::endpoint::{self, Authenticate, CredentialClass, Endpoint};
use crate::error::{ErrorFormat, HttpError};
use crate::probe;
use crate::service::HttpService;
use crate::state::{ServiceBase, ServiceState};
use crate::stream::StreamLimits;

pub use chat::PROVIDERS;
pub use coding_auth::{CodingAuth, CodingIssuer};
pub use coding_chat::CodingApi;
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
    /// Model API of the coding subscription, if configured.
    pub coding_api: Option<CodingApi>,
    /// Issuer of the coding subscription's tokens.
    pub coding_issuer: CodingIssuer,
    /// Checks `RUNTIME_SECRET`, if it is set.
    pub bearer_auth: BearerAuth,
    /// Checks `Host` and `Origin`. Required without a secret: a page whose name was rebound to this machine could spend
    /// the operator's key otherwise.
    pub host_guard: Option<HostGuard>,
    /// Tool servers whose protocol revision is known.
    pub discoveries: DiscoveryCache,
    /// Limits of the tool loop.
    pub limits: LoopLimits,
    /// Limits on a run's output.
    pub output: OutputLimits,
    /// Clock for the timeouts of tool calls and the expiry of sign-ins.
    pub clock: Arc<dyn Clock>,
    /// Limits of streamed responses.
    pub stream: StreamLimits,
    /// State and limits of all endpoints.
    pub base: ServiceBase,
}

impl ServiceState for RuntimeState {
    fn base(&self) -> &ServiceBase {
        &self.base
    }
}

/// `RUNTIME_SECRET` as bearer token, if the runtime has one.
#[derive(Clone, Copy)]
struct RuntimeSecret;

impl Authenticate<RuntimeState> for RuntimeSecret {
    const CLASS: CredentialClass = CredentialClass::RuntimeSecret;
    type Verified = ();

    async fn authenticate(self, runtime: &RuntimeState, head: &request::Parts) -> Result<(), HttpError> {
        if let Some(guard) = &runtime.host_guard {
            guard.check(&head.headers).map_err(|_| {
                HttpError::forbidden("without RUNTIME_SECRET, Host and Origin must be this machine's")
            })?;
        }
        Ok(runtime.bearer_auth.check(&head.headers)?)
    }
}

/// Returns all endpoints of the runtime.
pub(crate) fn endpoints() -> Vec<Endpoint<RuntimeState>> {
    let health =
        probe::endpoints(
            |runtime: Arc<RuntimeState>, route| async move { runtime.base.health.respond(route) },
        );
    let device = Endpoint::post(
        "/coding-auth/device",
        RuntimeSecret,
        coding_auth::device,
        coding_auth::describe_device,
    );
    let token =
        Endpoint::post("/coding-auth/token", RuntimeSecret, coding_auth::token, coding_auth::describe_token);
    let refresh = Endpoint::post(
        "/coding-auth/refresh",
        RuntimeSecret,
        coding_auth::refresh,
        coding_auth::describe_refresh,
    );
    let revoke = Endpoint::post(
        "/coding-auth/revoke",
        RuntimeSecret,
        coding_auth::revoke,
        coding_auth::describe_revoke,
    );
    let mut all = vec![
        Endpoint::post("/chat", RuntimeSecret, chat::post, chat::describe),
        Endpoint::post("/coding-chat", RuntimeSecret, coding_chat::post, coding_chat::describe)
            .own_body_limit(CodingApi::body_limit),
        Endpoint::post("/messenger/call", RuntimeSecret, messenger::post, messenger::describe),
    ];
    all.extend(
        [device, token, refresh, revoke].map(|route| route.max_body_bytes(coding_auth::MAX_BODY_BYTES)),
    );
    all.extend(health);
    all
}

/// Creates the runtime's HTTP service.
pub fn service(runtime: Arc<RuntimeState>) -> impl HttpService {
    endpoint::service(runtime, endpoints(), &[crate::mcp::CORS_HEADERS], |_| ErrorFormat::Problem)
}
