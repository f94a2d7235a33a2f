//! Events of a run in AG-UI 1.0, and the event stream that enforces their grammar.
//!
//! A run is `RUN_STARTED`, then any other events, then exactly one of `RUN_FINISHED` and `RUN_ERROR`. All events pass
//! through [`EventStream`], which guarantees this for any source: it emits `RUN_STARTED`, closes open messages before
//! `RUN_FINISHED`, converts an early end, an error or a violation of the grammar into the one `RUN_ERROR`, and emits
//! nothing after it. The rules are in [`EventGrammar`], which tests also apply to the events that a client receives.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{RunId, ThreadId};
use crate::message::{FinishReason, Usage};

mod calls;
mod grammar;
mod outcome;
mod output;
mod source;
mod stream;

pub use crate::ids::Id;
pub use calls::ReportedToolCalls;
pub use grammar::{EventGrammar, GrammarError};
pub use outcome::{Interrupt, RunOutcome};
pub use output::OutputLimits;
pub use source::{RunEnd, SourceEvent};
pub use stream::{Audience, EventObserver, EventStream, RunIds};

/// One event, serialized as in AG-UI 1.0; `None` is omitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Event {
    /// The backend has accepted the run. Always the first event.
    RunStarted {
        /// The conversation.
        thread_id: ThreadId,
        /// The run.
        run_id: RunId,
    },
    /// A round of the tool loop starts.
    StepStarted {
        /// The round's name.
        step_name: Id,
    },
    /// A round of the tool loop is complete.
    StepFinished {
        /// The round's name.
        step_name: Id,
    },
    /// The model starts to emit reasoning.
    ReasoningStart {
        /// The reasoning's identifier.
        message_id: Id,
    },
    /// A reasoning message starts.
    ReasoningMessageStart {
        /// The message's identifier, unique in the conversation.
        message_id: Id,
        /// Always `reasoning`.
        role: ReasoningRole,
    },
    /// A delta of a reasoning message.
    ReasoningMessageContent {
        /// The message's identifier.
        message_id: Id,
        /// Text to append, never empty.
        delta: String,
    },
    /// The reasoning message is complete.
    ReasoningMessageEnd {
        /// The message's identifier.
        message_id: Id,
    },
    /// The model's reasoning is complete.
    ReasoningEnd {
        /// The reasoning's identifier.
        message_id: Id,
    },
    /// A message of the answer starts.
    TextMessageStart {
        /// The message's identifier, unique in the conversation.
        message_id: Id,
        /// Always `assistant`.
        role: AssistantRole,
    },
    /// A delta of a message of the answer.
    TextMessageContent {
        /// The message's identifier.
        message_id: Id,
        /// Text to append, never empty.
        delta: String,
    },
    /// The message is complete.
    TextMessageEnd {
        /// The message's identifier.
        message_id: Id,
    },
    /// A tool call by the model starts.
    ToolCallStart {
        /// The call's identifier, unique in the run.
        tool_call_id: Id,
        /// The tool's name.
        tool_call_name: String,
        /// The assistant message that contains the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<Id>,
    },
    /// A delta of the call's arguments, as JSON text.
    ToolCallArgs {
        /// The call's identifier.
        tool_call_id: Id,
        /// JSON text to append.
        delta: String,
    },
    /// The call's arguments are complete.
    ToolCallEnd {
        /// The call's identifier.
        tool_call_id: Id,
    },
    /// The result of a tool call.
    ToolCallResult {
        /// The result message's identifier.
        message_id: Id,
        /// The call's identifier.
        tool_call_id: Id,
        /// The content that the model receives.
        content: String,
        /// Always `tool`.
        role: ToolRole,
        /// Present if the call failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<ResultMetadata>,
    },
    /// An extension event of this platform, such as `agent.prompt`.
    Custom {
        /// The extension's name.
        name: String,
        /// The extension's payload.
        value: Value,
    },
    /// The run is complete, and all messages, calls and steps are closed.
    RunFinished {
        /// The conversation.
        thread_id: ThreadId,
        /// The run.
        run_id: RunId,
        /// Result of the run as a whole.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<RunResult>,
        /// Omitted on success without pending calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<RunOutcome>,
        /// Token usage of the run, one entry per model.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        usage: Vec<Usage>,
    },
    /// The run has failed.
    RunError {
        /// The public message.
        message: String,
        /// The machine-readable error code.
        code: String,
        /// Token usage of the run before the error.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        usage: Vec<Usage>,
    },
}

macro_rules! fixed_roles {
    ($($(#[$doc:meta])* $name:ident: $role:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            /// The only value in AG-UI.
            #[default]
            $role,
        }
    )*};
}

fixed_roles! {
    /// The role of a reasoning message.
    ReasoningRole: Reasoning;
    /// The role of a message of the answer.
    AssistantRole: Assistant;
    /// The role of a tool's result.
    ToolRole: Tool;
}

/// Metadata of a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultMetadata {
    /// True if the call failed; the content describes the error.
    pub is_error: bool,
}

/// Result of a run as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// Reason why the model stopped.
    pub finish_reason: FinishReason,
    /// The answer as a value, if a JSON format was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
}

impl From<FinishReason> for RunResult {
    fn from(finish_reason: FinishReason) -> Self {
        Self { finish_reason, object: None }
    }
}

impl Event {
    /// Creates the event with a call's result, as a new message.
    pub fn tool_call_result(tool_call_id: Id, content: String, is_error: bool) -> Self {
        Self::ToolCallResult {
            message_id: crate::new_id().into(),
            tool_call_id,
            content,
            role: ToolRole::Tool,
            metadata: is_error.then_some(ResultMetadata { is_error }),
        }
    }

    /// Returns true if no event may follow this one.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::RunFinished { .. } | Self::RunError { .. })
    }

    /// Returns the delta of a message's text or reasoning, or of a call's arguments, with the identifier of its owner.
    pub fn delta(&self) -> Option<(&Id, &str)> {
        match self {
            Self::TextMessageContent { message_id: id, delta }
            | Self::ReasoningMessageContent { message_id: id, delta }
            | Self::ToolCallArgs { tool_call_id: id, delta } => Some((id, delta)),
            _ => None,
        }
    }
}
