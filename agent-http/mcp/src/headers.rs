//! Header names of the Streamable HTTP transport.

use http::HeaderName;

/// The `Mcp-Session-Id` header.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The `Last-Event-ID` header of the event stream's reconnection.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Request headers that MCP clients in browsers send, in lower case.
pub const REQUEST_HEADERS: &[&str] = &["mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"];

/// Response headers that MCP clients in browsers read, in lower case.
pub const RESPONSE_HEADERS: &[&str] = &["mcp-session-id"];
