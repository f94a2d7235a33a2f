//! The MCP server.

mod application;
mod chain;
mod changes;
mod clients;
mod conformance;
mod fixture;
mod identity;
mod limits;
mod matrix;
mod protocol;
mod registry;
mod replicas;
mod test_server;
