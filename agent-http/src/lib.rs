//! (map)

pub mod stream;
