//! Model Context Protocol over Streamable HTTP: a server that exposes an agent's tools to external clients, and a
//! client for the tools of other servers.

pub mod client;
pub mod server;
