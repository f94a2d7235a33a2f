//! Access token of a subscription, and the reasons why it is not available.

use std::fmt;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authority::{CodingAuthorityError, InvalidGrantReason};
use super::sign_in_required;
use super::tasks::TaskError;
use crate::records::StoreError;

/// Access token of a user's subscription.
#[derive(Debug, Clone)]
pub struct AccessToken {
    /// The token, for requests to the vendor.
    pub token: Secret,
    /// The user's account at the vendor.
    pub account_id: Option<Secret>,
    /// Number of the token; see [`refresh_after_rejection`](super::CodingTokens::refresh_after_rejection).
    pub generation: u64,
}

/// State of a user's subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SubscriptionState {
    /// The user is signed in.
    Ok,
    /// The user must sign in, again if there was a sign-in.
    SignInRequired,
}

/// Reason why a user must sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignInReason {
    /// The user is not signed in.
    NotSignedIn,
    /// The issuer has ended the sign-in.
    Ended(InvalidGrantReason),
    /// A refresh was interrupted between the issuer's answer and its storage.
    CutOff,
    /// The stored tokens cannot be decrypted.
    Unreadable,
    /// The vendor has rejected two access tokens in a row.
    Rejected,
}

impl fmt::Display for SignInReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSignedIn => "the agent uses your own subscription: sign in to it first",
            Self::Ended(_) => "the sign-in to your subscription has ended: sign in again",
            Self::CutOff => "the sign-in to your subscription was interrupted while its tokens were being refreshed: sign in again",
            Self::Unreadable => "the sign-in to your subscription cannot be decrypted: sign in again",
            Self::Rejected => "the vendor rejects the sign-in to your subscription: sign in again",
        })
    }
}

/// Error of getting an access token.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CodingTokenError {
    /// The user must sign in.
    #[error("{0}")]
    SignInRequired(SignInReason),
    /// The tokens cannot be refreshed now; they stay as they are.
    #[error("the subscription's tokens could not be refreshed")]
    Issuer(#[source] CodingAuthorityError),
    /// Another process refreshes the tokens for too long, too many refreshes run, or the process stops.
    #[error("the subscription's tokens are being refreshed; try again later")]
    Busy,
    /// The store failed.
    #[error("the subscription's tokens could not be read or written")]
    Store(#[source] Arc<StoreError>),
}

impl CodingTokenError {
    /// Returns true if the tokens are unaffected, so that an access token that is still valid can be used.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Issuer(_) | Self::Busy)
    }
}

impl From<StoreError> for CodingTokenError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<TaskError> for CodingTokenError {
    fn from(_: TaskError) -> Self {
        Self::Busy
    }
}

impl From<CodingTokenError> for AgentError {
    fn from(error: CodingTokenError) -> Self {
        let kind = match &error {
            CodingTokenError::Issuer(error) => return error.to_agent_error(),
            CodingTokenError::SignInRequired(_) => {
                return sign_in_required(error.to_string());
            }
            CodingTokenError::Busy => AgentErrorKind::Timeout,
            CodingTokenError::Store(error) => match **error {
                StoreError::NotConfigured(_) => AgentErrorKind::NotConfigured,
                StoreError::Unavailable(_) => AgentErrorKind::StoreUnavailable,
                _ => AgentErrorKind::Internal,
            },
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
