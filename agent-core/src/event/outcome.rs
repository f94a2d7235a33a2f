//! Outcomes of a run other than a complete answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::Id;

/// Outcome of a run, as AG-UI's. A run without one has succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum RunOutcome {
    /// Cancelled by the caller.
    Cancelled,
    /// Succeeded. The client has tool calls to execute.
    Success {
        /// Calls whose results the next run brings.
        pending_tool_call_ids: Vec<Id>,
    },
    /// Ended to wait for people.
    Interrupt {
        /// Requested decisions.
        interrupts: Vec<Interrupt>,
        /// Further calls that the client has to execute.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<Id>,
    },
}

/// A decision that a run asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// Identifier that the decision names.
    pub id: String,
    /// Kind of the decision; `tool_call` for the approval of a tool call.
    pub reason: String,
    /// The tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Id>,
    /// Question for the person who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time in RFC 3339 format after which no decision is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// JSON Schema of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Further data for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}
