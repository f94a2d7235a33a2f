//! Test doubles of this crate's traits.

mod coding;
mod pulse;

pub use coding::{IssuerCall, IssuerStep, ScriptedIssuer, SignInDecision};
pub use pulse::MemoryPulse;
