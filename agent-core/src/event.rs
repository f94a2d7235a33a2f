//! The one event vocabulary of a run: AG-UI 1.0, and the stream that keeps to its grammar.
//!
//! A run is `RUN_STARTED`, then whatever happens, then exactly one of `RUN_FINISHED` and `RUN_ERROR`.
//! [`EventStream`] is the only way to hand events on, and it makes that so whatever the source does:
//! it announces the run, closes what is open before `RUN_FINISHED`, turns an early end, a failure or
//! a breach of the grammar into the one `RUN_ERROR`, and lets nothing follow. The rules themselves
//! are in [`Grammar`], which tests use on what arrives at the far end.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::message::{FinishReason, Usage};

mod calls;
mod grammar;
mod stream;

pub use calls::{
    CallReport, CallReports, MAX_REPORTED_BYTES, MAX_REPORTED_CALLS, ReportedCalls, reported_calls,
};
pub use grammar::{Grammar, Violation};
pub use stream::{Audience, EventStream, RunIds};

/// An identifier that many events share.
pub type Id = Arc<str>;

/// One event, in the shapes of AG-UI 1.0. What is `None` is left out on the wire.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Event {
    /// The backend has accepted the run. Always first.
    RunStarted {
        /// The conversation.
        thread_id: Id,
        /// The run.
        run_id: Id,
    },
    /// A round of the tool loop begins.
    StepStarted {
        /// The round's name.
        step_name: Id,
    },
    /// The round is over.
    StepFinished {
        /// The round's name.
        step_name: Id,
    },
    /// The model begins to think aloud.
    ReasoningStart {
        /// The thought's identifier.
        message_id: Id,
    },
    /// A message of reasoning begins.
    ReasoningMessageStart {
        /// The message's identifier.
        message_id: Id,
        /// Always `reasoning`.
        role: ReasoningRole,
    },
    /// More of the reasoning.
    ReasoningMessageContent {
        /// The message's identifier.
        message_id: Id,
        /// The next piece, never empty.
        delta: String,
    },
    /// The message of reasoning is complete.
    ReasoningMessageEnd {
        /// The message's identifier.
        message_id: Id,
    },
    /// The model has stopped thinking aloud.
    ReasoningEnd {
        /// The thought's identifier.
        message_id: Id,
    },
    /// A message of the answer begins.
    TextMessageStart {
        /// The message's identifier.
        message_id: Id,
        /// Always `assistant`.
        role: AssistantRole,
    },
    /// More of the answer.
    TextMessageContent {
        /// The message's identifier.
        message_id: Id,
        /// The next piece, never empty.
        delta: String,
    },
    /// The message is complete.
    TextMessageEnd {
        /// The message's identifier.
        message_id: Id,
    },
    /// The model begins to call a tool.
    ToolCallStart {
        /// The call's identifier.
        tool_call_id: Id,
        /// The tool's name.
        tool_call_name: String,
        /// The message that the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Id>,
    },
    /// More of the call's arguments, as JSON text.
    ToolCallArgs {
        /// The call's identifier.
        tool_call_id: Id,
        /// The next piece.
        delta: String,
    },
    /// The call's arguments are complete.
    ToolCallEnd {
        /// The call's identifier.
        tool_call_id: Id,
    },
    /// The tool has answered.
    ToolCallResult {
        /// The result message's identifier.
        message_id: Id,
        /// The call's identifier.
        tool_call_id: Id,
        /// What the model is given.
        content: String,
        /// Always `tool`.
        role: ToolRole,
        /// Whether the call failed, where it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<ResultMetadata>,
    },
    /// An extension of ours: `agent.prompt`, `agent.debug` or `agent.job`.
    Custom {
        /// The extension's name.
        name: String,
        /// Its value.
        value: Value,
    },
    /// The run is complete. Nothing is open.
    RunFinished {
        /// The conversation.
        thread_id: Id,
        /// The run.
        run_id: Id,
        /// What there is to say about the run as a whole.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<RunResult>,
        /// Left out on success.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// What the run has used, a member for each model.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<Usage>,
    },
    /// The run has failed.
    RunError {
        /// The public message.
        message: String,
        /// The machine word.
        code: String,
        /// What the run has used until then.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<Usage>,
    },
}

/// The role of a reasoning message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningRole {
    /// The one value that AG-UI knows.
    #[default]
    Reasoning,
}

/// The role of a message of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AssistantRole {
    /// The model.
    #[default]
    Assistant,
}

/// The role of a tool's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolRole {
    /// A tool.
    #[default]
    Tool,
}

/// What is said about a tool's result beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultMetadata {
    /// The call failed; the content says why.
    pub is_error: bool,
}

/// What is said about a run as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// Why the model stopped.
    pub finish_reason: FinishReason,
}

/// How a run ended other than by success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// The caller gave up.
    Cancelled,
}

impl Event {
    /// Whether nothing may follow.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::RunFinished { .. } | Self::RunError { .. })
    }

    /// What is brought to be appended, and to what: a message's text, a thought, or a call's arguments.
    pub fn delta(&self) -> Option<(&Id, &str)> {
        match self {
            Self::TextMessageContent { message_id: id, delta }
            | Self::ReasoningMessageContent { message_id: id, delta }
            | Self::ToolCallArgs { tool_call_id: id, delta } => Some((id, delta)),
            _ => None,
        }
    }
}
