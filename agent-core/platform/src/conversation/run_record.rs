//! Record of a run: its times, the selection of its backend, the manifest of its prompt and the attempts at its calls.

use agent_core::ids::RunId;
use agent_core::prompt::{PromptTokens, Stability};
use agent_core::select::{BackendKind, SelectionRule};
use serde::{Deserialize, Serialize};

use crate::fallback::AttemptReport;
use crate::preview::PartPlacement;

/// Maximum number of model calls whose times a run keeps.
pub const MAX_TIMED_ROUNDS: usize = 64;
/// Maximum number of tool calls whose times a run keeps.
pub const MAX_TIMED_CALLS: usize = 256;
/// Maximum number of attempts that a run keeps.
pub const MAX_RUN_ATTEMPTS: usize = 64;

/// Times of a run, in milliseconds after it was accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunTiming {
    /// Time at which the preparation of the prompt began, after the thread was loaded and was free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// Time at which the request was ready to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_ms: Option<u64>,
    /// Time of the first text, reasoning or tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<u64>,
    /// The first [`MAX_TIMED_ROUNDS`] calls of the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RoundTiming>,
    /// The first [`MAX_TIMED_CALLS`] tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<CallTiming>,
}

/// Times of a model call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundTiming {
    /// Time at which the request was sent.
    pub started_ms: u64,
    /// Time of the first text, reasoning or tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<u64>,
    /// Time of the answer's end; absent if it was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Output tokens by the provider's report; absent for a model that another service calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Number of requests until the model answered; absent for a model that another service calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// Times of a tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTiming {
    /// Identifier of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Time at which the arguments were complete.
    pub started_ms: u64,
    /// Time of the result; absent for a call without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// True if the result is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Backend that was selected for a run, and the rule that has selected it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSelection {
    /// Kind of the backend.
    pub backend: BackendKind,
    /// The rule that matched; absent for a custom backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<SelectionRule>,
    /// Name of the container that selected a custom backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl RunSelection {
    /// Returns the name of the kind of backend on the wire.
    pub fn backend_name(&self) -> String {
        let name = serde_json::to_value(self.backend).ok();
        name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// Manifest of a run's prompt: sizes and hashes, without texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPrompt {
    /// Hash of the request to the backend in its shown form.
    pub request_sha256: String,
    /// Kind of the backend.
    pub backend: BackendKind,
    /// The fragments in order: the parts of the system prompt, then the parts of the latest turn.
    pub parts: Vec<RunPromptPart>,
    /// The tools in order.
    pub tools: Vec<RunPromptTool>,
    /// Number of messages, including the latest turn.
    pub messages: usize,
    /// Token counts of system prompt, tools and messages.
    pub tokens: PromptTokens,
    /// Name of the token counter.
    pub token_counter: String,
    /// Number of earlier messages that were dropped to fit the budget.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trimmed_messages: usize,
    /// Prefix that a provider's prompt cache keeps.
    pub cache: PromptCacheLine,
}

/// A fragment of a run's prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPromptPart {
    /// The fragment's identifier.
    pub id: String,
    /// Name of the layer that produced it.
    pub source: String,
    /// Lifetime of its text.
    pub stability: Stability,
    /// Placement in the prompt.
    pub placement: PartPlacement,
    /// Number of tokens.
    pub tokens: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// SHA-256 of its text, in lower-case hexadecimal.
    pub sha256: String,
    /// The text, if the run's inputs were recorded. Not part of the stored manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// A tool of a run's prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPromptTool {
    /// The tool's name.
    pub name: String,
    /// SHA-256 of its definition, in lower-case hexadecimal.
    pub sha256: String,
    /// Number of tokens of its definition.
    pub tokens: usize,
}

/// End of the prompt's prefix that a provider's prompt cache keeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptCacheLine {
    /// Length of the system prompt's prefix of stability `role` or `agent`, in bytes.
    pub stable_prefix_bytes: usize,
    /// Share of the prompt's tokens in front of the first part that the previous run's prompt did not have, from 0 to 1;
    /// absent without a previous run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reusable_share: Option<f64>,
    /// The first part of the previous run's prompt that this one lacks or has changed; absent if it has only grown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_changed_part: Option<String>,
    /// The previous run of the thread, or else of the user with the agent, in the same process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_run_id: Option<RunId>,
}

/// Record that a process makes of a run, stored with the run's end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunRecord {
    /// Times.
    pub timing: Option<RunTiming>,
    /// Selection of the backend.
    pub selection: Option<RunSelection>,
    /// Manifest of the prompt.
    pub prompt: Option<Box<RunPrompt>>,
    /// The first [`MAX_RUN_ATTEMPTS`] attempts that the run's events or the error of its start have reported.
    pub attempts: Vec<AttemptReport>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
