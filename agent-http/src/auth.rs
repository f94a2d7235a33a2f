//! Authentication: derives a verified credential from the request head, before the body is read.
//!
//! Three kinds of credential are explicit: a bearer token in `Authorization` (a session token or, with
//! `X-Proactive-Trigger`, the internal secret) and a widget token. A request with two of them is rejected, since
//! another component might check the other one and reach a different result. Browsers attach the cookie `agent_session` to
//! every request, so it counts only without an explicit credential and only from our own pages: an `Origin` must be our own,
//! and a request whose method is not safe must have one.
//!
//! A widget token may also be in the body, hence two steps: `Authenticator::authenticate_head` checks the head, and
//! `Authenticator::resolve_with_body` combines the result with the tokens in the body. An explicit credential in the
//! head is accepted or rejected before the body is read.
//!
//! The endpoints of OpenAI's API accept API tokens alone, by `Authenticator::authenticate_api`, and no other endpoint
//! does.
//!
//! An invalid credential is a 401 without a reason, so that an attacker does not learn which part of a forged token
//! was correct.

mod api;
mod console;
mod error;
mod headers;
mod session;
#[cfg(test)]
mod tests;
mod widget;

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_platform::token::Tokens;
use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use http::{HeaderMap, request};
use subtle::ConstantTimeEq;
use url::{Origin, Url};

use crate::request::Query;
use crate::state::RequestSender;

pub use api::ApiClient;
pub use console::ConsoleAuth;
pub(crate) use console::check_site;
pub use error::AuthError;
pub(crate) use headers::{
    PROACTIVE_TRIGGER_HEADER, VISITOR_KEY_HEADER, WIDGET_PARAMETER, WIDGET_TOKEN_HEADER,
};
pub use session::{MintError, mint_session};
pub use widget::Visitor;

use error::MAX_REASON_BYTES;
use headers::{bearer_token, cookie, single_header};

/// Name of the session cookie.
pub const SESSION_COOKIE: &str = "agent_session";

/// Verified credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Session of a signed-in user.
    Session(Principal),
    /// Visitor of a page that embeds an agent.
    Widget(Visitor),
    /// The system itself. The body names the user on whose behalf it acts, and the agent's company must match.
    Proactive {
        /// Reason of the call.
        reason: String,
    },
}

/// Result of checking the credentials in a request head.
#[derive(Debug)]
pub(crate) enum HeadCredential {
    /// Verified explicit credential.
    Explicit(Credential),
    /// No explicit credential: the result of checking the cookie. A credential in the body takes precedence.
    Cookie(Result<Credential, AuthError>),
}

impl HeadCredential {
    /// Returns the sender with a verified credential; `None` if it has no company, as in a proactive call.
    pub(crate) fn sender(&self) -> Option<RequestSender<'_>> {
        match self {
            Self::Explicit(Credential::Session(principal))
            | Self::Cookie(Ok(Credential::Session(principal))) => Some(RequestSender::of(principal)),
            Self::Explicit(Credential::Widget(visitor)) | Self::Cookie(Ok(Credential::Widget(visitor))) => {
                Some(RequestSender { company_id: &visitor.company_id, is_visitor: true })
            }
            Self::Explicit(Credential::Proactive { .. })
            | Self::Cookie(Ok(Credential::Proactive { .. }) | Err(_)) => None,
        }
    }
}

/// Verifies the credentials of requests to the application server.
#[derive(Debug)]
pub struct Authenticator {
    sessions: Option<session::SessionVerifier>,
    internal: Option<Secret>,
    widgets: Option<widget::WidgetVerifier>,
    api: Option<api::ApiVerifier>,
    console: Option<Arc<ConsoleAuth>>,
    /// Origin of the service's own pages, if configured.
    own_origin: Option<Origin>,
}

impl Authenticator {
    /// Creates an authenticator with `SESSION_SECRET` and `INTERNAL_SECRET`. A credential whose secret is missing is
    /// answered with 503.
    ///
    /// Cookies are accepted from the origin of `public_url`; without it, from the origin whose host equals the
    /// request's own `Host`.
    pub fn new(
        session_secret: Option<&Secret>,
        internal_secret: Option<Secret>,
        public_url: Option<&Url>,
    ) -> Self {
        Self {
            sessions: session_secret.map(session::SessionVerifier::new),
            internal: internal_secret,
            widgets: None,
            api: None,
            console: None,
            own_origin: public_url.map(Url::origin),
        }
    }

    /// Accepts widget and API tokens. Without this, every one of them is invalid.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<Tokens>) -> Self {
        let api = Some(api::ApiVerifier::new(tokens.clone()));
        Self { widgets: Some(widget::WidgetVerifier::new(tokens)), api, ..self }
    }

    /// Accepts the console's sessions.
    #[must_use]
    pub fn with_console(self, console: Arc<ConsoleAuth>) -> Self {
        Self { console: Some(console), ..self }
    }

    /// Finds and verifies the credential of a request whose body cannot contain one.
    ///
    /// # Errors
    ///
    /// Every [`AuthError`].
    pub async fn authenticate(
        &self,
        head: &request::Parts,
        query: &Query<'_>,
    ) -> Result<Credential, AuthError> {
        let presented = self.authenticate_head(head, query).await?;
        self.resolve_with_body(presented, head, &[]).await
    }

    /// Verifies the API token of a request, which must have no other explicit credential. Cookies do not count.
    ///
    /// # Errors
    ///
    /// [`AuthError::Unauthenticated`], [`AuthError::Ambiguous`] and [`AuthError::Store`].
    pub(crate) async fn authenticate_api(&self, head: &request::Parts) -> Result<ApiClient, AuthError> {
        let bearer = single_header(&head.headers, &AUTHORIZATION)?;
        let text = bearer.and_then(bearer_token).ok_or(AuthError::Unauthenticated)?;
        let other_credentials = [&PROACTIVE_TRIGGER_HEADER, &WIDGET_TOKEN_HEADER];
        if other_credentials.into_iter().any(|name| head.headers.contains_key(name)) {
            return Err(AuthError::Ambiguous);
        }
        self.api.as_ref().ok_or(AuthError::Unauthenticated)?.verify(text).await
    }

    /// Finds and verifies the credential in a request head.
    ///
    /// # Errors
    ///
    /// Every [`AuthError`] of an explicit credential; the error of a cookie is returned in [`HeadCredential::Cookie`].
    pub(crate) async fn authenticate_head(
        &self,
        head: &request::Parts,
        query: &Query<'_>,
    ) -> Result<HeadCredential, AuthError> {
        let bearer = single_header(&head.headers, &AUTHORIZATION)?;
        let trigger = single_header(&head.headers, &PROACTIVE_TRIGGER_HEADER)?;
        let widget = single_header(&head.headers, &WIDGET_TOKEN_HEADER)?;
        // A repeated parameter is a repeated credential.
        let parameter = query.get(WIDGET_PARAMETER).map_err(|_| AuthError::Ambiguous)?;
        // A header that is not text is an invalid token.
        let widget = widget.map(|widget| widget.to_str().unwrap_or_default());
        let explicit = match (bearer, trigger, widget, parameter) {
            (None, None, None, None) => return Ok(HeadCredential::Cookie(self.check_cookies(head).await)),
            (Some(bearer), None, None, None) => self.check_session(bearer_token(bearer)),
            (bearer, Some(trigger), None, None) => self.check_proactive(bearer, trigger),
            (None, None, Some(text), None) | (None, None, None, Some(text)) => {
                self.check_widget(text, &head.headers).await
            }
            _ => Err(AuthError::Ambiguous),
        };
        explicit.map(HeadCredential::Explicit)
    }

    /// Combines the result for a request head with the widget tokens in the body.
    ///
    /// # Errors
    ///
    /// Returns [`AuthError::Ambiguous`] for more than one explicit credential; otherwise the error of the single one.
    pub(crate) async fn resolve_with_body(
        &self,
        presented: HeadCredential,
        head: &request::Parts,
        in_body: &[Secret],
    ) -> Result<Credential, AuthError> {
        match (presented, in_body) {
            (HeadCredential::Explicit(credential), []) => Ok(credential),
            (HeadCredential::Cookie(result), []) => result,
            (HeadCredential::Cookie(_), [text]) => self.check_widget(text.expose(), &head.headers).await,
            _ => Err(AuthError::Ambiguous),
        }
    }

    async fn check_widget(&self, text: &str, headers: &HeaderMap) -> Result<Credential, AuthError> {
        let widgets = self.widgets.as_ref().ok_or(AuthError::Unauthenticated)?;
        widgets.verify(text, headers).await.map(Credential::Widget)
    }

    fn check_session(&self, token: Option<&str>) -> Result<Credential, AuthError> {
        let sessions = self.sessions.as_ref().ok_or(AuthError::NotConfigured("SESSION_SECRET"))?;
        let principal = token.and_then(|token| sessions.verify(token));
        principal.map(Credential::Session).ok_or(AuthError::Unauthenticated)
    }

    fn check_proactive(
        &self,
        bearer: Option<&HeaderValue>,
        trigger: &HeaderValue,
    ) -> Result<Credential, AuthError> {
        let secret = self.internal.as_ref().ok_or(AuthError::NotConfigured("INTERNAL_SECRET"))?;
        let token = bearer.and_then(bearer_token).ok_or(AuthError::Unauthenticated)?;
        if !constant_time_eq(secret, token.as_bytes()) {
            return Err(AuthError::Unauthenticated);
        }
        let reason = trigger.to_str().ok().and_then(parse_trigger_reason).ok_or(AuthError::InvalidReason)?;
        Ok(Credential::Proactive { reason })
    }

    /// Checks the console's cookie, and the session's without a valid one of the console.
    async fn check_cookies(&self, head: &request::Parts) -> Result<Credential, AuthError> {
        if let Some(console) = &self.console {
            let is_own_origin = self.own_origin_of(&head.headers);
            if let Some(principal) = console.verify(head, is_own_origin).await? {
                return Ok(Credential::Session(principal));
            }
        }
        self.check_cookie(head)
    }

    /// Returns true if the request's `Origin` is one of the service's own pages, `None` if there is no `Origin`.
    pub(crate) fn own_origin_of(&self, headers: &HeaderMap) -> Option<bool> {
        headers.contains_key(ORIGIN).then(|| self.is_same_origin(headers))
    }

    /// Checks that a request has the internal secret as bearer token.
    ///
    /// # Errors
    ///
    /// [`AuthError::Unauthenticated`], [`AuthError::Ambiguous`], or [`AuthError::NotConfigured`] without a secret.
    pub(crate) fn check_internal(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let secret = self.internal.clone().ok_or(AuthError::NotConfigured("INTERNAL_SECRET"))?;
        BearerAuth::new(Some(secret)).check(headers)
    }

    fn check_cookie(&self, head: &request::Parts) -> Result<Credential, AuthError> {
        let Some(token) = cookie(&head.headers, SESSION_COOKIE)? else {
            return Err(AuthError::Unauthenticated);
        };
        // Browsers send `Origin` with every request that can change something, and omit it from same-origin reads and
        // from links.
        let needs_origin = !head.method.is_safe() || head.headers.contains_key(ORIGIN);
        if needs_origin && !self.is_same_origin(&head.headers) {
            return Err(AuthError::CrossOrigin);
        }
        self.check_session(Some(token))
    }

    /// Returns true if `Origin` is one of the service's own pages.
    fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        let Ok(Some(origin)) = single_header(headers, &ORIGIN) else { return false };
        let Some(origin) = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()) else {
            return false;
        };
        if let Some(own_origin) = &self.own_origin {
            return origin.origin() == *own_origin;
        }
        // The request's scheme is unknown behind a proxy, so the origin's scheme is assumed.
        let Ok(Some(host)) = single_header(headers, &HOST) else { return false };
        let host =
            host.to_str().ok().and_then(|host| Url::parse(&format!("{}://{host}", origin.scheme())).ok());
        host.is_some_and(|host| origin.origin().is_tuple() && host.origin() == origin.origin())
    }
}

/// Authentication by a shared secret as bearer token, if the service has one.
#[derive(Debug, Clone)]
pub struct BearerAuth {
    /// Accepted secrets. If empty, every request passes.
    secrets: Vec<Secret>,
}

impl BearerAuth {
    /// Creates the authentication by `secret`. Without one every request passes: a service without a secret listens on
    /// loopback only.
    pub fn new(secret: Option<Secret>) -> Self {
        Self { secrets: secret.into_iter().collect() }
    }

    /// Creates the authentication by `secret` and, during a rotation, the previous one.
    pub fn with_previous(secret: Secret, previous: Option<Secret>) -> Self {
        Self { secrets: std::iter::once(secret).chain(previous).collect() }
    }

    /// Checks the `Authorization` header.
    ///
    /// # Errors
    ///
    /// Returns [`AuthError::Unauthenticated`] for a missing or wrong token, and [`AuthError::Ambiguous`] for a
    /// repeated header.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        let token = single_header(headers, &AUTHORIZATION)?.and_then(bearer_token);
        let is_accepted =
            |token: &str| self.secrets.iter().any(|secret| constant_time_eq(secret, token.as_bytes()));
        if token.is_some_and(is_accepted) { Ok(()) } else { Err(AuthError::Unauthenticated) }
    }
}

/// Returns the trimmed reason of a proactive call; `None` if `text` is not a valid one.
pub(crate) fn parse_trigger_reason(text: &str) -> Option<String> {
    let text = text.trim();
    let is_printable = text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    (is_printable && !text.is_empty() && text.len() <= MAX_REASON_BYTES).then(|| text.to_owned())
}

/// Returns true if `presented` equals the secret, in a time that does not depend on where they differ.
///
/// The length is not hidden: our secrets are random, and their length is public.
fn constant_time_eq(secret: &Secret, presented: &[u8]) -> bool {
    secret.expose().as_bytes().ct_eq(presented).into()
}
