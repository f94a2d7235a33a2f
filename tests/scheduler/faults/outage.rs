//! PostgreSQL outages: restarts, read-only mode and a full disk.

use serde_json::Value;
use tokio_postgres::NoTls;

use super::load::Load;
use super::{Place, now};
use crate::support::process::Process;
use crate::support::sink::Sink;
use crate::support::{PATIENCE, problem};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_server_that_restarts_under_load_loses_nothing() {
    let mut place = Place::postgres();
    let sink = Sink::start().await;
    let scheduler = Process::start(&place.url(), &sink.url(), &[]).await;
    let load = Load::start(&scheduler).await;
    for round in 0..2 {
        load.progress(&sink, 40 + 31 * round).await;
        let Place::Postgres(cluster) = &mut place else { unreachable!("it is PostgreSQL") };
        cluster.crash();
        let health = scheduler.until("/health", |health| health["status"] == "unavailable").await;
        assert_eq!(health["store"]["reachable"], false);
        problem(scheduler.post(&now("a1")).await, 503, "STORE_UNAVAILABLE").await;
        cluster.resume();
        scheduler.until_healthy().await;
    }
    let made = load.end(&scheduler, &sink, 10).await;
    assert!(made >= 30, "it went on while the server restarted: {made}");
    a_database_that_takes_no_writes(&place, &scheduler, &sink).await;
}

async fn a_database_that_takes_no_writes(place: &Place, scheduler: &Process, sink: &Sink) {
    let waits = scheduler.job(&serde_json::json!({"payload": super::payload("a1"), "delayMs": 700})).await;
    let before = stored(scheduler).await;
    freeze(place, true).await;
    let refusal = async || {
        let refused = problem(scheduler.post(&now("a1")).await, 503, "STORE_UNAVAILABLE").await;
        refused["detail"].as_str().expect("text").to_owned()
    };
    // The first requests fail because their connections were closed.
    let waiting =
        async { while refusal().await != "the store is not available: the database takes no writes" {} };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it says what is wrong");
    scheduler.until_healthy().await;
    let cancelled = scheduler.request("DELETE", &format!("/jobs/{waits}")).send().await.expect("it answers");
    problem(cancelled, 503, "STORE_UNAVAILABLE").await;
    assert_eq!(stored(scheduler).await, before, "it can be read, and has nothing that was refused");
    freeze(place, false).await;
    scheduler.until_state(&waits, "completed").await;
    assert_eq!(sink.effects()[&waits].len(), 1);
    let more = scheduler.job(&now("a1")).await;
    scheduler.until_state(&more, "completed").await;
}

/// Sets or clears the database's read-only mode. It applies to new connections, so existing ones are terminated.
async fn freeze(place: &Place, frozen: bool) {
    let (client, connection) = tokio_postgres::connect(&place.url(), NoTls).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute("SET default_transaction_read_only = off").await.expect("set");
    let sql = format!(
        "ALTER DATABASE postgres SET default_transaction_read_only = {frozen};
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
    );
    client.batch_execute(&sql).await.expect("set");
}

/// Returns the ids of the latest scheduled jobs.
async fn stored(scheduler: &Process) -> Vec<Value> {
    let list = scheduler.until("/jobs?userId=u1&state=scheduled", |list| list["jobs"].is_array()).await;
    list["jobs"].as_array().expect("a list").iter().map(|job| job["jobId"].clone()).collect()
}
