//! Request and response bodies of the scheduler's endpoints.

use agent_jobs::job::{DeadLetter, Job, JobPayload, JobState, JobView, StepResult};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, Schedule, ScheduleSpec};
use agent_platform::pulse::JobRequest;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::{Code, HttpError};
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
    /// Maximum number of open jobs of the user, this one included; unlimited by default. At the limit, a new job is 409 with
    /// `limit`. A repeated request with the same idempotency key gets its job, and may name another limit.
    pub(super) max_open_jobs: Option<u64>,
}

impl CreateJobRequest {
    /// Creates the requested job, with its schedule resolved at `now`.
    pub(super) fn job(self, spec: &ScheduleSpec, now: Timestamp) -> Result<Job, HttpError> {
        let request = JobRequest {
            idempotency_key: self.idempotency_key,
            max_attempts: self.max_attempts,
            misfire: self.misfire,
            overlap: self.overlap,
            max_open_jobs: self.max_open_jobs,
            ..JobRequest::new(self.payload, spec.clone())
        };
        Ok(request.job(now, fingerprint)?)
    }
}

/// Returns the fingerprint of a request. It covers the parsed values, so whitespace and member order do not matter. The trace and
/// the limit on open jobs are excluded, because a repeated request may change them.
fn fingerprint(request: &JobRequest) -> String {
    let mut fingerprinted = json!({
        "payload": request.payload.without_trace(), "schedule": request.schedule,
        "maxAttempts": request.max_attempts, "misfire": request.misfire, "overlap": request.overlap,
    });
    fingerprinted.sort_all_objects();
    hex::encode(Sha256::digest(fingerprinted.to_string()))
}

/// Resolves a schedule at `now`.
pub(super) fn resolve(spec: &ScheduleSpec, now: Timestamp) -> Result<Schedule, HttpError> {
    spec.resolve(now).map_err(|error| HttpError::new(Code::InvalidRequest, error.to_string()))
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
        Self { job_id: job.id.clone(), execute_at: format_time(job.next_delivery_at()) }
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
            execute_at: format_time(job.next_delivery_at()),
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
    /// Ids of stored jobs in the range of this page that cannot be read; the scheduler does not run them.
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

/// Formats a time as RFC 3339 in UTC with milliseconds.
fn format_time(time: Timestamp) -> String {
    format!("{time:.3}")
}
