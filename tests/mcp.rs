//! The tool server.

mod application;
mod chain;
mod clients;
mod conformance;
mod fixture;
mod identity;
mod limits;
mod protocol;
mod world;
