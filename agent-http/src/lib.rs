//! (map)

pub mod app;
pub mod auth;
pub mod backend;
pub mod config;
pub mod cors;
pub mod error;
pub mod lines;
pub mod model;
pub mod outbound;
pub mod probe;
pub mod request;
pub mod runtime;
pub mod secret;
pub mod serve;
pub mod stream;
