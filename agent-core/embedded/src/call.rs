//! One call of the model as data: what a preview shows and the model's thread then runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sample::Sampling;
use crate::vocabulary::Piece;

/// One call. It is made by `prepare`, serialised as the payload, and read back by `start`, so that
/// nothing can reach the model that a preview has not shown.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call {
    /// The model's name.
    pub(crate) model: String,
    /// The conversation, up to where the model speaks.
    pub(crate) prompt: Vec<Piece<'static>>,
    /// What makes the model speak; it ends every prompt.
    pub(crate) answer: Vec<Piece<'static>>,
    /// What the person asks for: the latest message, in the person's own words.
    pub(crate) request: String,
    /// How it is decided whether the answer is a text or a tool's arguments.
    pub(crate) decision: Decision,
    /// The tools that may be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Choice>,
    /// How many tokens the answer may have.
    pub(crate) max_tokens: usize,
    /// How its tokens are chosen.
    pub(crate) sampling: Sampling,
}

/// How it is decided whether the answer is a text or a tool's arguments.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(crate) enum Decision {
    /// A text.
    Text,
    /// The first tool is called.
    Tool,
    /// What explains the request best: each tool's intent, and, where there is one, that of small talk.
    #[serde(rename_all = "camelCase")]
    Scored {
        /// The intent of somebody who wants no tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_intent: Option<String>,
    },
}

/// A tool that may be called.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Choice {
    /// Its name.
    pub(crate) name: String,
    /// The intent of somebody who wants it called; the request follows when it is scored.
    pub(crate) intent: String,
    /// What asks the model for the arguments; stands between the conversation and the answer.
    pub(crate) ask: Vec<Piece<'static>>,
    /// What the arguments are forced into.
    pub(crate) schema: Value,
}
