//! Recorded calls.

use agent_core::ids::{AgentId, CompanyId, RunId, UserId};
use agent_platform::records::{Collection, StoreError};
use serde::{Deserialize, Serialize};

/// Collection of segments, with one sub-collection per agent.
const CALLS_COLLECTION: &str = "toolCalls";

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// End of the call, RFC 3339 in UTC.
    pub at: String,
    /// The user that the tool worked for.
    pub user_id: UserId,
    /// Public identifier of the credential; `internal` for calls that a run or a job of this process made.
    pub credential_id: String,
    /// The run, if the credential was issued for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Tool name as requested.
    pub tool: String,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Outcome of the call.
    pub outcome: AuditOutcome,
    /// Decision about a call that has waited for one; absent for a call that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<AuditDecision>,
}

/// Decision about a tool call that has waited for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum AuditDecision {
    /// The call may be made.
    Approved,
    /// The call may be made, with arguments that the person has changed.
    Edited,
    /// The call must not be made.
    Denied,
    /// The question was withdrawn.
    Withdrawn,
    /// The decision came too late.
    Expired,
}

impl AuditDecision {
    pub(super) fn outcome(self) -> AuditOutcome {
        match self {
            Self::Approved | Self::Edited => AuditOutcome::Ok,
            Self::Denied | Self::Withdrawn | Self::Expired => AuditOutcome::Refused,
        }
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum AuditOutcome {
    /// The tool returned a result.
    Ok,
    /// The tool returned an error to the caller.
    ToolError,
    /// The tool is unknown or forbidden to the caller, or the call was malformed.
    Refused,
    /// The tool exceeded the time limit.
    TimedOut,
    /// The caller cancelled the call, or disconnected before the result.
    Cancelled,
    /// An internal error.
    Failed,
}

/// Key of an agent: company id and agent id.
pub(super) type AgentKey = (CompanyId, AgentId);

pub(super) fn collection(company_id: &CompanyId, agent_id: &AgentId) -> Result<Collection, StoreError> {
    Collection::new(company_id, CALLS_COLLECTION)?.within(agent_id)
}
