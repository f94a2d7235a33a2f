//! Shared state of the runtime's HTTP routes, and their credential.

use std::sync::Arc;

use agent_client::models::{HostedVendor, OllamaServer};
use agent_core::clock::Clock;
use agent_core::event::OutputLimits;
use agent_core::tool_loop::LoopLimits;
use agent_mcp::client::DiscoveryCache;
use agent_mcp::server::HostGuard;
use http::request;

use super::bot_api::BotApi;
use super::coding_api::CodingApi;
use super::coding_issuer::CodingIssuer;
use crate::auth::BearerAuth;
use crate::endpoint::{Authenticate, CredentialClass};
use crate::error::HttpError;
use crate::state::{ServiceBase, ServiceState};
use crate::stream::StreamLimits;

/// Tag of the runtime's operations.
pub(super) const TAG: &str = "runtime";

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
pub(super) struct RuntimeSecret;

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
