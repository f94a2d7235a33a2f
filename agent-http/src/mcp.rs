//! The Model Context Protocol over Streamable HTTP: an agent's tools for clients outside, and the tools of
//! other servers.

pub mod client;
pub mod server;
