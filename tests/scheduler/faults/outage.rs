//! PostgreSQL outages: restarts, read-only mode and a full disk.

use serde_json::Value;

use super::load::JobLoad;
use super::{TestDatabase, due_job};
use crate::support::process::SchedulerProcess;
use crate::support::read_only::set_read_only;
use crate::support::sink::WebhookReceiver;
use crate::support::{TEST_TIMEOUT, expect_problem};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_server_that_restarts_under_load_loses_nothing() {
    let mut database = TestDatabase::postgres();
    let sink = WebhookReceiver::start().await;
    let scheduler = SchedulerProcess::start(&database.url(), &sink.url(), &[]).await;
    let load = JobLoad::start(&scheduler).await;
    let mut acknowledged = load.acknowledged_count();
    for round in 0..2 {
        load.wait_for_progress(&sink, 40 + 31 * round).await;
        let TestDatabase::Postgres(cluster) = &mut database else { unreachable!("it is PostgreSQL") };
        cluster.crash();
        // A check of the store notices it at once, the counts of jobs when they are read next.
        let health = scheduler.poll_until("/health", |health| health["store"]["reachable"] == false).await;
        assert_eq!(health["status"], "unavailable");
        expect_problem(scheduler.post(&due_job("a1")).await, 503, "STORE_UNAVAILABLE").await;
        cluster.restart();
        scheduler.wait_until_healthy().await;
        let before = *acknowledged.borrow_and_update();
        let more = acknowledged.wait_for(|count| *count > before);
        let more = tokio::time::timeout(TEST_TIMEOUT, more).await;
        more.expect("jobs are created again").expect("the clients go on");
    }
    load.finish_and_check(&scheduler, &sink, 10).await;
    a_read_only_database_keeps_its_jobs(&database, &scheduler, &sink).await;
}

async fn a_read_only_database_keeps_its_jobs(
    database: &TestDatabase,
    scheduler: &SchedulerProcess,
    sink: &WebhookReceiver,
) {
    let later = async |delay_ms: u64| {
        let job = serde_json::json!({"payload": super::payload("a1"), "delayMs": delay_ms});
        scheduler.create_job(&job).await
    };
    // On a machine that is not loaded, the first falls due while nothing can be written.
    let (soon, waits) = (later(700).await, later(3_600_000).await);
    let before = scheduled_job_ids(scheduler).await;
    set_read_only(&database.url(), true).await;
    let refusal = async || {
        let problem = expect_problem(scheduler.post(&due_job("a1")).await, 503, "STORE_UNAVAILABLE").await;
        problem["detail"].as_str().expect("text").to_owned()
    };
    // The first requests fail because their connections were closed.
    let waiting = async { while refusal().await != "the store is unavailable: the database is read-only" {} };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the health response names the fault");
    for path in ["/readyz", "/health"] {
        let health = scheduler.poll_until(path, |health| health["status"] == "unavailable").await;
        assert!(
            health["reason"].as_str().is_some_and(|reason| reason.ends_with("the database is read-only")),
            "{health}"
        );
    }
    let cancelled =
        scheduler.request("DELETE", &format!("/jobs/{waits}")).send().await.expect("the server answers");
    expect_problem(cancelled, 503, "STORE_UNAVAILABLE").await;
    let listed = scheduled_job_ids(scheduler).await;
    assert!(listed.iter().any(|id| *id == waits), "it can be read: {listed:?}");
    assert!(listed.iter().all(|id| before.contains(id)), "no refused job is stored: {listed:?}");
    set_read_only(&database.url(), false).await;
    scheduler.wait_for_state(&soon, "completed").await;
    scheduler.poll_until("/readyz", |ready| ready["status"] == "ok").await;
    assert_eq!(sink.effects()[&soon].len(), 1);
    // The cancellation that was refused has had no effect.
    assert_eq!(scheduler.get(&format!("/jobs/{waits}")).await["state"], "scheduled");
    let cancelled =
        scheduler.request("DELETE", &format!("/jobs/{waits}")).send().await.expect("the server answers");
    assert_eq!(cancelled.status(), 200);
    // With further attempts, since the receiver may answer the first one with an error.
    let more = later(0).await;
    scheduler.wait_for_state(&more, "completed").await;
}

/// Returns the ids of the latest scheduled jobs.
async fn scheduled_job_ids(scheduler: &SchedulerProcess) -> Vec<Value> {
    let list = scheduler.poll_until("/jobs?userId=u1&state=scheduled", |list| list["jobs"].is_array()).await;
    list["jobs"].as_array().expect("a list").iter().map(|job| job["jobId"].clone()).collect()
}
