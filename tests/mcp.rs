//! The tool server.

mod conformance;
mod fixture;
