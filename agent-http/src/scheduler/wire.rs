//! Request and response bodies of the scheduler's endpoints.

use agent_jobs::job::{
    DeadLetter, IdempotencyKey, Job, JobPayload, JobState, JobView, MAX_ATTEMPTS_LIMIT,
    MAX_IDEMPOTENCY_KEY_BYTES, NewJob, NextPosition, StepResult,
};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, Schedule, ScheduleSpec};
use agent_platform::ids::check_id;
use agent_platform::records::MAX_KEY_ID_BYTES;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::HttpError;
use agent_core::ids::JobId;

/// A request to create a job, without its schedule.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateJobRequest {
    /// The work to do and its user; the callback sends it back unchanged.
    payload: JobPayload,
    /// Idempotency key: within the company, requests with the same key and body create one job.
    idempotency_key: Option<String>,
    /// Maximum number of attempts per occurrence, from 1 to 100; 12 by default.
    #[schemars(range(min = 1, max = 100))]
    max_attempts: Option<u32>,
    /// Policy for occurrences that were missed because no scheduler was running.
    misfire: Option<MisfirePolicy>,
    /// Policy for occurrences that come due while another one is being delivered.
    overlap: Option<OverlapPolicy>,
}

impl CreateJobRequest {
    /// Creates the requested job, with its schedule resolved at `now`.
    pub(super) fn job(self, spec: &ScheduleSpec, now: Timestamp) -> Result<Job, HttpError> {
        self.payload.validate().map_err(|error| HttpError::invalid("payload:", error))?;
        self.check_ids()?;
        let schedule = resolve(spec, now)?;
        let max_attempts = self.max_attempts;
        if max_attempts.is_some_and(|attempts| !(1..=MAX_ATTEMPTS_LIMIT).contains(&attempts)) {
            let detail = format!("must be a whole number from 1 to {MAX_ATTEMPTS_LIMIT}");
            return Err(HttpError::invalid("maxAttempts", detail));
        }
        let idempotency = self.idempotency(spec)?;
        let defaults = NewJob::new(self.payload, schedule);
        let new_job = NewJob {
            misfire: self.misfire.unwrap_or(defaults.misfire),
            overlap: self.overlap.unwrap_or(defaults.overlap),
            max_attempts: max_attempts.unwrap_or(defaults.max_attempts),
            idempotency,
            ..defaults
        };
        Ok(Job::new(new_job, now))
    }

    fn check_ids(&self) -> Result<(), HttpError> {
        let payload = &self.payload;
        let ids = [
            ("payload.userId", Some(payload.user_id.as_str())),
            ("payload.companyId", Some(payload.company_id.as_str())),
            ("payload.agentId", Some(payload.agent_id.as_str())),
            ("payload.assignmentId", payload.assignment_id.as_deref()),
            ("payload.todoListId", payload.todo_list_id.as_deref()),
        ];
        for (field, id) in ids {
            id.map_or(Ok(()), |id| check_id(id, MAX_KEY_ID_BYTES))
                .map_err(|error| HttpError::invalid(field, error))?;
        }
        Ok(())
    }

    fn idempotency(&self, spec: &ScheduleSpec) -> Result<Option<IdempotencyKey>, HttpError> {
        let Some(key) = self.idempotency_key.clone() else { return Ok(None) };
        let is_valid =
            (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control);
        if !is_valid {
            let detail = format!("must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes and no control character");
            return Err(HttpError::invalid("idempotencyKey", detail));
        }
        // The fingerprint covers the parsed values, so whitespace and member order do not matter, and no trace: a repeated
        // request may have another one.
        let mut fingerprinted = json!({
            "payload": self.payload.without_trace(), "schedule": spec, "maxAttempts": self.max_attempts,
            "misfire": self.misfire, "overlap": self.overlap,
        });
        fingerprinted.sort_all_objects();
        let fingerprint =
            Sha256::digest(fingerprinted.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(IdempotencyKey { key, fingerprint }))
    }
}

/// Resolves a schedule at `now`.
pub(super) fn resolve(spec: &ScheduleSpec, now: Timestamp) -> Result<Schedule, HttpError> {
    spec.resolve(now).map_err(|error| HttpError::new(crate::error::Code::InvalidRequest, error.to_string()))
}

/// A stored job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduledJob {
    job_id: JobId,
    /// Due time of the first occurrence: RFC 3339 in UTC with milliseconds.
    execute_at: String,
}

impl ScheduledJob {
    pub(super) fn from_job(job: &Job) -> Self {
        Self { job_id: job.id.clone(), execute_at: format_time(next_delivery_at(job)) }
    }
}

/// The state of a job after an operation on it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobStatus {
    job_id: JobId,
    state: JobState,
    /// Due time of the next delivery, or of the last one for a job in a final state: RFC 3339 in UTC with
    /// milliseconds.
    execute_at: String,
    /// True if a delivery that the operation could not stop is in flight.
    delivering: bool,
}

impl From<&StepResult> for JobStatus {
    fn from(StepResult { job, delivering, .. }: &StepResult) -> Self {
        Self {
            job_id: job.id.clone(),
            state: job.state(),
            execute_at: format_time(next_delivery_at(job)),
            delivering: *delivering,
        }
    }
}

/// The number of jobs that were cancelled.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CancelledJobs {
    pub(super) cancelled: u64,
}

/// The number of jobs that match a filter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JobCount {
    pub(super) count: u64,
}

/// One page of jobs, in the order of their creation or its reverse.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobList {
    pub(super) jobs: Vec<JobDetails>,
    /// Ids of jobs between them that are stored and cannot be read; the scheduler sets them aside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(super) unreadable: Vec<JobId>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

/// A job with its policies and dead letters.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDetails {
    /// The members that every view of a job has, with its attempts.
    #[serde(flatten)]
    view: JobView,
    /// The occurrence's scheduled time.
    scheduled_for: String,
    /// True if the job is paused. The state does not show it for a job that is final.
    paused: bool,
    misfire: MisfirePolicy,
    overlap: OverlapPolicy,
    /// Maximum number of attempts per occurrence.
    max_attempts: u32,
    /// Occurrences of a periodic job that were discarded, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    dead_letters: Vec<DeadLetterView>,
}

/// A discarded occurrence of a periodic job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterView {
    occurrence: u64,
    scheduled_for: String,
    /// Time at which the occurrence was discarded.
    discarded_at: String,
    error: String,
}

impl From<&Job> for JobDetails {
    fn from(job: &Job) -> Self {
        Self {
            view: job.into(),
            scheduled_for: format_time(job.position.scheduled_for),
            paused: job.paused,
            misfire: job.misfire,
            overlap: job.overlap,
            max_attempts: job.max_attempts,
            dead_letters: job.dead_letters.iter().map(DeadLetterView::from).collect(),
        }
    }
}

impl From<&DeadLetter> for DeadLetterView {
    fn from(dead: &DeadLetter) -> Self {
        Self {
            occurrence: dead.occurrence,
            scheduled_for: format_time(dead.scheduled_for),
            discarded_at: format_time(dead.at),
            error: dead.error.clone(),
        }
    }
}

/// Returns the due time of the next delivery: for a job rescheduled during a delivery, that of its new schedule.
fn next_delivery_at(job: &Job) -> Timestamp {
    match job.next_position {
        Some(NextPosition::Moved { position }) => position.scheduled_for,
        _ => job.due,
    }
}

/// Formats a time as RFC 3339 in UTC with milliseconds.
fn format_time(time: Timestamp) -> String {
    format!("{time:.3}")
}
