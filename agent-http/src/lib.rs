//! (map)

pub mod auth;
pub mod config;
pub mod cors;
pub mod error;
pub mod lines;
pub mod outbound;
pub mod request;
pub mod secret;
pub mod serve;
