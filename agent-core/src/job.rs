//! Jobs: work that waits for its time, and what happens to it until it is done.
//!
//! A [`Job`] is plain data, and everything that can happen to one is a [`Step`]: a pure function from the job
//! as it is, and the time, to the job as it is then, or to the [`Refusal`] that says why not. A [`JobStore`]
//! finds jobs and keeps what a step has made of them, all of it or nothing; it decides nothing itself, so all
//! stores agree.
//!
//! # States
//!
//! An occurrence is one time at which a job is due: a job that is due once has one, a periodic job has one
//! after the other, numbered from 1.
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
//! `paused` and `cancelled` can be had from every state that is not final. A paused job keeps its place: a
//! delivery that is under way ends as it would, and nothing begins until it is resumed.
//!
//! # Promises
//!
//! - A claim is a lease: whoever holds it goes on extending it, and when it has run out, the job may be
//!   claimed again. So what was interrupted is tried again, and an occurrence is delivered at least once.
//! - Every claim has a new number, its [`fence`](Job::fence). What the holder of an older one reports is
//!   [`Refusal::Stale`] and changes nothing, however late it comes.
//! - An occurrence's [`key`](Job::occurrence_key) is the same in every attempt and never another's, so
//!   whoever receives it can make its effect happen once.
//! - Occurrences that come due while one is under way, or that passed while nobody was there, are counted by
//!   arithmetic and not kept one by one: a job has the same size whatever it missed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::schedule::{Misfire, Overlap, Schedule};

mod memory;
pub mod moment;
mod payload;
mod retry;
mod signal;
mod step;
mod store;
mod view;

pub use memory::MemoryJobs;
pub use payload::{JobKind, JobPayload, PayloadError};
pub use retry::backoff;
pub use signal::WakeSignal;
pub use step::{Outcome, Refusal, Step, Stepped};
pub use store::{
    Claim, Inserted, JobCounts, JobFilter, JobPage, JobStore, MAX_CLAIM, MAX_JOBS_PAGE, Quota, Scope,
};
pub use view::{Delivery, JobView, occurrence_key};

/// How often an occurrence is tried, unless its job says otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 12;
/// How often an occurrence can be tried at most.
pub const MAX_MAX_ATTEMPTS: u32 = 100;
/// How many of its last attempts a job remembers.
pub const MAX_ATTEMPTS_KEPT: usize = 10;
/// How many of its last dead letters a periodic job remembers.
pub const MAX_DEAD_LETTERS: usize = 20;
/// The most bytes of an idempotency key.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;
/// The most bytes of an error's text that is kept.
pub const MAX_ERROR_BYTES: usize = 1024;

/// What a job is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for its time.
    Scheduled,
    /// Somebody has claimed it and delivers it.
    Running,
    /// An attempt has failed, and the next one waits for its time.
    Retryable,
    /// Nothing happens until it is resumed.
    Paused,
    /// Final: its last occurrence succeeded.
    Completed,
    /// Final: its last occurrence failed for good. It can be run again.
    Discarded,
    /// Final: somebody did not want it any more.
    Cancelled,
}

impl JobState {
    /// All, in the order of a job's life.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Running,
        Self::Retryable,
        Self::Paused,
        Self::Completed,
        Self::Discarded,
        Self::Cancelled,
    ];

    /// The name on the wire and in stores.
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

    /// The state of such a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether nothing follows by itself.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Discarded | Self::Cancelled)
    }
}

/// Where a job stands, apart from whether it is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Phase {
    /// Waits for the first attempt at its occurrence.
    Scheduled,
    /// Is claimed.
    Running {
        /// When the lease runs out unless it is extended.
        #[serde(with = "moment")]
        lease: Timestamp,
    },
    /// Waits for another attempt.
    Retryable,
    /// Final.
    Completed {
        /// Since when.
        #[serde(with = "moment")]
        at: Timestamp,
    },
    /// Final.
    Discarded {
        /// Since when.
        #[serde(with = "moment")]
        at: Timestamp,
    },
    /// Final.
    Cancelled {
        /// Since when.
        #[serde(with = "moment")]
        at: Timestamp,
    },
}

/// One attempt to deliver an occurrence, once it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Which occurrence.
    pub occurrence: u64,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// When it ended.
    #[serde(with = "moment")]
    pub ended: Timestamp,
    /// How long it took, in milliseconds; absent where whoever made it never reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The HTTP status of the answer, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it failed; absent for one that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An occurrence of a periodic job that failed for good, kept to be run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Which occurrence.
    pub occurrence: u64,
    /// The time that it was for.
    #[serde(with = "moment")]
    pub scheduled_for: Timestamp,
    /// When it was given up.
    #[serde(with = "moment")]
    pub at: Timestamp,
    /// Why it failed the last time.
    pub error: String,
}

/// A place in a job's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The occurrence's number, from 1.
    pub occurrence: u64,
    /// The time that it is for.
    #[serde(with = "moment")]
    pub scheduled_for: Timestamp,
}

/// What was decided when the first attempt at an occurrence began, or when it was to be run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// When that was.
    #[serde(with = "moment")]
    pub at: Timestamp,
    /// The schedule's time after it, by the rule for missed occurrences.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::option")]
    pub next: Option<Timestamp>,
    /// Whether it was discarded before and is run again, which no rule leaves out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// Where a job goes after the occurrence that it is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Then {
    /// It was moved while it was being delivered. What is under way is not tried again.
    Moved {
        /// The first occurrence of the new schedule.
        place: Place,
    },
    /// It runs a dead letter again, and goes back to where it was.
    Back {
        /// Where it was.
        place: Place,
    },
}

impl Then {
    fn place(self) -> Place {
        match self {
            Self::Moved { place } | Self::Back { place } => place,
        }
    }
}

/// A key that makes asking for the same job twice harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// What the caller chose, unique within the company.
    pub key: String,
    /// A hash of what was asked, in hexadecimal: the same key for something else is a mistake.
    pub fingerprint: String,
}

/// What is asked for when a job is made.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What is to be done, and for whom.
    pub payload: JobPayload,
    /// When.
    pub schedule: Schedule,
    /// What becomes of occurrences that nobody was there to deliver.
    pub misfire: Misfire,
    /// What becomes of occurrences that come due while one is under way.
    pub overlap: Overlap,
    /// How often each occurrence is tried, at least once and at most [`MAX_MAX_ATTEMPTS`] times.
    pub max_attempts: u32,
    /// Makes asking twice harmless.
    pub idempotency: Option<Idempotency>,
}

impl NewJob {
    /// A job with the usual policies.
    pub fn new(payload: JobPayload, schedule: Schedule) -> Self {
        Self {
            payload,
            schedule,
            misfire: Misfire::default(),
            overlap: Overlap::default(),
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            idempotency: None,
        }
    }
}

/// A job as it is kept. [`Step`]s change it, and nothing else does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// A UUID of version 7, so that jobs sort by the time of their making.
    pub id: String,
    /// What is to be done, and for whom. Shared, since it stays as it is for as long as there is the job.
    pub payload: Arc<JobPayload>,
    /// When.
    pub schedule: Schedule,
    /// What becomes of occurrences that nobody was there to deliver.
    pub misfire: Misfire,
    /// What becomes of occurrences that come due while one is under way.
    pub overlap: Overlap,
    /// How often each occurrence is tried.
    pub max_attempts: u32,
    /// Makes asking twice harmless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// When it was made.
    #[serde(with = "moment")]
    pub created: Timestamp,
    /// Where it stands.
    pub phase: Phase,
    /// Whether it is paused, wherever it stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The occurrence that waits, runs or was the last.
    pub place: Place,
    /// When the next attempt is due; at the occurrence's own time unless one has failed.
    #[serde(with = "moment")]
    pub due: Timestamp,
    /// How many attempts at this occurrence have begun.
    pub attempt: u32,
    /// The number of the last claim.
    pub fence: u64,
    /// What was decided about this occurrence; absent before its first attempt, unless it is run again. Where it
    /// is there, the occurrence's number may be known to the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Begun>,
    /// Where the job goes after this occurrence, where that is not the next one of its schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Then>,
    /// The last attempts, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Occurrences of a periodic job that failed for good, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<DeadLetter>,
}

impl Job {
    /// A new job. One whose time has passed is due at once, and one whose schedule has no time left is completed.
    ///
    /// Nothing is checked that the types do not say: whoever makes the payload and the schedule has
    /// validated them.
    pub fn new(new: NewJob, now: Timestamp) -> Self {
        let first = new.schedule.first(now);
        let scheduled_for = first.unwrap_or(now);
        Self {
            id: crate::new_id(),
            payload: new.payload.into(),
            schedule: new.schedule,
            misfire: new.misfire,
            overlap: new.overlap,
            max_attempts: new.max_attempts.clamp(1, MAX_MAX_ATTEMPTS),
            idempotency: new.idempotency,
            created: now,
            phase: first.map_or(Phase::Completed { at: now }, |_| Phase::Scheduled),
            paused: false,
            place: Place { occurrence: 1, scheduled_for },
            due: scheduled_for.max(now),
            attempt: 0,
            fence: 0,
            begun: None,
            then: None,
            attempts: Vec::new(),
            dead_letters: Vec::new(),
        }
    }

    /// What it is shown as.
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

    /// When somebody should look at it: when it is due, or when the lease on it runs out. Never for one that
    /// is final or paused.
    pub fn wakes(&self) -> Option<Timestamp> {
        match self.phase {
            _ if self.paused => None,
            Phase::Scheduled | Phase::Retryable => Some(self.due),
            Phase::Running { lease } => Some(lease),
            Phase::Completed { .. } | Phase::Discarded { .. } | Phase::Cancelled { .. } => None,
        }
    }

    /// Since when it is final.
    pub fn ended(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Completed { at } | Phase::Discarded { at } | Phase::Cancelled { at } => Some(at),
            _ => None,
        }
    }

    /// Whether a delivery is under way, as far as is known: a lease that has run out counts until somebody
    /// claims the job again.
    pub fn is_delivering(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// What the occurrence is known by, the same in every attempt: `webhook-id` of Standard Webhooks.
    pub fn occurrence_key(&self) -> String {
        occurrence_key(&self.id, self.place.occurrence)
    }

    /// Why the last attempt failed; absent where it did not.
    pub fn last_error(&self) -> Option<&str> {
        self.attempts.last()?.error.as_deref()
    }

    /// Whether occurrences of it failed for good while it goes on, so that they can be run again.
    pub fn has_dead_letters(&self) -> bool {
        !self.dead_letters.is_empty() && !self.state().is_final()
    }

    /// How late it is: how long it has been due without being claimed.
    pub fn lag(&self, now: Timestamp) -> Duration {
        match self.phase {
            Phase::Scheduled | Phase::Retryable if !self.paused => {
                Duration::try_from(now.duration_since(self.due)).unwrap_or_default()
            }
            _ => Duration::ZERO,
        }
    }
}
