//! Clients that create jobs without pause and repeat requests that were not acknowledged.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::scheduler::payload;
use crate::support::process::SchedulerProcess;
use crate::support::server::PULSE_SECRET;
use crate::support::sink::WebhookReceiver;
use crate::support::{TEST_TIMEOUT, client};

const CLIENTS: u64 = 4;
/// Interval of the periodic job, in milliseconds.
const EVERY_MS: i64 = 1000;
/// Time limit per fault for the last deliveries. Each retry waits twice as long as the one before, and several faults
/// may fail several attempts of one job.
const FINAL_DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause of a client before it repeats a failed request.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Instructions to the clients.
#[derive(Clone, Copy)]
struct LoadControl {
    scheduler: SocketAddr,
    /// True if the clients must create no further jobs; a pending one is still repeated until acknowledged.
    is_over: bool,
}

/// Running clients, and the jobs acknowledged to them.
pub(super) struct JobLoad {
    control_sender: watch::Sender<LoadControl>,
    jobs: Arc<Mutex<HashMap<u64, String>>>,
    count: watch::Receiver<usize>,
    periodic: String,
    clients: JoinSet<()>,
}

impl JobLoad {
    /// Creates a periodic job and starts clients that create further jobs.
    pub(super) async fn start(scheduler: &SchedulerProcess) -> Self {
        // `runAll` and `queue`: no occurrence of the periodic job may be skipped.
        let periodic = json!({"payload": payload("periodic"), "everyMs": EVERY_MS, "maxAttempts": 100,
            "misfire": "runAll", "overlap": "queue"});
        let periodic = scheduler.create_job(&periodic).await;
        let (control_sender, control) =
            watch::channel(LoadControl { scheduler: scheduler.address, is_over: false });
        let (counter, count) = watch::channel(0);
        let jobs = Arc::new(Mutex::new(HashMap::new()));
        let counter = Arc::new(counter);
        let mut clients = JoinSet::new();
        for first in 0..CLIENTS {
            let (control, jobs, counter) = (control.clone(), jobs.clone(), counter.clone());
            clients.spawn(async move {
                let client = client();
                let mut n = first;
                while !control.borrow().is_over {
                    let id = create_job(&client, &control, n).await;
                    let before = jobs.lock().expect("unpoisoned").insert(n, id);
                    assert_eq!(before, None, "each is made once");
                    counter.send_modify(|count| *count += 1);
                    n += CLIENTS;
                }
            });
        }
        Self { control_sender, jobs, count, periodic, clients }
    }

    /// Updates the scheduler's address after a restart.
    pub(super) fn set_scheduler(&self, scheduler: &SchedulerProcess) {
        self.control_sender.send_modify(|control_sender| control_sender.scheduler = scheduler.address);
    }

    /// Returns a watch on the number of acknowledged jobs.
    pub(super) fn acknowledged_count(&self) -> watch::Receiver<usize> {
        self.count.clone()
    }

    /// Waits for a number of events: acknowledged jobs and deliveries.
    pub(super) async fn wait_for_progress(&self, sink: &WebhookReceiver, steps: usize) {
        let (mut count, mut came) = (self.acknowledged_count(), sink.delivery_count());
        let now = || *self.count.borrow() + *sink.delivery_count().borrow();
        let goal = now() + steps;
        let waiting = async {
            while now() < goal {
                tokio::select! {
                    changed = count.changed() => changed.expect("the clients go on"),
                    changed = came.changed() => changed.expect("the sink goes on"),
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("it goes on");
    }

    /// Stops the clients, waits until every job is delivered, and checks that none is missing and none took effect
    /// twice. Returns the number of jobs created by the clients.
    pub(super) async fn finish_and_check(
        mut self,
        scheduler: &SchedulerProcess,
        sink: &WebhookReceiver,
        faults: u32,
    ) -> usize {
        self.stop().await;
        let jobs: Vec<String> = self.jobs.lock().expect("unpoisoned").values().cloned().collect();
        let path = format!("/jobs/{}", self.periodic);
        let cancelled = scheduler.request("DELETE", &path).send().await.expect("the server answers");
        assert_eq!(cancelled.status(), 200, "the periodic job is cancelled");
        let open = |health: &Value| {
            ["scheduled", "running", "retryable"].iter().any(|state| health["jobs"][state].as_u64() > Some(0))
        };
        let health = scheduler
            .poll_until_within(FINAL_DELIVERY_TIMEOUT * faults, "/health", |health| {
                health["status"] == "ok" && !open(health)
            })
            .await;
        assert_eq!(health["jobs"]["completed"], jobs.len(), "{health}");
        let mut effects = sink.effects();
        let periodic = effects.remove(&self.periodic).unwrap_or_default();
        let missing: Vec<_> = jobs.iter().filter(|id| !effects.contains_key(*id)).collect();
        assert!(missing.is_empty(), "these were acknowledged and never came: {missing:?}");
        assert_eq!(effects.len(), jobs.len(), "only requested jobs were delivered");
        for (id, times) in effects {
            assert_eq!(times.len(), 1, "{id} has had its effect again: {times:?}");
        }
        check_periodic(&periodic);
        jobs.len()
    }

    async fn stop(&mut self) {
        self.control_sender.send_modify(|control_sender| control_sender.is_over = true);
        let waiting = async {
            while let Some(client) = self.clients.join_next().await {
                client.expect("a client does not panic");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the clients end");
    }
}

/// Checks that each occurrence since the first was delivered exactly once.
fn check_periodic(times: &[String]) {
    let mut times: Vec<i64> =
        times.iter().map(|time| time.parse::<jiff::Timestamp>().expect("a time").as_millisecond()).collect();
    times.sort_unstable();
    for pair in times.windows(2) {
        assert_eq!(pair[1] - pair[0], EVERY_MS, "an occurrence is missing, or came twice: {times:?}");
    }
}

/// Creates the `n`th job, repeating the request until it is acknowledged, and returns its id.
async fn create_job(client: &reqwest::Client, control: &watch::Receiver<LoadControl>, n: u64) -> String {
    let job = json!({"payload": payload("once"), "delayMs": (n * 37) % 400, "maxAttempts": 100,
        "idempotencyKey": format!("key-{n}")});
    loop {
        let url = format!("http://{}/jobs", control.borrow().scheduler);
        let request = client.post(url).bearer_auth(PULSE_SECRET).json(&job);
        if let Some(id) = send_for_job_id(request).await {
            return id;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn send_for_job_id(request: reqwest::RequestBuilder) -> Option<String> {
    let response = request.send().await.ok()?;
    let status = response.status();
    let body: Value = response.json().await.ok()?;
    match status.as_u16() {
        200 | 201 => Some(body["jobId"].as_str().expect("an id").to_owned()),
        503 => {
            assert_eq!(body["code"], "STORE_UNAVAILABLE", "{body}");
            None
        }
        _ => panic!("{status}: {body}"),
    }
}
