//! The delivery worker: claims jobs shortly before they are due, delivers each at its due time and stores the
//! outcome.
//!
//! Four loops share the claimed jobs ([`claimed`]). [`claims`] claims jobs from the store while there is capacity, some
//! of them ahead of their due time, so that the write of the claim is off the delivery path. [`starts`] starts each
//! delivery at its due time and never before. [`outcomes`] stores outcomes in batches. [`heartbeat`] extends leases. A
//! fifth loop removes jobs whose retention has expired ([`retention`]).
//!
//! The routes change jobs through the worker: a claimed job whose delivery has not started is released before it is
//! cancelled or rescheduled, so that it is not delivered regardless.

mod claimed;
mod claims;
mod heartbeat;
mod outcomes;
mod retention;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_core::clock::Clock;
use agent_core::ids::JobId;
use agent_jobs::job::{
    AttemptOutcome, CANCEL_BATCH_SIZE, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobScope,
    JobState, JobStore, Step, StepOutcome,
};
use agent_platform::backoff::Backoff;
use agent_platform::records::StoreError;
use jiff::Timestamp;
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::sync::CancellationToken;

use super::delivery::CallbackClient;
use super::metrics::SchedulerMetrics;
use crate::shutdown::{Shutdown, ShutdownStage};
use claimed::{ClaimKey, ClaimedJobs};

/// Maximum time between two polls of a loop, since a store may not notify of another process's changes.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for storing the outcomes of deliveries that were aborted at shutdown.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Pauses between attempts of a route to change jobs that other transactions have locked, and the maximum number of attempts:
/// about five seconds.
const LOCKED_JOB_BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
const MAX_LOCKED_JOB_ATTEMPTS: usize = 14;

/// Limits of the worker. Use `..Default::default()` for the fields that keep their default.
#[derive(Debug, Clone)]
pub struct WorkerLimits {
    /// Maximum number of concurrent deliveries; 256.
    pub max_deliveries: usize,
    /// Maximum number of concurrent deliveries per company; 64.
    pub max_deliveries_per_company: usize,
    /// Lease of a claim unless it is extended; 30 s. The deliveries of a crashed process are retried once their
    /// leases have expired.
    pub lease: Duration,
    /// Time before its due time at which a job is claimed; 500 ms.
    pub claim_ahead: Duration,
    /// Maximum number of jobs that are claimed and not yet started; 1,000.
    pub max_claimed_ahead: usize,
    /// Time that in-flight deliveries have to finish after the shutdown signal; 10 s.
    pub drain_timeout: Duration,
    /// Time for which jobs in a final state are kept; 7 days.
    pub retention: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            max_deliveries: 256,
            max_deliveries_per_company: 64,
            lease: Duration::from_secs(30),
            claim_ahead: Duration::from_millis(500),
            max_claimed_ahead: 1000,
            drain_timeout: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// Delivers the jobs of a store.
pub struct Worker {
    jobs: Arc<dyn JobStore>,
    callback: CallbackClient,
    clock: Arc<dyn Clock>,
    limits: WorkerLimits,
    claimed_jobs: ClaimedJobs,
    metrics: SchedulerMetrics,
    /// Write-locked during a claim, read-locked while a route changes jobs by one transaction, which waits for no other: a
    /// claim made between the route's lookup of claimed jobs and its step would be missed.
    claim_lock: RwLock<()>,
    /// Notified when this process has inserted a job.
    inserted: Notify,
    /// Cancelled at shutdown: no new delivery starts.
    stopping: CancellationToken,
    /// Cancelled when the drain times out: in-flight deliveries are aborted.
    aborting: CancellationToken,
}

/// The outcome of a delivery, queued for the store.
struct DeliveryOutcome {
    key: ClaimKey,
    outcome: AttemptOutcome,
    duration: Duration,
    status: Option<u16>,
}

/// Returns the clock's time as a [`Timestamp`].
pub(super) fn now(clock: &dyn Clock) -> Timestamp {
    timestamp(clock.now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    // Times after the year 9999 are out of [`Timestamp`]'s range.
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

/// Returns the duration from `now` until `time`; zero if `time` has passed.
fn duration_until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}

impl Worker {
    /// Creates a worker; it is idle until it [runs](Self::run).
    pub fn new(
        jobs: Arc<dyn JobStore>,
        callback: CallbackClient,
        clock: Arc<dyn Clock>,
        limits: WorkerLimits,
        metrics: SchedulerMetrics,
    ) -> Self {
        let claimed_jobs = ClaimedJobs::new(
            limits.max_deliveries,
            limits.max_deliveries_per_company,
            limits.max_claimed_ahead,
        );
        Self {
            jobs,
            callback,
            clock,
            limits,
            claimed_jobs,
            metrics,
            claim_lock: RwLock::new(()),
            inserted: Notify::new(),
            stopping: CancellationToken::new(),
            aborting: CancellationToken::new(),
        }
    }

    /// Delivers jobs until `shutdown` begins, then drains: claimed jobs that have not started are released at once;
    /// in-flight deliveries may finish within [`WorkerLimits::drain_timeout`] and are aborted after it, or when
    /// [`Shutdown::end`] is called. Call it once per worker.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        // Dropping this future aborts the deliveries, which run in separate tasks.
        let _abort_guard = self.aborting.clone().drop_guard();
        // The capacity is one outcome per delivery slot, so a send never waits.
        let (outcome_sender, outcome_receiver) = mpsc::channel(self.limits.max_deliveries.max(1));
        let claim_and_start = async {
            tokio::join!(
                self.run_claim_loop(),
                self.clone().run_start_loop(outcome_sender),
                self.run_retention_loop()
            );
        };
        let signal = async {
            shutdown.wait_for(ShutdownStage::LameDuck).await;
            self.stopping.cancel();
        };
        let main = async {
            tokio::join!(claim_and_start, signal);
            self.drain(&shutdown).await;
        };
        tokio::select! {
            () = main => {}
            () = async { tokio::join!(self.run_outcome_loop(outcome_receiver), self.run_heartbeat_loop()); } => {}
        }
    }

    async fn drain(&self, shutdown: &Shutdown) {
        let locked = self.release(self.claimed_jobs.release_all()).await;
        if !locked.is_empty() {
            // No later attempt follows, so the store waits for these.
            let released = self.jobs.apply_steps(release_steps(&locked), self.now()).await;
            self.report_release(released.as_ref().err());
        }
        let is_idle = tokio::select! {
            biased;
            () = self.claimed_jobs.wait_idle() => true,
            () = shutdown.wait_for(ShutdownStage::Ending) => false,
            () = tokio::time::sleep(self.limits.drain_timeout) => false,
        };
        if !is_idle {
            tracing::warn!(
                deliveries = self.claimed_jobs.in_flight_count(),
                "aborting deliveries that exceeded the drain timeout"
            );
            self.aborting.cancel();
            let _ = tokio::time::timeout(FINAL_FLUSH_TIMEOUT, self.claimed_jobs.wait_idle()).await;
        }
    }

    /// Releases claims whose deliveries have not started. Returns the claims of jobs that another transaction has locked. If the
    /// store fails, their leases expire, which counts as an abandoned delivery.
    async fn release(&self, jobs: Vec<Job>) -> Vec<Job> {
        if jobs.is_empty() {
            return jobs;
        }
        let released = self.jobs.apply_steps_unlocked(release_steps(&jobs), self.now()).await;
        self.report_release(released.as_ref().err());
        let outcomes = released.unwrap_or_default();
        jobs.into_iter().zip(outcomes).filter_map(|(job, outcome)| outcome.is_none().then_some(job)).collect()
    }

    /// Reports the error of a release, if there is one.
    fn report_release(&self, error: Option<&StoreError>) {
        if let Some(error) = error {
            self.metrics.record_store_error();
            tracing::warn!(%error, "claimed jobs could not be released; their leases will expire");
        }
    }

    /// Checks that the job store can be written.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](agent_jobs::job::StoreError::Unavailable) with the reason.
    pub(crate) async fn check_store(&self) -> Result<(), StoreError> {
        self.jobs.check_writable().await
    }

    /// Returns the job store.
    pub fn jobs(&self) -> &Arc<dyn JobStore> {
        &self.jobs
    }

    /// Returns the clock's time.
    pub fn now(&self) -> Timestamp {
        now(&*self.clock)
    }

    /// Returns the number of deliveries in flight in this process.
    pub(crate) fn deliveries_in_flight(&self) -> usize {
        self.claimed_jobs.in_flight_count()
    }

    /// Updates the gauges for a metrics scrape.
    pub(super) fn update_gauges(&self, counts: Option<&JobCounts>) {
        self.metrics.set_claimed(self.claimed_jobs.in_flight_count(), self.claimed_jobs.waiting_count());
        if let Some(counts) = counts {
            self.metrics.set_job_counts(counts);
        }
    }

    /// Stores a job, unless its user has `max_open` jobs that are not final.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn insert(&self, job: Job, max_open: Option<u64>) -> Result<InsertOutcome, StoreError> {
        let outcome = match max_open {
            Some(max_open) => Some(self.jobs.insert_within_limit(job, max_open).await?),
            None => self.jobs.insert(vec![job]).await?.pop(),
        };
        self.inserted.notify_one();
        outcome.ok_or_else(|| StoreError::unavailable("the store returned no result for the job"))
    }

    /// Applies a requested step to a job within the scope. A claim of this worker whose delivery has not started is
    /// released first.
    ///
    /// # Errors
    /// Returns the store's error; the job is unchanged.
    pub async fn apply_step(
        self: &Arc<Self>,
        scope: JobScope,
        id: JobId,
        step: Step,
    ) -> Result<StepOutcome, StoreError> {
        // Runs in its own task, so that a cancelled request cannot lose a job that was taken from the claimed jobs.
        let worker = self.clone();
        join_task(tokio::spawn(async move { worker.apply_step_now(&scope, id, step).await })).await
    }

    async fn apply_step_now(
        &self,
        scope: &JobScope,
        id: JobId,
        step: Step,
    ) -> Result<StepOutcome, StoreError> {
        let mut backoff = LOCKED_JOB_BACKOFF;
        for _ in 0..MAX_LOCKED_JOB_ATTEMPTS {
            if let Some(outcome) = self.try_step(scope, &id, &step).await? {
                return Ok(outcome);
            }
            backoff.sleep(&*self.clock).await;
        }
        Err(locked_job_error())
    }

    /// Applies a step. Returns `None` if another transaction has locked the job: claims, which wait for the step, are not to
    /// wait for that transaction.
    async fn try_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: &Step,
    ) -> Result<Option<StepOutcome>, StoreError> {
        let _claim_guard = self.claim_lock.read().await;
        if self.jobs.get(scope, id).await?.is_none() {
            return Ok(Some(StepOutcome::NotFound));
        }
        // Resuming does not release the claim, which would delay the job.
        let released = if *step == Step::Resume { None } else { self.claimed_jobs.release(id) };
        let release = released.iter().map(|job| (job.id.clone(), Step::Release { fence: job.fence }));
        let steps = release.chain([(id.clone(), step.clone())]).collect();
        let applied = self.jobs.apply_steps_unlocked(steps, self.now()).await;
        let outcome = applied.map(|mut outcomes| outcomes.pop().unwrap_or(Some(StepOutcome::NotFound)));
        if !matches!(outcome, Ok(Some(_))) {
            self.claimed_jobs.add(released.into_iter().collect());
        }
        outcome
    }

    /// Cancels all jobs that match the filter and are not final, and returns their number.
    ///
    /// # Errors
    /// Returns the store's error; some of the jobs may have been cancelled, and none is lost.
    pub async fn cancel_all(self: &Arc<Self>, filter: JobFilter) -> Result<u64, StoreError> {
        let worker = self.clone();
        join_task(tokio::spawn(async move { worker.cancel_all_now(&filter).await })).await
    }

    async fn cancel_all_now(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let open = JobFilter { open: true, ..filter.clone() };
        let (mut cancelled, mut backoff) = (0, LOCKED_JOB_BACKOFF);
        for _ in 0..MAX_LOCKED_JOB_ATTEMPTS {
            let (mut has_locked, mut after) = (false, None);
            loop {
                let batch = self.cancel_batch(&open, after.as_ref()).await?;
                cancelled += batch.cancelled;
                has_locked |= batch.has_locked;
                after = batch.next;
                if after.is_none() {
                    break;
                }
            }
            self.inserted.notify_one();
            if !has_locked {
                return Ok(cancelled);
            }
            backoff.sleep(&*self.clock).await;
        }
        Err(locked_job_error())
    }

    /// Cancels the jobs of one batch, the newest first, that match the filter and follow an id. Claims wait for one batch only,
    /// and not for jobs that other transactions have locked.
    async fn cancel_batch(
        &self,
        open: &JobFilter,
        after: Option<&JobId>,
    ) -> Result<CancelledBatch, StoreError> {
        let _claim_guard = self.claim_lock.read().await;
        // A claimed job has the state `running` in the store, even if its delivery has not started. All such jobs are
        // released first, so that the filter sees their own state; those that do not match can be claimed again.
        let claimed = self.claimed_jobs.release_matching(&JobFilter { state: None, ..open.clone() });
        let released = match self.jobs.apply_steps_unlocked(release_steps(&claimed), self.now()).await {
            Ok(released) => released,
            Err(error) => {
                self.claimed_jobs.add(claimed);
                return Err(error);
            }
        };
        let mut is_released = released.iter().map(Option::is_some);
        let (released, locked): (Vec<Job>, Vec<Job>) =
            claimed.into_iter().partition(|_| is_released.next().unwrap_or_default());
        let locked_ids: HashSet<JobId> = locked.iter().map(|job| job.id.clone()).collect();
        self.claimed_jobs.add(locked);
        let page = self.jobs.list(open, JobOrder::NewestFirst, after, CANCEL_BATCH_SIZE).await?;
        let listed = page.jobs.into_iter().filter(|job| !locked_ids.contains(&job.id));
        // Until now, lists have shown the claimed jobs as running.
        let was_running = released.into_iter().filter(|_| open.state == Some(JobState::Running));
        let steps = listed.chain(was_running).map(|job| (job.id, Step::Cancel)).collect();
        let outcomes = self.jobs.apply_steps_unlocked(steps, self.now()).await?;
        let has_changed =
            |outcome: &&StepOutcome| matches!(outcome, StepOutcome::Applied(result) if result.changed);
        Ok(CancelledBatch {
            cancelled: outcomes.iter().flatten().filter(has_changed).count() as u64,
            has_locked: !locked_ids.is_empty() || outcomes.iter().any(Option::is_none),
            next: page.next,
        })
    }
}

/// Result of cancelling one batch of jobs.
struct CancelledBatch {
    cancelled: u64,
    /// True if jobs of the batch were left out, since other transactions have locked them.
    has_locked: bool,
    /// Last id of the batch, if further batches follow.
    next: Option<JobId>,
}

/// Returns the error of a change of jobs that other transactions have locked for too long.
fn locked_job_error() -> StoreError {
    StoreError::unavailable("another transaction has locked the job")
}

/// Returns the steps that release claimed jobs.
fn release_steps(jobs: &[Job]) -> Vec<(JobId, Step)> {
    jobs.iter().map(|job| (job.id.clone(), Step::Release { fence: job.fence })).collect()
}

/// Awaits a task, mapping a panic to a store error.
async fn join_task<T>(task: tokio::task::JoinHandle<Result<T, StoreError>>) -> Result<T, StoreError> {
    task.await.unwrap_or_else(|error| Err(StoreError::unavailable(error)))
}
