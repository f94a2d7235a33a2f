//! Mapping between a job and its table row, common to all databases.
//!
//! Two columns contain the job as JSON: `body` has its definition, `progress` its execution state. The other
//! columns are derived from the job on every write and exist for queries. A step updates only the columns in
//! [`MutableColumns`], so it touches no index on the others; `body` changes only when a job is rescheduled.
//!
//! The format of both is part of the schema version: every change of it is a migration, so that a process of an
//! older version refuses the database or, if it is running, stops claiming. The tests `golden` of both databases
//! hold the format of the newest version and read those of all older ones.
//!
//! A new optional member needs no migration if its default value is not written, and if an older version, which drops
//! the member when it writes the row, may treat the job as before. Such are `traceparent` of the payload; `postponed` and
//! `deferralsFrom` of `begun`, without which the hour of a busy receiver begins with the first claim; and `abandoned`, without
//! which an abandoned delivery uses up an attempt in the older version, and is counted from 0 in the newer one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::JobId;
use agent_jobs::job::{
    Attempt, DeadLetter, IdempotencyKey, Job, JobPage, JobPayload, JobState, MisfireDecision, NextPosition,
    Phase, SchedulePosition, Step, StepOutcome, serde_timestamp,
};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, Schedule};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of unreadable jobs that a process remembers.
const MAX_UNREADABLE: usize = 10_000;
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
    #[serde(with = "serde_timestamp")]
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
    #[serde(rename = "place")]
    position: SchedulePosition,
    /// Due time; omitted if it is the scheduled time of the occurrence, as it usually is.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_timestamp::option")]
    due: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    abandoned: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    fence: u64,
    #[serde(rename = "begun", default, skip_serializing_if = "Option::is_none")]
    misfire_decision: Option<MisfireDecision>,
    #[serde(rename = "then", default, skip_serializing_if = "Option::is_none")]
    next_position: Option<NextPosition>,
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
            position: job.position,
            due: Some(job.due).filter(|due| *due != job.position.scheduled_for),
            attempt: job.attempt,
            abandoned: job.abandoned,
            fence: job.fence,
            misfire_decision: job.misfire_decision,
            next_position: job.next_position,
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
    let malformed = |source| malformed(id, source);
    let stored: JobBody<'_> = serde_json::from_str(body).map_err(malformed)?;
    let progress: JobProgress<'_> = serde_json::from_str(progress.unwrap_or_default()).map_err(malformed)?;
    Ok(Job {
        id: id.into(),
        payload: stored.payload.into_owned().into(),
        schedule: stored.schedule.into_owned(),
        misfire: stored.misfire,
        overlap: stored.overlap,
        max_attempts: stored.max_attempts,
        idempotency: stored.idempotency.map(Cow::into_owned),
        created: stored.created,
        phase: progress.phase,
        paused: progress.paused,
        position: progress.position,
        due: progress.due.unwrap_or(progress.position.scheduled_for),
        attempt: progress.attempt,
        abandoned: progress.abandoned,
        fence: progress.fence,
        misfire_decision: progress.misfire_decision,
        next_position: progress.next_position,
        attempts: progress.attempts.into_owned(),
        dead_letters: progress.dead_letters.into_owned(),
    })
}

/// Returns the error of a job that cannot be parsed.
pub(crate) fn malformed(id: &str, source: serde_json::Error) -> StoreError {
    StoreError::Malformed { collection: "jobs".to_owned(), id: id.to_owned(), source }
}

/// Jobs that this process has found to be unreadable. Each is logged once and counted. Bounded by
/// [`MAX_UNREADABLE`].
#[derive(Debug, Default)]
pub(crate) struct UnreadableJobs(Mutex<HashSet<JobId>>);

impl UnreadableJobs {
    /// Records a job, and logs it if it is new.
    pub(crate) fn record(&self, id: &JobId) {
        let mut known = self.lock();
        if known.len() < MAX_UNREADABLE && known.insert(id.clone()) {
            tracing::error!(job = %id, "the job's row cannot be read; the job is set aside");
        }
    }

    /// Records the job of an error, if it is one of an unreadable job.
    pub(crate) fn record_error(&self, error: &StoreError) {
        if let StoreError::Malformed { id, .. } = error {
            self.record(&JobId::from(id.as_str()));
        }
    }

    /// Records the jobs whose steps had the outcome [`StepOutcome::Unreadable`].
    pub(crate) fn record_outcomes<'o>(&self, outcomes: impl Iterator<Item = (&'o JobId, &'o StepOutcome)>) {
        for (id, outcome) in outcomes {
            if let StepOutcome::Unreadable = outcome {
                self.record(id);
            }
        }
    }

    /// Returns the number of recorded jobs.
    pub(crate) fn count(&self) -> u64 {
        self.lock().len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<JobId>> {
        // An insertion that panics leaves the set usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Jobs that a claim returns, and those that it found to be unreadable.
#[derive(Debug, Default)]
pub(crate) struct ClaimedRows {
    pub(crate) jobs: Vec<Job>,
    pub(crate) unreadable: Vec<JobId>,
}

/// Builds a page of a list from `limit + 1` rows, each with its id and the parsed job if it can be read.
pub(crate) fn job_page(rows: impl ExactSizeIterator<Item = (JobId, Option<Job>)>, limit: usize) -> JobPage {
    let has_more = rows.len() > limit;
    let (mut page, mut last) = (JobPage::default(), None);
    for (id, job) in rows.take(limit) {
        match job {
            Some(job) => page.jobs.push(job),
            None => page.unreadable.push(id.clone()),
        }
        last = Some(id);
    }
    page.next = last.filter(|_| has_more);
    page
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

/// Error of an operation that a process refuses because a newer program has migrated the database meanwhile.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database was migrated to version {found} and this program knows versions up to {known}: it must be updated"
)]
pub(crate) struct NewerSchemaError {
    pub(crate) found: i64,
    pub(crate) known: i64,
}

/// Returns true for the steps that end deliveries which the process has started. A process that finds a newer
/// schema version takes no others.
pub(crate) fn ends_delivery(step: &Step) -> bool {
    matches!(step, Step::Extend { .. } | Step::Release { .. } | Step::End { .. })
}

/// Returns the condition for a state as a constant, because a partial index is not used for a parameter. `dead` is the
/// database's condition for the column of that name.
pub(crate) fn state_condition(state: JobState, dead: &'static str) -> &'static str {
    match state {
        JobState::Scheduled => "state = 'scheduled'",
        JobState::Running => "state = 'running'",
        JobState::Retryable => "state = 'retryable'",
        JobState::Paused => "state = 'paused'",
        JobState::Completed => "state = 'completed'",
        // Includes jobs that continue but have dead letters.
        JobState::Discarded => dead,
        JobState::Cancelled => "state = 'cancelled'",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_millisecond_are_rounded_as_asked() {
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

    #[test]
    fn members_of_a_later_version_are_ignored() {
        let jobs: Vec<Job> =
            serde_json::from_str(include_str!("../tests/golden/jobs.json")).expect("jobs are read");
        let row = JobRow::new(jobs[1].clone()).expect("a row");
        let parse = |json: &str| serde_json::from_str::<serde_json::Value>(json).expect("JSON");
        let (mut body, mut progress) = (parse(&row.body), parse(&row.mutable.progress));
        assert!(progress["begun"].is_object(), "{progress}");
        body["payload"]["later"] = 1.into();
        progress["begun"]["later"] = 1.into();
        progress["later"] = 1.into();
        let read = parse_job(row.job.id.as_str(), &body.to_string(), Some(&progress.to_string()));
        assert_eq!(read.expect("it is read"), row.job);
    }
}
