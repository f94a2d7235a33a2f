//! [`PostgresJobs`]: the [`JobStore`] over PostgreSQL.

use std::fmt;
use std::time::Duration;

use agent_core::ids::JobId;
use agent_jobs::job::{
    ClaimRequest, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope, JobStore, Step,
    StepOutcome, WakeSignal,
};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use super::address::{Address, PoolMode};
use super::error::OperationError;
use super::fair_queue::{FairQueue, Permit};
use super::jobs::{self, Sender};
use super::listen::Listener;
use super::lock_wait::{LockAttempts, LockQueues};
use super::schema::{self, Schema};
use super::session::{Session, SessionPool};
use super::{PostgresOpenError, PostgresOptions};
use crate::job_row::UnreadableJobs;

/// [`JobStore`] in a separate schema of a PostgreSQL database. See the [module documentation](super) for its
/// guarantees.
pub struct PostgresJobs {
    sessions: SessionPool,
    /// Permits of companies to use a connection.
    permits: FairQueue,
    /// Permits of the writes that wait for locks that are known to be held.
    blocked: FairQueue,
    wait_timeout: Duration,
    lock_timeout: Duration,
    sender: Sender,
    /// Signal for subscribers of [`wakes`](JobStore::wakes), given when another job becomes the earliest.
    signal: WakeSignal,
    unreadable: UnreadableJobs,
    /// Listener for the notifications of other processes, aborted when the store is dropped.
    listener: Option<Listener>,
}

impl PostgresJobs {
    /// Connects to the server at `url` and creates the tables in the schema `scheduler`, or migrates them from an older
    /// version. Concurrent migrations by several processes wait for one another. See the [module
    /// documentation](super#addresses) for the URL.
    ///
    /// This and all other methods must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`PostgresOpenError`].
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let limit = options.connect_timeout * 4;
        let mut store = Self::open_schema(&schema::SCHEDULER, url, &options).await?;
        let address = Address::parse(url, options.connect_timeout)?;
        // A pooler of transactions forwards no notifications. The worker polls each second.
        if address.pool_mode == PoolMode::Session {
            let (sender, signal) = (store.sender.clone(), store.signal.clone());
            store.listener = Some(Listener::start(address, limit, sender, signal).await?);
        }
        Ok(store)
    }

    /// Connects as [`open`](Self::open) does, to the schema `app_jobs`: jobs of an application without a scheduler.
    /// Its [`notifications`](JobStore::notifications) are those of this process only.
    ///
    /// # Errors
    /// See [`PostgresOpenError`].
    pub async fn open_for_application(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        Self::open_schema(&schema::APP_JOBS, url, &options).await
    }

    async fn open_schema(
        schema: &'static Schema,
        url: &str,
        options: &PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        let sessions = schema.open(url, options).await?;
        let sender = Sender { name: uuid::Uuid::new_v4().to_string(), channel: schema.job_channel() };
        Ok(Self {
            sessions,
            permits: FairQueue::new(options.connections),
            blocked: FairQueue::with_share(options.connections / 2, 1),
            wait_timeout: options.wait_timeout,
            lock_timeout: options.lock_timeout,
            sender,
            signal: WakeSignal::default(),
            unreadable: UnreadableJobs::default(),
            listener: None,
        })
    }

    /// Waits for a connection for an operation on the jobs of one company, or of all companies with `None`. Companies are served
    /// round-robin. The latter are those of the process that delivers jobs: few at a time, and all companies wait for them.
    async fn session(&self, company: Option<&str>) -> Result<(Option<Permit>, Session), OperationError> {
        let permit = match company {
            Some(company) => Some(self.permits.acquire(company, self.wait_timeout).await?),
            None => None,
        };
        Ok((permit, self.sessions.get().await?))
    }

    /// Runs a write as one transaction, again if a lock that it needs was held. `write` gets a session, which it releases, and
    /// the timeout of each lock. Sends the signal if another job has become the earliest.
    async fn write<T, F: Future<Output = Result<(T, bool), OperationError>>>(
        &self,
        company: Option<&str>,
        write: impl Fn(Session, String) -> F,
    ) -> Result<T, StoreError> {
        let Self { permits, blocked, wait_timeout, lock_timeout, .. } = self;
        let queues =
            LockQueues { all: permits, blocked, wait_timeout: *wait_timeout, lock_timeout: *lock_timeout };
        let mut attempts = LockAttempts::new(queues, company);
        loop {
            attempts.acquire_permits().await.map_err(StoreError::unavailable)?;
            let session = self.sessions.get().await.map_err(StoreError::unavailable)?;
            match write(session, attempts.lock_timeout()).await {
                Err(OperationError::Failed(error)) if attempts.is_repeated_after(&error) => {}
                outcome => return self.signal_if_earliest(outcome),
            }
        }
    }

    async fn commit_steps(
        &self,
        scope: &JobScope,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        let (steps, sender) = (steps.as_slice(), &self.sender);
        let outcomes = self.write(scope.company.as_deref(), |session, lock_timeout| async move {
            let applied = jobs::apply_steps(&session, scope, steps, now, sender, &lock_timeout).await;
            session.release(applied).await
        });
        let outcomes = outcomes.await?;
        self.unreadable.record_outcomes(steps.iter().map(|(id, _)| id).zip(&outcomes));
        Ok(outcomes)
    }

    /// Unwraps the result of a transaction and gives the signal if another job has become the earliest.
    fn signal_if_earliest<T>(&self, outcome: Result<(T, bool), OperationError>) -> Result<T, StoreError> {
        let (outcome, is_earliest) = outcome?;
        if is_earliest {
            self.signal.notify();
        }
        Ok(outcome)
    }
}

impl fmt::Debug for PostgresJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJobs").finish_non_exhaustive()
    }
}

#[async_trait]
impl JobStore for PostgresJobs {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let rows = jobs::new_rows(jobs)?;
        let company = rows.first().map(|row| row.job.payload.company_id.as_str());
        let (rows, sender) = (rows.as_slice(), &self.sender);
        let inserted = self.write(company, |session, lock_timeout| async move {
            let inserted = jobs::insert(&session, rows, sender, &lock_timeout).await;
            session.release(inserted).await
        });
        inserted.await
    }

    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        let rows = jobs::new_rows(vec![job])?;
        let (row, sender) = (&rows[0], &self.sender);
        let company = row.job.payload.company_id.as_str();
        let inserted = self.write(Some(company), |session, lock_timeout| async move {
            let inserted = jobs::insert_within_limit(&session, row, max_open, sender, &lock_timeout).await;
            session.release(inserted).await
        });
        inserted.await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.sessions.check_writable().await.map_err(StoreError::unavailable)
    }

    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        let (_permit, session) = self.session(scope.company.as_deref()).await?;
        let found = jobs::get(&session, scope, id).await;
        let found = session.release(found).await.map_err(StoreError::from);
        found.inspect_err(|error| self.unreadable.record_error(error))
    }

    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        let (_permit, session) = self.session(filter.scope.company.as_deref()).await?;
        let page = jobs::list(&session, filter, order, after.map(JobId::as_str), limit).await;
        let page = session.release(page).await?;
        page.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(page)
    }

    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let (_permit, session) = self.session(filter.scope.company.as_deref()).await?;
        let count = jobs::count(&session, filter).await;
        Ok(session.release(count).await?)
    }

    async fn apply_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, StoreError> {
        let outcome = self.commit_steps(scope, vec![(id.to_owned(), step)], now).await?.pop();
        Ok(outcome.unwrap_or(StepOutcome::NotFound))
    }

    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        self.commit_steps(&JobScope::default(), steps, now).await
    }

    async fn apply_steps_unlocked(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<StepOutcome>>, StoreError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let (_, session) = self.session(None).await?;
        let applied = jobs::apply_steps_unlocked(&session, &steps, now, &self.sender).await;
        let outcomes = self.signal_if_earliest(session.release(applied).await)?;
        let applied =
            steps.iter().zip(&outcomes).filter_map(|((id, _), outcome)| Some((id, outcome.as_ref()?)));
        self.unreadable.record_outcomes(applied);
        Ok(outcomes)
    }

    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        let (_, session) = self.session(None).await?;
        let claimed = jobs::claim(&session, claim).await;
        let claimed = session.release(claimed).await?;
        claimed.unreadable.iter().for_each(|id| self.unreadable.record(id));
        Ok(claimed.jobs)
    }

    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        let (_, session) = self.session(None).await?;
        let earliest = jobs::earliest(&session).await;
        Ok(session.release(earliest).await?)
    }

    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        let (_, session) = self.session(None).await?;
        let counts = jobs::counts(&session, now).await;
        Ok(JobCounts { unreadable: self.unreadable.count(), ..session.release(counts).await? })
    }

    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let (_, session) = self.session(None).await?;
        let purged = jobs::purge(&session, ended_before, limit).await;
        Ok(session.release(purged).await?)
    }

    fn notifications(&self) -> BoxStream<'static, ()> {
        self.signal.subscribe()
    }
}
