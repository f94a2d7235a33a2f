//! Repetition and fallback of single calls: of models, and of agent servers.
//!
//! [`FallbackModels`] gives each run a model that holds up to five entries: the container's own model and its fallbacks.
//! A call that fails before its first content is repeated, or made with the next entry, as [`plan`] decides by the
//! [`FailureClass`]. Once the run has been given content, nothing is repeated. Each attempt is a separate call in the
//! ledger; journal and record see one model with one answer in each round.
//!
//! If a run's answer is [delivered whole](agent_core::request::TurnRequest::whole_delivery), a round is held back until it has
//! ended, so that its call is repeated after content too. [`SilenceLimitedModels`] limit the silence of its answers.
//!
//! [`FallbackServers`] do the same for runs at agent servers, each of which is one call.
//!
//! A prompt is assembled for the first entry, and if it does not fit that, for the fallback with the largest window
//! ([`FallbackBudget`]).
//!
//! [`Circuits`] keep the calls of a process away from a model that keeps failing, and bound the repetitions.

mod budget;
mod call;
mod circuits;
mod class;
mod entries;
mod first_content;
mod plan;
mod preview;
mod report;
mod servers;
mod silence;
mod source;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod unpriced;

pub use budget::{FallbackBudget, FallbackLimits};
pub use circuits::{CircuitState, Circuits, MAX_CIRCUITS};
pub use class::{FailureClass, UpstreamError};
pub use first_content::{FirstContentModels, FirstContentServers};
pub use plan::{NextStep, RetryPolicy, RoundHistory, plan};
pub(crate) use preview::prepared_prompt_limit;
pub use preview::{AttemptPreview, preview_attempts};
pub use report::AttemptReport;
pub use servers::FallbackServers;
pub use silence::SilenceLimitedModels;
pub use source::{FallbackDefaults, FallbackModels, MAX_FALLBACKS, fallback_settings, prepared_entry};
pub use unpriced::{UnpricedCalls, unpriced_calls};
