//! The delivery loop: claims jobs a little before they are due, delivers each at its time, and stores what
//! came of it.
//!
//! Four loops share what this process holds ([`held`]). [`claims`] takes jobs from the store as long as there
//! is room, some before they are due, so that storing the claim is off the path; [`starts`] begins each at its
//! time and never before; [`settle`] stores outcomes, many at once; [`heartbeat`] extends leases. A fifth
//! removes what has been final for long ([`retention`]).
//!
//! The routes go through the worker too: a job that is claimed and not begun is handed back before it is
//! cancelled or moved, so that it is not delivered all the same.

mod claims;
mod heartbeat;
mod held;
mod retention;
mod settle;
mod starts;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_core::clock::Clock;
use agent_core::job::{
    Inserted, Job, JobCounts, JobFilter, JobStore, Outcome, Refusal, Scope, Step, Stepped,
};
use agent_platform::records::StoreError;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::sync::CancellationToken;

use super::delivery::Callback;
use super::meters::Meters;
use held::{ClaimKey, Held};

/// The longest that a loop waits without looking, since a store may not tell what another process has done.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long the outcomes of deliveries that were given up may take to be stored.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Bounds of the worker; `..Default::default()` fills in what is not named.
#[derive(Debug, Clone)]
pub struct WorkerLimits {
    /// How many deliveries are under way at once; 256.
    pub concurrency: usize,
    /// How many of them are of one company; 64.
    pub per_company: usize,
    /// How long a claim holds without a sign of life; 30 s. What a crashed process had in hand is tried again
    /// after that.
    pub lease: Duration,
    /// How long before it is due a job is claimed; 500 ms.
    pub ahead: Duration,
    /// How many jobs are claimed and not begun; 1,000.
    pub max_ahead: usize,
    /// How long deliveries may go on after the signal to stop; 10 s.
    pub drain: Duration,
    /// How long jobs that are final are kept; 7 days.
    pub retention: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            concurrency: 256,
            per_company: 64,
            lease: Duration::from_secs(30),
            ahead: Duration::from_millis(500),
            max_ahead: 1000,
            drain: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// Delivers a store's jobs.
pub struct Worker {
    jobs: Arc<dyn JobStore>,
    callback: Callback,
    clock: Arc<dyn Clock>,
    limits: WorkerLimits,
    held: Held,
    meters: Meters,
    /// Held to write while a claim is under way, and to read while a route acts: a claim that comes between a
    /// look at what is held and the step would be missed.
    claiming: RwLock<()>,
    /// This process has stored a job.
    inserted: Notify,
    /// Nothing new begins.
    stopping: CancellationToken,
    /// What is under way is given up.
    giving_up: CancellationToken,
}

/// What came of a delivery, on its way to the store.
struct Settlement {
    key: ClaimKey,
    outcome: Outcome,
    took: Duration,
    status: Option<u16>,
}

/// The clock's time, as jobs have it.
pub(super) fn now(clock: &dyn Clock) -> Timestamp {
    timestamp(clock.now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    // A clock beyond the year 9999 is none.
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// How long it is from `now` until `time`; nothing where that has passed.
fn until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}

impl Worker {
    /// A worker that does nothing before it [runs](Self::run).
    pub fn new(
        jobs: Arc<dyn JobStore>,
        callback: Callback,
        clock: Arc<dyn Clock>,
        limits: WorkerLimits,
        meters: Meters,
    ) -> Self {
        let held = Held::new(limits.concurrency, limits.per_company, limits.max_ahead);
        let (stopping, giving_up) = (CancellationToken::new(), CancellationToken::new());
        let (claiming, inserted) = (RwLock::new(()), Notify::new());
        Self { jobs, callback, clock, limits, held, meters, claiming, inserted, stopping, giving_up }
    }

    /// Delivers until `stop`, then drains: what was claimed and not begun is handed back at once, and what is
    /// under way may end within the limit and is given up after it. It runs once.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        // Whoever drops this future wants no deliveries to outlive it.
        let _end = self.giving_up.clone().drop_guard();
        // Each slot has one outcome, so nobody waits to send one.
        let (outcomes, settled) = mpsc::channel(self.limits.concurrency.max(1));
        let supply = async {
            tokio::join!(self.claim_jobs(), self.clone().start_jobs(outcomes), self.purge_old_jobs());
        };
        let signal = async {
            stop.await;
            self.stopping.cancel();
        };
        let main = async {
            tokio::join!(supply, signal);
            self.drain().await;
        };
        tokio::select! {
            () = main => {}
            () = async { tokio::join!(self.settle_outcomes(settled), self.extend_leases()); } => {}
        }
    }

    async fn drain(&self) {
        let left = self.held.take_all();
        self.release(left).await;
        let ended = tokio::time::timeout(self.limits.drain, self.held.until_idle()).await;
        if ended.is_err() {
            tracing::warn!(
                deliveries = self.held.delivering(),
                "giving up deliveries that outlived the drain"
            );
            self.giving_up.cancel();
            let _ = tokio::time::timeout(LAST_WORDS, self.held.until_idle()).await;
        }
    }

    /// Hands claimed jobs back that were not begun. Where the store does not take them, their leases run out.
    async fn release(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let steps = jobs.into_iter().map(|job| (job.id, Step::Release { fence: job.fence })).collect();
        if let Err(error) = self.jobs.steps(steps, self.now()).await {
            self.meters.store_failed();
            tracing::warn!(%error, "claimed jobs could not be handed back; their leases will run out");
        }
    }

    /// The store.
    pub fn jobs(&self) -> &Arc<dyn JobStore> {
        &self.jobs
    }

    /// The clock's time.
    pub fn now(&self) -> Timestamp {
        now(&*self.clock)
    }

    /// How many deliveries are under way in this process.
    pub fn delivering(&self) -> usize {
        self.held.delivering()
    }

    /// Sets the meters of what is there, for a scrape.
    pub(super) fn show(&self, counts: Option<&JobCounts>) {
        self.meters.hold(self.held.delivering(), self.held.waiting());
        if let Some(counts) = counts {
            self.meters.store_has(counts);
        }
    }

    /// Stores a job.
    ///
    /// # Errors
    /// The store's.
    pub async fn insert(&self, job: Job) -> Result<Inserted, StoreError> {
        let outcome = self.jobs.insert(vec![job]).await?.pop();
        self.inserted.notify_one();
        outcome.ok_or_else(|| StoreError::unavailable("the store said nothing of the job"))
    }

    /// Takes a step that somebody has asked for with a job within the scope; `None` where there is none. A
    /// claim on it whose delivery has not begun is given up first.
    ///
    /// # Errors
    /// The store's; nothing has changed.
    pub async fn act(
        self: &Arc<Self>,
        scope: Scope,
        id: String,
        step: Step,
    ) -> Result<Option<Result<Stepped, Refusal>>, StoreError> {
        // To its end, also where the caller leaves meanwhile: what was taken back must not be forgotten.
        let worker = self.clone();
        finish(tokio::spawn(async move { worker.act_now(&scope, id, step).await })).await
    }

    async fn act_now(
        &self,
        scope: &Scope,
        id: String,
        step: Step,
    ) -> Result<Option<Result<Stepped, Refusal>>, StoreError> {
        let _no_claims = self.claiming.read().await;
        if self.jobs.get(scope, &id).await?.is_none() {
            return Ok(None);
        }
        // Who resumes a job does not want it any later.
        let held = if step == Step::Resume { None } else { self.held.take_back(&id) };
        let release = held.iter().map(|job| (job.id.clone(), Step::Release { fence: job.fence }));
        let steps = release.chain([(id, step)]).collect();
        match self.jobs.steps(steps, self.now()).await {
            Ok(mut stepped) => Ok(stepped.pop().flatten()),
            Err(error) => {
                self.held.add(held.into_iter().collect());
                Err(error)
            }
        }
    }

    /// Cancels all jobs that are meant and not final, and says how many they were.
    ///
    /// # Errors
    /// The store's; nothing has changed.
    pub async fn cancel_all(self: &Arc<Self>, filter: JobFilter) -> Result<u64, StoreError> {
        let worker = self.clone();
        finish(tokio::spawn(async move {
            let _no_claims = worker.claiming.read().await;
            let held = worker.held.take_back_all(&filter);
            let cancelled = worker.jobs.cancel_all(&filter, worker.now()).await;
            if cancelled.is_err() {
                worker.held.add(held);
            }
            cancelled
        }))
        .await
    }
}

/// The outcome of a task that nobody aborts.
async fn finish<T>(task: tokio::task::JoinHandle<Result<T, StoreError>>) -> Result<T, StoreError> {
    task.await.unwrap_or_else(|error| Err(StoreError::unavailable(error)))
}
