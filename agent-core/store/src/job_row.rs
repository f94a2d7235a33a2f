//! Mapping between a job and its table row, common to all databases.
//!
//! Two columns contain the job as JSON: `body` has its definition, `progress` its execution state. The other
//! columns are derived from the job on every write and exist for queries. A step updates only the columns in
//! [`MutableColumns`], so it touches no index on the others; `body` changes only when a job is rescheduled.
//!
//! In a row without `progress`, as the first jobs schema wrote it, `body` contains the whole job. The next step
//! adds `progress`.

use std::borrow::Cow;

use agent_jobs::job::{
    Attempt, DeadLetter, IdempotencyKey, Job, JobPayload, JobState, MisfireDecision, NextPosition, Phase,
    SchedulePosition, moment,
};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, Schedule};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Number of jobs that a filtered cancel reads and updates per batch.
pub(crate) const CANCEL_BATCH_SIZE: usize = 500;
/// Id that sorts before every other id.
pub(crate) const MIN_ID: &str = "";
/// Initial capacity of a JSON buffer in bytes; most columns fit.
const INITIAL_JSON_CAPACITY: usize = 512;

/// Column values of a job.
pub(crate) struct JobRow {
    pub(crate) job: Job,
    pub(crate) body: String,
    pub(crate) mutable: MutableColumns,
}

/// Column values that a step may change.
pub(crate) struct MutableColumns {
    pub(crate) state: &'static str,
    /// Time of the next scheduler action in milliseconds since 1970, rounded up, so that no job is claimed
    /// early.
    pub(crate) wake_ms: Option<i64>,
    /// Time when the job reached a final state in milliseconds since 1970, rounded up, so that no job is
    /// purged early.
    pub(crate) ended_ms: Option<i64>,
    /// True if the job is discarded or has dead letters, which can be retried.
    pub(crate) dead: bool,
    pub(crate) progress: String,
}

/// JSON in the column `body`: the job's definition.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobBody<'j> {
    payload: Cow<'j, JobPayload>,
    schedule: Cow<'j, Schedule>,
    misfire: MisfirePolicy,
    overlap: OverlapPolicy,
    max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency: Option<Cow<'j, IdempotencyKey>>,
    #[serde(with = "moment")]
    created: Timestamp,
}

/// JSON in the column `progress`: the job's execution state. Fields with their initial value are omitted.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobProgress<'j> {
    #[serde(default = "scheduled", skip_serializing_if = "is_scheduled")]
    phase: Phase,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    place: SchedulePosition,
    /// Due time; omitted if it is the scheduled time of the occurrence, as it usually is.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::option")]
    due: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    fence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun: Option<MisfireDecision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<NextPosition>,
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
        Ok(Self { body: serialize_body(&job)?, mutable: MutableColumns::from_job(&job)?, job })
    }

    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        self.job.idempotency.as_ref().map(|idempotency| idempotency.key.as_str())
    }
}

impl MutableColumns {
    pub(crate) fn from_job(job: &Job) -> Result<Self, StoreError> {
        let state = job.state();
        let progress = JobProgress {
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
            wake_ms: job.next_run_at().map(ceil_millis),
            ended_ms: job.ended_at().map(ceil_millis),
            dead: state == JobState::Discarded || job.has_dead_letters(),
            progress: json(&progress)?,
        })
    }
}

/// Serializes the column `body` of a job.
pub(crate) fn serialize_body(job: &Job) -> Result<String, StoreError> {
    json(&JobBody {
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
    let mut json = Vec::with_capacity(INITIAL_JSON_CAPACITY);
    let written = serde_json::to_writer(&mut json, value);
    written.map_err(|error| StoreError::Invalid(format!("the job is not JSON: {error}")))?;
    Ok(String::from_utf8(json).expect("JSON is UTF-8"))
}

/// Parses a job from the columns of its row.
pub(crate) fn parse_job(id: &str, body: &str, progress: Option<&str>) -> Result<Job, StoreError> {
    let malformed =
        |source| StoreError::Malformed { collection: "jobs".to_owned(), id: id.to_owned(), source };
    let asked: JobBody<'_> = serde_json::from_str(body).map_err(malformed)?;
    let progress: JobProgress<'_> = serde_json::from_str(progress.unwrap_or(body)).map_err(malformed)?;
    Ok(Job {
        id: id.into(),
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

/// Logs that a claim has found a job that cannot be parsed, and postpones it.
pub(crate) fn log_unreadable(error: &StoreError) {
    tracing::error!(%error, "invalid job row; the job is skipped for an hour");
}

/// Rounds a time down to whole milliseconds since 1970: for upper bounds of a query.
pub(crate) fn floor_millis(time: Timestamp) -> i64 {
    let millis = time.as_millisecond();
    millis - i64::from(time.as_nanosecond() < i128::from(millis) * 1_000_000)
}

/// Rounds a time up to whole milliseconds since 1970.
pub(crate) fn ceil_millis(time: Timestamp) -> i64 {
    let floor = floor_millis(time);
    floor + i64::from(time.as_nanosecond() > i128::from(floor) * 1_000_000)
}

/// Converts a column to a time. A value beyond the calendar, which only rounding up its last millisecond
/// produces, becomes [`Timestamp::MAX`].
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
