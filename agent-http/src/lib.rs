//! (map)

pub mod lines;
pub mod outbound;
pub mod secret;
