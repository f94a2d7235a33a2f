//! [`LocalPulse`]: the scheduler's operations on a job store of this process.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::ids::JobId;
use agent_core::store_error::StoreError;
use agent_jobs::job::{
    InsertOutcome, Job, JobFilter, JobOrder, JobPage, JobScope, JobStore, JobView, Step, StepError,
    StepOutcome, StepResult,
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

impl std::fmt::Debug for LocalPulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPulse").field("id_prefix", &self.id_prefix).finish_non_exhaustive()
    }
}

impl LocalPulse {
    /// Creates a scheduler over a store. The ids of its jobs satisfy [`is_local_job`].
    pub fn new(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, id_prefix: LOCAL_ID_PREFIX }
    }

    /// Creates a scheduler whose jobs have the ids that a scheduler service gives them.
    #[cfg(feature = "conformance")]
    pub(crate) fn with_service_ids(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, id_prefix: "" }
    }

    /// Returns the store of the jobs.
    pub fn jobs(&self) -> &Arc<dyn JobStore> {
        &self.jobs
    }

    /// Returns a page of the open jobs whose ids satisfy [`is_local_job`], the oldest first. Jobs of a scheduler over the same
    /// store are not read: the ids of all local ones follow the common prefix.
    ///
    /// # Errors
    /// Errors of [`JobStore::list`].
    pub async fn open_local_jobs(&self, after: Option<&JobId>, limit: usize) -> Result<JobPage, StoreError> {
        let open = JobFilter { open: true, ..JobFilter::default() };
        let prefix = JobId::from(LOCAL_ID_PREFIX);
        let after = after.unwrap_or(&prefix);
        let mut page = self.jobs.list(&open, JobOrder::OldestFirst, Some(after), limit).await?;
        page.jobs.retain(|job| is_local_job(&job.id));
        page.unreadable.retain(is_local_job);
        page.next = page.next.filter(is_local_job);
        Ok(page)
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
                Err(PulseError::Conflict(InsertOutcome::KEY_CONFLICT_TEXT.to_owned()))
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

/// Returns the fingerprint of a request: a hash of its JSON, without the fields that a repeated request may change.
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
        Ok(ScheduledJob { execute_at: job.next_delivery_at(), job_id: job.id })
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
        Ok(ScheduledJob { execute_at: job.next_delivery_at(), job_id: job.id })
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
        Ok(JobStatus { state: job.state(), execute_at: job.next_delivery_at(), job_id: job.id, delivering })
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
        let invalid = || PulseError::Invalid("the cursor is invalid".to_owned());
        let after = cursor.map(|cursor| JobPage::parse_cursor(cursor).ok_or_else(invalid)).transpose()?;
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

#[cfg(test)]
mod tests {
    use agent_core::clock::SystemClock;
    use agent_jobs::job::{JobPayload, MemoryJobStore};

    use super::*;

    /// Creates `count` jobs with a prefix and returns their ids.
    async fn create_jobs(jobs: &Arc<dyn JobStore>, id_prefix: &'static str, count: usize) -> Vec<JobId> {
        let pulse = LocalPulse { jobs: jobs.clone(), clock: Arc::new(SystemClock), id_prefix };
        let mut ids = Vec::new();
        for _ in 0..count {
            let schedule = ScheduleSpec { every_ms: Some(3_600_000), ..ScheduleSpec::default() };
            let request = JobRequest::new(JobPayload::for_tool("c", "ada", "a", "createTodo"), schedule);
            ids.push(pulse.schedule_job(&request).await.expect("scheduled").job_id);
        }
        ids
    }

    /// The scheduler service answers so, and an assignment shows it as the time of its next run.
    #[tokio::test]
    async fn a_job_that_is_rescheduled_during_a_delivery_is_due_by_its_new_schedule() {
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        let id = create_jobs(&jobs, LOCAL_ID_PREFIX, 1).await.remove(0);
        let pulse = LocalPulse::new(jobs.clone(), Arc::new(SystemClock));
        let scope = JobScope::default();
        let due = pulse.get_job(&scope, &id).await.expect("a job").execute_at;
        let claim = Step::Claim { until: due, lease: Timestamp::MAX };
        let claimed = jobs.apply_steps(vec![(id.clone(), claim)], due).await.expect("stepped").remove(0);
        assert!(claimed.applied().is_some_and(|result| result.job.is_delivering()));
        let at = (due + jiff::SignedDuration::from_hours(5)).round(jiff::Unit::Second).expect("a time");
        let schedule = ScheduleSpec { execute_at: Some(at.to_string()), ..ScheduleSpec::default() };
        let moved = pulse.reschedule_job(&scope, &id, &schedule).await.expect("rescheduled");
        assert_eq!(moved.execute_at, at);
        let paused = pulse.control_job(&scope, &id, JobControl::Pause).await.expect("paused");
        assert_eq!((paused.execute_at, paused.delivering), (at, true));
    }

    #[tokio::test]
    async fn open_local_jobs_are_listed_without_those_of_a_scheduler() {
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        for prefix in ["", "kept-", "local.", "moved-"] {
            create_jobs(&jobs, prefix, 20).await;
        }
        let mut ids = create_jobs(&jobs, LOCAL_ID_PREFIX, 5).await;
        let local = LocalPulse::new(jobs.clone(), Arc::new(SystemClock));
        jobs.apply_steps(vec![(ids.remove(2), Step::Cancel)], local.now()).await.expect("cancelled");
        ids.sort_unstable();
        let (mut found, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = local.open_local_jobs(after.as_ref(), 3).await.expect("listed");
            sizes.push(page.jobs.len());
            found.extend(page.jobs.into_iter().map(|job| job.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ids);
        assert_eq!(sizes, [3, 1], "no page has jobs of the scheduler only");
    }
}
