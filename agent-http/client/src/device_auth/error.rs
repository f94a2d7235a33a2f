//! Errors of a sign-in, and the reading of an issuer's refusals.
//!
//! A refusal is classified in this order: by the error code in the body, if it is in the closed list; by the content type,
//! so that the page of a proxy is not taken for the issuer's answer; by the status.

use std::borrow::Cow;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::coding::InvalidGrantReason;
use http::StatusCode;

use super::DeviceAuthDialect;
use super::fields::AnswerFields;
use super::issuer_call::{IssuerCall, IssuerResponse};
use crate::outbound::status_failure;

/// Error of a request to the issuer. It contains no text of the issuer.
#[derive(Debug, thiserror::Error)]
pub enum DeviceAuthError {
    /// The issuer's answer is an error code of OAuth.
    #[error("the issuer's answer is {}", .0.as_str())]
    Oauth(OauthErrorCode),
    /// The issuer does not accept the client id, or not with the scope.
    #[error("the issuer does not accept the client id or its scope")]
    ClientRejected,
    /// No answer, or one that is not of the protocol. A repetition may help.
    #[error(transparent)]
    Failed(#[from] AgentError),
}

/// Error code of RFC 6749 section 5.2 and RFC 8628 section 3.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OauthErrorCode {
    /// The person has not entered the code yet.
    AuthorizationPending,
    /// Like [`AuthorizationPending`](Self::AuthorizationPending), and the interval of polls must be 5 s longer from now on.
    SlowDown,
    /// The person, or the issuer, has refused.
    AccessDenied,
    /// The device code has expired, or is unknown.
    ExpiredToken,
    /// The refresh token is useless.
    InvalidGrant(InvalidGrantReason),
}

impl OauthErrorCode {
    /// Returns the code on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::AccessDenied => "access_denied",
            Self::ExpiredToken => "expired_token",
            Self::InvalidGrant(_) => "invalid_grant",
        }
    }

    /// Returns true if a later poll may have another outcome.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::AuthorizationPending | Self::SlowDown)
    }

    /// Returns the reason of `invalid_grant`.
    pub fn reason(self) -> Option<InvalidGrantReason> {
        match self {
            Self::InvalidGrant(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Meaning of an error code in an issuer's answer.
#[derive(Clone, Copy)]
enum KnownCode {
    Pending,
    SlowDown,
    Denied,
    ExpiredCode,
    DeadGrant(InvalidGrantReason),
    BadClient,
}

/// The error codes that issuers are known to use, in lower case.
const KNOWN_CODES: [(&str, KnownCode); 14] = [
    ("authorization_pending", KnownCode::Pending),
    ("deviceauth_authorization_pending", KnownCode::Pending),
    ("slow_down", KnownCode::SlowDown),
    ("access_denied", KnownCode::Denied),
    ("authorization_declined", KnownCode::Denied),
    ("expired_token", KnownCode::ExpiredCode),
    ("invalid_grant", KnownCode::DeadGrant(InvalidGrantReason::Unknown)),
    ("token_expired", KnownCode::DeadGrant(InvalidGrantReason::Expired)),
    ("refresh_token_expired", KnownCode::DeadGrant(InvalidGrantReason::Expired)),
    ("refresh_token_reused", KnownCode::DeadGrant(InvalidGrantReason::Reused)),
    ("refresh_token_invalidated", KnownCode::DeadGrant(InvalidGrantReason::Revoked)),
    ("invalid_client", KnownCode::BadClient),
    ("unauthorized_client", KnownCode::BadClient),
    ("invalid_scope", KnownCode::BadClient),
];

impl KnownCode {
    fn from_word(word: &str) -> Option<Self> {
        let known = KNOWN_CODES.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
        known.map(|(_, meaning)| *meaning)
    }

    /// Returns the error that the code is in an answer to `call`; `None` if it has no meaning there.
    fn into_error(self, call: IssuerCall) -> Option<DeviceAuthError> {
        use OauthErrorCode::{AccessDenied, AuthorizationPending, ExpiredToken, InvalidGrant, SlowDown};
        let code = match (call, self) {
            (_, Self::BadClient) => return Some(DeviceAuthError::ClientRejected),
            (IssuerCall::Poll, Self::Pending) => AuthorizationPending,
            (IssuerCall::Poll, Self::SlowDown) => SlowDown,
            (IssuerCall::Poll | IssuerCall::Exchange, Self::Denied) => AccessDenied,
            // A code that has been used or has expired is an invalid grant in RFC 6749.
            (IssuerCall::Poll | IssuerCall::Exchange, Self::ExpiredCode | Self::DeadGrant(_)) => ExpiredToken,
            (IssuerCall::Refresh, Self::DeadGrant(reason)) => InvalidGrant(reason),
            (IssuerCall::Refresh, Self::ExpiredCode) => InvalidGrant(InvalidGrantReason::Expired),
            _ => return None,
        };
        Some(DeviceAuthError::Oauth(code))
    }
}

impl AnswerFields {
    /// Returns the error that the fields name, with a meaning for `call`.
    fn known_error(&self, call: IssuerCall) -> Option<DeviceAuthError> {
        self.error_codes().find_map(|word| KnownCode::from_word(word)?.into_error(call))
    }

    /// Returns the error of a success without the fields that `call` requires. Some issuers send refusals with the
    /// status 200.
    pub(super) fn into_error(self, call: IssuerCall) -> DeviceAuthError {
        self.known_error(call).unwrap_or_else(|| invalid_answer().into())
    }
}

/// Reads an unsuccessful response.
pub(super) fn read_error_response(
    dialect: DeviceAuthDialect,
    call: IssuerCall,
    response: &IssuerResponse,
) -> DeviceAuthError {
    let fields = AnswerFields::parse(&response.body);
    if let Some(error) = fields.as_ref().and_then(|fields| fields.known_error(call)) {
        return error;
    }
    if response.is_page {
        return blocked_by_proxy().into();
    }
    match (dialect, call, response.status) {
        (_, IssuerCall::Start, StatusCode::NOT_FOUND) => no_device_sign_in().into(),
        (DeviceAuthDialect::Codex, IssuerCall::Poll | IssuerCall::Refresh, status)
            if status.is_client_error() && !is_transient(status) =>
        {
            match fields {
                None if !response.body.is_empty() => blocked_by_proxy().into(),
                fields => codex_status_error(call, status, fields.as_ref()),
            }
        }
        (_, _, status) => status_failure(status, &response.headers).into(),
    }
}

/// Maps the status of a refusal whose error code is not in the list, in the codex dialect.
fn codex_status_error(
    call: IssuerCall,
    status: StatusCode,
    fields: Option<&AnswerFields>,
) -> DeviceAuthError {
    let has_code = fields.is_some_and(|fields| fields.error_codes().next().is_some());
    let is_closed = matches!(status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    match call {
        IssuerCall::Poll if is_closed && !has_code => {
            DeviceAuthError::Oauth(OauthErrorCode::AuthorizationPending)
        }
        // A code of a later version of the protocol may not be final, so polling continues.
        IssuerCall::Poll if is_closed => {
            failed("the issuer refused with an error code that is not known").into()
        }
        IssuerCall::Poll => DeviceAuthError::Oauth(OauthErrorCode::AccessDenied),
        _ if status == StatusCode::UNAUTHORIZED => {
            DeviceAuthError::Oauth(OauthErrorCode::InvalidGrant(InvalidGrantReason::Unknown))
        }
        _ => failed(format!("the issuer rejected the request (HTTP {})", status.as_u16())).into(),
    }
}

/// Returns true for the client errors that do not concern the request.
fn is_transient(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn failed(message: impl Into<Cow<'static, str>>) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, message)
}

/// Returns the error of a page that a proxy in front of the issuer has sent.
pub(super) fn blocked_by_proxy() -> AgentError {
    failed("the request was turned away before it reached the issuer")
}

/// Returns the error of an answer that is not one of the protocol.
pub(super) fn invalid_answer() -> AgentError {
    failed("the issuer's answer is invalid")
}

fn no_device_sign_in() -> AgentError {
    failed("the issuer has no device sign-in, or the account's security settings do not allow it")
}
