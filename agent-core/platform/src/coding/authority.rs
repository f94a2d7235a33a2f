//! Interface of the issuer of a subscription's tokens.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::error::AgentError;
use agent_core::secret::Secret;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Issuer of a subscription's tokens, as OAuth 2.0 defines it: device authorization (RFC 8628), refresh (RFC 6749) and
/// revocation (RFC 7009). Nothing is sent twice, and no call logs a body.
#[async_trait]
pub trait CodingAuthority: Send + Sync + 'static {
    /// Requests a device code, which begins a sign-in.
    ///
    /// # Errors
    /// See [`CodingAuthorityError`].
    async fn request_device_code(&self) -> Result<DeviceCode, CodingAuthorityError>;

    /// Requests the tokens of a sign-in, which the issuer gives once the user has confirmed it.
    ///
    /// # Errors
    /// [`CodingAuthorityError::Pending`] and [`CodingAuthorityError::SlowDown`] until then.
    async fn request_tokens(&self, device_code: &Secret) -> Result<IssuedTokens, CodingAuthorityError>;

    /// Exchanges a refresh token, which may be single-use, for new tokens. The token is not sent after `send_by`, such as
    /// by a process that was stopped meanwhile: another one may have used it.
    ///
    /// # Errors
    /// [`CodingAuthorityError::InvalidGrant`] if the refresh token is dead, [`CodingAuthorityError::NotSent`] after
    /// `send_by`.
    async fn refresh(
        &self,
        refresh_token: &Secret,
        send_by: Instant,
    ) -> Result<IssuedTokens, CodingAuthorityError>;

    /// Revokes a token; false if the issuer does not revoke it.
    ///
    /// # Errors
    /// See [`CodingAuthorityError`].
    async fn revoke(&self, token: &Secret, hint: TokenHint) -> Result<bool, CodingAuthorityError>;
}

/// Sign-in that the issuer has started.
#[derive(Debug, Clone)]
pub struct DeviceCode {
    /// Handle of the sign-in, for [`CodingAuthority::request_tokens`].
    pub device_code: Secret,
    /// Code that the user enters at the verification URI.
    pub user_code: Secret,
    /// Page of the issuer at which the user enters the code.
    pub verification_uri: String,
    /// Lifetime of both codes.
    pub expires_in: Duration,
    /// Minimum time between two requests for the tokens.
    pub interval: Duration,
}

/// Tokens that the issuer returned.
#[derive(Debug, Clone)]
pub struct IssuedTokens {
    /// Token of requests to the vendor.
    pub access_token: Secret,
    /// Token of the next refresh; after a refresh, `None` means that the previous one stays valid.
    pub refresh_token: Option<Secret>,
    /// Lifetime of the access token.
    pub expires_in: Duration,
    /// The user's account at the vendor.
    pub account_id: Option<Secret>,
    /// Name of the subscription's plan.
    pub plan: Option<String>,
}

/// Kind of a token that is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenHint {
    /// An access token.
    AccessToken,
    /// A refresh token.
    RefreshToken,
}

impl TokenHint {
    /// Returns the `token_type_hint` of RFC 7009.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessToken => "access_token",
            Self::RefreshToken => "refresh_token",
        }
    }

    /// Returns the kind with this `token_type_hint`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::AccessToken, Self::RefreshToken].into_iter().find(|hint| hint.as_str() == name)
    }
}

/// Reason why an issuer rejects a refresh token permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InvalidGrantReason {
    /// The token has expired.
    Expired,
    /// The token was used before.
    Reused,
    /// The token was revoked.
    Revoked,
    /// The issuer returned no reason.
    Unknown,
}

impl InvalidGrantReason {
    /// Returns the `reason` on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Reused => "reused",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the `reason` on the wire; unknown words are [`Self::Unknown`].
    pub fn from_wire(reason: &str) -> Self {
        let known = [Self::Expired, Self::Reused, Self::Revoked];
        known.into_iter().find(|fault| fault.as_str() == reason).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for InvalidGrantReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error of a call of the issuer. None contains a token, a code, or text of the issuer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CodingAuthorityError {
    /// The user has not confirmed the sign-in yet: request again after the interval.
    #[error("authorization_pending")]
    Pending,
    /// As [`Self::Pending`], with an interval that is 5 s longer from now on.
    #[error("slow_down")]
    SlowDown,
    /// The user has refused the sign-in.
    #[error("access_denied")]
    Denied,
    /// The sign-in has expired.
    #[error("expired_token")]
    Expired,
    /// The refresh token is not valid any longer.
    #[error("invalid_grant ({0})")]
    InvalidGrant(InvalidGrantReason),
    /// A setting of the agent runtime is missing or refused by the issuer; the text is its name.
    #[error("{0} is not configured")]
    NotConfigured(String),
    /// The issuer limits the rate. It has not processed the request.
    #[error("the issuer limits the rate")]
    RateLimited(Option<Duration>),
    /// The request was certainly not sent.
    #[error("the request was not sent")]
    NotSent(#[source] Arc<AgentError>),
    /// No answer, or a server error: the issuer may have processed the request.
    #[error("no answer")]
    Unanswered(#[source] Arc<AgentError>),
    /// The request was refused for another reason, and would be again.
    #[error("refused")]
    Refused(#[source] Arc<AgentError>),
}

impl CodingAuthorityError {
    /// Returns the error's public form. Its message names the category; the source is for the log.
    pub fn to_agent_error(&self) -> AgentError {
        use agent_core::error::AgentErrorKind as Kind;
        let (kind, message) = match self {
            Self::NotConfigured(_) => return AgentError::new(Kind::NotConfigured, self.to_string()),
            Self::RateLimited(delay) => {
                let error = AgentError::new(Kind::RateLimited, self.to_string());
                return delay.iter().fold(error, |error, delay| error.with_retry_after(*delay));
            }
            Self::NotSent(error) | Self::Unanswered(error) | Self::Refused(error) => {
                (error.kind(), error.message().to_owned())
            }
            _ => (Kind::Failed, format!("the issuer of the sign-in refused the request: {self}")),
        };
        AgentError::new(kind, message).with_source(self.clone())
    }
}
