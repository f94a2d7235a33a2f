//! The stores behind a pooler that gives each transaction another connection of the server, and a failover to a standby
//! that lost writes.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::JobStore;
use agent_platform::records::{Precondition, Records};
use agent_store::copy::{CopyDatabase, copy};
use agent_store::postgres::{
    PostgresError, PostgresErrorKind, PostgresJobs, PostgresOpenError, PostgresOptions, PostgresRecords,
    migrate, migration_status,
};

use super::feed::{LIMIT, key, open, set, value, wait_for, wait_until_cached};
use super::pgbouncer::{Pooler, SERVER_CONNECTIONS};
use super::template::DatabaseTemplate;
use super::{Cluster, database, impatient, job, other};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stores_behind_a_pooler_hold_their_contract() {
    let template = DatabaseTemplate::create(Cluster::start(), &[]).await;
    let pooler = Pooler::start(&template.cluster);
    let fresh = async || pooler.url(&template.copy_name().await);
    for options in [impatient(), PostgresOptions { cache_bytes: 0, ..impatient() }] {
        let make =
            async || Arc::new(PostgresRecords::open(&fresh().await, options.clone()).await.expect("open"));
        agent_platform::conformance::records(async || make().await as _).await;
        agent_platform::conformance::inventory(async || make().await as _).await;
    }
    let jobs = async || Arc::new(PostgresJobs::open(&fresh().await, impatient()).await.expect("open"));
    agent_jobs::conformance::jobs(async || jobs().await as _).await;
    agent_jobs::conformance::jobs_against_reference(async || jobs().await as _, 300, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conversations_and_usage_behind_a_pooler_hold_their_contract() {
    let template = DatabaseTemplate::create(Cluster::start(), &[]).await;
    let pooler = Pooler::start(&template.cluster);
    let make = async || {
        let url = pooler.url(&template.copy_name().await);
        Arc::new(PostgresRecords::open(&url, impatient()).await.expect("open"))
    };
    agent_platform::conformance::conversations(async || make().await as _).await;
    agent_platform::conformance::usage(async || make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pooler_that_is_not_named_is_refused_and_one_that_is_named_is_used() {
    let mut cluster = Cluster::start();
    database(&cluster, "pooled").await;
    let pooler = Pooler::start(&cluster);
    a_pooler_that_is_not_named_is_refused(&pooler).await;

    let url = pooler.url("pooled");
    migrate(&url, &impatient()).await.expect("migrated");
    let status = migration_status(&url, &impatient()).await.expect("a status");
    assert!(status.iter().all(|status| status.found == status.newest && status.found > 0), "{status:?}");
    let (one, two) = (open(&url).await, open(&url).await);
    for round in 0..20 {
        let (watched, text) = (key("acme", "watched"), round.to_string());
        set(&one, &watched, &text).await;
        assert_eq!(value(&one, &watched).await, text, "a process sees its own writes at once");
        wait_for(&two, &watched, &text).await;
        wait_until_cached(&two, &watched).await;
    }
    let client = other(&cluster, "pooled").await;
    let asked =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentd' AND datname = 'pooled'";
    let connections: i64 = client.query_one(asked, &[]).await.expect("read").get(0);
    assert!(connections > 0 && connections <= SERVER_CONNECTIONS as i64, "{connections} connections");
    settings_are_those_of_the_transaction(&cluster, &pooler).await;

    let jobs = PostgresJobs::open_for_application(&url, impatient()).await.expect("open");
    jobs.insert((0..3).map(|n| job("acme", n)).collect()).await.expect("inserted");
    database(&cluster, "copied").await;
    let target = pooler.url("copied");
    let (from, to) = (CopyDatabase::Postgres(url.clone()), CopyDatabase::Postgres(target.clone()));
    a_copy_waits_for_locks_for_a_limited_time(&cluster, (&from, &to), &target).await;
    let summary = copy(&from, &to).await.expect("copied");
    assert_eq!((summary.records, summary.jobs), (1, 3));
    assert_eq!(value(&open(&target).await, &key("acme", "watched")).await, "19");
    drop((one, two, jobs));
    a_server_that_lost_writes_is_noticed(&mut cluster, &url).await;
}

async fn a_pooler_that_is_not_named_is_refused(pooler: &Pooler) {
    let url = pooler.url_without_mode("pooled");
    let refused = PostgresRecords::open(&url, impatient()).await.expect_err("refused");
    assert!(matches!(refused, PostgresOpenError::SharedConnections), "{refused:?}");
    let advice = "add pool_mode=transaction to the URL's options";
    assert!(refused.to_string().contains(advice), "{refused}");
    let folder = tempfile::tempdir().expect("a folder");
    let to = CopyDatabase::Sqlite(folder.path().join("copy.db"));
    let refused = copy(&CopyDatabase::Postgres(url), &to).await.expect_err("refused");
    assert!(refused.to_string().contains(advice), "{refused}");
}

/// A copy's transaction has the settings of the pool, too.
async fn a_copy_waits_for_locks_for_a_limited_time(
    cluster: &Cluster,
    (from, to): (&CopyDatabase, &CopyDatabase),
    target: &str,
) {
    migrate(target, &impatient()).await.expect("migrated");
    let holder = other(cluster, "copied").await;
    holder.batch_execute("BEGIN; LOCK TABLE app.records IN ROW EXCLUSIVE MODE").await.expect("locked");
    let locked = copy(from, to).await.expect_err("locked");
    let fault = locked.source().and_then(|source| source.downcast_ref::<PostgresError>());
    assert_eq!(fault.map(PostgresError::kind), Some(PostgresErrorKind::Locked), "{locked:?}");
    holder.batch_execute("ROLLBACK").await.expect("released");
}

/// A connection of the server keeps nothing for the next client.
async fn settings_are_those_of_the_transaction(cluster: &Cluster, pooler: &Pooler) {
    database(cluster, "clean").await;
    let store = open(&pooler.url("clean")).await;
    for n in 0..2 * SERVER_CONNECTIONS {
        set(&store, &key("acme", "watched"), &n.to_string()).await;
    }
    let (client, connection) =
        tokio_postgres::connect(&pooler.url_without_mode("clean"), tokio_postgres::NoTls)
            .await
            .expect("connected");
    tokio::spawn(async move { drop(connection.await) });
    for _ in 0..2 * SERVER_CONNECTIONS {
        let asked = "SELECT current_setting('search_path') || current_setting('enable_seqscan') ||
                            (SELECT count(*) FROM pg_prepared_statements)";
        let rows = client.simple_query(asked).await.expect("read");
        let text = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(text, Some("\"$user\", publicon0"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_that_lost_writes_replaces_the_server() {
    let mut cluster = Cluster::start();
    let url = database(&cluster, "direct").await;
    a_server_that_lost_writes_is_noticed(&mut cluster, &url).await;
}

/// The caches of two processes know records that the new server never had.
async fn a_server_that_lost_writes_is_noticed(cluster: &mut Cluster, url: &str) {
    let [kept, lost, deleted] = ["kept", "lost", "deleted"].map(|id| key("acme", id));
    {
        let store = open(url).await;
        set(&store, &kept, "1").await;
        set(&store, &deleted, "1").await;
    }
    cluster.fork_standby();
    wait_until_reachable(url).await;
    let (one, two) = (open(url).await, open(url).await);
    set(&one, &kept, "2").await;
    set(&two, &lost, "2").await;
    one.delete(&deleted, Precondition::Any).await.expect("deleted");
    for store in [&one, &two] {
        for (key, expected) in [(&kept, "2"), (&lost, "2"), (&deleted, "")] {
            wait_for(store, key, expected).await;
            wait_until_cached(store, key).await;
        }
    }
    wait_until_the_feeds_pause(cluster).await;
    cluster.fail_over();
    wait_until_reachable(url).await;
    for store in [&one, &two] {
        for (key, expected) in [(&kept, "1"), (&lost, ""), (&deleted, "1")] {
            wait_until_cached(store, key).await;
            assert_eq!(value(store, key).await, expected, "{}", key.id());
        }
    }
    for (writer, reader, text) in [(&one, &two, "3"), (&two, &one, "4")] {
        set(writer, &kept, text).await;
        wait_for(reader, &kept, text).await;
        wait_until_cached(reader, &kept).await;
    }
}

/// Waits until the restarted server is reached: a pooler whose last login failed refuses clients until one succeeds.
async fn wait_until_reachable(url: &str) {
    let reached = async {
        while migration_status(url, &impatient()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.expect("the server is reached");
}

/// Waits until no process polls: then a connection to a pooler outlives the server unnoticed.
async fn wait_until_the_feeds_pause(cluster: &Cluster) {
    let client = other(cluster, "postgres").await;
    let asked = "SELECT EXISTS (SELECT FROM pg_stat_activity
                 WHERE application_name = 'agentd' AND state_change > now() - interval '300 ms')";
    let paused = async {
        while client.query_one(asked, &[]).await.expect("read").get(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, paused).await.expect("they pause");
}
