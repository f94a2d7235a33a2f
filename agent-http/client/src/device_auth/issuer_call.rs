//! Requests of the sign-in protocol, and their responses.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// Request of the sign-in protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IssuerCall {
    /// Issues a device code.
    Start,
    /// Polls a device code.
    Poll,
    /// Exchanges an authorization code for tokens.
    Exchange,
    /// Exchanges a refresh token for tokens.
    Refresh,
    /// Revokes a token.
    Revoke,
}

impl fmt::Display for IssuerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Poll => "poll",
            Self::Exchange => "exchange",
            Self::Refresh => "refresh",
            Self::Revoke => "revoke",
        })
    }
}

/// A response with its whole body.
pub(super) struct IssuerResponse {
    pub(super) status: StatusCode,
    /// `Retry-After` only.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// True for a page for a browser; see [`OutboundResponse::is_page`](crate::outbound::OutboundResponse::is_page).
    pub(super) is_page: bool,
}
