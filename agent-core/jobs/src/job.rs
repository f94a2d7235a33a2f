//! Jobs: the scheduler's unit of work, its state machine and the trait [`JobStore`] that persists it.
//!
//! A [`Job`] is plain data. Every transition is a [`Step`]: a pure function from a job and the time to the next job,
//! or to a [`StepError`]. Which due jobs a worker gets is decided by a [`claim::ClaimPlanner`]. A [`JobStore`] finds
//! jobs and persists results atomically; it decides nothing itself, so all stores agree.
//!
//! # States
//!
//! An occurrence is one time at which a job is due. A one-off job has one occurrence; a periodic job has a sequence
//! of them, numbered from 1.
//!
//! ```text
//!                 claim                    succeed
//! (new) ─▶ scheduled ─▶ running ───────────────▶ completed, or scheduled for the next occurrence
//!              ▲           │  ▲
//!              │           │  └─ claim ── retryable ◀─ fail ─┐
//!              │           └─────────────────────────────────┤
//!           redrive                                          └─ no attempt left, or discard
//!              └──────── discarded, or scheduled for the next occurrence with a dead letter ◀┘
//! ```
//!
//! `paused` and `cancelled` are reachable from every state that is not final. A paused job keeps its position in the
//! schedule: a delivery in progress ends normally, and no new one begins until the job is resumed.
//!
//! # Guarantees
//!
//! - A claim is a lease: the worker that holds it extends it while it delivers. Once the lease has expired, the job
//!   can be claimed again. An interrupted delivery is therefore retried, and an occurrence is delivered at least
//!   once. It uses up no attempt, unless five deliveries of the occurrence have been interrupted before.
//! - Every claim has a new fencing token, its [`fence`](Job::fence). A report with an older token fails with
//!   [`StepError::Stale`] and changes nothing, however late it arrives.
//! - An occurrence's [`key`](Job::occurrence_key) is the same in every attempt and unique to the occurrence, so the
//!   receiver can use it to deduplicate.
//! - Occurrences that become due during a delivery, or that were missed while no scheduler ran, are computed from the
//!   schedule and not stored. The size of a job does not depend on the number of missed occurrences.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::JobId;
use jiff::Timestamp;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schedule::{MisfirePolicy, OverlapPolicy, Schedule};

pub mod claim;
mod memory;
mod occurrence;
mod outcome;
mod payload;
mod position;
mod retry;
pub mod serde_timestamp;
mod signal;
mod step;
mod store;
mod view;

pub use memory::MemoryJobStore;
pub use occurrence::occurrence_key;
pub use outcome::AttemptOutcome;
pub use payload::{JobKind, JobPayload, PayloadError};
pub use position::{MisfireDecision, NextPosition, SchedulePosition};
pub use retry::backoff;
pub use signal::WakeSignal;
pub use step::{Step, StepError, StepOutcome, StepResult};
pub use store::{
    CANCEL_BATCH_SIZE, ClaimRequest, CompanyQuota, InsertOutcome, JobCounts, JobFilter, JobOrder, JobPage,
    JobScope, JobStore, MAX_JOBS_PER_CLAIM, MAX_JOBS_PER_PAGE,
};
pub use view::{AttemptView, Delivery, JobView};

/// Default number of attempts per occurrence.
pub(crate) const DEFAULT_MAX_ATTEMPTS: u32 = 12;
/// Upper limit of [`Job::max_attempts`].
pub const MAX_ATTEMPTS_LIMIT: u32 = 100;
/// Maximum number of deliveries of an occurrence that are abandoned without using up an attempt. When a process is killed, the
/// deliveries that it makes or receives are lost; the bound ends a job that kills it each time.
pub(crate) const MAX_ABANDONED: u32 = 5;
/// Maximum number of past attempts that a job records; older ones are dropped.
pub(crate) const MAX_RECORDED_ATTEMPTS: usize = 10;
/// Maximum number of dead letters that a periodic job keeps; older ones are dropped.
pub(crate) const MAX_DEAD_LETTERS: usize = 20;
/// Maximum length of an idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;
/// Maximum length of a recorded error text, in bytes; longer text is truncated.
pub const MAX_ERROR_BYTES: usize = 1024;

/// State of a job as reported by the API and stored in indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waiting for its due time. Entered by creation, `release`, `reschedule`, `redrive` and the end of the previous
    /// occurrence.
    Scheduled,
    /// Claimed by a worker under a lease. Entered by `claim`; left by `end`, `release`, `pause`, `cancel` or lease
    /// expiry.
    Running,
    /// Waiting for the next attempt after one that failed, was released or lost its lease.
    Retryable,
    /// Suspended: no delivery begins until the job is resumed.
    Paused,
    /// Final: the last occurrence succeeded, or the schedule has no occurrence left.
    Completed,
    /// Final: the last occurrence failed permanently. It can be redriven.
    Discarded,
    /// Final: cancelled by a caller, or by a receiver that answered that the job is gone.
    Cancelled,
}

impl JobState {
    /// All states, in the order of a job's life cycle.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Running,
        Self::Retryable,
        Self::Paused,
        Self::Completed,
        Self::Discarded,
        Self::Cancelled,
    ];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Retryable => "retryable",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Returns true if no transition follows without a caller's request.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Discarded | Self::Cancelled)
    }
}

/// Life-cycle phase of a job, independent of whether it is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Phase {
    /// Waiting for the first attempt at its occurrence.
    Scheduled,
    /// Claimed by a worker.
    Running {
        /// Time at which the lease expires unless it is extended.
        #[serde(with = "serde_timestamp")]
        lease: Timestamp,
    },
    /// Waiting for another attempt at its occurrence.
    Retryable,
    /// Final: the last occurrence succeeded, or the schedule has none left.
    Completed {
        /// Time of completion.
        #[serde(with = "serde_timestamp")]
        at: Timestamp,
    },
    /// Final: the last occurrence failed permanently.
    Discarded {
        /// Time of completion.
        #[serde(with = "serde_timestamp")]
        at: Timestamp,
    },
    /// Final: cancelled.
    Cancelled {
        /// Time of completion.
        #[serde(with = "serde_timestamp")]
        at: Timestamp,
    },
}

/// Record of one finished delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Number of the occurrence, from 1.
    pub occurrence: u64,
    /// Number of the attempt at this occurrence, from 1.
    pub attempt: u32,
    /// Time at which the attempt ended.
    #[serde(with = "serde_timestamp")]
    pub ended: Timestamp,
    /// Duration in milliseconds; absent if the lease expired without a report from the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// HTTP status of the response, if one was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason of the failure; absent if the attempt succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Occurrence of a periodic job that failed permanently and can be redriven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Number of the occurrence, from 1.
    pub occurrence: u64,
    /// Scheduled time of the occurrence.
    #[serde(with = "serde_timestamp")]
    pub scheduled_for: Timestamp,
    /// Time at which the scheduler gave up on it.
    #[serde(with = "serde_timestamp")]
    pub at: Timestamp,
    /// Error of the last attempt.
    pub error: String,
}

/// Idempotency key of a job, with a fingerprint of the job's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// Key chosen by the caller, unique within the company.
    pub key: String,
    /// Hash of the request in hexadecimal. The same key with another fingerprint is a conflict.
    pub fingerprint: String,
}

/// Parameters of a new job.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Work to do, and the user for whom it is done.
    pub payload: JobPayload,
    /// Times at which the job runs.
    pub schedule: Schedule,
    /// Policy for occurrences missed while no scheduler ran.
    pub misfire: MisfirePolicy,
    /// Policy for occurrences that become due during a delivery.
    pub overlap: OverlapPolicy,
    /// Number of attempts per occurrence, clamped between 1 and [`MAX_ATTEMPTS_LIMIT`].
    pub max_attempts: u32,
    /// Idempotency key, if the request had one.
    pub idempotency: Option<IdempotencyKey>,
}

impl NewJob {
    /// Creates a job with the default policies and at most 12 attempts.
    pub fn new(payload: JobPayload, schedule: Schedule) -> Self {
        Self {
            payload,
            schedule,
            misfire: MisfirePolicy::default(),
            overlap: OverlapPolicy::default(),
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            idempotency: None,
        }
    }
}

/// Persistent state of a job. Changed only by [`Step`]s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Job id: a UUID version 7, so that jobs sort by creation time.
    pub id: JobId,
    /// Work to do, and the user for whom it is done. Immutable and therefore shared.
    pub payload: Arc<JobPayload>,
    /// Times at which the job runs.
    pub schedule: Schedule,
    /// Policy for occurrences missed while no scheduler ran.
    pub misfire: MisfirePolicy,
    /// Policy for occurrences that become due during a delivery.
    pub overlap: OverlapPolicy,
    /// Number of attempts per occurrence.
    pub max_attempts: u32,
    /// Idempotency key, if the request had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<IdempotencyKey>,
    /// Creation time.
    #[serde(with = "serde_timestamp")]
    pub created: Timestamp,
    /// Life-cycle phase.
    pub phase: Phase,
    /// True if the job is paused, in any phase.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Current occurrence: the one that is waiting or running, or the last one of a final job.
    #[serde(rename = "place")]
    pub position: SchedulePosition,
    /// Due time of the next attempt: the scheduled time of the occurrence, or later after a failed attempt.
    #[serde(with = "serde_timestamp")]
    pub due: Timestamp,
    /// Number of started attempts at this occurrence.
    pub attempt: u32,
    /// Number of deliveries of this occurrence that were abandoned and used up no attempt: the lease expired, or the connection
    /// to the receiver ended without an answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub abandoned: u32,
    /// Fencing token of the last claim.
    pub fence: u64,
    /// Misfire decision for this occurrence; absent before its first attempt, unless it is redriven. If present, the
    /// receiver may already know the occurrence's number.
    #[serde(rename = "begun", default, skip_serializing_if = "Option::is_none")]
    pub misfire_decision: Option<MisfireDecision>,
    /// Position to take after this occurrence, if it is not the next one of the schedule.
    #[serde(rename = "then", default, skip_serializing_if = "Option::is_none")]
    pub next_position: Option<NextPosition>,
    /// Most recent attempts, oldest first; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Permanently failed occurrences of a periodic job, oldest first; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<DeadLetter>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Job {
    /// Creates a job. One whose time has passed is due immediately; one whose schedule has no occurrence left is
    /// completed.
    ///
    /// Payload and schedule are not validated here; the caller must have validated them.
    pub fn new(new: NewJob, now: Timestamp) -> Self {
        let first = new.schedule.first(now);
        let scheduled_for = first.unwrap_or(now);
        Self {
            id: agent_core::new_id().into(),
            payload: new.payload.into(),
            schedule: new.schedule,
            misfire: new.misfire,
            overlap: new.overlap,
            max_attempts: new.max_attempts.clamp(1, MAX_ATTEMPTS_LIMIT),
            idempotency: new.idempotency,
            created: now,
            phase: first.map_or(Phase::Completed { at: now }, |_| Phase::Scheduled),
            paused: false,
            position: SchedulePosition { occurrence: 1, scheduled_for },
            due: scheduled_for.max(now),
            attempt: 0,
            abandoned: 0,
            fence: 0,
            misfire_decision: None,
            next_position: None,
            attempts: Vec::new(),
            dead_letters: Vec::new(),
        }
    }

    /// Returns the state reported by the API.
    pub fn state(&self) -> JobState {
        match self.phase {
            Phase::Completed { .. } => JobState::Completed,
            Phase::Discarded { .. } => JobState::Discarded,
            Phase::Cancelled { .. } => JobState::Cancelled,
            _ if self.paused => JobState::Paused,
            Phase::Scheduled => JobState::Scheduled,
            Phase::Running { .. } => JobState::Running,
            Phase::Retryable => JobState::Retryable,
        }
    }

    /// Returns the time at which the scheduler must next process the job: its due time, or the expiry of its lease.
    /// `None` if it is final or paused.
    pub fn next_run_at(&self) -> Option<Timestamp> {
        match self.phase {
            _ if self.paused => None,
            Phase::Scheduled | Phase::Retryable => Some(self.due),
            Phase::Running { lease } => Some(lease),
            Phase::Completed { .. } | Phase::Discarded { .. } | Phase::Cancelled { .. } => None,
        }
    }

    /// Returns the due time of the next delivery, or of the last one for a job that is final. For a job that was rescheduled
    /// during a delivery, it is that of the new schedule.
    pub fn next_delivery_at(&self) -> Timestamp {
        match self.next_position {
            Some(NextPosition::Moved { position }) => position.scheduled_for,
            Some(NextPosition::Back { .. }) | None => self.due,
        }
    }

    /// Returns the time at which the job became final.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Completed { at } | Phase::Discarded { at } | Phase::Cancelled { at } => Some(at),
            _ => None,
        }
    }

    /// Returns true if the job is claimed, which includes an expired lease until the job is claimed again.
    pub fn is_delivering(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Returns the key of the current occurrence, which is the same in every attempt. Sent as `webhook-id` (Standard
    /// Webhooks).
    pub fn occurrence_key(&self) -> String {
        occurrence_key(&self.id, self.position.occurrence)
    }

    /// Returns the error of the last attempt, or `None` if it succeeded.
    pub fn last_error(&self) -> Option<&str> {
        self.attempts.last()?.error.as_deref()
    }

    /// Returns true if the job is not final and has dead letters that can be redriven.
    pub fn has_dead_letters(&self) -> bool {
        !self.dead_letters.is_empty() && !self.state().is_final()
    }

    /// Returns the scheduling lag: the time since the job became due without being claimed.
    pub fn lag(&self, now: Timestamp) -> Duration {
        match self.phase {
            Phase::Scheduled | Phase::Retryable if !self.paused => {
                Duration::try_from(now.duration_since(self.due)).unwrap_or_default()
            }
            _ => Duration::ZERO,
        }
    }
}
