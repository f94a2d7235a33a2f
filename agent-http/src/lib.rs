//! (map)

pub mod cors;
pub mod error;
pub mod request;
pub mod serve;
