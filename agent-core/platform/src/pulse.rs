//! The scheduler as its callers see it: jobs are asked for here and run there.
//!
//! [`Pulse`] knows no transport, so tools and assignments work with whatever scheduler is behind it. A caller
//! says whose jobs it means with every call, and a scheduler answers for jobs outside of that as for ones that
//! never were.
//!
//! When an occurrence is due, the scheduler calls back, at least once. [`occurrence`] makes the effect happen
//! once; [`assignment`] keeps a schedule that somebody has saved in step with its job.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use agent_core::job::{JobFilter, JobPayload, JobView, Scope};
use agent_core::schedule::{Misfire, Overlap, ScheduleSpec, write_time};

/// How many jobs that are not final a person has at most, as far as tools make them.
pub const MAX_OPEN_JOBS: usize = 100;

/// What is asked for when a job is made: the body of `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRequest {
    /// What is to be done, and for whom.
    pub payload: JobPayload,
    /// When.
    #[serde(flatten)]
    pub schedule: ScheduleSpec,
    /// Makes asking twice harmless, within the company.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How often each occurrence is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// What becomes of occurrences that nobody was there to deliver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<Misfire>,
    /// What becomes of occurrences that come due while one is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
}

impl JobRequest {
    /// A job with the scheduler's usual policies.
    pub fn new(payload: JobPayload, schedule: ScheduleSpec) -> Self {
        Self { payload, schedule, idempotency_key: None, max_attempts: None, misfire: None, overlap: None }
    }

    /// Whose job it is.
    pub fn scope(&self) -> Scope {
        owner(&self.payload.company_id, &self.payload.user_id)
    }
}

/// The jobs of one person.
pub fn owner(company_id: &str, user_id: &str) -> Scope {
    Scope { company: Some(company_id.to_owned()), user: Some(user_id.to_owned()) }
}

/// A job that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduled {
    /// The job's id.
    pub job_id: String,
    /// When it is due next, RFC 3339 in UTC.
    #[serde(serialize_with = "write_time")]
    #[schemars(with = "String")]
    pub execute_at: Timestamp,
}

/// What became of a job that nobody wants any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Whether a delivery is under way that could not be taken back.
    #[serde(default)]
    pub delivering: bool,
}

/// Some jobs, in the order of their ids.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobViews {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Why the scheduler did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PulseError {
    /// There is none.
    #[error("Pulse not configured")]
    NotConfigured,
    /// There is no such job, or it is somebody else's: answered alike.
    #[error("there is no such job")]
    NotFound,
    /// What was asked cannot be; the text says why, and holds nothing that was sent.
    #[error("{0}")]
    Invalid(String),
    /// The job is not in a state for that, or the idempotency key stands for something else.
    #[error("{0}")]
    Conflict(String),
    /// It cannot be reached, or fails; trying again may help.
    #[error("the scheduler does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answers something else than it should, or does not take our secret: an operator must look.
    #[error("the scheduler refuses to work with this application")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A scheduler. The calls that make, move or cancel a job may be made again where nobody knows what became of
/// them: making one is harmless by its idempotency key, the others by themselves.
#[async_trait]
pub trait Pulse: Send + Sync + 'static {
    /// Makes a job; with an idempotency key that is known, gives the job that was made with it.
    ///
    /// # Errors
    /// [`PulseError::Invalid`] for a schedule that never fires or a payload that cannot be;
    /// [`PulseError::Conflict`] for an idempotency key that stands for another job.
    async fn schedule_job(&self, job: &JobRequest) -> Result<Scheduled, PulseError>;

    /// One job within the scope.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope.
    async fn get_job(&self, scope: &Scope, id: &str) -> Result<JobView, PulseError>;

    /// Cancels a job within the scope; again changes nothing.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], also for a job outside the scope.
    async fn cancel_job(&self, scope: &Scope, id: &str) -> Result<Cancelled, PulseError>;

    /// Gives a job within the scope another schedule.
    ///
    /// # Errors
    /// [`PulseError::NotFound`] as above; [`PulseError::Conflict`] for a job that is final;
    /// [`PulseError::Invalid`] for a schedule that never fires.
    async fn reschedule_job(
        &self,
        scope: &Scope,
        id: &str,
        schedule: &ScheduleSpec,
    ) -> Result<Scheduled, PulseError>;

    /// Cancels all jobs within the scope that call the tool, and says how many they were.
    async fn cancel_jobs_for_tool(&self, scope: &Scope, tool: &str) -> Result<u64, PulseError>;

    /// Cancels all jobs within the scope that belong to the assignment, and says how many they were.
    async fn cancel_jobs_for_assignment(&self, scope: &Scope, assignment: &str) -> Result<u64, PulseError>;

    /// One page of at most `limit` jobs.
    async fn get_jobs(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViews, PulseError>;

    /// Whether it works.
    async fn check_pulse_health(&self) -> Result<(), PulseError>;
}
