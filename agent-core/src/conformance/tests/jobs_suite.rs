//! Runs the suite of jobs against the memory store and against defective ones.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use super::complaint;
use crate::conformance::{jobs, jobs_against_model};
use crate::job::{
    Claim, Inserted, Job, JobCounts, JobFilter, JobPage, JobStore, MemoryJobs, Quota, Refusal, Scope, Step,
    Stepped,
};
use crate::store_error::StoreError;

#[tokio::test]
async fn jobs_in_memory_hold_their_contract() {
    jobs(async || Arc::new(MemoryJobs::default()) as _).await;
}

#[tokio::test]
async fn jobs_in_memory_are_as_the_model_says() {
    for seed in 0..8 {
        jobs_against_model(async || Arc::new(MemoryJobs::default()) as _, seed, 1000).await;
    }
}

#[derive(Debug, Clone, Copy)]
enum Defect {
    ForgetsTheCompany,
    ForgetsTheUser,
    ForgetsKeys,
    SharesKeysOfCompanies,
    ListsBackwards,
    ListsOneTooFew,
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

struct Defective {
    jobs: MemoryJobs,
    defect: Defect,
}

impl Defective {
    fn scope(&self, scope: &Scope) -> Scope {
        match self.defect {
            Defect::ForgetsTheCompany => Scope { company: None, ..scope.clone() },
            Defect::ForgetsTheUser => Scope { user: None, ..scope.clone() },
            _ => scope.clone(),
        }
    }
}

#[async_trait]
impl JobStore for Defective {
    async fn insert(&self, mut jobs: Vec<Job>) -> Result<Vec<Inserted>, StoreError> {
        for job in &mut jobs {
            match (self.defect, &mut job.idempotency) {
                (Defect::ForgetsKeys, key) => *key = None,
                (Defect::SharesKeysOfCompanies, Some(_)) => {
                    Arc::make_mut(&mut job.payload).company_id = "shared".to_owned()
                }
                _ => {}
            }
        }
        self.jobs.insert(jobs).await
    }

    async fn get(&self, scope: &Scope, id: &str) -> Result<Option<Job>, StoreError> {
        self.jobs.get(&self.scope(scope), id).await
    }

    async fn list(
        &self,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let filter = JobFilter { scope: self.scope(&filter.scope), ..filter.clone() };
        let mut page = self.jobs.list(&filter, after, limit).await?;
        match self.defect {
            Defect::ListsBackwards => page.jobs.reverse(),
            Defect::ListsOneTooFew if page.jobs.len() > 1 => drop(page.jobs.remove(0)),
            _ => {}
        }
        Ok(page)
    }

    async fn steps(
        &self,
        mut steps: Vec<(String, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<Result<Stepped, Refusal>>>, StoreError> {
        if let Defect::StepsBackwards = self.defect {
            steps.reverse();
            let mut taken = self.jobs.steps(steps, now).await?;
            taken.reverse();
            return Ok(taken);
        }
        self.jobs.steps(steps, now).await
    }

    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError> {
        let filter = JobFilter { scope: self.scope(&filter.scope), ..filter.clone() };
        let cancelled = self.jobs.cancel_all(&filter, now).await?;
        Ok(if let Defect::CancelsWithoutCounting = self.defect { 0 } else { cancelled })
    }

    async fn claim(&self, mut claim: Claim) -> Result<Vec<Job>, StoreError> {
        match self.defect {
            Defect::IgnoresQuotas => claim.quota = Quota::new(usize::MAX),
            Defect::IgnoresLimits => claim.limit = usize::MAX,
            Defect::TakesLeasesAhead => claim.now = claim.until,
            Defect::TakesNothingAhead => claim.until = claim.now,
            _ => {}
        }
        self.jobs.claim(claim).await
    }

    async fn earliest(&self) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.jobs.earliest().await?;
        let floor = |time: Timestamp| Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time);
        Ok(if let Defect::IsEarly = self.defect { earliest.map(floor) } else { earliest })
    }

    async fn counts(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let counts = self.jobs.counts(now).await?;
        let lag = if let Defect::CountsNoLag = self.defect { Default::default() } else { counts.lag };
        Ok(JobCounts { lag, ..counts })
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let limit = if let Defect::PurgesTooMuch = self.defect { limit.max(100) } else { limit };
        self.jobs.purge(ended_before, limit).await
    }

    fn wakes(&self) -> BoxStream<'static, ()> {
        match self.defect {
            // A stream that ends at once, because the suite would wait for its full timeout.
            Defect::NeverWakes => futures_util::stream::empty().boxed(),
            _ => self.jobs.wakes(),
        }
    }
}

#[tokio::test]
async fn a_defective_store_of_jobs_is_found_out() {
    let cases = [
        (Defect::ForgetsTheCompany, "absent for"),
        (Defect::ForgetsTheUser, "absent for"),
        (Defect::ForgetsKeys, "a job is as it was stored"),
        (Defect::SharesKeysOfCompanies, "a job is as it was stored"),
        (Defect::ListsBackwards, "the next page begins after this one"),
        (Defect::ListsOneTooFew, "join in the order of ids"),
        (Defect::StepsBackwards, "a step sees those before it"),
        (Defect::IgnoresQuotas, "get their share"),
        (Defect::IgnoresLimits, "those that have been due for longest come first"),
        (Defect::TakesLeasesAhead, "is not taken ahead of its end"),
        (Defect::TakesNothingAhead, "can be taken ahead of its time"),
        (Defect::CancelsWithoutCounting, "all of a company's are cancelled"),
        (Defect::CountsNoLag, "the first waits since it was due"),
        (Defect::PurgesTooMuch, "no more than were asked for are removed"),
        (Defect::NeverWakes, "the signal goes on"),
        (Defect::IsEarly, "not too early"),
    ];
    for (defect, expected) in cases {
        let make = async || Arc::new(Defective { jobs: MemoryJobs::default(), defect }) as _;
        let said = complaint(jobs(make)).await;
        assert!(said.contains(expected), "{defect:?} is called: {said}");
    }
}
