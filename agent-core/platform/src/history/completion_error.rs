//! Error of reading a request for a chat completion.

use super::FieldError;

/// Error of reading a request for a chat completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// A field is invalid.
    #[error(transparent)]
    Invalid(#[from] FieldError),
    /// A field is valid in OpenAI's API, and not supported here.
    #[error("{0}")]
    Unsupported(FieldError),
}
