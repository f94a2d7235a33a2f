//! In-memory [`JobStore`]: the reference implementation, without persistence.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::{CompanyId, JobId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use super::claim::{Candidate, ClaimDecision, ClaimPlanner};
use super::{
    ClaimRequest, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope, JobStore,
    MAX_JOBS_PER_PAGE, Step, StepOutcome, WakeSignal,
};

/// In-memory [`JobStore`]. All jobs are lost when the process ends.
#[derive(Debug, Default)]
pub struct MemoryJobStore {
    jobs: Mutex<Jobs>,
    signal: WakeSignal,
}

#[derive(Debug, Default)]
struct Jobs {
    by_id: BTreeMap<JobId, Job>,
    by_wake: BTreeSet<(Timestamp, JobId)>,
    /// Job ids by company and idempotency key.
    by_key: HashMap<(CompanyId, String), JobId>,
}

impl MemoryJobStore {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // No panic below can separate two changes that belong together, so a poisoned lock is usable.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `change` and notifies subscribers if the earliest wake-up time has moved forward.
    fn update_and_notify<T>(&self, change: impl FnOnce(&mut Jobs) -> T) -> T {
        let mut jobs = self.lock();
        let old_earliest = jobs.earliest();
        let outcome = change(&mut jobs);
        let is_earlier = match (jobs.earliest(), old_earliest) {
            (Some(new_earliest), Some(old_earliest)) => new_earliest < old_earliest,
            (new_earliest, _) => new_earliest.is_some(),
        };
        drop(jobs);
        if is_earlier {
            self.signal.notify();
        }
        outcome
    }
}

impl Jobs {
    fn earliest(&self) -> Option<Timestamp> {
        self.by_wake.first().map(|(wake, _)| *wake)
    }

    fn put(&mut self, job: Job) {
        self.remove(&job.id);
        if let Some(wake) = job.next_run_at() {
            self.by_wake.insert((wake, job.id.clone()));
        }
        if let Some(key) = key(&job) {
            self.by_key.insert(key, job.id.clone());
        }
        self.by_id.insert(job.id.clone(), job);
    }

    fn remove(&mut self, id: &str) {
        let Some(job) = self.by_id.remove(id) else { return };
        if let Some(key) = key(&job) {
            self.by_key.remove(&key);
        }
        if let Some(wake) = job.next_run_at() {
            self.by_wake.remove(&(wake, job.id));
        }
    }

    /// Returns the outcome of inserting a job whose idempotency key is in use.
    fn find_existing(&self, job: &Job) -> Option<InsertOutcome> {
        let existing = self.by_id.get(self.by_key.get(&key(job)?)?)?;
        Some(InsertOutcome::from_existing(existing.clone(), job))
    }

    fn insert(&mut self, job: Job) -> InsertOutcome {
        if let Some(existing) = self.find_existing(&job) {
            return existing;
        }
        self.put(job);
        InsertOutcome::New
    }

    fn insert_within_limit(&mut self, job: Job, max_open: u64) -> InsertOutcome {
        if let Some(existing) = self.find_existing(&job) {
            return existing;
        }
        if self.count(&JobFilter::open_jobs_of_user(&job.payload)) >= max_open {
            return InsertOutcome::LimitReached;
        }
        self.put(job);
        InsertOutcome::New
    }

    fn count(&self, filter: &JobFilter) -> u64 {
        self.by_id.values().filter(|job| filter.matches(job)).count() as u64
    }

    fn step(&mut self, id: &str, step: Step, now: Timestamp) -> StepOutcome {
        let Some(job) = self.by_id.get(id) else { return StepOutcome::NotFound };
        let outcome = StepOutcome::from(job.clone().step(step, now));
        if let StepOutcome::Applied(result) = &outcome
            && result.changed
        {
            self.put(result.job.clone());
        }
        outcome
    }

    fn claim(&mut self, request: ClaimRequest) -> Vec<Job> {
        let mut planner = ClaimPlanner::new(request);
        let range = planner.range();
        let mut next = self.by_wake.first().cloned();
        while let Some((wake, id)) = next
            && wake <= range.due_until
            && planner.remaining_rows() > 0
        {
            let job = &self.by_id[&id];
            let payload = job.payload.clone();
            if range.contains(job) && planner.admit(&payload.company_id) {
                let candidate = Candidate { wake, company: &payload.company_id, job: Some(job.clone()) };
                match planner.decide(candidate) {
                    ClaimDecision::Claim(job) | ClaimDecision::Skip(job) => self.put(job.clone()),
                    ClaimDecision::Postpone(_) | ClaimDecision::Leave => {}
                }
            }
            next = self.by_wake.range((Bound::Excluded((wake, id)), Bound::Unbounded)).next().cloned();
        }
        planner.finish()
    }
}

fn key(job: &Job) -> Option<(CompanyId, String)> {
    let idempotency = job.idempotency.as_ref()?;
    Some((job.payload.company_id.clone(), idempotency.key.clone()))
}

/// Returns the first `limit` of the jobs that match the filter.
fn page<'j>(jobs: impl Iterator<Item = (&'j JobId, &'j Job)>, filter: &JobFilter, limit: usize) -> JobPage {
    let mut matching = jobs.map(|(_, job)| job).filter(|job| filter.matches(job));
    let jobs: Vec<Job> = matching.by_ref().take(limit).cloned().collect();
    let next = matching.next().and(jobs.last()).map(|last_job| last_job.id.clone());
    JobPage { jobs, unreadable: Vec::new(), next }
}

#[async_trait]
impl JobStore for MemoryJobStore {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        Ok(self.update_and_notify(|all| jobs.into_iter().map(|job| all.insert(job)).collect()))
    }

    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        Ok(self.update_and_notify(|all| all.insert_within_limit(job, max_open)))
    }

    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        Ok(self.lock().by_id.get(id).filter(|job| scope.contains(job)).cloned())
    }

    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let jobs = self.lock();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let limit = limit.clamp(1, MAX_JOBS_PER_PAGE);
        Ok(match order {
            JobOrder::NewestFirst => {
                page(jobs.by_id.range::<JobId, _>((Bound::Unbounded, after)).rev(), filter, limit)
            }
            JobOrder::OldestFirst => {
                page(jobs.by_id.range::<JobId, _>((after, Bound::Unbounded)), filter, limit)
            }
        })
    }

    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        Ok(self.lock().count(filter))
    }

    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        Ok(self
            .update_and_notify(|all| steps.into_iter().map(|(id, step)| all.step(&id, step, now)).collect()))
    }

    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        Ok(self.lock().claim(claim))
    }

    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.lock().earliest())
    }

    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let jobs = self.lock();
        let mut counts = JobCounts::default();
        for job in jobs.by_id.values() {
            *counts.by_state.entry(job.state()).or_default() += 1;
            counts.lag = counts.lag.max(job.lag(now));
        }
        Ok(counts)
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut jobs = self.lock();
        let expired =
            jobs.by_id.values().filter(|job| job.ended_at().is_some_and(|ended| ended < ended_before));
        let ids: Vec<JobId> = expired.take(limit).map(|job| job.id.clone()).collect();
        ids.iter().for_each(|id| jobs.remove(id));
        Ok(ids.len() as u64)
    }

    fn notifications(&self) -> BoxStream<'static, ()> {
        self.signal.subscribe()
    }
}
