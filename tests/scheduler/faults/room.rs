//! SQLite without disk space.

use std::sync::Arc;

use agent_jobs::job::JobStore;
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{TestDatabase, due_job};
use crate::scheduler::{SchedulerFixture, callback, json_of, payload};
use crate::support::expect_problem;
use crate::support::process::SchedulerProcess;
use crate::support::server;
use crate::support::sink::WebhookReceiver;
use crate::support::vendor::{Vendor, json_response};

/// Returns a job with a large payload.
fn large_job(n: usize) -> Value {
    let mut job =
        json!({"payload": payload("large"), "delayMs": 3_600_000, "idempotencyKey": format!("key-{n}")});
    job["payload"]["arguments"] = json!({"text": "x".repeat(20_000)});
    job
}

fn open(folder: &TempDir, max_file_bytes: Option<u64>) -> Arc<dyn JobStore> {
    let options = SqliteOptions { max_file_bytes, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open(folder.path().join("scheduler.db"), options).expect("a store"))
}

#[tokio::test]
async fn a_full_disk_is_reported_and_every_acknowledged_job_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Vendor::start().await;
    receiver.on("a1", [json_response("200 OK", "", "{}")]);
    let scheduler = server::scheduler(open(&folder, Some(1 << 20)), &callback(&receiver), &[]).await;
    let bench = SchedulerFixture { scheduler, receiver };
    let mut made = Vec::new();
    let refused = loop {
        let response = bench.ask("POST", "/jobs", Some(&large_job(made.len()))).await;
        if response.status() != 201 {
            break expect_problem(response, 503, "STORE_UNAVAILABLE").await;
        }
        made.push(json_of(response).await["jobId"].clone());
        assert!(made.len() < 1000, "it has a limit");
    };
    let detail = "the store is unavailable: the disk is full, or the file has reached its limit";
    assert_eq!(refused["detail"], detail);
    let listed = || async {
        let list = json_of(bench.ask("GET", "/jobs?limit=200&order=asc", None).await).await;
        list["jobs"].as_array().expect("a list").iter().map(|job| job["jobId"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, made, "exactly the acknowledged jobs are stored");
    let health =
        json_of(bench.scheduler.request("GET", "/health").send().await.expect("the server answers")).await;
    assert_eq!(health["status"], "ok", "it can be read: {health}");
    bench.scheduler.stop();
    bench.scheduler.stopped().await;

    // With space again, the rejected request is repeated.
    let scheduler = server::scheduler(open(&folder, None), &callback(&bench.receiver), &[]).await;
    let bench = SchedulerFixture { scheduler, receiver: bench.receiver };
    let second = bench.ask("POST", "/jobs", Some(&large_job(made.len()))).await;
    assert_eq!(second.status(), 201);
    let id = bench.create_job(json!({"delayMs": 0}), payload("a1")).await;
    bench.wait_for_state(&id, "completed").await;
}

/// A file size limit of the process makes the system reject a write halfway; after the limit is lifted, the scheduler
/// continues.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_recovers_when_its_file_size_limit_is_lifted() {
    let database = TestDatabase::sqlite();
    let sink = WebhookReceiver::start().await;
    let scheduler = SchedulerProcess::start_with(&[], &database.url(), &sink.url(), &[]).await;
    scheduler.wait_until_healthy().await;
    let id = scheduler.id();
    let waits = scheduler.create_job(&json!({"payload": payload("a1"), "delayMs": 1500})).await;
    scheduler.run_shell(&format!("prlimit --pid {id} --fsize=65536:")).await;
    let mut made = Vec::new();
    let refused = loop {
        let response = scheduler.post(&large_job(made.len())).await;
        if response.status() != 201 {
            break expect_problem(response, 503, "STORE_UNAVAILABLE").await;
        }
        made.push(json_of(response).await["jobId"].clone());
        assert!(made.len() < 100, "it has a limit");
    };
    let detail = refused["detail"].as_str().expect("text");
    assert!(detail.starts_with("the store is unavailable: the "), "{detail}");
    for path in ["/readyz", "/health"] {
        let health = scheduler.get(path).await;
        assert_eq!(
            (&health["status"], &health["reason"]),
            (&json!("unavailable"), &refused["detail"]),
            "{health}"
        );
    }
    assert_eq!(scheduler.get("/livez").await["status"], "ok");
    let list = scheduler.get("/jobs?limit=200&state=scheduled").await;
    for id in &made {
        assert!(list["jobs"].as_array().expect("a list").iter().any(|job| job["jobId"] == *id), "{list}");
    }
    scheduler.run_shell(&format!("prlimit --pid {id} --fsize=unlimited:")).await;
    // Without any other write, the check of readiness finds out.
    assert_eq!(scheduler.get("/readyz").await, json!({"status": "ok"}));
    scheduler.wait_for_state(&waits, "completed").await;
    assert_eq!(sink.effects()[&waits].len(), 1);
    let more = scheduler.create_job(&due_job("a1")).await;
    scheduler.wait_for_state(&more, "completed").await;
    assert_eq!(scheduler.post(&large_job(made.len())).await.status(), 201);
}
