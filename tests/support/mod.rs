//! What stands in for the outside, and what starts the inside.

pub mod vendor;
