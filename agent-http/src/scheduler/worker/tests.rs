mod clock;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_client::outbound::{OutboundClient, OutboundConfig};
use agent_core::ids::JobId;
use agent_core::secret::Secret;
use agent_core::testing::ManualClock;
use agent_jobs::job::{
    ClaimRequest, CompanyQuota, JobKind, JobOrder, JobPage, JobPayload, JobState, MemoryJobStore, NewJob,
};
use agent_jobs::schedule::Schedule;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::metrics::Metrics;
use crate::timestamps::add_saturating;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// An HTTP receiver that records each request's body and responds once its gate is open.
struct Receiver {
    url: url::Url,
    bodies: UnboundedReceiver<serde_json::Value>,
    gate: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    async fn start(open: bool) -> Self {
        Self::answering(open, DONE).await
    }

    async fn answering(open: bool, response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/callback", listener.local_addr().unwrap()).parse().unwrap();
        let (sender, bodies) = unbounded_channel();
        let (gate, opened) = watch::channel(open);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (sender, mut opened) = (sender.clone(), opened.clone());
                tokio::spawn(async move {
                    let mut buffer = Vec::new();
                    loop {
                        let Some(body) = body(&mut stream, &mut buffer).await else { return };
                        let _ = sender.send(body);
                        if opened.wait_for(|open| *open).await.is_err() {
                            return;
                        }
                        if stream.write_all(response.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, bodies, gate, task }
    }

    async fn next(&mut self) -> serde_json::Value {
        timeout(TEST_TIMEOUT, self.bodies.recv()).await.expect("a delivery comes").expect("the receiver runs")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn body(stream: &mut tokio::net::TcpStream, buffer: &mut Vec<u8>) -> Option<serde_json::Value> {
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
            if buffer.len() >= head + 4 + length {
                let body = serde_json::from_slice(&buffer[head + 4..head + 4 + length]).ok();
                buffer.drain(..head + 4 + length);
                return body;
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

struct WorkerHarness {
    clock: ManualClock,
    jobs: Arc<dyn JobStore>,
    worker: Arc<Worker>,
    receiver: Receiver,
    shutdown: Shutdown,
    run: tokio::task::JoinHandle<()>,
}

impl WorkerHarness {
    async fn over(jobs: Arc<dyn JobStore>, limits: WorkerLimits, receiver: Receiver) -> Self {
        Self::with_timeout(jobs, limits, receiver, Duration::from_secs(600)).await
    }

    async fn with_timeout(
        jobs: Arc<dyn JobStore>,
        limits: WorkerLimits,
        receiver: Receiver,
        timeout: Duration,
    ) -> Self {
        let clock = ManualClock::new();
        let callback = CallbackClient {
            outbound: OutboundClient::new(OutboundConfig::default()).unwrap(),
            url: receiver.url.clone(),
            secret: Secret::new("0123456789abcdef"),
            previous_secret: None,
            timeout,
        };
        let meters = SchedulerMetrics::new(&Metrics::default());
        let worker = Arc::new(Worker::new(jobs.clone(), callback, Arc::new(clock.clone()), limits, meters));
        let shutdown = Shutdown::default();
        let run = tokio::spawn(worker.clone().run(shutdown.clone()));
        Self { clock, jobs, worker, receiver, shutdown, run }
    }

    async fn new(open: bool) -> Self {
        Self::over(Arc::new(MemoryJobStore::default()), WorkerLimits::default(), Receiver::start(open).await)
            .await
    }

    /// Stores a job that is due after `later`.
    async fn job(&self, company: &str, later: Duration) -> JobId {
        self.new_job(NewJob::new(payload(company), Schedule::after(self.worker.now(), later))).await
    }

    async fn new_job(&self, job: NewJob) -> JobId {
        let job = Job::new(job, self.worker.now());
        let id = job.id.clone();
        assert_eq!(self.worker.insert(job, None).await.unwrap(), InsertOutcome::New);
        id
    }

    async fn state(&self, id: &str) -> JobState {
        self.jobs.get(&JobScope::default(), &id.into()).await.unwrap().unwrap().state()
    }

    /// Advances the clock until the condition holds.
    async fn until(&self, what: &str, so: impl AsyncFn() -> bool) {
        let waiting = async {
            while !so().await {
                self.clock.advance(Duration::from_millis(20));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(TEST_TIMEOUT, waiting).await.is_ok(), "{what}");
    }

    async fn until_claimed(&self, count: usize) {
        let waiting = async {
            while self.worker.claimed_jobs.waiting_count() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(TEST_TIMEOUT, waiting).await.expect("it is claimed");
    }

    async fn until_delivering(&self, count: usize) {
        let waiting = async {
            while self.worker.deliveries_in_flight() != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(TEST_TIMEOUT, waiting).await.expect("so many are delivered");
    }

    async fn end(self) {
        self.shutdown.begin();
        timeout(TEST_TIMEOUT, self.run).await.expect("the worker stops").unwrap();
    }
}

fn payload(company: &str) -> JobPayload {
    JobPayload {
        kind: JobKind::Tool,
        user_id: "u".into(),
        company_id: company.into(),
        agent_id: "a".into(),
        tool_id: Some("createTodo".to_owned()),
        assignment_id: None,
        arguments: None,
        message: None,
        todo_list_id: None,
        thread_id: None,
        timezone: None,
        traceparent: None,
    }
}

#[test]
fn the_next_due_time_is_that_of_the_first_job_which_is_not_started() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let claimed = |due: u64| {
        Job::new(NewJob::new(payload("c"), Schedule::after(at(0), Duration::from_secs(due))), at(0))
    };
    let jobs = ClaimedJobs::new(1, 1, 10);
    assert_eq!(jobs.start_due(at(9)).next_due, None);
    jobs.add([5, 5, 7, 8].map(claimed).into());
    assert_eq!(jobs.start_due(at(4)).next_due, Some(at(5)));
    let started = jobs.start_due(at(5));
    // The other job of that time waits for a slot, not for a time.
    assert_eq!((started.starts.len(), started.next_due), (1, Some(at(7))));
    assert_eq!(jobs.start_due(at(7)).next_due, Some(at(8)), "also while no slot is free");
}

#[tokio::test]
async fn a_job_is_claimed_ahead_and_delivered_at_its_time_and_not_before() {
    let mut bench = WorkerHarness::new(true).await;
    let id = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    assert_eq!(bench.state(&id).await, JobState::Running);
    bench.clock.advance(Duration::from_millis(199));
    // Yields until the loops have read the clock and sleep again.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.worker.deliveries_in_flight(), 0);
    assert!(bench.receiver.bodies.try_recv().is_err());
    bench.clock.advance(Duration::from_millis(1));
    let body = bench.receiver.next().await;
    assert_eq!(
        (&body["jobId"], &body["occurrence"], &body["attempt"]),
        (&id.as_str().into(), &1.into(), &1.into())
    );
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.end().await;
}

#[tokio::test]
async fn what_is_claimed_and_not_begun_is_taken_back_by_whoever_acts_on_it() {
    let mut bench = WorkerHarness::new(true).await;
    for (step, state) in [
        (Step::Cancel, JobState::Cancelled),
        (Step::Pause, JobState::Paused),
        (Step::Reschedule(Schedule::after(bench.worker.now(), Duration::from_secs(60))), JobState::Scheduled),
    ] {
        let id = bench.job("c", Duration::from_millis(200)).await;
        bench.until_claimed(1).await;
        let stepped =
            bench.worker.apply_step(JobScope::default(), id.clone(), step).await.unwrap().applied().unwrap();
        assert!(!stepped.delivering);
        assert_eq!((stepped.job.state(), stepped.job.attempt), (state, 0));
        assert_eq!(bench.worker.claimed_jobs.waiting_count(), 0);
    }
    let assigned = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    let tool = Some("createTodo".to_owned());
    let cancelled = bench.worker.cancel_all(JobFilter { tool, ..JobFilter::default() }).await.unwrap();
    assert_eq!(cancelled, 3, "the paused, the moved and the claimed one");
    assert_eq!(bench.state(&assigned).await, JobState::Cancelled);
    bench.clock.advance(Duration::from_secs(1));
    // The delivery of another job shows that the loops are still running.
    let last = bench.job("c", Duration::ZERO).await;
    assert_eq!(bench.receiver.next().await["jobId"], last.as_str());
    bench.end().await;
}

/// A filtered cancel means the state that a claimed job has before its delivery, and forgets no job that it spares.
#[tokio::test]
async fn a_filtered_cancel_spares_what_it_does_not_mean() {
    let mut bench = WorkerHarness::new(true).await;
    let tool = Some("createTodo".to_owned());
    let filter = |state| JobFilter { tool: tool.clone(), state: Some(state), ..JobFilter::default() };
    for (state, is_meant) in [
        (JobState::Scheduled, true),
        (JobState::Running, true),
        (JobState::Retryable, false),
        (JobState::Paused, false),
    ] {
        let once = NewJob::new(payload("c"), Schedule::after(bench.worker.now(), Duration::from_millis(200)));
        let id = bench.new_job(NewJob { max_attempts: 1, ..once }).await;
        bench.until_claimed(1).await;
        let cancelled = bench.worker.cancel_all(filter(state)).await.unwrap();
        assert_eq!(cancelled, u64::from(is_meant), "{state:?}");
        bench.clock.advance(Duration::from_millis(200));
        if is_meant {
            assert_eq!(bench.state(&id).await, JobState::Cancelled, "{state:?}");
        } else {
            assert_eq!(bench.receiver.next().await["jobId"], id.as_str(), "{state:?}");
            bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
        }
    }
    bench.end().await;
}

/// The head of a response decides the outcome, whatever becomes of its body.
#[tokio::test]
async fn a_body_that_stalls_does_not_overturn_the_head() {
    for (head, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", JobState::Completed),
        ("HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 9\r\n\r\nhalf", JobState::Discarded),
    ] {
        let receiver = Receiver::answering(true, head).await;
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        // Less than the time in which a body is read, and enough for a head on a loaded machine.
        let limit = Duration::from_millis(1500);
        let mut bench = WorkerHarness::with_timeout(jobs, WorkerLimits::default(), receiver, limit).await;
        let once = NewJob::new(payload("c"), Schedule::after(bench.worker.now(), Duration::ZERO));
        let id = bench.new_job(NewJob { max_attempts: 1, ..once }).await;
        assert_eq!(bench.receiver.next().await["jobId"], id.as_str());
        bench.until("it is final", async || bench.state(&id).await.is_final()).await;
        let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
        assert_eq!(job.state(), expected, "{:?}", job.last_error());
        bench.end().await;
    }
}

#[tokio::test]
async fn who_acts_during_a_delivery_is_told() {
    let mut bench = WorkerHarness::new(false).await;
    for step in [
        Step::Cancel,
        Step::Pause,
        Step::Reschedule(Schedule::after(bench.worker.now(), Duration::from_secs(60))),
    ] {
        let id = bench.job("c", Duration::ZERO).await;
        assert_eq!(bench.receiver.next().await["jobId"], id.as_str());
        let stepped =
            bench.worker.apply_step(JobScope::default(), id, step).await.unwrap().applied().unwrap();
        assert!(stepped.delivering);
    }
    let other = JobScope { company: Some("d".into()), user: None };
    let id = bench.job("c", Duration::from_secs(60)).await;
    assert_eq!(bench.worker.apply_step(other, id, Step::Cancel).await.unwrap(), StepOutcome::NotFound);
    bench.receiver.gate.send_replace(true);
    bench.until_delivering(0).await;
    bench.end().await;
}

#[tokio::test]
async fn one_company_takes_its_slots_and_no_more() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 2, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    for _ in 0..10 {
        bench.job("greedy", Duration::ZERO).await;
    }
    for company in ["b", "c"] {
        bench.job(company, Duration::ZERO).await;
    }
    let mut companies = Vec::new();
    for _ in 0..4 {
        companies.push(bench.receiver.next().await["companyId"].as_str().unwrap().to_owned());
    }
    companies.sort();
    assert_eq!(companies, ["b", "c", "greedy", "greedy"]);
    bench.receiver.gate.send_replace(true);
    bench
        .until("all are delivered", async || {
            let counts = bench.jobs.count_by_state(bench.worker.now()).await.unwrap();
            counts.by_state.get(&JobState::Completed) == Some(&12)
        })
        .await;
    bench.end().await;
}

#[tokio::test]
async fn a_company_that_has_no_slot_left_is_in_nobodys_way() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 1, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    for _ in 0..10 {
        bench.job("greedy", Duration::ZERO).await;
    }
    bench.receiver.next().await;
    // The clock stands still: a job stored at this moment starts immediately, although older jobs are due.
    let other = bench.job("b", Duration::ZERO).await;
    assert_eq!(bench.receiver.next().await["jobId"], other.as_str());
    let soon = bench.job("c", Duration::from_millis(1000)).await;
    let began = bench.worker.now();
    while bench.worker.deliveries_in_flight() < 3 {
        bench.clock.advance(Duration::from_millis(1));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(bench.receiver.next().await["jobId"], soon.as_str());
    let duration = duration_until(bench.worker.now(), began);
    assert!((1000..1050).contains(&duration.as_millis()), "{duration:?}");
    bench.receiver.gate.send_replace(true);
    bench.end().await;
}

#[tokio::test]
async fn companies_with_more_than_there_are_slots_for_take_turns() {
    let limits = WorkerLimits { max_deliveries: 4, max_deliveries_per_company: 4, ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(true).await).await;
    let now = bench.worker.now();
    let job = |company| Job::new(NewJob::new(payload(company), Schedule::At(now)), now);
    let jobs = [["first"; 40], ["other"; 40]].concat().into_iter().map(job).collect();
    bench.jobs.insert(jobs).await.unwrap();
    let mut others = 0;
    for _ in 0..40 {
        others += usize::from(bench.receiver.next().await["companyId"] == "other");
    }
    assert!(others >= 10, "{others} of 40 are the other company's");
    bench.end().await;
}

#[tokio::test]
async fn a_lease_is_extended_as_long_as_a_delivery_takes() {
    let mut bench = WorkerHarness::new(false).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    let lease = WorkerLimits::default().lease;
    for _ in 0..30 {
        bench.clock.advance(lease / 10);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
    let agent_jobs::job::Phase::Running { lease } = job.phase else { panic!("{job:?}") };
    assert!(lease > bench.worker.now(), "{lease}");
    assert_eq!((job.attempt, job.fence), (1, 1));
    bench.receiver.gate.send_replace(true);
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.end().await;
}

#[tokio::test]
async fn a_claim_that_somebody_else_has_got_ends_the_delivery() {
    let mut bench = WorkerHarness::new(false).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    // Claims the job as another process would after this worker's lease has expired.
    let late = add_saturating(bench.worker.now(), Duration::from_secs(60));
    let claim = ClaimRequest {
        now: late,
        due_until: late,
        lease_until: add_saturating(late, Duration::from_secs(3600)),
        limit: 10,
        quota: CompanyQuota::new(10),
    };
    assert_eq!(bench.jobs.claim_due(claim).await.unwrap().len(), 1);
    let waiting = async {
        while bench.worker.deliveries_in_flight() > 0 {
            bench.clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, waiting).await.expect("the delivery is given up");
    let job = bench.jobs.get(&JobScope::default(), &id).await.unwrap().unwrap();
    assert_eq!((job.fence, job.state()), (2, JobState::Running), "the other one's claim stands");
    bench.end().await;
}

#[tokio::test]
async fn what_has_not_begun_is_handed_back_at_the_end_and_the_rest_given_up_in_time() {
    let limits = WorkerLimits { drain_timeout: Duration::from_millis(50), ..WorkerLimits::default() };
    let mut bench =
        WorkerHarness::over(Arc::new(MemoryJobStore::default()), limits, Receiver::start(false).await).await;
    let under_way = bench.job("c", Duration::ZERO).await;
    bench.receiver.next().await;
    let ahead = bench.job("c", Duration::from_millis(200)).await;
    bench.until_claimed(1).await;
    let jobs = bench.jobs.clone();
    bench.end().await;
    let job = |id: JobId| {
        let jobs = jobs.clone();
        async move { jobs.get(&JobScope::default(), &id).await.unwrap().unwrap() }
    };
    let ahead = job(ahead).await;
    assert_eq!((ahead.state(), ahead.attempt), (JobState::Scheduled, 0));
    let given_up = job(under_way).await;
    assert_eq!(given_up.state(), JobState::Retryable);
    assert!(given_up.last_error().unwrap().contains("the scheduler stopped"), "{given_up:?}");
}

#[tokio::test]
async fn what_another_process_left_is_picked_up_when_its_lease_has_run_out() {
    let mut bench = WorkerHarness::new(true).await;
    let now = bench.worker.now();
    let job = Job::new(NewJob::new(payload("c"), Schedule::after(now, Duration::ZERO)), now);
    let claimed = job
        .step(Step::Claim { until: now, lease: add_saturating(now, Duration::from_secs(5)) }, now)
        .unwrap()
        .job;
    let id = claimed.id.clone();
    bench.jobs.insert(vec![claimed]).await.unwrap();
    bench.until("it is delivered", async || bench.state(&id).await == JobState::Completed).await;
    assert_eq!(bench.receiver.next().await["attempt"], 2);
    assert!(bench.worker.now() >= add_saturating(now, Duration::from_secs(5)));
    bench.end().await;
}

#[tokio::test]
async fn old_jobs_are_removed() {
    let bench = WorkerHarness::new(true).await;
    let id = bench.job("c", Duration::ZERO).await;
    bench.until("it is completed", async || bench.state(&id).await == JobState::Completed).await;
    bench.clock.advance(WorkerLimits::default().retention + Duration::from_secs(1));
    bench
        .until("it is gone", async || {
            bench.clock.advance(Duration::from_secs(60));
            bench.jobs.get(&JobScope::default(), &id).await.unwrap().is_none()
        })
        .await;
    bench.end().await;
}

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

    /// Returns the locked ones of the jobs of steps.
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
async fn an_outcome_waits_for_a_store_that_is_away() {
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
async fn a_locked_job_without_a_slot_is_handed_back_once_it_is_unlocked() {
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
async fn a_locked_job_that_has_not_begun_is_handed_back_at_the_end() {
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
async fn nobody_asks_the_store_without_need() {
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
