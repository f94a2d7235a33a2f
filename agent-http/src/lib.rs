//! (map)

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
pub mod secret;
pub mod serve;
pub mod stream;
