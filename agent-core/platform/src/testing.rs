//! Test doubles of this crate's traits.

mod coding;
mod extractor;
mod pulse;

pub use coding::{IssuerCall, IssuerStep, ScriptedIssuer, SignInDecision};
pub use extractor::ScriptedExtractor;
pub use pulse::MemoryPulse;
