//! Repeated `kill -9` of the scheduler and the application, in random order, while jobs record metrics: every
//! acknowledged job takes effect, and none twice.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use agent_store::sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;
use crate::support::process::{AppProcess, SchedulerProcess};
use crate::support::random::Random;
use crate::support::{env_number, free_port};

/// Environment variables that override the number of rounds and the seed of their order.
const ROUNDS_ENV: &str = "PULSE_KILL_ROUNDS";
const SEED_ENV: &str = "PULSE_KILL_SEED";
const DEFAULT_ROUNDS: u32 = 8;
const CLIENTS: u64 = 2;
/// Pause of a client before it repeats a failed request, or looks whether it may create another job.
const CLIENT_PAUSE: Duration = Duration::from_millis(5);
/// Time limit per round for the last deliveries: each retry waits twice as long as the one before.
const FINAL_DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Instructions to the clients.
#[derive(Clone)]
struct ClientOrder {
    scheduler: String,
    /// Values of jobs that may be created are below this, so that few jobs meet a service that is starting: each of
    /// their retries waits twice as long as the one before.
    limit: u64,
    is_over: bool,
}

/// Clients that create jobs, and the values whose jobs were acknowledged.
struct Clients {
    order: watch::Sender<ClientOrder>,
    acknowledged: watch::Receiver<usize>,
    values: Arc<Mutex<HashSet<u64>>>,
    tasks: JoinSet<()>,
}

impl Clients {
    fn start(scheduler: &SchedulerProcess) -> Self {
        let first_order = ClientOrder { scheduler: scheduler.address.to_string(), limit: 0, is_over: false };
        let (order, order_receiver) = watch::channel(first_order);
        let (counter, acknowledged) = watch::channel(0);
        let (counter, values) = (Arc::new(counter), Arc::<Mutex<HashSet<u64>>>::default());
        let mut tasks = JoinSet::new();
        for first in 0..CLIENTS {
            let (order_receiver, counter, values) = (order_receiver.clone(), counter.clone(), values.clone());
            tasks.spawn(async move {
                let client = client();
                for n in (first..).step_by(CLIENTS as usize) {
                    let job = json!({"payload": record_metric(n), "delayMs": n % 50, "maxAttempts": 100,
                        "idempotencyKey": format!("key-{n}")});
                    loop {
                        let ClientOrder { scheduler, limit, is_over } = order_receiver.borrow().clone();
                        if is_over {
                            return;
                        }
                        if n < limit {
                            let request =
                                client.post(format!("http://{scheduler}/jobs")).bearer_auth(PULSE_SECRET);
                            let sent = request.json(&job).send().await;
                            if sent.is_ok_and(|response| response.status().is_success()) {
                                break;
                            }
                        }
                        tokio::time::sleep(CLIENT_PAUSE).await;
                    }
                    values.lock().expect("unpoisoned").insert(n);
                    counter.send_modify(|count| *count += 1);
                }
            });
        }
        Self { order, acknowledged, values, tasks }
    }

    /// Lets the clients create further jobs, and waits until this many are acknowledged. A few more follow.
    async fn wait_for(&mut self, jobs: usize) {
        let goal = *self.acknowledged.borrow() + jobs;
        self.order.send_modify(|order| order.limit = goal as u64 + 2 * CLIENTS);
        let waiting = self.acknowledged.wait_for(|count| *count >= goal);
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("in time").expect("the clients go on");
    }

    /// Stops the clients and returns the acknowledged values.
    async fn stop(mut self) -> HashSet<u64> {
        self.order.send_modify(|order| order.is_over = true);
        while let Some(client) = self.tasks.join_next().await {
            client.expect("a client does not panic");
        }
        std::mem::take(&mut self.values.lock().expect("unpoisoned"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_is_lost_or_doubled_by_kills_of_application_and_scheduler() {
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let mut random = Random::new(SEED_ENV);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let url = |name: &str| format!("sqlite://{}", path(name).display());
    let mut workspace = workspace("http://127.0.0.1:9/v1");
    // The agent needs no model, and the store has no key to seal a secret with.
    workspace["agents"][0]["children"] = json!([]);
    let open = || SqliteStore::open(path("app.db"), SqliteOptions::default()).expect("the store opens");
    let stores = Stores::from_records(Arc::new(open()), &server::app_config(&[]));
    stores.import("the test", &workspace.to_string()).await.expect("imported");
    drop(stores);

    let (app_url, jobs_url, port) = (url("app.db"), url("scheduler.db"), free_port());
    let callback = format!("http://127.0.0.1:{port}/api/pulse/callback");
    let start_app = || AppProcess::start(&app_url, port, &[]);
    let start_scheduler = || SchedulerProcess::start(&jobs_url, &callback, &[]);
    let mut app = start_app().await;
    let mut scheduler = start_scheduler().await;
    let mut clients = Clients::start(&scheduler);
    for _ in 0..rounds {
        clients.wait_for(1 + random.below(60) as usize).await;
        let victims = random.below(4);
        if victims != 0 {
            app.kill().await;
            app = start_app().await;
        }
        if victims.is_multiple_of(3) {
            scheduler.kill().await;
            scheduler = start_scheduler().await;
            clients.order.send_modify(|order| order.scheduler = scheduler.address.to_string());
        }
    }
    clients.wait_for(1).await;
    let made = clients.stop().await;
    let is_open = |health: &Value| {
        ["scheduled", "running", "retryable"].iter().any(|state| health["jobs"][state].as_u64() > Some(0))
    };
    let time = FINAL_DELIVERY_TIMEOUT * (rounds + 1);
    let settled = |health: &Value| health["status"] == "ok" && !is_open(health);
    let health = scheduler.poll_until_within(time, "/health", settled).await;
    assert_eq!(health["jobs"]["discarded"].as_u64().unwrap_or_default(), 0, "{health}");
    scheduler.kill().await;
    app.kill().await;

    let store = open();
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
    let recorded = recorded_metrics(&store).await;
    let effects: HashSet<u64> = recorded.iter().copied().collect();
    assert_eq!(recorded.len(), effects.len(), "an effect has happened twice");
    let lost: Vec<_> = made.difference(&effects).collect();
    assert!(lost.is_empty(), "these were acknowledged and had no effect: {lost:?}");
}
