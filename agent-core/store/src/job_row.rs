//! A job as a row: its columns in every database.
//!
//! The job itself is one of them, as JSON; the others are what queries look for, made from the job whenever it is
//! written. A step changes those of [`Changing`] alone, so no index of the others is touched by it.

use agent_core::job::{Job, JobState};
use agent_core::records::StoreError;
use jiff::Timestamp;

/// The columns that stay as they were when the job was made, but for [`Changing`].
pub(crate) struct JobRow {
    pub(crate) job: Job,
    pub(crate) changing: Changing,
}

/// The columns that a step may change.
pub(crate) struct Changing {
    pub(crate) state: &'static str,
    /// When somebody should look at it, rounded up, so that nothing is early.
    pub(crate) wake_ms: Option<i64>,
    /// Since when it is final, rounded up, so that nothing is removed too soon.
    pub(crate) ended_ms: Option<i64>,
    /// Whether something of it failed for good and can be run again.
    pub(crate) dead: bool,
    pub(crate) body: String,
}

impl JobRow {
    pub(crate) fn new(job: Job) -> Result<Self, StoreError> {
        Ok(Self { changing: Changing::of(&job)?, job })
    }

    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        self.job.idempotency.as_ref().map(|idempotency| idempotency.key.as_str())
    }
}

impl Changing {
    pub(crate) fn of(job: &Job) -> Result<Self, StoreError> {
        let state = job.state();
        let body = serde_json::to_string(job)
            .map_err(|error| StoreError::Invalid(format!("the job is not JSON: {error}")))?;
        Ok(Self {
            state: state.as_str(),
            wake_ms: job.wakes().map(ceil_millis),
            ended_ms: job.ended().map(ceil_millis),
            dead: state == JobState::Discarded || job.has_dead_letters(),
            body,
        })
    }
}

/// The job in a column `body`.
pub(crate) fn parse(id: &str, body: &str) -> Result<Job, StoreError> {
    serde_json::from_str(body).map_err(|source| StoreError::Malformed {
        collection: "jobs".to_owned(),
        id: id.to_owned(),
        source,
    })
}

/// The last whole millisecond since 1970 that is not later: of times up to which something is looked for.
pub(crate) fn floor_millis(time: Timestamp) -> i64 {
    let millis = time.as_millisecond();
    millis - i64::from(time.as_nanosecond() < i128::from(millis) * 1_000_000)
}

/// The first whole millisecond since 1970 that is not earlier.
pub(crate) fn ceil_millis(time: Timestamp) -> i64 {
    let floor = floor_millis(time);
    floor + i64::from(time.as_nanosecond() > i128::from(floor) * 1_000_000)
}

/// The time of a column. Those of a job are in the calendar, but for the last millisecond of it, rounded up.
pub(crate) fn from_millis(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_millisecond_are_rounded_to_the_safe_side() {
        let cases =
            [(0, 0, 0), (1, 0, 1), (999_999, 0, 1), (1_000_000, 1, 1), (1_000_001, 1, 2), (-1, -1, 0)];
        for (nanos, floor, ceil) in cases {
            let time = Timestamp::from_nanosecond(nanos).expect("a time");
            assert_eq!((floor_millis(time), ceil_millis(time)), (floor, ceil), "{nanos} ns");
        }
        for end in [Timestamp::MIN, Timestamp::MAX] {
            assert!(from_millis(ceil_millis(end)) >= end, "{end}");
        }
    }
}
