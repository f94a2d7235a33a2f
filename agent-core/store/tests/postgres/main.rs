//! Tests of the PostgreSQL job store: the conformance suite, and implementation details.
//!
//! Each test starts its own server, which takes about a second, so there are few and long tests.
#![cfg(all(unix, feature = "postgres", feature = "sqlite"))]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/cluster.rs"]
mod cluster;
mod contract;
#[path = "../support/conversation.rs"]
mod conversation;
mod conversation_locks;
mod copy;
#[path = "../support/damaged.rs"]
mod damaged;
#[path = "../support/damaged_runs.rs"]
mod damaged_runs;
mod faults;
mod feed;
mod golden;
#[path = "../../../../tests/support/grants.rs"]
mod grants;
mod ledger_locks;
mod migration;
mod open;
#[path = "../../../../tests/support/pooler.rs"]
mod pgbouncer;
mod pooler;
#[path = "../../../../tests/support/read_only.rs"]
mod read_only;
mod record_faults;
mod record_rows;
mod records;
mod rights;
#[path = "../../../../tests/support/statement_log.rs"]
mod statement_log;
mod template;
mod together;
#[path = "../support/usage.rs"]
mod usage;

use std::time::Duration;

use agent_jobs::job::{Job, JobKind, JobPayload, JobScope, JobStore, NewJob};
use agent_jobs::schedule::Schedule;
use agent_platform::records::StoreError;
use agent_store::postgres::{PostgresError, PostgresJobs, PostgresOptions};
use jiff::Timestamp;
use tokio_postgres::{Client, NoTls};

use self::cluster::Cluster;

/// Time limit for a condition, after which a test counts as hanging.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until a condition holds.
async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(CONDITION_TIMEOUT, waiting).await.is_ok(), "{what}");
}

/// Opens a connection that is independent of the store.
async fn other(cluster: &Cluster, database: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&cluster.url(database), NoTls).await.expect("a connection");
    // The task ends with the server or the client, and reports errors through the client.
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// Creates an empty database and returns its URL.
async fn database(cluster: &Cluster, name: &str) -> String {
    other(cluster, "postgres").await.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("made");
    cluster.url(name)
}

async fn store(url: &str) -> PostgresJobs {
    PostgresJobs::open(url, impatient()).await.expect("open")
}

/// Returns options with a short lock timeout.
fn impatient() -> PostgresOptions {
    PostgresOptions {
        connect_timeout: Duration::from_secs(20),
        lock_timeout: Duration::from_secs(2),
        ..PostgresOptions::default()
    }
}

/// Returns a fixed point in time plus `ms` milliseconds.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

/// Creates a one-time job of a company that is due at `at(ms)`.
fn job(company: &str, ms: i64) -> Job {
    let payload = JobPayload {
        kind: JobKind::Agent,
        user_id: "ada".into(),
        company_id: company.into(),
        agent_id: "agent".into(),
        tool_id: None,
        assignment_id: None,
        arguments: None,
        message: Some("hello".to_owned()),
        todo_list_id: None,
        thread_id: None,
        timezone: None,
        traceparent: None,
    };
    Job::new(NewJob::new(payload, Schedule::At(at(ms))), at(0))
}

async fn is_there(store: &PostgresJobs, job: &Job) -> bool {
    store.get(&JobScope::default(), &job.id).await.expect("read").is_some()
}

/// Returns the fault of a failed operation.
fn fault<T: std::fmt::Debug>(result: Result<T, StoreError>) -> PostgresError {
    match result {
        Err(StoreError::Unavailable(source)) => {
            source.downcast_ref::<PostgresError>().expect("a fault").clone()
        }
        other => panic!("the store is unavailable, and not {other:?}"),
    }
}
