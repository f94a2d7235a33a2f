//! Runs: executions of an agent in a thread, with their states and the steps between them.

use std::num::NonZeroU32;
use std::sync::Arc;

use agent_core::event::{Audience, Id, RunOutcome};
use agent_core::ids::{AgentId, JobId, RunId, ThreadId};
use agent_core::message::{FinishReason, Usage};
use agent_core::role::{OnDisconnect, ResponseFormat};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::time;
use super::{Approval, NodeId, PublicRunError, RunPrompt, RunSelection, RunTiming, ThreadKey};
use crate::fallback::AttemptReport;

/// Time after a process's last renewal at which its runs count as interrupted.
pub const RUN_LEASE_MS: i64 = 10_000;

/// A run, in its JSON form on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Id, unique within the owner.
    pub id: RunId,
    /// The thread.
    pub thread_id: ThreadId,
    /// The turn: the id of its first run.
    pub turn_id: RunId,
    /// The agent.
    pub agent_id: AgentId,
    /// State.
    pub state: RunState,
    /// Reason of a cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CancelReason>,
    /// Cause of the run.
    pub trigger: RunTrigger,
    /// Node below which the answer goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<NodeId>,
    /// Nodes of the run: those sent with it, then those of its answer.
    pub node_ids: Vec<NodeId>,
    /// Run that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    /// Run that continues this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<RunId>,
    /// Effect of a client's disconnect.
    pub on_disconnect: OnDisconnect,
    /// Time without a client after which the run is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u32>,
    /// Number of attached clients.
    pub attached: u32,
    /// State of the run's log of events.
    pub events: RunLogState,
    /// Context of the run's tools.
    #[serde(default, skip_serializing_if = "RunContext::is_empty")]
    pub context: RunContext,
    /// Backend that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Hash of the request to the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_sha256: Option<String>,
    /// Selection of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<RunSelection>,
    /// Times of the run's steps, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<RunTiming>,
    /// Attempts at calls of models and agent servers in the rounds that had more than one, the first
    /// [`MAX_RUN_ATTEMPTS`](super::MAX_RUN_ATTEMPTS), once the run has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptReport>,
    /// Manifest of the prompt, once the run has ended. Stores keep it; it has a separate route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Box<RunPrompt>>,
    /// Reason why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Outcome other than success without pending calls, as AG-UI's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Tool calls that wait or have waited for decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// Token usage, one entry per model.
    pub usage: Vec<Usage>,
    /// Error of a failed or interrupted run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<PublicRunError>,
    /// Time at which the run was accepted.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// Time at which it began to run.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time at which it ended.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Context of a run as given by its request; a run that continues it has the same context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunContext {
    /// The task list for tasks and plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// The user's IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Format of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Arc<ResponseFormat>>,
    /// Limit on the answer of each model call, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<NonZeroU32>,
}

impl RunContext {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunState {
    /// Waits for the thread. Left to `running`, `cancelled`, `failed`, `interrupted`.
    Queued,
    /// A process has it under a lease. Left to every other state but `queued`.
    Running,
    /// Asks people for decisions. Left to `completed`, `cancelled`.
    Waiting,
    /// Final: the answer is complete.
    Completed,
    /// Final: it was stopped.
    Cancelled,
    /// Final: it failed.
    Failed,
    /// Final: its process ended.
    Interrupted,
}

impl RunState {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Interrupted,
    ];

    /// Returns true if no step leaves the state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed | Self::Interrupted)
    }

    /// Returns true if a process has the run, or will have it: its log continues.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Reason of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CancelReason {
    /// A caller requested it.
    Requested,
    /// No client was attached.
    Disconnected,
    /// Another run of the thread displaced it.
    Displaced,
    /// The thread was deleted.
    Deleted,
}

impl CancelReason {
    const ALL: [Self; 4] = [Self::Requested, Self::Disconnected, Self::Displaced, Self::Deleted];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Disconnected => "disconnected",
            Self::Displaced => "displaced",
            Self::Deleted => "deleted",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// Cause of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTrigger {
    /// Kind.
    pub kind: RunTriggerKind,
    /// Reason of a proactive call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The job's occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u64>,
}

impl From<RunTriggerKind> for RunTrigger {
    fn from(kind: RunTriggerKind) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// Kind of a run's cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunTriggerKind {
    /// A new message.
    #[default]
    Chat,
    /// An answer is made again.
    Regenerate,
    /// A user message was edited.
    Edit,
    /// Decisions sent with a chat.
    Resume,
    /// Results of client-side tools.
    Tools,
    /// A decision by the route of approvals.
    Approval,
    /// A scheduled job.
    Job,
    /// A proactive call.
    Proactive,
}

impl RunTriggerKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::Regenerate,
        Self::Edit,
        Self::Resume,
        Self::Tools,
        Self::Approval,
        Self::Job,
        Self::Proactive,
    ];

    /// Returns the name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Regenerate => "regenerate",
            Self::Edit => "edit",
            Self::Resume => "resume",
            Self::Tools => "tools",
            Self::Approval => "approval",
            Self::Job => "job",
            Self::Proactive => "proactive",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// State of a run's log of events, which is empty by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLogState {
    /// Number of events in the log.
    pub count: u64,
    /// True if the log has all events.
    pub complete: bool,
    /// Time until which the log is kept.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Step of a run's state machine.
#[derive(Debug, Clone, PartialEq)]
pub enum RunStep {
    /// Begins a queued run.
    Start,
    /// Ends a running run, or a queued one that does not begin.
    End(RunEnding),
    /// Completes a waiting run, because another run continues it.
    Continue,
    /// Records that the process of the run has ended.
    Interrupt,
    /// Ends a run that was stopped.
    Cancel(CancelReason),
}

/// End of a run as its process reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunEnding {
    /// Kind of the end.
    pub kind: RunEndKind,
    /// Reason why the model stopped.
    pub finish_reason: Option<FinishReason>,
    /// Token usage, one entry per model.
    pub usage: Vec<Usage>,
}

/// Kind of a run's end.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum RunEndKind {
    /// The answer is complete.
    #[default]
    Completed,
    /// The answer has tool calls without results, which a run that continues this one brings.
    Suspended(RunOutcome),
    /// The run was stopped.
    Cancelled(CancelReason),
    /// The run failed.
    Failed(PublicRunError),
    /// The process ends before the run does.
    Interrupted,
}

/// Error of a step: the run's state does not allow it. The run is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is {}", .0.as_str())]
pub struct RunStepError(pub RunState);

impl Run {
    /// Creates a queued run that begins a turn, whose id is the run's.
    pub(super) fn queued(key: &ThreadKey, agent_id: &AgentId, id: &RunId, now: Timestamp) -> Self {
        Self {
            id: id.clone(),
            thread_id: key.id.clone(),
            turn_id: id.clone(),
            agent_id: agent_id.clone(),
            state: RunState::Queued,
            reason: None,
            trigger: RunTrigger::default(),
            parent_id: None,
            node_ids: Vec::new(),
            continues: None,
            continued_by: None,
            on_disconnect: OnDisconnect::default(),
            grace_ms: None,
            context: RunContext::default(),
            attached: 0,
            events: RunLogState::default(),
            backend: None,
            request_sha256: None,
            selection: None,
            timing: None,
            attempts: Vec::new(),
            prompt: None,
            finish_reason: None,
            outcome: None,
            approvals: Vec::new(),
            usage: Vec::new(),
            error: None,
            created_at: now,
            started_at: None,
            ended_at: None,
        }
    }

    /// Applies a step.
    ///
    /// # Errors
    /// [`RunStepError`] if the state does not allow it.
    pub fn step(mut self, step: RunStep, now: Timestamp) -> Result<Self, RunStepError> {
        let allowed = match step {
            RunStep::Start => self.state == RunState::Queued,
            RunStep::End(ref ending) => match self.state {
                RunState::Running => true,
                // Only a run that has started has an answer.
                RunState::Queued => !matches!(ending.kind, RunEndKind::Completed | RunEndKind::Suspended(_)),
                _ => false,
            },
            RunStep::Continue => self.state == RunState::Waiting,
            RunStep::Interrupt => self.state.is_live(),
            RunStep::Cancel(_) => !self.state.is_final(),
        };
        if !allowed {
            return Err(RunStepError(self.state));
        }
        match step {
            RunStep::Start => {
                self.state = RunState::Running;
                self.started_at = Some(time::whole_millis(now));
                return Ok(self);
            }
            RunStep::End(ending) => self.end(ending),
            RunStep::Continue => self.state = RunState::Completed,
            RunStep::Interrupt => self.interrupt(),
            RunStep::Cancel(reason) => self.cancel(reason),
        }
        self.ended_at = self.state.is_final().then(|| time::whole_millis(now));
        Ok(self)
    }

    fn end(&mut self, ending: RunEnding) {
        self.finish_reason = ending.finish_reason;
        self.usage = ending.usage;
        match ending.kind {
            RunEndKind::Completed => self.state = RunState::Completed,
            RunEndKind::Suspended(outcome) => {
                self.state = match outcome {
                    RunOutcome::Interrupt { .. } => RunState::Waiting,
                    _ => RunState::Completed,
                };
                self.outcome = Some(outcome);
            }
            RunEndKind::Cancelled(reason) => self.cancel(reason),
            RunEndKind::Interrupted => self.interrupt(),
            RunEndKind::Failed(failure) => {
                self.state = RunState::Failed;
                self.error = Some(failure);
            }
        }
    }

    fn cancel(&mut self, reason: CancelReason) {
        self.state = RunState::Cancelled;
        self.reason = Some(reason);
        self.outcome = Some(RunOutcome::Cancelled);
    }

    /// Returns the calls that the client has to execute.
    pub fn pending_calls(&self) -> &[Id] {
        match &self.outcome {
            Some(
                RunOutcome::Success { pending_tool_call_ids }
                | RunOutcome::Interrupt { pending_tool_call_ids, .. },
            ) => pending_tool_call_ids,
            _ => &[],
        }
    }

    /// Returns the run for lists and its own route: without the manifest of its prompt, and for visitors without the fields
    /// about the agent's backend and without its nodes, of which they do not see all.
    pub fn shown_to(self, audience: Audience) -> Self {
        let run = Self { prompt: None, ..self };
        match audience {
            Audience::Trusted => run,
            Audience::Visitor => Self {
                parent_id: None,
                node_ids: Vec::new(),
                backend: None,
                request_sha256: None,
                selection: None,
                timing: None,
                attempts: Vec::new(),
                ..run
            },
        }
    }

    fn interrupt(&mut self) {
        self.state = RunState::Interrupted;
        self.error = Some(PublicRunError::interrupted());
    }
}

#[cfg(test)]
mod tests;
