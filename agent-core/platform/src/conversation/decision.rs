//! Decisions about approvals, and the runs that wait for them.

use agent_core::event::{Interrupt, RunOutcome};
use agent_core::ids::{RunId, UserId};
use jiff::Timestamp;

use super::time;
use super::{
    Approval, ApprovalState, CancelReason, ConversationError, DecisionRoute, LogEnd, NewNode, Run, RunKey,
    RunState, RunTrigger,
};
use crate::exact_object::ExactObject;

/// Maximum length of the reason that a person gives, in characters.
pub const MAX_REASON_CHARS: usize = 2_000;

/// A person's decision about an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Id of the approval.
    pub approval: String,
    /// The decision.
    pub verdict: Verdict,
    /// The person.
    pub by: UserId,
    /// Route of the decision.
    pub via: DecisionRoute,
}

/// Content of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Makes the call, with other arguments if there are any.
    Approve {
        /// Arguments in place of the model's.
        arguments: Option<ExactObject>,
    },
    /// Refuses the call.
    Deny {
        /// Reason for the model.
        reason: Option<String>,
    },
    /// Withdraws the question.
    Cancel,
}

/// Request to change a run that waits or has waited for decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeRunRequest {
    /// The run.
    pub run: RunKey,
    /// The change.
    pub change: RunChange,
    /// Current time.
    pub now: Timestamp,
}

/// Result of a change of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedRun {
    /// The run as it is then.
    pub run: Run,
    /// True if this call has changed it; false if it was so before, as after the same change by another caller.
    pub is_changed: bool,
}

/// Kind of a change of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunChange {
    /// Records a decision. Fails as [`Approval::decide`](Approval::decide) does.
    Decide(Decision),
    /// Records that an approved call begins; [`ConversationError::CallRefused`] if it must not.
    BeginCall {
        /// Id of the approval.
        approval: String,
        /// The run that continues this one and makes the call.
        by: RunId,
        /// Process that started it.
        process: String,
    },
    /// Adds results of the client's calls below the messages of a run that waits; their parents are not read. Results of calls
    /// that are not [pending](Run::pending_calls) are left out, and a run that does not wait stays as it is.
    AddResults(Vec<NewNode>),
    /// Cancels a run that waits, and frees its thread. Any other run stays as it is.
    CancelWaiting(CancelReason),
    /// Ends a run that waits for decisions that have expired: adds a result for each call that was not made, and frees
    /// the thread. A run with an open question or with an approved call stays as it is.
    Expire,
    /// Adds a run of the same turn that has ended with the open questions of this one, which stays as it is;
    /// [`ConversationError::RunIdUsed`] if the owner has a run of its id.
    ReissueInterrupts(Box<ReissueInterruptsRequest>),
}

/// Request to store a run that ends at once with the questions of a run that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct ReissueInterruptsRequest {
    /// Id of the run.
    pub run_id: RunId,
    /// Cause of the run.
    pub trigger: RunTrigger,
    /// Process of the run.
    pub process: String,
    /// The questions.
    pub outcome: RunOutcome,
    /// The whole log.
    pub log: LogEnd,
}

impl Verdict {
    fn state(&self) -> ApprovalState {
        match self {
            Self::Approve { .. } => ApprovalState::Approved,
            Self::Deny { .. } => ApprovalState::Denied,
            Self::Cancel => ApprovalState::Cancelled,
        }
    }
}

impl Approval {
    /// Applies a decision. The same decision again changes nothing; without a reason, it is the same with any. An expired
    /// question can be withdrawn. Numbers of changed arguments that a client has only rounded get their digits back.
    ///
    /// # Errors
    /// [`ConversationError::ApprovalDecided`], [`ConversationError::ApprovalExpired`],
    /// [`ConversationError::Invalid`] for arguments that must not be changed.
    pub fn decide(&mut self, decision: &Decision, now: Timestamp) -> Result<(), ConversationError> {
        let state = decision.verdict.state();
        let edited = match (&decision.verdict, &self.arguments) {
            (Verdict::Approve { arguments: Some(edited) }, Some(original)) => {
                Some(edited.with_digits_of(original))
            }
            (Verdict::Approve { arguments }, _) => arguments.clone(),
            _ => None,
        };
        if self.state == ApprovalState::Expired {
            return if state == ApprovalState::Cancelled {
                Ok(())
            } else {
                Err(ConversationError::ApprovalExpired)
            };
        }
        if !self.is_open() {
            let is_same = match &decision.verdict {
                Verdict::Approve { .. } => self.edited_arguments == edited,
                Verdict::Deny { reason } => reason.is_none() || self.reason == *reason,
                Verdict::Cancel => true,
            };
            return match self.state == state && is_same {
                true => Ok(()),
                false => Err(ConversationError::ApprovalDecided { state: self.state }),
            };
        }
        if self.is_expired(now) && state != ApprovalState::Cancelled {
            return Err(ConversationError::ApprovalExpired);
        }
        match &decision.verdict {
            Verdict::Approve { arguments: Some(_) } if !self.editable => {
                let fault = "the arguments of this call must not be changed".to_owned();
                return Err(ConversationError::Invalid(fault));
            }
            Verdict::Approve { .. } => self.edited_arguments = edited,
            Verdict::Deny { reason } => self.reason.clone_from(reason),
            Verdict::Cancel => {}
        }
        self.state = state;
        self.decided_by = Some(decision.by.clone());
        self.decided_at = Some(time::whole_millis(now));
        self.via = Some(decision.via);
        Ok(())
    }
}

impl Run {
    /// Returns the run as it is at a time: open approvals expire.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.approvals = self.approvals.into_iter().map(|approval| approval.at(now)).collect();
        self
    }

    /// Removes a call from those that the client has to execute. Returns false for a call that is not one of them.
    pub(super) fn complete_client_call(&mut self, call: &str) -> bool {
        let Some(RunOutcome::Interrupt { pending_tool_call_ids, .. }) = &mut self.outcome else {
            return false;
        };
        let count = pending_tool_call_ids.len();
        pending_tool_call_ids.retain(|id| **id != *call);
        pending_tool_call_ids.len() < count
    }

    /// Returns true if a decision is awaited.
    pub fn is_undecided(&self) -> bool {
        self.approvals.iter().any(Approval::is_open)
    }

    /// Returns the time from which the run waits for no more decisions: the last of its open questions expires then, or its
    /// last decision was made then. `None` if it does not wait.
    pub fn due_at(&self) -> Option<Timestamp> {
        if self.state != RunState::Waiting {
            return None;
        }
        let open =
            self.approvals.iter().filter(|approval| approval.is_open()).map(|approval| approval.expires_at);
        let decided = self.approvals.iter().filter_map(|approval| approval.decided_at);
        open.max().or_else(|| decided.max()).or(Some(self.created_at))
    }

    /// Returns true if the run waits for nothing but decisions that have expired at `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let is_refused = |approval: &Approval| match approval.state {
            ApprovalState::Open => approval.is_expired(now),
            state => state != ApprovalState::Approved,
        };
        self.state == RunState::Waiting && self.approvals.iter().all(is_refused)
    }

    /// Returns the interrupts whose decisions are awaited, as the event at the run's end has them.
    pub fn open_interrupts(&self) -> Vec<&Interrupt> {
        let Some(RunOutcome::Interrupt { interrupts, .. }) = &self.outcome else { return Vec::new() };
        let is_open =
            |id: &str| self.approvals.iter().any(|approval| approval.id == id && approval.is_open());
        interrupts.iter().filter(|interrupt| is_open(&interrupt.id)).collect()
    }
}
