//! Position of a job in its schedule.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::serde_timestamp;

/// Position in a job's schedule: an occurrence and its scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePosition {
    /// Number of the occurrence, from 1.
    pub occurrence: u64,
    /// Scheduled time of the occurrence.
    #[serde(with = "serde_timestamp")]
    pub scheduled_for: Timestamp,
}

/// Misfire decision of an occurrence, made when its first attempt begins or when it is redriven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MisfireDecision {
    /// Time of the decision.
    #[serde(with = "serde_timestamp")]
    pub at: Timestamp,
    /// Next scheduled time after this occurrence, according to the misfire policy.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_timestamp::option")]
    pub next: Option<Timestamp>,
    /// True if the receiver may know the occurrence, since it is redriven or its delivery was deferred or postponed; the
    /// misfire policy does not skip it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// True from a delivery that was postponed until the next claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub postponed: bool,
    /// Time of the first claim after the latest delivery that was postponed; absent if none was. From it, in place of `at`, the
    /// time is counted during which deliveries to a busy receiver do not count as attempts.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_timestamp::option")]
    pub deferrals_from: Option<Timestamp>,
    /// Time at which a claim last found that the lease of a delivery had expired; absent if none has. Occurrences before it were
    /// missed, and did not overlap.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_timestamp::option")]
    pub lease_expired_at: Option<Timestamp>,
}

impl MisfireDecision {
    /// Creates the decision of an occurrence that was not postponed.
    pub(super) fn new(at: Timestamp, next: Option<Timestamp>, again: bool) -> Self {
        Self { at, next, again, postponed: false, deferrals_from: None, lease_expired_at: None }
    }
}

/// Position that a job takes after its current occurrence, overriding the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum NextPosition {
    /// Set when the job is rescheduled during a delivery. The delivery in progress is not retried.
    Moved {
        /// First occurrence of the new schedule.
        #[serde(rename = "place")]
        position: SchedulePosition,
    },
    /// Set when a dead letter is redriven: the job then returns to the position it had.
    Back {
        /// Position before the redrive.
        #[serde(rename = "place")]
        position: SchedulePosition,
    },
}

impl NextPosition {
    pub(super) fn position(self) -> SchedulePosition {
        match self {
            Self::Moved { position } | Self::Back { position } => position,
        }
    }
}
