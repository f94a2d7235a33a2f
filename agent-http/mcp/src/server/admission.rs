//! Errors of requests that are refused before their message is read.

use agent_platform::records::StoreError;

/// Error of a request that is refused before its message is read. It displays the public description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// `Host` names another server.
    #[error("the Host header is not one of this server's names; see PUBLIC_URL")]
    UnknownHost,
    /// `Origin` is neither this server's nor listed.
    #[error("the Origin is not allowed; see CORS_ORIGIN")]
    UnknownOrigin,
    /// A query parameter is repeated.
    #[error("{0} occurs more than once in the query")]
    RepeatedParameter(&'static str),
    /// The request has several credentials.
    #[error("exactly one credential is allowed")]
    AmbiguousCredentials,
    /// The request has a token that is not valid.
    #[error("a valid MCP token is required")]
    InvalidToken,
    /// The request has no credential; the text names the one that is needed.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// A query parameter differs from the token's value.
    #[error("{0} differs from the token's")]
    ParameterMismatch(&'static str),
    /// `Accept` allows none of the available media types.
    #[error(
        "the supported media types are application/x-ndjson, and application/json together with text/event-stream"
    )]
    NotAcceptable,
    /// The store failed while the credential was checked.
    #[error("the credential cannot be verified")]
    Store(#[source] StoreError),
}
