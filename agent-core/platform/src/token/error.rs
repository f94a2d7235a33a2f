//! Errors of creating tokens and of looking them up.

use crate::records::StoreError;

/// Error of creating a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenMintError {
    /// A field is invalid.
    #[error("{field} {fault}")]
    Invalid {
        /// Name of the field on the wire.
        field: &'static str,
        /// Description of the fault, worded to follow the name.
        fault: String,
    },
    /// The user has as many valid MCP and API tokens as allowed.
    #[error(
        "the user has {limit} valid MCP and API tokens, which is the limit: revoke one that is no longer needed"
    )]
    TooManyTokens {
        /// [`MAX_TOKENS_PER_USER`](super::MAX_TOKENS_PER_USER).
        limit: usize,
    },
    /// The agent has as many valid tokens as allowed.
    #[error("the agent has {limit} valid tokens, which is the limit: revoke one that is no longer needed")]
    TooManyAgentTokens {
        /// [`MAX_TOKENS_PER_AGENT`](super::MAX_TOKENS_PER_AGENT).
        limit: usize,
    },
    /// The number of concurrent runs with a token has reached the limit of the company or of the process.
    #[error("the limit of concurrent run tokens is reached")]
    TooManyRunTokens,
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random numbers")]
    Random(#[source] getrandom::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TokenMintError {
    pub(super) fn invalid(field: &'static str, fault: impl Into<String>) -> Self {
        Self::Invalid { field, fault: fault.into() }
    }

    pub(super) fn ttl() -> Self {
        Self::invalid("ttl", "exceeds the maximum lifetime")
    }
}

/// Error of looking up a token by its text. All but [`TokenError::Store`] get the same response, so that a forger does
/// not learn which part was right; the reason is for the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The text does not have the form of a token.
    #[error("malformed")]
    Malformed,
    /// No token has this id.
    #[error("unknown")]
    Unknown,
    /// The id belongs to a token, but the secret or the kind does not match.
    #[error("wrong secret")]
    WrongSecret,
    /// The token was revoked.
    #[error("revoked")]
    Revoked,
    /// The token has expired.
    #[error("expired")]
    Expired,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
