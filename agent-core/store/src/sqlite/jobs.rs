//! Job store: each operation is one statement of a reader thread, or one operation of the writer thread.

use agent_core::job::{
    Claim, Inserted, Job, JobCounts, JobFilter, JobPage, JobStore, MAX_JOBS_PAGE, Refusal, Scope, Step,
    Stepped,
};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use self::rows::JobRows;
use super::SqliteStore;
use super::act::{Act, Stage};
use super::fault::Halt;
use crate::job_row::{JobRow, ceil_millis, floor_millis, from_millis};

mod claim;
mod counts;
mod filter;
mod held;
#[cfg(test)]
mod plans;
mod rows;

pub(super) use held::HeldJobs;

/// A write operation on jobs that stores about `bytes` bytes.
struct Work<F> {
    bytes: usize,
    work: F,
}

impl<T: Send, F> Act for Work<F>
where
    F: Fn(&JobRows<'_>) -> Result<T, Halt> + Send + 'static,
{
    type Done = T;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn act(&self, stage: &mut Stage<'_>) -> Result<T, Halt> {
        let rows = JobRows::writable(stage.connection, stage.held);
        let done = (self.work)(&rows)?;
        stage.changes.any |= rows.changed();
        Ok(done)
    }
}

/// A write operation on jobs that can make another job the earliest.
struct Waking<F>(Work<F>);

impl<T: Send, F> Act for Waking<F>
where
    F: Fn(&JobRows<'_>) -> Result<T, Halt> + Send + 'static,
{
    type Done = T;

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn act(&self, stage: &mut Stage<'_>) -> Result<T, Halt> {
        let before = JobRows::new(stage.connection).earliest()?;
        let done = self.0.act(stage)?;
        let after = JobRows::new(stage.connection).earliest()?;
        stage.changes.wakes |= after.is_some_and(|after| before.is_none_or(|before| after < before));
        Ok(done)
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<Inserted>, StoreError> {
        // Serialized here rather than on the writer thread, which all writers share.
        let jobs = jobs.into_iter().map(JobRow::new).collect::<Result<Vec<_>, _>>()?;
        let bytes = jobs.iter().map(|row| row.body.len()).sum();
        let work = move |rows: &JobRows<'_>| jobs.iter().map(|row| rows.insert(row)).collect();
        self.writers.commit(Waking(Work { bytes, work })).await
    }

    async fn get(&self, scope: &Scope, id: &str) -> Result<Option<Job>, StoreError> {
        let id = id.to_owned();
        let found = self.readers.read(move |rows| JobRows::new(rows.0).get(&id)).await?;
        Ok(found.filter(|job| scope.contains(job)))
    }

    async fn list(
        &self,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let (filter, after) = (filter.clone(), after.map(str::to_owned));
        let limit = limit.clamp(1, MAX_JOBS_PAGE);
        let mut jobs = self
            .readers
            .read(move |rows| JobRows::new(rows.0).list(&filter, after.as_deref(), limit + 1))
            .await?;
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|last| last.id.clone());
        Ok(JobPage { jobs, next })
    }

    async fn step(
        &self,
        scope: &Scope,
        id: &str,
        step: Step,
        now: Timestamp,
    ) -> Result<Option<Result<Stepped, Refusal>>, StoreError> {
        let (scope, id) = (scope.clone(), id.to_owned());
        let work = move |rows: &JobRows<'_>| rows.step(&scope, &id, step.clone(), now);
        self.writers.commit(Waking(Work { bytes: 0, work })).await
    }

    async fn steps(
        &self,
        steps: Vec<(String, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<Result<Stepped, Refusal>>>, StoreError> {
        let work = move |rows: &JobRows<'_>| {
            steps.iter().map(|(id, step)| rows.step(&Scope::default(), id, step.clone(), now)).collect()
        };
        self.writers.commit(Waking(Work { bytes: 0, work })).await
    }

    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError> {
        let filter = filter.clone();
        let work = move |rows: &JobRows<'_>| rows.cancel_all(&filter, now);
        self.writers.commit(Work { bytes: 0, work }).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        let work = move |rows: &JobRows<'_>| rows.claim(&claim);
        self.writers.commit(Work { bytes: 0, work }).await
    }

    async fn earliest(&self) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.readers.read(|rows| JobRows::new(rows.0).earliest()).await?;
        Ok(earliest.map(from_millis))
    }

    async fn counts(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        self.readers.read(move |rows| JobRows::new(rows.0).counts(floor_millis(now))).await
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let work = move |rows: &JobRows<'_>| rows.purge(ceil_millis(ended_before), limit);
        self.writers.commit(Work { bytes: 0, work }).await
    }

    fn wakes(&self) -> BoxStream<'static, ()> {
        self.signal.given()
    }
}
