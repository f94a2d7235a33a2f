//! Comparison of a prompt with the prompts that were sent before it.

use serde::Serialize;

use crate::backend::PreparedRequest;
use crate::ids::RunId;

/// Memory of the prompts that runs have sent.
pub trait SentPrompts: Send + Sync + 'static {
    /// Compares a request's prompt with the latest one of its thread, or else of its user with the agent.
    fn compare(&self, request: &PreparedRequest) -> PromptComparison;
}

/// Result of comparing a prompt with the prompts that were sent before it.
pub struct PromptComparison {
    /// Reusability of the provider's prompt cache; `None` if no earlier prompt is known.
    pub reuse: Option<PrefixReuse>,
    /// Records the prompt, once it was sent.
    pub record: Box<dyn FnOnce() + Send>,
}

/// Part of a prompt that the provider may have cached.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixReuse {
    /// Share of the prompt's tokens in front of the first part that the earlier prompt did not have, from 0 to 1.
    pub reusable_share: f64,
    /// The first part of the earlier prompt that is missing or changed, which ends the cached prefix; absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_changed_part: Option<String>,
    /// The run that has sent the earlier prompt.
    #[serde(skip)]
    pub previous_run_id: RunId,
}
