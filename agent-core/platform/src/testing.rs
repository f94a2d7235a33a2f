//! Test doubles of this crate's traits.

mod pulse;

pub use pulse::MemoryPulse;
