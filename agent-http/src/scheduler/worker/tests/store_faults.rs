//! Stores that fail or have locked jobs.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_jobs::job::{JobOrder, JobPage};
use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::*;

/// A store that can be made to fail, and that counts polls.
#[derive(Default)]
struct FaultyJobStore {
    jobs: MemoryJobStore,
    down: AtomicBool,
    looks: AtomicUsize,
    refused: Mutex<Vec<&'static str>>,
    /// Jobs that another transaction has locked.
    locked: Mutex<HashSet<JobId>>,
    /// Locked jobs that a step has met.
    met: Mutex<HashSet<JobId>>,
    /// True if steps that do not leave locked jobs out wait for them.
    waits_for_locked: AtomicBool,
}

impl FaultyJobStore {
    fn check(&self, what: &'static str) -> Result<(), StoreError> {
        if self.down.load(Ordering::Relaxed) {
            self.refused.lock().unwrap().push(what);
            return Err(StoreError::unavailable("no disk"));
        }
        Ok(())
    }

    /// Returns the locked jobs of the steps.
    fn meet_locked(&self, steps: &[(JobId, Step)]) -> HashSet<JobId> {
        let mut locked = self.locked.lock().unwrap().clone();
        locked.retain(|locked| steps.iter().any(|(id, _)| id == locked));
        self.met.lock().unwrap().extend(locked.iter().cloned());
        locked
    }
}

#[async_trait]
impl JobStore for FaultyJobStore {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        self.check("insert")?;
        self.jobs.insert(jobs).await
    }
    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        self.check("insert")?;
        self.jobs.insert_within_limit(job, max_open).await
    }
    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        self.jobs.get(scope, id).await
    }
    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError> {
        self.jobs.list(filter, order, after, limit).await
    }
    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        self.jobs.count(filter).await
    }
    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        self.check("steps")?;
        while self.waits_for_locked.load(Ordering::Relaxed) && !self.meet_locked(&steps).is_empty() {
            tokio::task::yield_now().await;
        }
        self.jobs.apply_steps(steps, now).await
    }
    async fn apply_steps_unlocked(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<StepOutcome>>, StoreError> {
        let locked = self.meet_locked(&steps);
        let ids: Vec<JobId> = steps.iter().map(|(id, _)| id.clone()).collect();
        let free = steps.into_iter().filter(|(id, _)| !locked.contains(id)).collect();
        let mut outcomes = self.apply_steps(free, now).await?.into_iter();
        Ok(ids.iter().map(|id| if locked.contains(id) { None } else { outcomes.next() }).collect())
    }
    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        self.check("claim")?;
        self.jobs.claim_due(claim).await
    }
    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.check("earliest")?;
        self.jobs.next_run_at().await
    }
    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        self.check("counts")?;
        self.jobs.count_by_state(now).await
    }
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.check("purge")?;
        self.jobs.purge(ended_before, limit).await
    }
    fn notifications(&self) -> BoxStream<'static, ()> {
        self.jobs.notifications()
    }
}

#[tokio::test]
async fn an_outcome_waits_for_an_unavailable_store() {
    let store = Arc::new(FaultyJobStore::default());
    let mut bench =
        WorkerHarness::over(store.clone(), WorkerLimits::default(), Receiver::start(false).await).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    store.down.store(true, Ordering::Relaxed);
    bench.receiver.gate.send_replace(true);
    bench
        .until("the store has refused the outcome", async || {
            store.refused.lock().unwrap().iter().filter(|what| **what == "steps").count() >= 3
        })
        .await;
    let ahead = bench.worker.apply_step(JobScope::default(), id.clone(), Step::Cancel).await;
    assert!(ahead.is_err(), "a step that cannot be stored is an error");
    store.down.store(false, Ordering::Relaxed);
    bench.until("the outcome is stored", async || bench.state(&id).await == JobState::Completed).await;
    bench.end().await;
}

#[tokio::test]
async fn a_locked_job_delays_the_outcome_and_the_lease_of_no_other() {
    let store = Arc::new(FaultyJobStore::default());
    let bench =
        WorkerHarness::over(store.clone(), WorkerLimits::default(), Receiver::start(false).await).await;
    let (locked, ended, running) = (
        bench.job("c", Duration::ZERO).await,
        bench.job("d", Duration::ZERO).await,
        bench.job("e", Duration::ZERO).await,
    );
    bench.until_delivering(3).await;
    store.locked.lock().unwrap().insert(locked.clone());
    let lease = async |id: &JobId| {
        let job = bench.jobs.get(&JobScope::default(), id).await.unwrap().unwrap();
        job.next_run_at()
    };
    let before = (lease(&locked).await, lease(&running).await);
    let is_extended = async || lease(&running).await > before.1 && lease(&ended).await > before.1;
    bench.until("the leases of the others are extended", is_extended).await;
    assert_eq!(lease(&locked).await, before.0, "that of the locked job stays");
    bench.receiver.gate.send_replace(true);
    for id in [&ended, &running] {
        bench.until("it is completed", async || bench.state(id).await == JobState::Completed).await;
    }
    bench.until_delivering(1).await;
    assert_eq!(bench.state(&locked).await, JobState::Running, "its outcome waits");
    store.locked.lock().unwrap().clear();
    bench.until("it is completed", async || bench.state(&locked).await == JobState::Completed).await;
    bench.end().await;
}

/// A job that is claimed and waits for a slot is handed back to other processes, also if its row is locked at that moment.
#[tokio::test]
async fn a_locked_job_without_a_slot_is_released_once_unlocked() {
    let store = Arc::new(FaultyJobStore::default());
    let limits = WorkerLimits { max_deliveries: 1, ..WorkerLimits::default() };
    let mut bench = WorkerHarness::over(store.clone(), limits, Receiver::start(false).await).await;
    bench.job("c", Duration::from_millis(100)).await;
    let waiting = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(2).await;
    bench.clock.advance(Duration::from_millis(200));
    bench.receiver.next().await;
    store.locked.lock().unwrap().insert(waiting.clone());
    bench.until("it has waited", async || bench.worker.claimed_jobs.waiting_count() == 0).await;
    assert_eq!(bench.state(&waiting).await, JobState::Running, "it is locked");
    store.locked.lock().unwrap().clear();
    bench.until("it is released", async || bench.state(&waiting).await == JobState::Scheduled).await;
    let job = bench.jobs.get(&JobScope::default(), &waiting).await.unwrap().unwrap();
    assert_eq!(job.attempt, 0);
    bench.receiver.gate.send_replace(true);
    bench.end().await;
}

#[tokio::test]
async fn a_locked_job_that_has_not_started_is_released_at_shutdown() {
    let store = Arc::new(FaultyJobStore::default());
    let bench =
        WorkerHarness::over(store.clone(), WorkerLimits::default(), Receiver::start(false).await).await;
    let ahead = ["c", "d"].map(|company| bench.job(company, Duration::from_millis(200)));
    let ahead = futures_util::future::join_all(ahead).await;
    bench.until_claimed(2).await;
    store.locked.lock().unwrap().insert(ahead[0].clone());
    bench.end().await;
    for id in &ahead {
        let job = store.get(&JobScope::default(), id).await.unwrap().unwrap();
        assert_eq!((job.state(), job.attempt), (JobState::Scheduled, 0));
    }
}

/// Routes wait for jobs that another transaction has locked, and no claim waits for them.
#[tokio::test]
async fn routes_that_wait_for_locked_jobs_delay_no_claim() {
    let store = Arc::new(FaultyJobStore { waits_for_locked: true.into(), ..FaultyJobStore::default() });
    let mut bench =
        WorkerHarness::over(store.clone(), WorkerLimits::default(), Receiver::start(true).await).await;
    let later = Duration::from_secs(3600);
    let locked = [bench.job("b", later).await, bench.job("c", later).await];
    store.locked.lock().unwrap().extend(locked.clone());
    let pause = tokio::spawn({
        let (worker, id) = (bench.worker.clone(), locked[0].clone());
        async move { worker.apply_step(JobScope::default(), id, Step::Pause).await }
    });
    let cancel = tokio::spawn({
        let scope = JobScope { company: Some("c".into()), user: None };
        let (worker, filter) = (bench.worker.clone(), JobFilter { scope, ..JobFilter::default() });
        async move { worker.cancel_all(filter).await }
    });
    bench.until("both have met a lock", async || store.met.lock().unwrap().len() == 2).await;
    bench.job("d", Duration::ZERO).await;
    assert_eq!(bench.receiver.next().await["companyId"], "d");
    assert!(!pause.is_finished() && !cancel.is_finished(), "their jobs are locked");
    store.locked.lock().unwrap().clear();
    bench.until("both have ended", async || pause.is_finished() && cancel.is_finished()).await;
    assert!(pause.await.unwrap().unwrap().is_applied());
    assert_eq!(cancel.await.unwrap().unwrap(), 1);
    let states = (bench.state(&locked[0]).await, bench.state(&locked[1]).await);
    assert_eq!(states, (JobState::Paused, JobState::Cancelled));
    bench.end().await;
}

#[tokio::test]
async fn the_worker_does_not_poll_the_store_without_need() {
    let store = Arc::new(FaultyJobStore::default());
    let limits = WorkerLimits { max_deliveries: 1, ..WorkerLimits::default() };
    let mut bench = WorkerHarness::over(store.clone(), limits, Receiver::start(false).await).await;
    for _ in 0..50 {
        bench.job("c", Duration::ZERO).await;
    }
    bench.receiver.next().await;
    bench.until_delivering(1).await;
    let before = store.looks.load(Ordering::Relaxed);
    // 15 seconds with the only slot taken and many due jobs: about one poll a second.
    for _ in 0..150 {
        bench.clock.advance(Duration::from_millis(100));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    let looks = store.looks.load(Ordering::Relaxed) - before;
    assert!((5..=40).contains(&looks), "{looks} looks");
    bench.receiver.gate.send_replace(true);
    bench
        .until("all are delivered", async || {
            let counts = bench.jobs.count_by_state(bench.worker.now()).await.unwrap();
            counts.by_state.get(&JobState::Completed) == Some(&50)
        })
        .await;
    bench.end().await;
}
