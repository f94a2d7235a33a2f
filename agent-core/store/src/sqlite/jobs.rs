//! Job store: each operation is one statement of a reader thread, or one operation of the writer thread.

use agent_core::ids::{CompanyId, JobId};
use agent_jobs::job::{
    ClaimRequest, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope, JobStore,
    MAX_JOBS_PER_PAGE, Step, StepOutcome,
};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use rusqlite::Connection;

use self::filter::JobQuery;
use self::rows::JobTable;
use super::error::WriteError;
use super::write_op::{WriteBatch, WriteOp};
use super::{SqliteStore, schema};
use crate::job_row::{JobRow, ceil_millis, ends_delivery, floor_millis, from_millis, job_page};

mod claim;
mod counts;
mod filter;
#[cfg(test)]
mod plans;
mod rows;

/// A write operation on jobs that stores about `bytes` bytes.
struct JobWrite<F> {
    bytes: usize,
    work: F,
}

impl<T: Send, F> WriteOp for JobWrite<F>
where
    F: Fn(&JobTable<'_>) -> Result<T, WriteError> + Send + 'static,
{
    type Output = T;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<T, WriteError> {
        let rows = JobTable::writable(batch.connection, batch.claimed);
        let output = (self.work)(&rows)?;
        batch.changes.has_changes |= rows.has_written();
        Ok(output)
    }
}

/// A write operation on jobs that can make another job the earliest.
struct NotifyingJobWrite<F>(JobWrite<F>);

impl<T: Send, F> WriteOp for NotifyingJobWrite<F>
where
    F: Fn(&JobTable<'_>) -> Result<T, WriteError> + Send + 'static,
{
    type Output = T;

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<T, WriteError> {
        let before = JobTable::new(batch.connection).earliest()?;
        let output = self.0.apply(batch)?;
        let after = JobTable::new(batch.connection).earliest()?;
        batch.changes.is_earliest_changed |=
            after.is_some_and(|after| before.is_none_or(|before| after < before));
        Ok(output)
    }
}

/// Returns the company under which operations on the jobs of a scope are queued; none for those of the process that
/// delivers jobs.
fn owner_of_scope(scope: &JobScope) -> CompanyId {
    scope.company.clone().unwrap_or_else(|| CompanyId::from(""))
}

impl SqliteStore {
    async fn commit_steps(
        &self,
        scope: JobScope,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        let ids: Vec<JobId> = steps.iter().map(|(id, _)| id.clone()).collect();
        let company = owner_of_scope(&scope);
        let work = move |rows: &JobTable<'_>| {
            if !steps.iter().all(|(_, step)| ends_delivery(step)) {
                schema::check_not_newer(rows.connection)?;
            }
            steps.iter().map(|(id, step)| rows.step(&scope, id, step.clone(), now)).collect()
        };
        let write = NotifyingJobWrite(JobWrite { bytes: 0, work });
        let outcomes: Vec<_> = self.writers.commit(&company, write).await?;
        self.unreadable.record_outcomes(ids.iter().zip(&outcomes));
        Ok(outcomes)
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        // Serialized here rather than on the writer thread, which all writers share.
        let jobs = jobs.into_iter().map(JobRow::new).collect::<Result<Vec<_>, _>>()?;
        let bytes = jobs.iter().map(|row| row.body.len()).sum();
        let company = jobs.first().map(|row| row.job.payload.company_id.clone());
        let company = company.unwrap_or_else(|| CompanyId::from(""));
        let work = move |rows: &JobTable<'_>| jobs.iter().map(|row| rows.insert(row)).collect();
        self.writers.commit(&company, NotifyingJobWrite(JobWrite { bytes, work })).await
    }

    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        let row = JobRow::new(job)?;
        let (bytes, company) = (row.body.len(), row.job.payload.company_id.clone());
        let work = move |rows: &JobTable<'_>| {
            if let Some(existing) = rows.find_existing(&row)? {
                return Ok(existing);
            }
            let open_jobs = JobFilter::open_jobs_of_user(&row.job.payload);
            if JobQuery::from_filter(&open_jobs).count_up_to(rows.connection, max_open)? >= max_open {
                return Ok(InsertOutcome::LimitReached);
            }
            rows.insert_new(&row)
        };
        self.writers.commit(&company, NotifyingJobWrite(JobWrite { bytes, work })).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.probe_writes().await
    }

    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        let (company, scope, id) = (owner_of_scope(scope), scope.clone(), id.to_owned());
        let found = self.readers.read(&company, move |rows| JobTable::new(rows.0).get(&scope, &id)).await;
        found.inspect_err(|error| self.unreadable.record_error(error))
    }

    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let (company, filter, after) = (owner_of_scope(&filter.scope), filter.clone(), after.cloned());
        let limit = limit.clamp(1, MAX_JOBS_PER_PAGE);
        let read = move |connection: &Connection| {
            JobQuery::from_filter(&filter).list(connection, order, after.as_deref(), limit + 1)
        };
        let found = self.readers.read(&company, move |rows| read(rows.0)).await?;
        let page = job_page(found.into_iter(), limit);
        page.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(page)
    }

    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let (company, filter) = (owner_of_scope(&filter.scope), filter.clone());
        self.readers.read(&company, move |rows| JobQuery::from_filter(&filter).count(rows.0)).await
    }

    async fn apply_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, StoreError> {
        let (scope, steps) = (scope.clone(), vec![(id.to_owned(), step)]);
        let outcome = self.commit_steps(scope, steps, now).await?.pop();
        Ok(outcome.unwrap_or(StepOutcome::NotFound))
    }

    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        self.commit_steps(JobScope::default(), steps, now).await
    }

    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        let work = move |rows: &JobTable<'_>| rows.claim(claim.clone());
        let claimed = self.writers.commit("", JobWrite { bytes: 0, work }).await?;
        claimed.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(claimed.jobs)
    }

    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.readers.read("", |rows| JobTable::new(rows.0).earliest()).await?;
        Ok(earliest.map(from_millis))
    }

    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let counts =
            self.readers.read("", move |rows| JobTable::new(rows.0).counts(floor_millis(now))).await?;
        Ok(JobCounts { unreadable: self.unreadable.count(), ..counts })
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let work = move |rows: &JobTable<'_>| rows.purge(ceil_millis(ended_before), limit);
        self.writers.commit("", JobWrite { bytes: 0, work }).await
    }

    fn notifications(&self) -> BoxStream<'static, ()> {
        self.signal.subscribe()
    }
}
