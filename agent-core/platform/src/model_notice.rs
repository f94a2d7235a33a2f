//! Diagnostics of model calls, which runs report as events `agent.debug`.

use agent_core::model::ModelEvent;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Diagnostic of a model call. It contains no text of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ModelNotice {
    /// The provider has silently truncated the prompt.
    PromptCut {
        /// Tokens of the prompt by the platform's count.
        estimated_tokens: u64,
        /// Tokens of the prompt by the provider's report.
        read_tokens: u64,
        /// Limit on prompt and answer together, in tokens.
        context_window: u64,
    },
    /// The answer contains an item of a type that the adapter does not know; it is sent back unchanged.
    UnknownItem {
        /// The item's type; empty if it is not a plain word.
        item_type: String,
    },
    /// The answer has a lower limit, in tokens, since no more is left of a budget.
    OutputLimited {
        /// The limit.
        max_output_tokens: u64,
        /// Hash of the body that was sent.
        request_sha256: String,
    },
    /// The server's API does not have a member of the request, which was sent again without it.
    ParameterRefused {
        /// Name of the member.
        parameter: String,
        /// Hash of the body that was sent.
        request_sha256: String,
    },
    /// An attempt at the call, as its creator describes it. Only calls of more than one attempt have them.
    ModelAttempt(Map<String, Value>),
    /// Parameters of the agent that the model is not sent, since its API does not have them or it refuses them.
    ParametersIgnored {
        /// Provider of the model: a built-in one, or the identifier of a provider of the company.
        provider: String,
        /// The model.
        model: String,
        /// Names of the parameters.
        parameters: Vec<String>,
    },
    /// The model is writing an answer that is held back until it is complete and valid.
    OutputProgress {
        /// Size of the answer so far, in bytes.
        bytes: u64,
    },
    /// An answer does not have the requested format, and another one is requested.
    OutputRejected {
        /// Number of the answer's repair, from 1.
        repair: u32,
        /// Paths of the faults, without values.
        reason: String,
    },
}

impl ModelNotice {
    /// Returns true for an event of one of these notices.
    pub(crate) fn is_notice(event: &Value) -> bool {
        Self::deserialize(event).is_ok()
    }
}

impl From<ModelNotice> for ModelEvent {
    fn from(notice: ModelNotice) -> Self {
        match serde_json::to_value(notice) {
            Ok(Value::Object(notice)) => Self::Notice(notice),
            // Every notice is an object with string keys.
            _ => Self::Notice(Map::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_notice_is_an_object_with_its_kind() {
        let report = Map::from_iter([("round".to_owned(), json!(1))]);
        for (notice, expected) in [
            (ModelNotice::OutputProgress { bytes: 5 }, json!({"kind": "outputProgress", "bytes": 5})),
            (ModelNotice::ModelAttempt(report), json!({"kind": "modelAttempt", "round": 1})),
        ] {
            assert_eq!(
                ModelEvent::from(notice),
                ModelEvent::Notice(expected.as_object().expect("one").clone())
            );
            assert!(ModelNotice::is_notice(&expected));
        }
        assert!(!ModelNotice::is_notice(&json!({"kind": "toolCallsLeftOut", "count": 1})));
    }
}
