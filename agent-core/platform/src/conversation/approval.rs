//! Approvals: tool calls of a run that wait for a person's decision.

use agent_core::event::{Id, Interrupt, RunOutcome};
use agent_core::ids::{AgentId, RunId, ThreadId, UserId};
use agent_core::message::ToolCall;
use agent_core::role::{ApprovalBy, ApprovalRule};
use agent_core::tool::{ExecutionContext, ToolSpec};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::time;
use super::{CancelReason, ConversationError, Run, RunKey, RunState};
use crate::workspace::utc_time;

/// Time for a decision, if the role has none, in milliseconds: a day.
const DEFAULT_APPROVAL_TTL_MS: i64 = 24 * 60 * 60 * 1000;
/// Kind of the interrupts that ask for the approval of a tool call.
const TOOL_CALL_REASON: &str = "tool_call";
/// Maximum length of the reason that a person gives, in characters.
pub const MAX_REASON_CHARS: usize = 2_000;

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
    pub arguments: Value,
    /// State.
    pub state: ApprovalState,
    /// The people who may decide.
    pub by: ApprovalBy,
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
    pub edited_arguments: Option<Map<String, Value>>,
    /// Reason that the person has given.
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
    /// The time for the decision is over.
    Expired,
}

impl ApprovalState {
    const ALL: [Self; 5] = [Self::Open, Self::Approved, Self::Denied, Self::Cancelled, Self::Expired];

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

/// Route by which a decision has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DecisionRoute {
    /// A chat request.
    Chat,
    /// The routes of approvals.
    Approvals,
}

/// Progress of an approved call. A call is begun at most once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallExecution {
    /// It was not begun.
    #[default]
    No,
    /// It was begun; without a result, it is not known whether it took effect.
    Begun,
    /// Its result is in the thread.
    Done,
}

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
        arguments: Option<Map<String, Value>>,
    },
    /// Refuses the call.
    Deny {
        /// Reason for the model.
        reason: Option<String>,
    },
    /// Withdraws the question.
    Cancel,
}

/// A change of a run that waits or has waited for decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeRun {
    /// The run.
    pub run: RunKey,
    /// The change.
    pub change: RunChange,
    /// Current time.
    pub now: Timestamp,
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
        /// Process that has begun it.
        process: String,
    },
    /// Cancels a run that waits, and frees its thread. Any other run stays as it is.
    CancelWaiting(CancelReason),
    /// Ends a run that waits for decisions whose time is over: adds a result for each call that was not made, and frees
    /// the thread. A run with an open question or with an approved call stays as it is.
    Expire,
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
    /// Creates the approval that an interrupt of a run asks for; `None` if it asks for something else.
    pub fn from_interrupt(
        interrupt: &Interrupt,
        run: &Run,
        calls: &[&ToolCall],
        now: Timestamp,
    ) -> Option<Self> {
        let id = interrupt.tool_call_id.as_ref().filter(|_| interrupt.reason == TOOL_CALL_REASON)?;
        let call = calls.iter().find(|call| *call.id == **id)?;
        let metadata = interrupt.metadata.as_ref().map(|metadata| &metadata["agentd"]);
        let by = metadata.and_then(|metadata| ApprovalBy::deserialize(&metadata["by"]).ok());
        let expires_at = interrupt.expires_at.as_ref().and_then(|time| time.parse().ok());
        let default_expiry = || {
            now.checked_add(SignedDuration::from_millis(DEFAULT_APPROVAL_TTL_MS)).unwrap_or(Timestamp::MAX)
        };
        Some(Self {
            id: interrupt.id.clone(),
            thread_id: run.thread_id.clone(),
            run_id: run.id.clone(),
            agent_id: run.agent_id.clone(),
            tool_call_id: id.clone(),
            tool: call.function.name.clone(),
            arguments: serde_json::from_str(&call.function.arguments).unwrap_or_default(),
            state: ApprovalState::Open,
            by: by.unwrap_or_default(),
            editable: metadata.is_some_and(|metadata| metadata["editable"] == true),
            message: interrupt.message.clone(),
            decided_by: None,
            decided_at: None,
            via: None,
            edited_arguments: None,
            reason: None,
            expires_at: time::whole_millis(expires_at.unwrap_or_else(default_expiry)),
            executed: CallExecution::No,
            created_at: now,
        })
    }

    /// Returns the approval as it is at a time: an open one expires.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        if self.is_expired(now) {
            self.state = ApprovalState::Expired;
        }
        self
    }

    fn is_open(&self) -> bool {
        self.state == ApprovalState::Open
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.is_open() && now >= self.expires_at
    }

    /// Applies a decision. The same decision again changes nothing. An expired question can be withdrawn.
    ///
    /// # Errors
    /// [`ConversationError::ApprovalDecided`], [`ConversationError::ApprovalExpired`],
    /// [`ConversationError::Invalid`] for arguments that must not be changed.
    pub fn decide(&mut self, decision: &Decision, now: Timestamp) -> Result<(), ConversationError> {
        let state = decision.verdict.state();
        if self.state == ApprovalState::Expired {
            return if state == ApprovalState::Cancelled {
                Ok(())
            } else {
                Err(ConversationError::ApprovalExpired)
            };
        }
        if !self.is_open() {
            let edited = match &decision.verdict {
                Verdict::Approve { arguments } => arguments.as_ref(),
                _ => None,
            };
            return match self.state == state && self.edited_arguments.as_ref() == edited {
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
            Verdict::Approve { arguments } => self.edited_arguments.clone_from(arguments),
            Verdict::Deny { reason } => self.reason.clone_from(reason),
            Verdict::Cancel => {}
        }
        self.state = state;
        self.decided_by = Some(decision.by.clone());
        self.decided_at = Some(time::whole_millis(now));
        self.via = Some(decision.via);
        Ok(())
    }

    /// Returns the arguments with which an approved call is made.
    pub fn final_arguments(&self) -> Value {
        match &self.edited_arguments {
            Some(edited) => Value::Object(edited.clone()),
            None => self.arguments.clone(),
        }
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
            (ApprovalState::Expired, _) => "the call was not made: nobody has approved it in time".to_owned(),
            (ApprovalState::Open, _) => "the call was not made: it waits for approval".to_owned(),
            (ApprovalState::Approved, _) => match self.executed {
                CallExecution::No => "the call was not made: the run ended before it".to_owned(),
                CallExecution::Begun | CallExecution::Done => {
                    "it is not known whether the call was made: the run ended before its result".to_owned()
                }
            },
        }
    }

    /// Removes what the thread's messages say: arguments and reasons.
    pub(super) fn erase(&mut self) {
        (self.arguments, self.edited_arguments) = (Value::Null, None);
        (self.reason, self.message) = (None, None);
    }
}

impl Run {
    /// Returns the run as it is at a time: open approvals expire.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.approvals = self.approvals.into_iter().map(|approval| approval.at(now)).collect();
        self
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

    /// Returns true if the run waits for nothing but decisions whose time is over at `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let is_refused = |approval: &Approval| match approval.state {
            ApprovalState::Open => approval.is_expired(now),
            state => state != ApprovalState::Approved,
        };
        self.state == RunState::Waiting && self.approvals.iter().all(is_refused)
    }

    /// Returns the interrupts whose decisions are awaited, as the run's end has told them.
    pub fn open_interrupts(&self) -> Vec<&Interrupt> {
        let Some(RunOutcome::Interrupt { interrupts, .. }) = &self.outcome else { return Vec::new() };
        let is_open =
            |id: &str| self.approvals.iter().any(|approval| approval.id == id && approval.is_open());
        interrupts.iter().filter(|interrupt| is_open(&interrupt.id)).collect()
    }
}

/// Creates the interrupt that asks for the approval of a tool call in a run. The tool loop adds the id of the call.
pub fn approval_interrupt(
    rule: &ApprovalRule,
    tool: &ToolSpec,
    context: &ExecutionContext,
    now: Timestamp,
) -> Interrupt {
    let ttl = rule.ttl_ms.and_then(|ttl| i64::try_from(ttl).ok()).unwrap_or(DEFAULT_APPROVAL_TTL_MS);
    let expires_at = now.checked_add(SignedDuration::from_millis(ttl)).unwrap_or(Timestamp::MAX);
    let editable = rule.editable.unwrap_or(true);
    let mut properties = json!({"approved": {"type": "boolean"}, "reason": {"type": "string"}});
    if editable {
        properties["editedArgs"] = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    }
    Interrupt {
        id: approval_id(&context.user_id, &context.run_id),
        reason: TOOL_CALL_REASON.to_owned(),
        tool_call_id: None,
        message: rule.message.clone().or_else(|| Some(format!("Allow the call of {}?", tool.name))),
        expires_at: Some(utc_time(expires_at)),
        response_schema: Some(json!({"type": "object", "required": ["approved"], "properties": properties})),
        metadata: Some(json!({"agentd": {"tool": tool.name, "by": rule.by, "editable": editable}})),
    }
}

/// Creates the id of an approval, which names the run that asks for it.
fn approval_id(owner: &UserId, run: &RunId) -> String {
    let place = URL_SAFE_NO_PAD.encode(format!("{owner}\n{run}"));
    let number: String = agent_core::new_id().chars().filter(char::is_ascii_hexdigit).skip(12).collect();
    format!("{number}.{place}")
}

/// Returns the owner and the run that an id of an approval names; `None` for a text that is no such id.
pub fn parse_approval_id(id: &str) -> Option<(UserId, RunId)> {
    let (_, place) = id.split_once('.')?;
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(place).ok()?).ok()?;
    let (owner, run) = place.split_once('\n')?;
    Some((owner.into(), run.into()))
}
