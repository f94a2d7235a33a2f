//! A scheduler in memory that delivers nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::clock::{Clock, SystemClock};
use agent_core::ids::JobId;
use agent_core::store_error::StoreError;
use agent_jobs::job::{
    IdempotencyKey, InsertOutcome, Job, JobFilter, JobPayload, JobScope, JobStore, JobView,
    MAX_ATTEMPTS_LIMIT, MAX_IDEMPOTENCY_KEY_BYTES, MemoryJobStore, NewJob, Step, StepError, StepOutcome,
    StepResult,
};
use agent_jobs::schedule::ScheduleSpec;
use async_trait::async_trait;
use jiff::Timestamp;

use crate::pulse::{CancelResult, JobRequest, JobViewPage, Pulse, PulseError, ScheduledJob};

/// A [`Pulse`] over a [`MemoryJobStore`]. It applies the rules of jobs, records which jobs were created, moved or
/// cancelled, and can be made unavailable. It delivers nothing.
pub struct MemoryPulse {
    jobs: MemoryJobStore,
    clock: Arc<dyn Clock>,
    is_available: AtomicBool,
    changed: Mutex<Vec<Arc<JobPayload>>>,
}

impl Default for MemoryPulse {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl MemoryPulse {
    /// Creates a scheduler without jobs.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            jobs: MemoryJobStore::default(),
            clock,
            is_available: AtomicBool::new(true),
            changed: Mutex::default(),
        }
    }

    /// Returns the store of the jobs.
    pub fn jobs(&self) -> &MemoryJobStore {
        &self.jobs
    }

    /// Sets if calls succeed. An unavailable scheduler answers every call with [`PulseError::Unavailable`].
    pub fn set_available(&self, is_available: bool) {
        self.is_available.store(is_available, Ordering::SeqCst);
    }

    /// Returns the payloads of the jobs that were created, moved or cancelled one by one since the last call of this
    /// function.
    pub fn take_changed(&self) -> Vec<Arc<JobPayload>> {
        std::mem::take(&mut self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, job: &Job) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push(job.payload.clone());
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    fn check_available(&self) -> Result<(), PulseError> {
        if self.is_available.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(PulseError::Unavailable("the scheduler was made unavailable".into()))
    }

    async fn apply_step(&self, scope: &JobScope, id: &JobId, step: Step) -> Result<StepResult, PulseError> {
        self.check_available()?;
        match self.jobs.apply_step(scope, id, step, self.now()).await.map_err(unavailable)? {
            StepOutcome::Applied(result) => {
                self.record(&result.job);
                Ok(*result)
            }
            StepOutcome::NotFound => Err(PulseError::NotFound),
            StepOutcome::Rejected(error @ StepError::NeverFires) => Err(invalid(error)),
            StepOutcome::Rejected(error) => Err(PulseError::Conflict(error.to_string())),
        }
    }

    async fn cancel_all(&self, filter: JobFilter) -> Result<u64, PulseError> {
        self.check_available()?;
        self.jobs.cancel_all(&filter, self.now()).await.map_err(unavailable)
    }
}

fn unavailable(error: StoreError) -> PulseError {
    PulseError::Unavailable(error.into())
}

fn invalid(error: impl ToString) -> PulseError {
    PulseError::Invalid(error.to_string())
}

/// Creates the requested job, with its schedule resolved at `now`.
fn new_job(request: &JobRequest, now: Timestamp) -> Result<Job, PulseError> {
    request.payload.validate().map_err(invalid)?;
    let schedule = request.schedule.resolve(now).map_err(invalid)?;
    if request.max_attempts.is_some_and(|attempts| !(1..=MAX_ATTEMPTS_LIMIT).contains(&attempts)) {
        return Err(invalid("maxAttempts is out of range"));
    }
    let is_key = |key: &String| (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len());
    if !request.idempotency_key.as_ref().is_none_or(is_key) {
        return Err(invalid("idempotencyKey is too short or too long"));
    }
    let idempotency = match &request.idempotency_key {
        Some(key) => {
            let fingerprint = serde_json::to_string(request).map_err(invalid)?;
            Some(IdempotencyKey { key: key.clone(), fingerprint })
        }
        None => None,
    };
    let usual = NewJob::new(request.payload.clone(), schedule);
    let new = NewJob {
        misfire: request.misfire.unwrap_or(usual.misfire),
        overlap: request.overlap.unwrap_or(usual.overlap),
        max_attempts: request.max_attempts.unwrap_or(usual.max_attempts),
        idempotency,
        ..usual
    };
    Ok(Job::new(new, now))
}

#[async_trait]
impl Pulse for MemoryPulse {
    async fn schedule_job(&self, request: &JobRequest) -> Result<ScheduledJob, PulseError> {
        self.check_available()?;
        let job = new_job(request, self.now())?;
        let scheduled = ScheduledJob { job_id: job.id.clone(), execute_at: job.due };
        let inserted = self.jobs.insert(vec![job.clone()]).await.map_err(unavailable)?.pop();
        match inserted {
            Some(InsertOutcome::Existing(job)) => {
                Ok(ScheduledJob { job_id: job.id.clone(), execute_at: job.due })
            }
            Some(InsertOutcome::KeyConflict(_)) => {
                Err(PulseError::Conflict("the idempotencyKey was used for another job".to_owned()))
            }
            Some(InsertOutcome::New) | None => {
                self.record(&job);
                Ok(scheduled)
            }
        }
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        self.check_available()?;
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

    async fn cancel_jobs_for_tool(&self, scope: &JobScope, tool: &str) -> Result<u64, PulseError> {
        let tool = Some(tool.into());
        self.cancel_all(JobFilter { scope: scope.clone(), tool, ..JobFilter::default() }).await
    }

    async fn cancel_jobs_for_assignment(
        &self,
        scope: &JobScope,
        assignment: &str,
    ) -> Result<u64, PulseError> {
        let assignment = Some(assignment.into());
        self.cancel_all(JobFilter { scope: scope.clone(), assignment, ..JobFilter::default() }).await
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        self.check_available()?;
        let page =
            self.jobs.list(filter, cursor.map(JobId::from).as_ref(), limit).await.map_err(unavailable)?;
        Ok(JobViewPage {
            jobs: page.jobs.iter().map(JobView::from).collect(),
            next_cursor: page.next.map(|id| id.to_string()),
        })
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        self.check_available()
    }
}
