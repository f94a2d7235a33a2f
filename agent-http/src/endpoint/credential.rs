//! Credential classes of endpoints.

use std::future::Future;

use http::request;
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::state::RequestSender;

/// Credential that an endpoint requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialClass {
    /// No credential is required.
    Public,
    /// Session of a signed-in user.
    Session,
    /// Session of a signed-in user, or widget token of a visitor with a key.
    SessionOrVisitor,
    /// Session of a signed-in user, widget token of a visitor, or internal secret of a proactive call.
    SessionOrWidgetOrProactive,
    /// `INTERNAL_SECRET` of the application.
    InternalSecret,
    /// MCP token of an agent.
    McpToken,
    /// API token of a user, as bearer token.
    ApiToken,
    /// `CRON_SECRET` of the application.
    CronSecret,
    /// `PULSE_SECRET`, and the scheduler's signature of the body.
    SchedulerCallback,
    /// `PULSE_SECRET` of the scheduler.
    PulseSecret,
    /// `RUNTIME_SECRET` of the runtime, if it is set.
    RuntimeSecret,
}

impl CredentialClass {
    /// Returns true if every request with the credential may continue the trace that its headers name. The handlers of the
    /// other classes decide this once they know the caller.
    pub(super) fn may_continue_trace(self) -> bool {
        match self {
            Self::Session
            | Self::InternalSecret
            | Self::ApiToken
            | Self::CronSecret
            | Self::PulseSecret
            | Self::RuntimeSecret => true,
            Self::Public
            | Self::SessionOrVisitor
            | Self::SessionOrWidgetOrProactive
            | Self::McpToken
            | Self::SchedulerCallback => false,
        }
    }

    /// Returns true if requests with the credential are counted for a company, so that they may be answered with 429.
    pub(super) fn counts_requests(self) -> bool {
        matches!(
            self,
            Self::Session | Self::SessionOrVisitor | Self::SessionOrWidgetOrProactive | Self::ApiToken
        )
    }

    /// Returns the OpenAPI security requirement: the schemes; one of them is needed. An empty object allows requests
    /// without a credential.
    pub(super) fn security_requirement(self) -> Value {
        match self {
            Self::Public => json!([]),
            Self::Session => json!([{"session": []}, {"sessionCookie": []}]),
            Self::SessionOrVisitor => {
                json!([{"session": []}, {"sessionCookie": []}, {"widgetToken": [], "visitorKey": []}])
            }
            Self::SessionOrWidgetOrProactive => {
                json!([{"session": []}, {"sessionCookie": []}, {"widgetToken": []}, {"internal": []}])
            }
            Self::InternalSecret => json!([{"internal": []}]),
            Self::McpToken => json!([{"mcpToken": []}]),
            Self::ApiToken => json!([{"apiToken": []}]),
            Self::CronSecret => json!([{"cronSecret": []}]),
            Self::SchedulerCallback | Self::PulseSecret => json!([{"pulseSecret": []}]),
            Self::RuntimeSecret => json!([{}, {"runtimeSecret": []}]),
        }
    }
}

/// Authentication of requests to a service with the state `S`, from the request head alone.
///
/// A service implements it for the credential classes that it can verify, so that an endpoint with any other class
/// does not compile.
pub(crate) trait Authenticate<S>: Copy + Send + Sync + 'static {
    /// The credential class.
    const CLASS: CredentialClass;

    /// True for requests with an effect that wait for a run or an extraction: they are counted while their bodies and responses
    /// are transferred, not while the work lasts.
    const AWAITS_WORK: bool = false;

    /// Result of the verification, which the handler gets.
    type Verified: Send;

    /// Verifies the credential before the body is read.
    fn authenticate(
        self,
        state: &S,
        head: &request::Parts,
    ) -> impl Future<Output = Result<Self::Verified, HttpError>> + Send;

    /// Returns true if the sender is authenticated; false for a credential that the handler has yet to verify.
    fn is_authenticated(_verified: &Self::Verified) -> bool {
        Self::CLASS != CredentialClass::Public
    }

    /// Returns the sender that the request is counted for; `None` if it is not counted, or if the sender is known only from
    /// the body.
    fn sender(_verified: &Self::Verified) -> Option<RequestSender<'_>> {
        None
    }
}

/// Endpoint without a credential.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Public;

impl<S: Sync> Authenticate<S> for Public {
    const CLASS: CredentialClass = CredentialClass::Public;
    type Verified = ();

    async fn authenticate(self, _: &S, _: &request::Parts) -> Result<(), HttpError> {
        Ok(())
    }
}
