//! Runs the suite of jobs against the memory store and against defective ones.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agent_core::ids::JobId;
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;

use crate::conformance::{jobs, jobs_against_reference};
use crate::job::{
    ClaimRequest, CompanyQuota, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope,
    JobStore, MemoryJobStore, Step, StepOutcome,
};

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    jobs(async || Arc::new(MemoryJobStore::default()) as _).await;
}

#[tokio::test]
async fn the_memory_store_agrees_with_the_model() {
    for seed in 0..8 {
        jobs_against_reference(async || Arc::new(MemoryJobStore::default()) as _, seed, 1000).await;
    }
}

/// Runs a suite that must panic, and returns its message.
async fn panic_message(suite: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(suite).catch_unwind().await.expect_err("the suite detects the defect");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}

#[derive(Debug, Clone, Copy)]
enum JobsDefect {
    ForgetsTheCompany,
    ForgetsTheUser,
    ForgetsKeys,
    ForgetsTheLimit,
    LimitsRepeatedRequests,
    SharesKeysOfCompanies,
    ListsBackwards,
    ListsOneTooFew,
    ForgetsTheOrder,
    CountsFinalJobs,
    StepsBackwards,
    IgnoresQuotas,
    IgnoresLimits,
    TakesLeasesAhead,
    TakesNothingAhead,
    CancelsWithoutCounting,
    CountsNoLag,
    PurgesTooMuch,
    NeverWakes,
    IsEarly,
}

struct DefectiveJobs {
    jobs: MemoryJobStore,
    defect: JobsDefect,
}

impl DefectiveJobs {
    fn scope(&self, scope: &JobScope) -> JobScope {
        match self.defect {
            JobsDefect::ForgetsTheCompany => JobScope { company: None, ..scope.clone() },
            JobsDefect::ForgetsTheUser => JobScope { user: None, ..scope.clone() },
            _ => scope.clone(),
        }
    }
}

#[async_trait]
impl JobStore for DefectiveJobs {
    async fn insert(&self, mut jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        for job in &mut jobs {
            match (self.defect, &mut job.idempotency) {
                (JobsDefect::ForgetsKeys, key) => *key = None,
                (JobsDefect::SharesKeysOfCompanies, Some(_)) => {
                    Arc::make_mut(&mut job.payload).company_id = "shared".into()
                }
                _ => {}
            }
        }
        self.jobs.insert(jobs).await
    }

    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        let max_open = if let JobsDefect::ForgetsTheLimit = self.defect { u64::MAX } else { max_open };
        if let JobsDefect::LimitsRepeatedRequests = self.defect
            && self.jobs.count(&JobFilter::open_jobs_of_user(&job.payload)).await? >= max_open
        {
            return Ok(InsertOutcome::LimitReached);
        }
        self.jobs.insert_within_limit(job, max_open).await
    }

    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        self.jobs.get(&self.scope(scope), id).await
    }

    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let filter = JobFilter { scope: self.scope(&filter.scope), ..filter.clone() };
        let order = if let JobsDefect::ForgetsTheOrder = self.defect { JobOrder::OldestFirst } else { order };
        let mut page = self.jobs.list(&filter, order, after, limit).await?;
        match self.defect {
            JobsDefect::ListsBackwards => page.jobs.reverse(),
            JobsDefect::ListsOneTooFew if page.jobs.len() > 1 => drop(page.jobs.remove(0)),
            _ => {}
        }
        Ok(page)
    }

    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let open = filter.open && !matches!(self.defect, JobsDefect::CountsFinalJobs);
        self.jobs.count(&JobFilter { scope: self.scope(&filter.scope), open, ..filter.clone() }).await
    }

    async fn apply_steps(
        &self,
        mut steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        if let JobsDefect::StepsBackwards = self.defect {
            steps.reverse();
            let mut outcomes = self.jobs.apply_steps(steps, now).await?;
            outcomes.reverse();
            return Ok(outcomes);
        }
        self.jobs.apply_steps(steps, now).await
    }

    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError> {
        let filter = JobFilter { scope: self.scope(&filter.scope), ..filter.clone() };
        let cancelled = self.jobs.cancel_all(&filter, now).await?;
        Ok(if let JobsDefect::CancelsWithoutCounting = self.defect { 0 } else { cancelled })
    }

    async fn claim_due(&self, mut claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        match self.defect {
            JobsDefect::IgnoresQuotas => claim.quota = CompanyQuota::new(usize::MAX),
            JobsDefect::IgnoresLimits => claim.limit = usize::MAX,
            JobsDefect::TakesLeasesAhead => claim.now = claim.due_until,
            JobsDefect::TakesNothingAhead => claim.due_until = claim.now,
            _ => {}
        }
        self.jobs.claim_due(claim).await
    }

    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.jobs.next_run_at().await?;
        let floor = |time: Timestamp| Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time);
        Ok(if let JobsDefect::IsEarly = self.defect { earliest.map(floor) } else { earliest })
    }

    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let counts = self.jobs.count_by_state(now).await?;
        let lag = if let JobsDefect::CountsNoLag = self.defect { Default::default() } else { counts.lag };
        Ok(JobCounts { lag, ..counts })
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let limit = if let JobsDefect::PurgesTooMuch = self.defect { limit.max(100) } else { limit };
        self.jobs.purge(ended_before, limit).await
    }

    fn notifications(&self) -> BoxStream<'static, ()> {
        match self.defect {
            // A stream that ends at once, because the suite would wait for its full timeout.
            JobsDefect::NeverWakes => futures_util::stream::empty().boxed(),
            _ => self.jobs.notifications(),
        }
    }
}

#[tokio::test]
async fn the_suite_detects_each_defect() {
    let cases = [
        (JobsDefect::ForgetsTheCompany, "absent outside of its scope"),
        (JobsDefect::ForgetsTheUser, "absent outside of its scope"),
        (JobsDefect::ForgetsKeys, "a job is returned as it was stored"),
        (JobsDefect::SharesKeysOfCompanies, "a job is returned as it was stored"),
        (JobsDefect::ForgetsTheLimit, "do not exceed the limit of open jobs"),
        (JobsDefect::LimitsRepeatedRequests, "a key is looked up before the limit"),
        (JobsDefect::ListsBackwards, "the next page begins after this one"),
        (JobsDefect::ListsOneTooFew, "cover the list in the order of ids"),
        (JobsDefect::ForgetsTheOrder, "cover the list, the newest first"),
        (JobsDefect::CountsFinalJobs, "the number of jobs that match"),
        (JobsDefect::StepsBackwards, "a step follows those before it"),
        (JobsDefect::IgnoresQuotas, "jobs behind many of another company are claimed"),
        (JobsDefect::IgnoresLimits, "the jobs that have been due for longest are claimed first"),
        (JobsDefect::TakesLeasesAhead, "a lease is not reclaimed before it expires"),
        (JobsDefect::TakesNothingAhead, "can be claimed ahead of its time"),
        (JobsDefect::CancelsWithoutCounting, "cancel_all cancels the jobs of the scope only"),
        (JobsDefect::CountsNoLag, "the lag is that of the longest overdue job"),
        (JobsDefect::PurgesTooMuch, "no more jobs than the limit are removed"),
        (JobsDefect::NeverWakes, "the stream does not end"),
        (JobsDefect::IsEarly, "rounded up to the millisecond"),
    ];
    for (defect, expected) in cases {
        let make = async || Arc::new(DefectiveJobs { jobs: MemoryJobStore::default(), defect }) as _;
        let message = panic_message(jobs(make)).await;
        assert!(message.contains(expected), "{defect:?} is reported as: {message}");
    }
}
