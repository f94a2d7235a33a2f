use agent_client::outbound::{OutboundClient, OutboundConfig};
use agent_core::ids::JobId;
use agent_core::secret::Secret;
use agent_core::testing::ManualClock;
use agent_jobs::job::{ClaimRequest, JobPayload, JobState, MemoryJobStore, NewJob};
use agent_jobs::schedule::Schedule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::metrics::Metrics;

mod clock;
mod deliveries;
mod store_faults;

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
    JobPayload::for_tool(company, "u", "a", "createTodo")
}
