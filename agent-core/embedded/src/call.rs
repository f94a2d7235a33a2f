//! One model call as serializable data: the content of a preview, and the input of the model thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sample::Sampling;
use crate::vocabulary::Piece;

/// A model call. `prepare` creates it and serializes it as the payload; `start` deserializes it, so nothing
/// reaches the model that the preview did not show.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelCall {
    /// Model name.
    pub(crate) model: String,
    /// Conversation up to the start of the assistant turn.
    pub(crate) prompt: Vec<Piece<'static>>,
    /// Start of the assistant turn, appended to every prompt.
    pub(crate) answer: Vec<Piece<'static>>,
    /// Text of the latest user message.
    pub(crate) request: String,
    /// Rule that decides between a text answer and a tool call.
    pub(crate) decision: Decision,
    /// Tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<ToolCandidate>,
    /// Sentences of stored texts, one of which is the text answer; empty for an answer in the model's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) quotes: Vec<Quote>,
    /// Maximum number of output tokens.
    pub(crate) max_tokens: usize,
    /// Sampling parameters.
    pub(crate) sampling: Sampling,
}

/// A possible answer that is quoted from stored texts.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quote {
    pub(crate) text: String,
}

/// Rule that decides between a text answer and a tool call.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(crate) enum Decision {
    /// Answers with text.
    Text,
    /// Calls the first tool.
    Tool,
    /// Chooses the intent under which the request is most likely: one intent per tool, and optionally the
    /// intent of a text answer.
    #[serde(rename_all = "camelCase")]
    Scored {
        /// Intent text for a request that needs no tool; absent if a tool call is required.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_intent: Option<String>,
    },
}

/// A tool that the model may call.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCandidate {
    /// Tool name.
    pub(crate) name: String,
    /// Intent text for a request that needs this tool. The request is appended to it for scoring.
    pub(crate) intent: String,
    /// User turn that asks for the arguments; placed between the conversation and the assistant turn.
    pub(crate) ask: Vec<Piece<'static>>,
    /// JSON Schema that constrains the generated arguments.
    pub(crate) schema: Value,
}
