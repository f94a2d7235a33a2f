//! What the routes read and write.

use agent_core::job::{
    Attempt, DeadLetter, Idempotency, Job, JobPayload, JobState, JobView, MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_MAX_ATTEMPTS, NewJob, Stepped, Then,
};
use agent_core::schedule::{Misfire, Overlap, Schedule, ScheduleSpec};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::HttpError;

/// A job that is asked for, apart from its schedule.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobRequest {
    /// What is to be done, and for whom: what the callback brings back.
    #[schemars(with = "Payload")]
    payload: JobPayload,
    /// Makes asking twice harmless: within the company, the same key and body are the same job.
    idempotency_key: Option<String>,
    /// How often each occurrence is tried, from 1 to 100; 12 by default.
    #[schemars(range(min = 1, max = 100))]
    max_attempts: Option<u32>,
    /// What becomes of occurrences that passed while nobody was there to deliver them.
    misfire: Option<Misfire>,
    /// What becomes of occurrences that come due while another one is under way.
    overlap: Option<Overlap>,
}

/// How [`JobPayload`] is described.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used")]
struct Payload {
    /// `tool` calls a tool with these arguments, `agent` runs a turn of the agent with this message.
    #[schemars(regex(pattern = "^(tool|agent)$"))]
    kind: String,
    /// For whom.
    #[schemars(length(min = 1, max = 256))]
    user_id: String,
    /// The user's company.
    #[schemars(length(min = 1, max = 256))]
    company_id: String,
    /// The agent that does it.
    #[schemars(length(min = 1, max = 256))]
    agent_id: String,
    /// The tool's name.
    tool_id: Option<String>,
    /// The assignment that the job is kept in step with.
    assignment_id: Option<String>,
    /// The tool's arguments.
    arguments: Option<serde_json::Map<String, Value>>,
    /// What the agent is asked.
    message: Option<String>,
    /// The todo list that the tools work on.
    todo_list_id: Option<String>,
    /// The user's zone, an IANA name.
    timezone: Option<String>,
}

impl JobRequest {
    /// The job that is meant by who asks for it at `now`.
    pub(super) fn job(self, spec: &ScheduleSpec, now: Timestamp) -> Result<Job, HttpError> {
        self.payload.validate().map_err(|error| HttpError::invalid("payload:", error))?;
        let schedule = resolve(spec, now)?;
        let max_attempts = self.max_attempts;
        if max_attempts.is_some_and(|attempts| !(1..=MAX_MAX_ATTEMPTS).contains(&attempts)) {
            let fault = format_args!("must be a whole number from 1 to {MAX_MAX_ATTEMPTS}").to_string();
            return Err(HttpError::invalid("maxAttempts", fault));
        }
        let idempotency = self.idempotency(spec)?;
        let usual = NewJob::new(self.payload, schedule);
        let new = NewJob {
            misfire: self.misfire.unwrap_or(usual.misfire),
            overlap: self.overlap.unwrap_or(usual.overlap),
            max_attempts: max_attempts.unwrap_or(usual.max_attempts),
            idempotency,
            ..usual
        };
        Ok(Job::new(new, now))
    }

    fn idempotency(&self, spec: &ScheduleSpec) -> Result<Option<Idempotency>, HttpError> {
        let Some(key) = self.idempotency_key.clone() else { return Ok(None) };
        let is_key =
            (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control);
        if !is_key {
            let fault = format!("must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes and no control character");
            return Err(HttpError::invalid("idempotencyKey", fault));
        }
        // Of what was meant and not how it was written: spaces and the order of members do not count.
        let mut meant = json!({
            "payload": self.payload, "schedule": spec, "maxAttempts": self.max_attempts,
            "misfire": self.misfire, "overlap": self.overlap,
        });
        meant.sort_all_objects();
        let fingerprint =
            Sha256::digest(meant.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Idempotency { key, fingerprint }))
    }
}

/// The schedule that is meant.
pub(super) fn resolve(spec: &ScheduleSpec, now: Timestamp) -> Result<Schedule, HttpError> {
    spec.resolve(now).map_err(|error| HttpError::new(crate::error::Code::InvalidRequest, error.to_string()))
}

/// A job that is there now.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scheduled {
    job_id: String,
    /// When its first occurrence is due: RFC 3339 in UTC with milliseconds.
    execute_at: String,
}

impl Scheduled {
    pub(super) fn of(job: &Job) -> Self {
        Self { job_id: job.id.clone(), execute_at: time(next(job)) }
    }
}

/// What became of a job by what was asked.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acted {
    job_id: String,
    /// Where it stands: scheduled, running, retryable, paused, completed, discarded or cancelled.
    #[schemars(with = "String")]
    state: JobState,
    /// When the next delivery is due, or was for a job that is final: RFC 3339 in UTC with milliseconds.
    execute_at: String,
    /// Whether a delivery is under way that could not be taken back.
    delivering: bool,
}

impl From<&Stepped> for Acted {
    fn from(Stepped { job, delivering, .. }: &Stepped) -> Self {
        Self {
            job_id: job.id.clone(),
            state: job.state(),
            execute_at: time(next(job)),
            delivering: *delivering,
        }
    }
}

/// How many jobs were cancelled.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    pub(super) cancelled: u64,
}

/// One page of jobs, in the order of their making.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobList {
    pub(super) jobs: Vec<JobDetails>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A job with all that is known of it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDetails {
    /// What every reader of jobs knows.
    #[serde(flatten)]
    #[schemars(with = "Shown")]
    view: JobView,
    /// The time that the occurrence is for.
    scheduled_for: String,
    /// Whether it is paused, which its state does not tell of a job that is final.
    paused: bool,
    misfire: Misfire,
    overlap: Overlap,
    /// How often each occurrence is tried.
    max_attempts: u32,
    /// The last attempts, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    attempts: Vec<AttemptView>,
    /// Occurrences of a periodic job that failed for good, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    dead_letters: Vec<DeadLetterView>,
}

/// How [`JobView`] is described.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used")]
struct Shown {
    job_id: String,
    /// scheduled, running, retryable, paused, completed, discarded or cancelled.
    state: String,
    payload: Payload,
    /// `{executeAt}`, `{everyMs, anchor}` or `{cron, timezone, dst?}`.
    schedule: serde_json::Map<String, Value>,
    /// When the next attempt is due, or was for a job that is final: RFC 3339 in UTC with milliseconds.
    execute_at: String,
    /// The occurrence that waits, runs or was the last, from 1.
    occurrence: u64,
    /// How many attempts at it have begun.
    attempt: u32,
    /// Why the last attempt failed; absent where it did not.
    last_error: Option<String>,
    /// When it was made.
    created_at: String,
}

/// An attempt that has ended.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AttemptView {
    occurrence: u64,
    /// Which attempt at the occurrence, from 1.
    attempt: u32,
    ended_at: String,
    /// How long it took; absent where whoever made it never reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// The HTTP status of the answer, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// An occurrence that failed for good.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterView {
    occurrence: u64,
    scheduled_for: String,
    /// When it was given up.
    discarded_at: String,
    error: String,
}

impl From<&Job> for JobDetails {
    fn from(job: &Job) -> Self {
        Self {
            view: job.into(),
            scheduled_for: time(job.place.scheduled_for),
            paused: job.paused,
            misfire: job.misfire,
            overlap: job.overlap,
            max_attempts: job.max_attempts,
            attempts: job.attempts.iter().map(AttemptView::from).collect(),
            dead_letters: job.dead_letters.iter().map(DeadLetterView::from).collect(),
        }
    }
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            occurrence: attempt.occurrence,
            attempt: attempt.attempt,
            ended_at: time(attempt.ended),
            duration_ms: attempt.duration_ms,
            status: attempt.status,
            error: attempt.error.clone(),
        }
    }
}

impl From<&DeadLetter> for DeadLetterView {
    fn from(dead: &DeadLetter) -> Self {
        Self {
            occurrence: dead.occurrence,
            scheduled_for: time(dead.scheduled_for),
            discarded_at: time(dead.at),
            error: dead.error.clone(),
        }
    }
}

/// When the next delivery is due: of a job that was moved while it is delivered, after that.
fn next(job: &Job) -> Timestamp {
    match job.then {
        Some(Then::Moved { place }) => place.scheduled_for,
        _ => job.due,
    }
}

/// RFC 3339 in UTC with milliseconds.
fn time(time: Timestamp) -> String {
    format!("{time:.3}")
}
