//! The suite of scheduler clients, against the scheduler in memory and against defective clients.

use agent_core::conformance::Scenario;
use agent_core::ids::{CompanyId, JobId};
use agent_jobs::job::{JobFilter, JobOrder, JobScope, JobView};
use agent_jobs::schedule::ScheduleSpec;

use super::*;
use crate::pulse::{
    CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, Pulse, PulseError, ScheduledJob,
};
use crate::testing::MemoryPulse;

fn memory(scenario: Scenario) -> Option<MemoryPulse> {
    let pulse = MemoryPulse::default();
    pulse.set_available(scenario != Scenario::Rejects);
    matches!(scenario, Scenario::Completes | Scenario::Rejects).then_some(pulse)
}

#[tokio::test]
async fn the_scheduler_in_memory_conforms() {
    pulse(async |scenario| Some(PulseSubject { pulse: Arc::new(memory(scenario)?), open: None })).await;
}

/// Violation of the contract of a scheduler client.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PulseDefect {
    ChangesThePayload,
    ForgetsKeys,
    ForgetsTheLimit,
    SharesKeysOfCompanies,
    IgnoresTheRequestOfAKey,
    MisnamesInvalidRequests,
    ForgetsTheCompany,
    ForgetsTheUser,
    FailsForUnknownIds,
    CancelsOnlyOnce,
    DoesNotMove,
    CancelsAllTools,
    CancelsWithoutCounting,
    ListsTooMuch,
    ListsOnePage,
    AcceptsAnyCursor,
    IgnoresStates,
    HidesOutages,
}

/// A client with one defect.
struct DefectivePulse {
    inner: MemoryPulse,
    defect: PulseDefect,
    is_away: bool,
    /// Company of the first job with an idempotency key.
    company_of_keys: Mutex<Option<CompanyId>>,
}

impl DefectivePulse {
    fn has(&self, defect: PulseDefect) -> bool {
        self.defect == defect
    }

    fn scope(&self, scope: &JobScope) -> JobScope {
        match self.defect {
            PulseDefect::ForgetsTheCompany => JobScope { company: None, ..scope.clone() },
            PulseDefect::ForgetsTheUser => JobScope { user: None, ..scope.clone() },
            _ => scope.clone(),
        }
    }
}

#[async_trait]
impl Pulse for DefectivePulse {
    async fn schedule_job(&self, job: &JobRequest) -> Result<ScheduledJob, PulseError> {
        let mut job = job.clone();
        match self.defect {
            PulseDefect::ChangesThePayload => job.payload.message = Some("added".to_owned()),
            PulseDefect::ForgetsKeys => job.idempotency_key = None,
            PulseDefect::ForgetsTheLimit => job.max_open_jobs = None,
            PulseDefect::IgnoresTheRequestOfAKey if job.idempotency_key.is_some() => {
                job.payload.arguments = None;
            }
            PulseDefect::SharesKeysOfCompanies if job.idempotency_key.is_some() => {
                let mut shared = self.company_of_keys.lock().expect("unpoisoned");
                job.payload.company_id = shared.get_or_insert(job.payload.company_id).clone();
            }
            _ => {}
        }
        match self.inner.schedule_job(&job).await {
            Err(PulseError::Invalid(text)) if self.has(PulseDefect::MisnamesInvalidRequests) => {
                Err(PulseError::Conflict(text))
            }
            result => result,
        }
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        match self.inner.get_job(&self.scope(scope), id).await {
            Err(PulseError::NotFound) if self.has(PulseDefect::FailsForUnknownIds) => {
                Err(PulseError::Unavailable("a row is missing".into()))
            }
            result => result,
        }
    }

    async fn cancel_job(&self, scope: &JobScope, id: &JobId) -> Result<CancelResult, PulseError> {
        let is_cancelled = async || {
            let current_job = self.inner.get_job(scope, id).await;
            current_job.is_ok_and(|job| job.state == agent_jobs::job::JobState::Cancelled)
        };
        if self.has(PulseDefect::CancelsOnlyOnce) && is_cancelled().await {
            return Err(PulseError::Conflict("it is cancelled".to_owned()));
        }
        self.inner.cancel_job(&self.scope(scope), id).await
    }

    async fn reschedule_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        schedule: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError> {
        if self.has(PulseDefect::DoesNotMove) {
            let current_job = self.inner.get_job(scope, id).await?;
            if current_job.state.is_final() {
                return Err(PulseError::Conflict("it is final".to_owned()));
            }
            return Ok(ScheduledJob { job_id: current_job.job_id, execute_at: current_job.execute_at });
        }
        self.inner.reschedule_job(&self.scope(scope), id, schedule).await
    }

    async fn cancel_jobs_for_tool(&self, scope: &JobScope, tool: &str) -> Result<u64, PulseError> {
        if self.has(PulseDefect::CancelsAllTools) && tool == "report" {
            self.inner.cancel_jobs_for_tool(scope, "remind").await?;
        }
        if self.is_away && self.has(PulseDefect::HidesOutages) {
            return Ok(0);
        }
        let count = self.inner.cancel_jobs_for_tool(&self.scope(scope), tool).await?;
        Ok(if self.has(PulseDefect::CancelsWithoutCounting) { 0 } else { count })
    }

    async fn cancel_jobs_for_assignment(&self, scope: &JobScope, id: &str) -> Result<u64, PulseError> {
        self.inner.cancel_jobs_for_assignment(&self.scope(scope), id).await
    }

    async fn control_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        control: JobControl,
    ) -> Result<JobStatus, PulseError> {
        self.inner.control_job(&self.scope(scope), id, control).await
    }

    async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.inner.cancel_jobs(filter).await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        self.inner.count_jobs(filter).await
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        let mut filter = JobFilter { scope: self.scope(&filter.scope), ..filter.clone() };
        if self.has(PulseDefect::IgnoresStates) {
            filter.state = None;
        }
        let limit = if self.has(PulseDefect::ListsTooMuch) { limit + 1 } else { limit };
        let is_from_page = |cursor: &&str| agent_jobs::job::JobPage::parse_cursor(cursor).is_some();
        let cursor = cursor.filter(|cursor| !self.has(PulseDefect::AcceptsAnyCursor) || is_from_page(cursor));
        let page = self.inner.list_jobs(&filter, order, cursor, limit).await?;
        Ok(if self.has(PulseDefect::ListsOnePage) { JobViewPage { next_cursor: None, ..page } } else { page })
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        self.inner.check_health().await
    }
}

#[tokio::test]
async fn a_defective_scheduler_client_is_detected() {
    for (defect, expected) in [
        (PulseDefect::ChangesThePayload, "a job has the payload that was requested"),
        (PulseDefect::ForgetsKeys, "the same idempotency key create one job"),
        (PulseDefect::ForgetsTheLimit, "over the limit of open jobs"),
        (PulseDefect::SharesKeysOfCompanies, "idempotency keys of companies are independent"),
        (PulseDefect::IgnoresTheRequestOfAKey, "an idempotency key of another request is a conflict"),
        (PulseDefect::MisnamesInvalidRequests, "a schedule that never fires is PulseError::Invalid"),
        (PulseDefect::ForgetsTheCompany, "a job outside the scope is PulseError::NotFound"),
        (PulseDefect::ForgetsTheUser, "a job outside the scope is PulseError::NotFound"),
        (PulseDefect::FailsForUnknownIds, "is PulseError::NotFound"),
        (PulseDefect::CancelsOnlyOnce, "cancelling a job failed"),
        (PulseDefect::DoesNotMove, "is due at its new time"),
        (PulseDefect::CancelsAllTools, "only jobs of the tool are cancelled"),
        (PulseDefect::CancelsWithoutCounting, "are cancelled and counted"),
        (PulseDefect::ListsTooMuch, "a page has at most"),
        (PulseDefect::ListsOnePage, "cover the list in the order of ids"),
        (PulseDefect::AcceptsAnyCursor, "a cursor that no page returned is PulseError::Invalid"),
        (PulseDefect::IgnoresStates, "the jobs that match its filter"),
        (PulseDefect::HidesOutages, "cancel_jobs_for_tool of a scheduler that fails is an error"),
    ] {
        let make = async |scenario| {
            let is_away = scenario == Scenario::Rejects;
            let client = DefectivePulse {
                inner: memory(scenario)?,
                defect,
                is_away,
                company_of_keys: Mutex::default(),
            };
            Some(PulseSubject { pulse: Arc::new(client), open: None })
        };
        let complaint = complaint(pulse(make)).await;
        assert!(complaint.contains(expected), "{defect:?}: {complaint}");
    }
}
