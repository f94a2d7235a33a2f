//! The Model Context Protocol: an agent's tools for clients outside.

pub mod server;
