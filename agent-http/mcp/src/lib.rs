//! Model Context Protocol (MCP) over Streamable HTTP: a server that exposes an agent's tools to external clients, and a
//! client for the tools of other servers.
//!
//! The protocol is `rmcp`'s. Neither side opens a socket: the server takes request heads and bodies that its caller has
//! read, and the client sends through a [`client::ToolServerTransport`].

mod body;
pub mod client;
pub mod headers;
mod meta;
mod output;
pub mod server;
mod suspension;

pub use body::ResponseBody;
pub use meta::IDEMPOTENCY_KEY;
