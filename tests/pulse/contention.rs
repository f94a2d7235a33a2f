//! Many jobs of one agent that are due at once and meet in the same records.

use agent_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::*;
use crate::support::{TEST_TIMEOUT, poll_until_within};

const JOBS: u64 = 100;

/// Starts an application over SQLite, and a scheduler; runs `JOBS` jobs that are due at once, and checks that each took
/// one attempt.
async fn run_at_once(payload: impl Fn(u64) -> Value) -> (TempDir, Stores) {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        SqliteStore::open(folder.path().join("app.db"), SqliteOptions::default()).expect("the store opens");
    let stores = Stores::from_records(Arc::new(store), &server::app_config(&[]));
    let mut workspace = workspace("http://127.0.0.1:9/v1");
    // The key is not a secret here, and the store has no key to seal it with.
    workspace["agents"][0]["children"] = json!([]);
    stores.import("the test", &workspace.to_string()).await.expect("imported");
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let listener = server::bind().await;
    let callback = callback_url(&listener);
    let concurrency = [("SCHEDULER_CONCURRENCY", "200"), ("SCHEDULER_COMPANY_CONCURRENCY", "200")];
    let scheduler = server::scheduler(jobs, &callback, &concurrency).await;
    let _app = app_on(listener, &stores, &scheduler.url(""), &[]);
    let due = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2)).to_string();
    let http = client();
    for n in 0..JOBS {
        let job = json!({"payload": payload(n), "executeAt": due, "maxAttempts": 1});
        let request = http.post(scheduler.url("/jobs")).bearer_auth(PULSE_SECRET).json(&job);
        assert_eq!(request.send().await.expect("the scheduler answers").status(), 201);
    }
    let health = || request_scheduler(&scheduler, "GET", "/health", None);
    let ended = |health: &Value| {
        let count = |state: &str| health["jobs"][state].as_u64().unwrap_or_default();
        count("completed") + count("discarded") == JOBS
    };
    if let Err(health) = poll_until_within(TEST_TIMEOUT, health, ended).await {
        let mut jobs = request_scheduler(&scheduler, "GET", "/jobs?limit=200", None).await["jobs"].take();
        jobs.as_array_mut().expect("jobs").retain(|job| job["state"] != "completed");
        panic!("the health stays {health}, of these jobs: {jobs}");
    }
    let mut cursor = String::new();
    let mut delivered = 0;
    loop {
        let path = format!("/jobs?limit=200{cursor}");
        let page = request_scheduler(&scheduler, "GET", &path, None).await;
        for job in page["jobs"].as_array().expect("jobs") {
            assert_eq!(job["state"], "completed", "{job}");
            delivered += 1;
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(delivered, JOBS);
    let metrics = client().get(scheduler.url("/metrics")).bearer_auth(PULSE_SECRET).send().await;
    let metrics = metrics.expect("metrics").text().await.expect("text");
    let deliveries: Vec<_> =
        metrics.lines().filter(|line| line.starts_with("agentd_job_deliveries_total")).collect();
    for line in &deliveries {
        let expected = if line.contains("succeeded") { JOBS.to_string() } else { "0".to_owned() };
        assert!(line.ends_with(&format!(" {expected}")), "{deliveries:?}");
    }
    (folder, stores)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_count_in_one_record_do_not_conflict() {
    let (_folder, stores) = run_at_once(record_metric).await;
    assert_eq!(recorded_metrics(&*stores.records).await, (0..JOBS).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_change_one_record_wait_for_one_another() {
    let (_folder, stores) = run_at_once(|n| create_todo(&format!("todo {n}"))).await;
    let titles: std::collections::BTreeSet<_> = todo_titles(&stores).await.into_iter().collect();
    assert_eq!(titles.len() as u64, JOBS);
}
