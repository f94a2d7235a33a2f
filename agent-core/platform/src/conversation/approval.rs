//! Approvals: tool calls of a run that wait for a person's decision.

use agent_core::event::Id;
use agent_core::ids::{AgentId, RunId, ThreadId, UserId};
use agent_core::role::Approver;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::time;
use crate::exact_object::ExactObject;

/// A tool call that waits or has waited for a decision, in its JSON form on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id, which is that of the run's interrupt.
    pub id: String,
    /// The thread.
    pub thread_id: ThreadId,
    /// The run that has called the tool.
    pub run_id: RunId,
    /// The agent.
    pub agent_id: AgentId,
    /// The call.
    pub tool_call_id: Id,
    /// Name of the tool.
    pub tool: String,
    /// Arguments that the model has sent; null once they are erased.
    pub arguments: Option<ExactObject>,
    /// State.
    pub state: ApprovalState,
    /// The people who may decide.
    pub by: Approver,
    /// True if the person may change the arguments.
    pub editable: bool,
    /// Question for the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The person who has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<UserId>,
    /// Time of the decision.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// Route of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<DecisionRoute>,
    /// Arguments that the person has put in place of the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_arguments: Option<ExactObject>,
    /// Reason that the person entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time after which no decision is accepted.
    #[serde(with = "time")]
    pub expires_at: Timestamp,
    /// Progress of the approved call.
    pub executed: CallExecution,
    /// Time at which the run asked.
    #[serde(with = "time")]
    pub created_at: Timestamp,
}

/// State of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApprovalState {
    /// Waits for a decision.
    Open,
    /// The call is or will be made.
    Approved,
    /// The call is not made.
    Denied,
    /// The question was withdrawn.
    Cancelled,
    /// The decision came too late.
    Expired,
}

impl ApprovalState {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 5] = [Self::Open, Self::Approved, Self::Denied, Self::Cancelled, Self::Expired];

    /// Returns the name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Route through which a decision arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DecisionRoute {
    /// A chat request.
    Chat,
    /// The routes of approvals.
    Approvals,
}

/// Progress of an approved call. A call is started at most once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallExecution {
    /// The call has not started.
    #[default]
    No,
    /// The call has started. Without a result, it is unknown whether it took effect.
    Begun,
    /// The result of the call is in the thread.
    Done,
}

impl Approval {
    /// Returns the approval as it is at a time: an open one expires.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        if self.is_expired(now) {
            self.state = ApprovalState::Expired;
        }
        self
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == ApprovalState::Open
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.is_open() && now >= self.expires_at
    }

    /// Returns the arguments of an approved call.
    pub fn final_arguments(&self) -> ExactObject {
        self.edited_arguments.as_ref().or(self.arguments.as_ref()).cloned().unwrap_or_default()
    }

    /// Returns the result of a call that is not made, for the model.
    pub fn refusal(&self) -> String {
        match (self.state, &self.reason) {
            (ApprovalState::Denied, Some(reason)) => {
                format!("the call was not made: a person has denied it, and says: {reason}")
            }
            (ApprovalState::Denied, None) => "the call was not made: a person has denied it".to_owned(),
            (ApprovalState::Cancelled, _) => {
                "the call was not made: the question for approval was withdrawn".to_owned()
            }
            (ApprovalState::Expired, _) => "the call was not made: it was not approved in time".to_owned(),
            (ApprovalState::Open, _) => "the call was not made: it waits for approval".to_owned(),
            (ApprovalState::Approved, _) => match self.executed {
                CallExecution::No => "the call was not made: the run ended before it".to_owned(),
                CallExecution::Begun | CallExecution::Done => {
                    "it is not known whether the call was made: the run ended before its result".to_owned()
                }
            },
        }
    }

    /// Removes the content of messages: arguments and reasons. A call that has not started is withdrawn, since it would be
    /// made without its arguments.
    pub(super) fn erase(&mut self) {
        let is_due = matches!(self.state, ApprovalState::Open | ApprovalState::Approved);
        if is_due && self.executed == CallExecution::No {
            self.state = ApprovalState::Cancelled;
        }
        (self.arguments, self.edited_arguments) = (None, None);
        (self.reason, self.message) = (None, None);
    }
}
