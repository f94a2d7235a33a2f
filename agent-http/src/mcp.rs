//! Model Context Protocol over Streamable HTTP: a server that exposes an agent's tools to external clients, and a
//! client for the tools of other servers.

use crate::cors::ProtocolHeaders;

pub mod client;
pub mod headers;
pub mod server;

/// Header names of MCP clients in browsers, for the CORS layer.
pub(crate) const CORS_HEADERS: ProtocolHeaders =
    ProtocolHeaders { request: headers::REQUEST_HEADERS, response: headers::RESPONSE_HEADERS };
