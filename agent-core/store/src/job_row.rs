//! A job as a row: its columns in every database.
//!
//! Two of them are the job as JSON: `body` has what was asked for, and `progress` what has become of it. The others
//! are what queries look for, made from the job whenever it is written. A step writes those of [`Changing`] alone, so
//! no index of the others is touched by it, and a new schedule alone changes the body.
//!
//! In a row without `progress` the body is all of the job, as the first version has written it. The next step makes
//! it a row like the others.

use std::borrow::Cow;

use agent_core::job::{
    Attempt, Begun, DeadLetter, Idempotency, Job, JobPayload, JobState, Phase, Place, Then, moment,
};
use agent_core::schedule::{Misfire, Overlap, Schedule};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many jobs are cancelled before the next ones are read.
pub(crate) const CANCELLED_AT_ONCE: usize = 500;
/// Sorts before every id.
pub(crate) const FIRST: &str = "";
/// For how long a job that cannot be read is left alone.
const UNREADABLE_MS: i64 = 60 * 60 * 1000;
/// What most texts fit into.
const USUAL_BYTES: usize = 512;

/// All columns of a job.
pub(crate) struct JobRow {
    pub(crate) job: Job,
    pub(crate) body: String,
    pub(crate) changing: Changing,
}

/// The columns that every step may change.
pub(crate) struct Changing {
    pub(crate) state: &'static str,
    /// When somebody should look at it, rounded up, so that nothing is early.
    pub(crate) wake_ms: Option<i64>,
    /// Since when it is final, rounded up, so that nothing is removed too soon.
    pub(crate) ended_ms: Option<i64>,
    /// Whether something of it failed for good and can be run again.
    pub(crate) dead: bool,
    pub(crate) progress: String,
}

/// What was asked for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'j> {
    payload: Cow<'j, JobPayload>,
    schedule: Cow<'j, Schedule>,
    misfire: Misfire,
    overlap: Overlap,
    max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency: Option<Cow<'j, Idempotency>>,
    #[serde(with = "moment")]
    created: Timestamp,
}

/// What has become of it. What is as it was in the beginning is absent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'j> {
    #[serde(default = "scheduled", skip_serializing_if = "is_scheduled")]
    phase: Phase,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    place: Place,
    /// Absent where it is the occurrence's own time, as it is mostly.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::option")]
    due: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    fence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<Begun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<Then>,
    #[serde(default, skip_serializing_if = "<[Attempt]>::is_empty")]
    attempts: Cow<'j, [Attempt]>,
    #[serde(default, skip_serializing_if = "<[DeadLetter]>::is_empty")]
    dead_letters: Cow<'j, [DeadLetter]>,
}

fn scheduled() -> Phase {
    Phase::Scheduled
}

fn is_scheduled(phase: &Phase) -> bool {
    *phase == Phase::Scheduled
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl JobRow {
    pub(crate) fn new(job: Job) -> Result<Self, StoreError> {
        Ok(Self { body: body(&job)?, changing: Changing::of(&job)?, job })
    }

    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        self.job.idempotency.as_ref().map(|idempotency| idempotency.key.as_str())
    }
}

impl Changing {
    pub(crate) fn of(job: &Job) -> Result<Self, StoreError> {
        let state = job.state();
        let progress = Progress {
            phase: job.phase,
            paused: job.paused,
            place: job.place,
            due: Some(job.due).filter(|due| *due != job.place.scheduled_for),
            attempt: job.attempt,
            fence: job.fence,
            begun: job.begun,
            then: job.then,
            attempts: Cow::Borrowed(&job.attempts),
            dead_letters: Cow::Borrowed(&job.dead_letters),
        };
        Ok(Self {
            state: state.as_str(),
            wake_ms: job.wakes().map(ceil_millis),
            ended_ms: job.ended().map(ceil_millis),
            dead: state == JobState::Discarded || job.has_dead_letters(),
            progress: json(&progress)?,
        })
    }
}

/// The column `body` of a job.
pub(crate) fn body(job: &Job) -> Result<String, StoreError> {
    json(&Asked {
        payload: Cow::Borrowed(&job.payload),
        schedule: Cow::Borrowed(&job.schedule),
        misfire: job.misfire,
        overlap: job.overlap,
        max_attempts: job.max_attempts,
        idempotency: job.idempotency.as_ref().map(Cow::Borrowed),
        created: job.created,
    })
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    let mut json = Vec::with_capacity(USUAL_BYTES);
    let written = serde_json::to_writer(&mut json, value);
    written.map_err(|error| StoreError::Invalid(format!("the job is not JSON: {error}")))?;
    Ok(String::from_utf8(json).expect("JSON is UTF-8"))
}

/// The job of a row.
pub(crate) fn parse(id: &str, body: &str, progress: Option<&str>) -> Result<Job, StoreError> {
    let malformed =
        |source| StoreError::Malformed { collection: "jobs".to_owned(), id: id.to_owned(), source };
    let asked: Asked<'_> = serde_json::from_str(body).map_err(malformed)?;
    let progress: Progress<'_> = serde_json::from_str(progress.unwrap_or(body)).map_err(malformed)?;
    Ok(Job {
        id: id.to_owned(),
        payload: asked.payload.into_owned().into(),
        schedule: asked.schedule.into_owned(),
        misfire: asked.misfire,
        overlap: asked.overlap,
        max_attempts: asked.max_attempts,
        idempotency: asked.idempotency.map(Cow::into_owned),
        created: asked.created,
        phase: progress.phase,
        paused: progress.paused,
        place: progress.place,
        due: progress.due.unwrap_or(progress.place.scheduled_for),
        attempt: progress.attempt,
        fence: progress.fence,
        begun: progress.begun,
        then: progress.then,
        attempts: progress.attempts.into_owned(),
        dead_letters: progress.dead_letters.into_owned(),
    })
}

/// Says that a job cannot be read, and gives the time until which it is left alone: the others shall not wait for it, and
/// it is not lost, since a later version may be able to read it.
pub(crate) fn unreadable(error: &StoreError, now: Timestamp) -> i64 {
    tracing::error!(%error, "a job cannot be read, and is left alone for an hour");
    floor_millis(now).saturating_add(UNREADABLE_MS)
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
