//! Reports of attempts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model_notice::ModelNotice;

/// Report of an attempt at a model call, as the event `agent.debug` of the kind `modelAttempt` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptReport {
    /// Number of the model's answer in the run, from 1.
    pub round: u32,
    /// Number of the call in the round, from 1; absent for an entry that was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Index of the entry: 0 for the container's own model, then the fallbacks.
    pub entry: usize,
    /// Provider of the model: a built-in one, or the identifier of a provider of the company.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Code of the failure, or of the reason why the entry was left out; absent for the attempt that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Status of the provider's response, if it was unsuccessful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Wait before the call, in milliseconds.
    pub waited_ms: u64,
    /// Hash of the request in its shown form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_sha256: Option<String>,
}

impl AttemptReport {
    /// Returns the notice that reports the attempt.
    pub(super) fn notice(&self) -> Option<ModelNotice> {
        match serde_json::to_value(self) {
            Ok(Value::Object(report)) => Some(ModelNotice::ModelAttempt(report)),
            _ => None,
        }
    }
}
