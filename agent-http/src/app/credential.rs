//! Authentication for the application's credential classes.

use agent_core::request::Principal;
use agent_platform::pulse::PulseError;
use http::request;

use super::App;
use crate::auth::{ApiClient, BearerAuth, Credential, HeadCredential};
use crate::endpoint::{Authenticate, CredentialClass};
use crate::error::HttpError;
use crate::request::Query;
use crate::state::RequestSender;
use crate::stream::{Framing, negotiate};

/// Session of a signed-in user. The field makes the error for another valid credential.
#[derive(Clone, Copy)]
pub(super) struct UserSession(pub(super) fn() -> HttpError);

impl Authenticate<App> for UserSession {
    const CLASS: CredentialClass = CredentialClass::Session;
    type Verified = Principal;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<Principal, HttpError> {
        let principal = QuerySession(self.0).authenticate(app, head).await?;
        if !head.method.is_safe() {
            app.rate_limiter.count_session_change(&principal).await?;
        }
        Ok(principal)
    }

    fn sender(principal: &Principal) -> Option<RequestSender<'_>> {
        Some(RequestSender::of(principal))
    }
}

/// Session of a signed-in user, for requests that may wait for the extraction of a text.
#[derive(Clone, Copy)]
pub(super) struct WaitingSession(pub(super) UserSession);

impl Authenticate<App> for WaitingSession {
    const CLASS: CredentialClass = CredentialClass::Session;
    const AWAITS_WORK: bool = true;
    type Verified = Principal;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<Principal, HttpError> {
        self.0.authenticate(app, head).await
    }

    fn sender(principal: &Principal) -> Option<RequestSender<'_>> {
        Some(RequestSender::of(principal))
    }
}

/// Session of a signed-in user, for requests that change nothing although their method is `POST`. Contains the error
/// for other valid credentials.
#[derive(Clone, Copy)]
pub(super) struct QuerySession(pub(super) fn() -> HttpError);

impl Authenticate<App> for QuerySession {
    const CLASS: CredentialClass = CredentialClass::Session;
    type Verified = Principal;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<Principal, HttpError> {
        match app.auth.authenticate(head, &Query::from_uri(&head.uri)).await? {
            Credential::Session(principal) => Ok(principal),
            Credential::Widget(_) | Credential::Proactive { .. } => Err((self.0)()),
        }
    }

    fn sender(principal: &Principal) -> Option<RequestSender<'_>> {
        Some(RequestSender::of(principal))
    }
}

/// Session of a signed-in user, or widget token of a visitor with a key, for resources that either can own.
#[derive(Clone, Copy)]
pub(super) struct SessionOrVisitor;

impl Authenticate<App> for SessionOrVisitor {
    const CLASS: CredentialClass = CredentialClass::SessionOrVisitor;
    type Verified = Principal;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<Principal, HttpError> {
        let is_change = !head.method.is_safe();
        match app.auth.authenticate(head, &Query::from_uri(&head.uri)).await? {
            Credential::Session(principal) => {
                if is_change {
                    app.rate_limiter.count_session_change(&principal).await?;
                }
                Ok(principal)
            }
            Credential::Widget(visitor) if visitor.key_hash.is_some() => {
                if is_change {
                    app.rate_limiter.count_visitor_change(&visitor).await?;
                }
                Ok(visitor.principal())
            }
            Credential::Widget(_) => Err(HttpError::forbidden("a visitor needs the header X-Visitor-Key")),
            Credential::Proactive { .. } => Err(HttpError::forbidden("a user's session is required")),
        }
    }

    fn sender(principal: &Principal) -> Option<RequestSender<'_>> {
        Some(RequestSender::of(principal))
    }
}

/// Session of a signed-in user who previews a chat request. The handler checks that the body contains no further
/// credential.
#[derive(Clone, Copy)]
pub(super) struct PreviewSession;

impl Authenticate<App> for PreviewSession {
    const CLASS: CredentialClass = CredentialClass::Session;
    type Verified = HeadCredential;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<HeadCredential, HttpError> {
        match app.auth.authenticate_head(head, &Query::from_uri(&head.uri)).await? {
            HeadCredential::Cookie(Err(error)) => Err(error.into()),
            HeadCredential::Explicit(Credential::Widget(_) | Credential::Proactive { .. }) => {
                Err(session_needed())
            }
            session => Ok(session),
        }
    }

    fn sender(credential: &HeadCredential) -> Option<RequestSender<'_>> {
        credential.sender()
    }
}

/// Credential of a chat request. The handler completes it, since a widget token may be in the body.
#[derive(Clone, Copy)]
pub(super) struct ChatCredential;

/// Authenticated head of a chat request.
pub(super) struct ChatHead {
    /// Format of the response. It is negotiated first, so that 406 takes precedence over 401.
    pub(super) framing: Framing,
    /// Credential in the head.
    pub(super) credential: HeadCredential,
}

impl Authenticate<App> for ChatCredential {
    const CLASS: CredentialClass = CredentialClass::SessionOrWidgetOrProactive;
    const AWAITS_WORK: bool = true;
    type Verified = ChatHead;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<ChatHead, HttpError> {
        let query = Query::from_uri(&head.uri);
        let framing = negotiate(&head.headers, query.get("format")?)?;
        let credential = app.auth.authenticate_head(head, &query).await?;
        Ok(ChatHead { framing, credential })
    }

    fn is_authenticated(head: &ChatHead) -> bool {
        !matches!(head.credential, HeadCredential::Cookie(Err(_)))
    }

    fn sender(head: &ChatHead) -> Option<RequestSender<'_>> {
        head.credential.sender()
    }
}

/// MCP token, which the MCP server verifies itself: after `Host` and `Origin`, and before it reads the body.
#[derive(Clone, Copy)]
pub(super) struct McpToken;

impl Authenticate<App> for McpToken {
    const CLASS: CredentialClass = CredentialClass::McpToken;
    type Verified = ();

    async fn authenticate(self, _: &App, _: &request::Parts) -> Result<(), HttpError> {
        Ok(())
    }

    fn is_authenticated((): &()) -> bool {
        false
    }
}

/// API token of a user, for the endpoints of OpenAI's API.
#[derive(Clone, Copy)]
pub(super) struct ApiToken;

impl Authenticate<App> for ApiToken {
    const CLASS: CredentialClass = CredentialClass::ApiToken;
    const AWAITS_WORK: bool = true;
    type Verified = ApiClient;

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<ApiClient, HttpError> {
        Ok(app.auth.authenticate_api(head).await?)
    }

    fn sender(client: &ApiClient) -> Option<RequestSender<'_>> {
        Some(RequestSender { company_id: &client.company_id, is_visitor: false })
    }
}

/// `CRON_SECRET` as bearer token.
#[derive(Clone, Copy)]
pub(super) struct CronSecret;

impl Authenticate<App> for CronSecret {
    const CLASS: CredentialClass = CredentialClass::CronSecret;
    type Verified = ();

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<(), HttpError> {
        let bearer_auth = app.pulse.cron.as_ref().ok_or_else(|| HttpError::not_configured("CRON_SECRET"))?;
        Ok(bearer_auth.check(&head.headers)?)
    }
}

/// `PULSE_SECRET` as bearer token. The handler verifies the signature, which covers the body.
#[derive(Clone, Copy)]
pub(super) struct SchedulerCallback;

impl Authenticate<App> for SchedulerCallback {
    const CLASS: CredentialClass = CredentialClass::SchedulerCallback;
    type Verified = ();

    async fn authenticate(self, app: &App, head: &request::Parts) -> Result<(), HttpError> {
        app.pulse.client()?;
        let mut secrets = app.pulse.secrets.iter().cloned();
        let secret = secrets.next().ok_or(PulseError::NotConfigured)?;
        Ok(BearerAuth::with_previous(secret, secrets.next()).check(&head.headers)?)
    }
}

/// Returns the error for a valid credential that is not a session.
pub(super) fn session_needed() -> HttpError {
    HttpError::forbidden("a session is required")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthError;

    #[test]
    fn a_credential_that_the_handler_verifies_does_not_count_before() {
        let is_authenticated = |credential| {
            let head = ChatHead { framing: Framing::Json, credential };
            <ChatCredential as Authenticate<App>>::is_authenticated(&head)
        };
        let proactive = || Credential::Proactive { reason: "daily".to_owned() };
        assert!(!is_authenticated(HeadCredential::Cookie(Err(AuthError::Unauthenticated))));
        assert!(is_authenticated(HeadCredential::Cookie(Ok(proactive()))));
        assert!(is_authenticated(HeadCredential::Explicit(proactive())));
        assert!(!<McpToken as Authenticate<App>>::is_authenticated(&()));
        assert!(<CronSecret as Authenticate<App>>::is_authenticated(&()));
    }
}
