//! [`LocalPulse`]: the scheduler's operations on a job store of this process.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::ids::JobId;
use agent_core::store_error::StoreError;
use agent_jobs::job::{
    InsertOutcome, Job, JobFilter, JobOrder, JobScope, JobStore, JobView, Step, StepError, StepOutcome,
    StepResult,
};
use agent_jobs::schedule::ScheduleSpec;
use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::pulse::{
    CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, Pulse, PulseError, ScheduledJob,
};

/// Prefix of the ids of jobs that an application without a scheduler stores itself.
const LOCAL_ID_PREFIX: &str = "local-";

/// Returns true if the application stores the job itself, because no scheduler was configured when it was created.
pub fn is_local_job(id: &JobId) -> bool {
    id.starts_with(LOCAL_ID_PREFIX)
}

/// A [`Pulse`] over a [`JobStore`]. It applies the rules of jobs and delivers nothing: an application without a
/// scheduler stores its jobs with it, and `GET /api/cron` claims and runs those that are due.
pub struct LocalPulse {
    jobs: Arc<dyn JobStore>,
    clock: Arc<dyn Clock>,
    id_prefix: &'static str,
}

impl LocalPulse {
    /// Creates a scheduler over a store. The ids of its jobs satisfy [`is_local_job`].
    pub fn new(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, id_prefix: LOCAL_ID_PREFIX }
    }

    /// Creates a scheduler whose jobs have the ids that a scheduler service gives them.
    #[cfg(feature = "conformance")]
    pub(crate) fn like_a_service(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, id_prefix: "" }
    }

    /// Returns the store of the jobs.
    pub fn jobs(&self) -> &Arc<dyn JobStore> {
        &self.jobs
    }

    /// Returns the clock's time.
    pub fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    /// Stores the requested job and returns it, or the one that was created with the same idempotency key.
    ///
    /// # Errors
    /// See [`Pulse::schedule_job`].
    pub(crate) async fn create(&self, request: &JobRequest) -> Result<(Job, bool), PulseError> {
        let mut job = request.job(self.now(), fingerprint).map_err(invalid)?;
        job.id = format!("{}{}", self.id_prefix, job.id).into();
        let max_open = request.max_open_jobs;
        let outcome = match max_open {
            Some(max_open) => self.jobs.insert_within_limit(job.clone(), max_open).await.map(Some),
            None => self.jobs.insert(vec![job.clone()]).await.map(|mut outcomes| outcomes.pop()),
        };
        match outcome.map_err(unavailable)? {
            Some(InsertOutcome::Existing(job)) => Ok((*job, false)),
            Some(InsertOutcome::KeyConflict(_)) => {
                Err(PulseError::Conflict("the idempotencyKey was used for another job".to_owned()))
            }
            Some(InsertOutcome::LimitReached) => Err(PulseError::LimitReached(max_open.unwrap_or_default())),
            Some(InsertOutcome::New) | None => Ok((job, true)),
        }
    }

    /// Applies a step to a job within the scope.
    ///
    /// # Errors
    /// [`PulseError::NotFound`], [`PulseError::Conflict`] if the step is refused, or [`PulseError::Invalid`] for a
    /// schedule that never fires.
    pub(crate) async fn apply_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: Step,
    ) -> Result<StepResult, PulseError> {
        match self.jobs.apply_step(scope, id, step, self.now()).await.map_err(unavailable)? {
            StepOutcome::Applied(result) => Ok(*result),
            StepOutcome::NotFound => Err(PulseError::NotFound),
            StepOutcome::Unreadable => Err(PulseError::Unavailable("the stored job cannot be read".into())),
            StepOutcome::Rejected(error @ StepError::NeverFires) => Err(invalid(error)),
            StepOutcome::Rejected(error) => Err(PulseError::Conflict(error.to_string())),
        }
    }
}

fn unavailable(error: StoreError) -> PulseError {
    PulseError::Unavailable(error.into())
}

fn invalid(error: impl ToString) -> PulseError {
    PulseError::Invalid(error.to_string())
}

/// Returns the fingerprint of a request: a hash of its JSON, without what a repeated request may change.
fn fingerprint(request: &JobRequest) -> String {
    let payload = request.payload.without_trace();
    let identifying_part = JobRequest { payload, max_open_jobs: None, ..request.clone() };
    // A request is JSON: all its maps have texts as keys.
    hex::encode(Sha256::digest(serde_json::to_vec(&identifying_part).unwrap_or_default()))
}

#[async_trait]
impl Pulse for LocalPulse {
    async fn schedule_job(&self, request: &JobRequest) -> Result<ScheduledJob, PulseError> {
        let (job, _) = self.create(request).await?;
        Ok(ScheduledJob { execute_at: job.due, job_id: job.id })
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        let job = self.jobs.get(scope, id).await.map_err(unavailable)?;
        job.as_ref().map(JobView::from).ok_or(PulseError::NotFound)
    }

    async fn cancel_job(&self, scope: &JobScope, id: &JobId) -> Result<CancelResult, PulseError> {
        let StepResult { delivering, .. } = self.apply_step(scope, id, Step::Cancel).await?;
        Ok(CancelResult { delivering })
    }

    async fn reschedule_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        schedule: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError> {
        let schedule = schedule.resolve(self.now()).map_err(invalid)?;
        let StepResult { job, .. } = self.apply_step(scope, id, Step::Reschedule(schedule)).await?;
        Ok(ScheduledJob { execute_at: job.due, job_id: job.id })
    }

    async fn control_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        control: JobControl,
    ) -> Result<JobStatus, PulseError> {
        let step = match control {
            JobControl::Pause => Step::Pause,
            JobControl::Resume => Step::Resume,
            JobControl::Redrive => Step::Redrive,
        };
        let StepResult { job, delivering, .. } = self.apply_step(scope, id, step).await?;
        Ok(JobStatus { state: job.state(), execute_at: job.due, job_id: job.id, delivering })
    }

    async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.jobs.cancel_all(filter, self.now()).await.map_err(unavailable)
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        let after = cursor.map(JobId::from);
        let page = self.jobs.list(filter, order, after.as_ref(), limit).await.map_err(unavailable)?;
        Ok(JobViewPage {
            jobs: page.jobs.iter().map(JobView::from).collect(),
            next_cursor: page.next.map(|id| id.to_string()),
        })
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.jobs.count(filter).await.map_err(unavailable)
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        self.jobs.next_run_at().await.map(drop).map_err(unavailable)
    }
}
