//! Client interface of the scheduler: creating, moving and cancelling jobs, and running their occurrences.
//!
//! [`Pulse`] is independent of the transport, so tools and assignments work with any scheduler. Every call names the
//! tenant scope of its caller; jobs outside the scope are reported as absent.
//!
//! The scheduler calls back, at least once, for each due occurrence. [`occurrence`](crate::occurrence) makes the
//! effect happen once; [`assignment`](crate::assignment) synchronizes stored tool assignments with their jobs.

use agent_core::ids::{CompanyId, JobId, UserId};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use agent_jobs::job::{JobFilter, JobOrder, JobPayload, JobScope, JobState, JobView};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, ScheduleSpec, write_time};

/// Maximum number of jobs per user that are not final, for jobs created by tools and by requests: their
/// [`JobRequest::max_open_jobs`].
pub const MAX_OPEN_JOBS: usize = 100;

/// Maximum number of jobs per user that are not final, for follow-ups of tool calls. It is far above [`MAX_OPEN_JOBS`], since
/// the jobs of assignments count, and bounds the jobs of a tool that requests a follow-up in each call of a periodic job.
pub const MAX_OPEN_FOLLOW_UP_JOBS: usize = 10_000;

/// Request to create a job: the body of `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRequest {
    /// Work to do, and the user for whom it is done.
    pub payload: JobPayload,
    /// Times at which the job runs.
    #[serde(flatten)]
    pub schedule: ScheduleSpec,
    /// Idempotency key, unique within the company.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Number of attempts per occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Policy for occurrences missed while no scheduler ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<MisfirePolicy>,
    /// Policy for occurrences that become due during a delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<OverlapPolicy>,
    /// Maximum number of jobs of the user that are not final, this one included; unlimited if absent. It is not part of the
    /// fingerprint of an idempotency key. A scheduler older than this member ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open_jobs: Option<u64>,
}

impl JobRequest {
    /// Creates a request with the scheduler's default policies.
    pub fn new(payload: JobPayload, schedule: ScheduleSpec) -> Self {
        Self {
            payload,
            schedule,
            idempotency_key: None,
            max_attempts: None,
            misfire: None,
            overlap: None,
            max_open_jobs: None,
        }
    }

    /// Returns the request with the limit of [`MAX_OPEN_JOBS`].
    #[must_use]
    pub fn within_open_jobs_limit(self) -> Self {
        Self { max_open_jobs: Some(MAX_OPEN_JOBS as u64), ..self }
    }

    /// Returns the scope of the job's user.
    pub fn scope(&self) -> JobScope {
        user_scope(&self.payload.company_id, &self.payload.user_id)
    }
}

/// Returns the scope of one user.
pub fn user_scope(company_id: &CompanyId, user_id: &UserId) -> JobScope {
    JobScope { company: Some(company_id.to_owned()), user: Some(user_id.to_owned()) }
}

/// Created or moved job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledJob {
    /// Job id.
    pub job_id: JobId,
    /// Next due time, RFC 3339 in UTC.
    #[serde(serialize_with = "write_time")]
    #[schemars(with = "String")]
    pub execute_at: Timestamp,
}

/// Operation on a job that changes neither its work nor its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobControl {
    /// Suspends the job: no delivery begins until it is resumed.
    Pause,
    /// Resumes a paused job.
    Resume,
    /// Delivers the occurrence that was discarded last again.
    Redrive,
}

impl JobControl {
    /// Returns the name used in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Redrive => "redrive",
        }
    }
}

/// State of a job after a [`JobControl`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Job id.
    pub job_id: JobId,
    /// State of the job.
    pub state: JobState,
    /// Due time of the next delivery, or of the last one for a job in a final state: RFC 3339 in UTC.
    #[serde(serialize_with = "write_time")]
    #[schemars(with = "String")]
    pub execute_at: Timestamp,
    /// True if a delivery is in progress that could not be stopped.
    #[serde(default)]
    pub delivering: bool,
}

/// Result of cancelling a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelResult {
    /// True if a delivery is in progress that could not be stopped.
    #[serde(default)]
    pub delivering: bool,
}

/// Page of jobs, in the order of the list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobViewPage {
    /// Jobs of this page.
    pub jobs: Vec<JobView>,
    /// Cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Error of a scheduler call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PulseError {
    /// No scheduler is configured.
    #[error("Pulse not configured")]
    NotConfigured,
    /// The job does not exist or is outside the scope; the two are not distinguished.
    #[error("job not found")]
    NotFound,
    /// The request is invalid. The text gives the reason and contains no request data.
    #[error("{0}")]
    Invalid(String),
    /// The state of the job does not allow the operation, or the idempotency key belongs to another request.
    #[error("{0}")]
    Conflict(String),
    /// The user has as many open jobs as [`JobRequest::max_open_jobs`] allows; holds the limit.
    #[error("the user has reached the limit of {0} open jobs: cancel one first")]
    LimitReached(u64),
    /// The scheduler cannot be reached or fails; a retry may succeed.
    #[error("the scheduler is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The scheduler sent an unexpected response or rejected the shared secret: the operator must fix the
    /// configuration.
    #[error(
        "the scheduler rejected the request or sent an invalid response; check PULSE_URL and PULSE_SECRET"
    )]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Scheduler client. Calls that create, move or cancel a job may be retried if their outcome is unknown: creation is
/// idempotent by its key, the others by themselves. The contract is the test suite `conformance::pulse`.
#[async_trait]
pub trait Pulse: Send + Sync + 'static {
    /// Creates a job, or returns the job already created with the same idempotency key, regardless of the number of open jobs.
    ///
    /// # Errors
    /// [`PulseError::Invalid`] for a schedule that never fires or an invalid payload; [`PulseError::Conflict`] for an
    /// idempotency key that belongs to another job; [`PulseError::LimitReached`] for a new job over the request's limit.
    async fn schedule_job(&self, job: &JobRequest) -> Result<ScheduledJob, PulseError>;

    /// Returns one job within the scope.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope.
    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError>;

    /// Cancels a job within the scope. Idempotent.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope.
    async fn cancel_job(&self, scope: &JobScope, id: &JobId) -> Result<CancelResult, PulseError>;

    /// Replaces the schedule of a job within the scope.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope; [`PulseError::Conflict`] for a job that is final;
    /// [`PulseError::Invalid`] for a schedule that never fires.
    async fn reschedule_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        schedule: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError>;

    /// Pauses, resumes or redrives a job within the scope.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope; [`PulseError::Conflict`] if the state of the job does
    /// not allow it.
    async fn control_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        control: JobControl,
    ) -> Result<JobStatus, PulseError>;

    /// Cancels all jobs that match the filter and are not final, and returns their number. The filter must name the
    /// company, and either the agent or the user with a tool or an assignment.
    async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError>;

    /// Cancels all jobs within the scope that call the tool and returns their number.
    async fn cancel_jobs_for_tool(&self, scope: &JobScope, tool: &str) -> Result<u64, PulseError> {
        let tool = Some(tool.to_owned());
        self.cancel_jobs(&JobFilter { scope: scope.clone(), tool, ..JobFilter::default() }).await
    }

    /// Cancels all jobs within the scope that belong to the assignment and returns their number.
    async fn cancel_jobs_for_assignment(
        &self,
        scope: &JobScope,
        assignment: &str,
    ) -> Result<u64, PulseError> {
        let assignment = Some(assignment.to_owned());
        self.cancel_jobs(&JobFilter { scope: scope.clone(), assignment, ..JobFilter::default() }).await
    }

    /// Returns one page of at most `limit` jobs.
    ///
    /// # Errors
    /// [`PulseError::Invalid`] for a cursor that no page returned.
    async fn list_jobs(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError>;

    /// Returns the number of jobs that match the filter.
    async fn count_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError>;

    /// Checks that the scheduler is reachable and works.
    async fn check_health(&self) -> Result<(), PulseError>;
}
