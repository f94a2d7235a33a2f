//! The Model Context Protocol over Streamable HTTP, from both ends.

pub mod client;
pub mod server;
