//! Authentication errors.

use agent_platform::records::StoreError;

use crate::error::{Code, HttpError};

/// Maximum length of the reason of a proactive call, in bytes.
pub(super) const MAX_REASON_BYTES: usize = 256;

/// Authentication error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// No valid credential.
    #[error("a valid credential is required")]
    Unauthenticated,
    /// More than one explicit credential, or a repeated one.
    #[error("exactly one credential is allowed")]
    Ambiguous,
    /// Session cookie on a request that does not come from the service's own pages.
    #[error("a request with a session cookie must have the application's own origin in Origin")]
    CrossOrigin,
    /// Console session, or request to the console, under a host that is not the application's.
    #[error("the console is not served under this Host; see PUBLIC_URL and ALLOWED_HOSTS")]
    UnknownHost,
    /// Reason of a proactive call that is blank, too long, or not printable ASCII.
    #[error("x-proactive-trigger must be a reason of at most {MAX_REASON_BYTES} printable characters")]
    InvalidReason,
    /// Widget token that is bound to origins, on a page of another origin or without an `Origin` header.
    #[error("this widget token is not valid for pages of this origin")]
    WrongOrigin,
    /// Key of a visitor that is repeated, too short, too long, or not base64url.
    #[error("x-visitor-key must be one key of 22 to 128 characters of base64url")]
    InvalidVisitorKey,
    /// The setting that verifies this kind of credential is missing.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
    /// The token store cannot be read.
    #[error("the credential cannot be verified")]
    Store(#[source] StoreError),
}

impl From<AuthError> for HttpError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Unauthenticated => Self::unauthenticated(error.to_string()),
            AuthError::Ambiguous => Self::new(Code::AmbiguousCredentials, error.to_string()),
            AuthError::CrossOrigin => Self::forbidden(error.to_string()),
            AuthError::WrongOrigin => Self::forbidden(error.to_string()).deny_cross_origin(),
            AuthError::UnknownHost => Self::new(Code::MisdirectedRequest, error.to_string()),
            AuthError::InvalidReason | AuthError::InvalidVisitorKey => {
                Self::new(Code::InvalidRequest, error.to_string())
            }
            AuthError::NotConfigured(setting) => Self::not_configured(setting),
            AuthError::Store(error @ StoreError::Unavailable(_)) => error.into(),
            // No other error of the store is the client's.
            AuthError::Store(error) => Self::internal(error),
        }
    }
}
