//! A scheduler in memory that delivers nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::clock::{Clock, SystemClock};
use agent_core::ids::JobId;
use agent_jobs::job::{
    JobFilter, JobOrder, JobPayload, JobScope, JobStore, JobView, MemoryJobStore, Step, StepResult,
};
use agent_jobs::schedule::ScheduleSpec;
use async_trait::async_trait;

use crate::local_pulse::LocalPulse;
use crate::pulse::{
    CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, Pulse, PulseError, ScheduledJob,
};

/// A [`Pulse`] over a [`MemoryJobStore`]. It applies the rules of jobs, records which jobs were created, moved or
/// cancelled, and can be made unavailable. It delivers nothing.
pub struct MemoryPulse {
    inner: LocalPulse,
    is_available: AtomicBool,
    changed: Mutex<Vec<Arc<JobPayload>>>,
}

impl std::fmt::Debug for MemoryPulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPulse").field("is_available", &self.is_available).finish_non_exhaustive()
    }
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
            inner: LocalPulse::with_service_ids(Arc::new(MemoryJobStore::default()), clock),
            is_available: AtomicBool::new(true),
            changed: Mutex::default(),
        }
    }

    /// Returns the store of the jobs.
    pub fn jobs(&self) -> &Arc<dyn JobStore> {
        self.inner.jobs()
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

    fn record(&self, payload: &Arc<JobPayload>) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push(payload.clone());
    }

    fn available(&self) -> Result<&LocalPulse, PulseError> {
        if self.is_available.load(Ordering::SeqCst) {
            return Ok(&self.inner);
        }
        Err(PulseError::Unavailable("the scheduler was made unavailable".into()))
    }

    async fn apply_step(&self, scope: &JobScope, id: &JobId, step: Step) -> Result<StepResult, PulseError> {
        let result = self.available()?.apply_step(scope, id, step).await?;
        self.record(&result.job.payload);
        Ok(result)
    }
}

#[async_trait]
impl Pulse for MemoryPulse {
    async fn schedule_job(&self, request: &JobRequest) -> Result<ScheduledJob, PulseError> {
        let (job, is_new) = self.available()?.create(request).await?;
        if is_new {
            self.record(&job.payload);
        }
        Ok(ScheduledJob { execute_at: job.due, job_id: job.id })
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        self.available()?.get_job(scope, id).await
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
        let moved = self.available()?.reschedule_job(scope, id, schedule).await?;
        if let Ok(Some(job)) = self.jobs().get(scope, id).await {
            self.record(&job.payload);
        }
        Ok(moved)
    }

    async fn control_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        control: JobControl,
    ) -> Result<JobStatus, PulseError> {
        self.available()?.control_job(scope, id, control).await
    }

    async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.available()?.cancel_jobs(filter).await
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        self.available()?.list_jobs(filter, order, cursor, limit).await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.available()?.count_jobs(filter).await
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        self.available()?.check_health().await
    }
}
