//! Several schedulers over one store, the shutdown of one, and jobs on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::{JobStore, MemoryJobStore, Step as JobStep, StepOutcome};
use agent_jobs::schedule::Schedule;
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use jiff::Timestamp;
use serde_json::json;

use super::{SchedulerFixture, callback, json_of, open_over, payload};
use crate::support::server;
use crate::support::vendor::{Step, Vendor, json_response};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_share_the_jobs_and_deliver_each_once() {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let settings = [("SCHEDULER_CONCURRENCY", "1")];
    let bench = open_over(jobs.clone(), &settings).await;
    let _second = server::scheduler(jobs.clone(), &callback(&bench.receiver), &settings).await;
    // Each may deliver one job at a time, so two at once are of both.
    let (gate, opened) = tokio::sync::watch::channel(false);
    bench.receiver.on("a1", [vec![Step::Until(opened), json_response("200 OK", "", "{}").remove(0)]]);
    for _ in 0..2 {
        bench.create_job(json!({"delayMs": 0}), payload("a1")).await;
    }
    bench.receiver.wait_for_requests("a1", 2).await;
    gate.send_replace(true);
    for delay in 0..100 {
        bench.create_job(json!({"delayMs": delay * 3}), payload("a1")).await;
    }
    bench.receiver.wait_for_requests("a1", 102).await;
    let last = bench.create_job(json!({"delayMs": 0}), payload("a1")).await;
    bench.wait_for_state(&last, "completed").await;
    let mut delivered = BTreeMap::<String, usize>::new();
    for body in bench.receiver.received_bodies("a1") {
        *delivered.entry(body["jobId"].as_str().expect("an id").to_owned()).or_default() += 1;
    }
    assert_eq!(delivered.len(), 103);
    assert!(delivered.values().all(|times| *times == 1), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_that_a_shutdown_aborts_are_retried_by_another_scheduler() {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let settings = [("DRAIN_MS", "50"), ("SCHEDULER_LEASE_MS", "1000")];
    let receiver = Vendor::start().await;
    receiver.on("slow", [vec![Step::Stall], json_response("200 OK", "", "{}")]);
    let first = server::scheduler(jobs.clone(), &callback(&receiver), &settings).await;
    let bench = SchedulerFixture { scheduler: first, receiver };
    let under_way = bench.create_job(json!({"delayMs": 0, "maxAttempts": 1}), payload("slow")).await;
    bench.receiver.wait_for_requests("slow", 1).await;
    bench.receiver.on("soon", [json_response("200 OK", "", "{}")]);
    let soon = bench.create_job(json!({"delayMs": 60_000}), payload("soon")).await;
    bench.scheduler.stop();
    bench.scheduler.stopped().await;

    let second = server::scheduler(jobs, &callback(&bench.receiver), &settings).await;
    let bench = SchedulerFixture { scheduler: second, receiver: bench.receiver };
    bench.wait_for_state(&under_way, "completed").await;
    assert_eq!(
        bench.receiver.received_bodies("slow")[1]["attempt"],
        1,
        "an aborted delivery used up no attempt"
    );
    assert_eq!(bench.get(&soon).await["state"], "scheduled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_deliveries_in_flight() {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let bench = open_over(jobs.clone(), &[("DRAIN_MS", "600000")]).await;
    let (gate, opened) = tokio::sync::watch::channel(false);
    bench.receiver.on("slow", [vec![Step::Until(opened), json_response("200 OK", "", "{}").remove(0)]]);
    let id = bench.create_job(json!({"delayMs": 0}), payload("slow")).await;
    bench.receiver.wait_for_requests("slow", 1).await;
    bench.scheduler.stop();
    gate.send_replace(true);
    bench.scheduler.stopped().await;
    let job = jobs.get(&Default::default(), &id.into()).await.expect("a store").expect("a job");
    assert_eq!(job.state().as_str(), "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_in_sqlite_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scheduler.db");
    let store = || -> Arc<dyn JobStore> {
        Arc::new(SqliteStore::open(&path, SqliteOptions::default()).expect("a store"))
    };
    let bench = open_over(store(), &[]).await;
    bench.receiver.on("a1", [json_response("200 OK", "", "{}")]);
    let done = bench.create_job(json!({"delayMs": 0, "idempotencyKey": "k"}), payload("a1")).await;
    let done = bench.wait_for_state(&done, "completed").await;
    let waits = bench.create_job(json!({"delayMs": 3_600_000}), payload("a1")).await;
    bench.scheduler.stop();
    bench.scheduler.stopped().await;
    // The hour passes while no service runs.
    let now = Timestamp::now();
    let due = JobStep::Reschedule(Schedule::after(now, Duration::ZERO));
    let stepped = store().apply_step(&Default::default(), &waits.clone().into(), due, now).await;
    assert!(matches!(stepped, Ok(StepOutcome::Applied(_))), "{stepped:?}");

    let scheduler = server::scheduler(store(), &callback(&bench.receiver), &[]).await;
    let bench = SchedulerFixture { scheduler, receiver: bench.receiver };
    bench.wait_for_state(&waits, "completed").await;
    assert_eq!(bench.get(done["jobId"].as_str().expect("an id")).await, done);
    let list = json_of(bench.ask("GET", "/jobs?state=completed&companyId=c1", None).await).await;
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(2));
}
