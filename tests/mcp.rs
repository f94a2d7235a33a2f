//! The tool server.

mod conformance;
mod fixture;
mod limits;
mod protocol;
mod world;
