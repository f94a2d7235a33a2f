//! Who asks: from a request's head to a credential, before its body is read.
//!
//! Three kinds of credential are explicit: a bearer in `Authorization` (a session token, or, beside
//! `X-Proactive-Trigger`, the internal secret) and a widget token. A request with two of them is refused
//! rather than guessed at, since whoever checks the other one would come to another answer. The cookie
//! `agent_session` comes along by itself, so it counts only where nothing explicit is there, and, for
//! whatever may change something, only from our own pages.
//!
//! A widget token may also stand in the body, which is why there are two steps: [`Authenticator::presented`]
//! says what the head holds, and [`Authenticator::settle`] adds what the body does. A head with an explicit
//! credential is good or refused before the body is read.
//!
//! A refused credential is a 401 that says nothing of the reason: which part of a forged token was right is
//! none of its maker's business.

pub(crate) mod hmac;
mod session;
#[cfg(test)]
mod tests;
mod widget;

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_platform::records::StoreError;
use agent_platform::token::Tokens;
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, request};
use url::{Origin, Url};

use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::secret;

pub use session::{MintError, mint_session};
pub use widget::Visitor;

/// The session's cookie.
pub const SESSION_COOKIE: &str = "agent_session";

/// The widget token's header.
pub const WIDGET_TOKEN: HeaderName = HeaderName::from_static("x-widget-token");

/// The widget token's parameter in the query.
pub const WIDGET_PARAMETER: &str = "widgetToken";

/// What makes a call a proactive one; its value is the reason.
pub const PROACTIVE_TRIGGER: HeaderName = HeaderName::from_static("x-proactive-trigger");

/// The longest reason of a proactive call, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// A credential that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A signed-in user.
    Session(Principal),
    /// A visitor of a page that embeds an agent.
    Widget(Visitor),
    /// The system itself. For whom it acts the body must say, and the agent's company must agree.
    Proactive {
        /// Why.
        reason: String,
    },
}

/// What a request's head says of who asks.
#[derive(Debug)]
pub enum Presented {
    /// An explicit credential, which holds.
    Explicit(Credential),
    /// Nothing explicit: what came of the cookie, if there is one. A credential in the body beats it.
    Implied(Result<Credential, AuthError>),
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// No credential, or none that holds.
    #[error("a valid credential is needed")]
    Unauthenticated,
    /// More than one explicit credential, or one twice.
    #[error("exactly one credential may be given")]
    Ambiguous,
    /// A session cookie on a request that may change something and does not come from our own page.
    #[error("a request with a session cookie must come from the application's own origin")]
    CrossOrigin,
    /// The reason of a proactive call is blank, too long, or not printable ASCII.
    #[error("x-proactive-trigger must be a reason of at most {MAX_REASON_BYTES} printable characters")]
    InvalidReason,
    /// A widget token on a page that it is not for, or on none where it is bound to pages.
    #[error("this widget token is not for pages of this origin")]
    WrongOrigin,
    /// The setting that such a credential is checked with is missing.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
    /// The tokens cannot be read.
    #[error("the credential cannot be checked")]
    Store(#[source] StoreError),
}

impl From<AuthError> for HttpError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Unauthenticated => Self::unauthenticated(error.to_string()),
            AuthError::Ambiguous => Self::new(Code::AmbiguousCredentials, error.to_string()),
            AuthError::CrossOrigin => Self::forbidden(error.to_string()),
            AuthError::WrongOrigin => Self::forbidden(error.to_string()).withhold(),
            AuthError::InvalidReason => Self::new(Code::InvalidRequest, error.to_string()),
            AuthError::NotConfigured(setting) => Self::not_configured(setting),
            AuthError::Store(error) => Self::internal(error),
        }
    }
}

/// Checks the credentials of the application's callers.
#[derive(Debug)]
pub struct Authenticator {
    sessions: Option<session::Verifier>,
    internal: Option<Secret>,
    widgets: Option<widget::Widgets>,
    /// The origin of our own pages, where the operator has named it.
    own: Option<Origin>,
}

impl Authenticator {
    /// An authenticator under `SESSION_SECRET` and `INTERNAL_SECRET`; what is missing is answered 503.
    ///
    /// Cookies are taken from the origin of `public_url`; where that is not set, from the origin whose host
    /// is the request's own `Host`.
    pub fn new(
        session_secret: Option<&Secret>,
        internal_secret: Option<Secret>,
        public_url: Option<&Url>,
    ) -> Self {
        Self {
            sessions: session_secret.map(session::Verifier::new),
            internal: internal_secret,
            widgets: None,
            own: public_url.map(Url::origin),
        }
    }

    /// Lets visitors with widget tokens in. Without it, there is no valid one.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<Tokens>) -> Self {
        Self { widgets: Some(widget::Widgets::new(tokens)), ..self }
    }

    /// Finds and checks the one credential of a request whose body can hold none.
    ///
    /// # Errors
    ///
    /// Every [`AuthError`].
    pub async fn authenticate(
        &self,
        head: &request::Parts,
        query: &Query<'_>,
    ) -> Result<Credential, AuthError> {
        let presented = self.presented(head, query).await?;
        self.settle(presented, head, &[]).await
    }

    /// Finds and checks the one credential of a request's head.
    ///
    /// # Errors
    ///
    /// Every [`AuthError`] of an explicit credential; what is wrong with a cookie is in
    /// [`Presented::Implied`].
    pub async fn presented(&self, head: &request::Parts, query: &Query<'_>) -> Result<Presented, AuthError> {
        let bearer = single(&head.headers, &AUTHORIZATION)?;
        let trigger = single(&head.headers, &PROACTIVE_TRIGGER)?;
        let widget = single(&head.headers, &WIDGET_TOKEN)?;
        // The error of a parameter that is given twice is a credential given twice.
        let parameter = query.get(WIDGET_PARAMETER).map_err(|_| AuthError::Ambiguous)?;
        // A header that is no text is no token either.
        let widget = widget.map(|widget| widget.to_str().unwrap_or_default());
        let explicit = match (bearer, trigger, widget, parameter) {
            (None, None, None, None) => return Ok(Presented::Implied(self.check_cookie(head))),
            (Some(bearer), None, None, None) => self.check_session(bearer_token(bearer)),
            (bearer, Some(trigger), None, None) => self.check_proactive(bearer, trigger),
            (None, None, Some(text), None) | (None, None, None, Some(text)) => {
                self.check_widget(text, &head.headers).await
            }
            _ => Err(AuthError::Ambiguous),
        };
        explicit.map(Presented::Explicit)
    }

    /// Chooses between what the head of a request holds and the widget tokens in its body.
    ///
    /// # Errors
    ///
    /// [`AuthError::Ambiguous`] for more than one explicit credential; what is wrong with the one.
    pub async fn settle(
        &self,
        presented: Presented,
        head: &request::Parts,
        in_body: &[Secret],
    ) -> Result<Credential, AuthError> {
        match (presented, in_body) {
            (Presented::Explicit(credential), []) => Ok(credential),
            (Presented::Implied(result), []) => result,
            (Presented::Implied(_), [text]) => self.check_widget(text.expose(), &head.headers).await,
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
        if !secret::matches(secret, token.as_bytes()) {
            return Err(AuthError::Unauthenticated);
        }
        let reason = trigger.to_str().ok().and_then(reason).ok_or(AuthError::InvalidReason)?;
        Ok(Credential::Proactive { reason })
    }

    fn check_cookie(&self, head: &request::Parts) -> Result<Credential, AuthError> {
        let Some(token) = session_cookie(&head.headers)? else { return Err(AuthError::Unauthenticated) };
        if !head.method.is_safe() && !self.is_same_origin(&head.headers) {
            return Err(AuthError::CrossOrigin);
        }
        self.check_session(Some(token))
    }

    /// Whether a browser says that one of our own pages sends the request.
    fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        let Ok(Some(origin)) = single(headers, &ORIGIN) else { return false };
        let Some(origin) = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()) else {
            return false;
        };
        if let Some(own) = &self.own {
            return origin.origin() == *own;
        }
        // What scheme we are reached by is not known here, so the origin's own stands in for it.
        let Ok(Some(host)) = single(headers, &HOST) else { return false };
        let host =
            host.to_str().ok().and_then(|host| Url::parse(&format!("{}://{host}", origin.scheme())).ok());
        host.is_some_and(|host| origin.origin().is_tuple() && host.origin() == origin.origin())
    }
}

/// Asks callers of a service for its secret, where it has one.
#[derive(Debug, Clone)]
pub struct BearerGate {
    /// Any of them will do; with none, everybody passes.
    secrets: Vec<Secret>,
}

impl BearerGate {
    /// A gate that asks for `secret`, or lets everybody pass: a service without a secret listens on loopback
    /// alone.
    pub fn new(secret: Option<Secret>) -> Self {
        Self { secrets: secret.into_iter().collect() }
    }

    /// A gate that asks for `secret`, and takes the one before it while callers change over.
    pub fn during_rotation(secret: Secret, previous: Option<Secret>) -> Self {
        Self { secrets: std::iter::once(secret).chain(previous).collect() }
    }

    /// Checks the `Authorization` header.
    ///
    /// # Errors
    ///
    /// [`AuthError::Unauthenticated`]; [`AuthError::Ambiguous`] for more than one such header.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        let token = single(headers, &AUTHORIZATION)?.and_then(bearer_token);
        let is_ours = |token: &str| self.secrets.iter().any(|ours| secret::matches(ours, token.as_bytes()));
        if token.is_some_and(is_ours) { Ok(()) } else { Err(AuthError::Unauthenticated) }
    }
}

/// The reason of a proactive call, where `text` may be one.
pub(crate) fn reason(text: &str) -> Option<String> {
    let text = text.trim();
    let printable = text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    (printable && !text.is_empty() && text.len() <= MAX_REASON_BYTES).then(|| text.to_owned())
}

/// The header, if it is there once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, AuthError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AuthError::Ambiguous),
        (value, None) => Ok(value),
    }
}

/// RFC 6750: `Bearer` in any case, and a token.
fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The session's cookie (RFC 6265), if it is there once.
fn session_cookie(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
        let (name, value) = cookie.split_once('=')?;
        (name.trim() == SESSION_COOKIE).then_some(value.trim().trim_matches('"'))
    });
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AuthError::Ambiguous),
        (value, None) => Ok(value),
    }
}
