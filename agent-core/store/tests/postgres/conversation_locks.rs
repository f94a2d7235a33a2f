//! Locks of other transactions that runs and threads meet.

use std::sync::Arc;
use std::time::Duration;

use agent_platform::conversation::{Conversations, ThreadOwner, ThreadPatch};
use agent_platform::records::{Key, Precondition, Records};
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use serde_json::value::RawValue;

use super::conversation::{begin, owner};
use super::{Cluster, at, database, impatient, other, wait_until};

/// The lease of the process is locked, as by another program or by the commit of a run of another company.
pub(super) async fn a_locked_lease_delays_no_run(cluster: &Cluster) {
    let url = database(cluster, "lease").await;
    let store = PostgresRecords::open(&url, impatient()).await.expect("open");
    store.begin_run(begin(owner().thread("t1"), "r1", Vec::new())).await.expect("begun");
    let holder = other(cluster, "lease").await;
    let lock = "BEGIN; SELECT FROM app.processes WHERE id = 'process' FOR UPDATE";
    holder.batch_execute(lock).await.expect("locked");
    store.begin_run(begin(owner().thread("t2"), "r2", Vec::new())).await.expect("it has the same lease");
    holder.batch_execute("ROLLBACK").await.expect("released");
}

/// Another program has locked the threads and records of more companies than the store has connections.
pub(super) async fn commits_that_wait_for_locks_leave_connections_to_others(cluster: &Cluster) {
    const COMPANIES: usize = 6;
    let url = database(cluster, "waiting").await;
    let options = PostgresOptions {
        connections: 4,
        wait_timeout: Duration::from_secs(60),
        lock_timeout: Duration::from_secs(60),
        ..impatient()
    };
    let store = Arc::new(PostgresRecords::open(&url, options).await.expect("open"));
    let company = |n: usize| format!("c{n}");
    let put = |n: usize| {
        let (store, key) = (store.clone(), Key::new(company(n), "things", "held").expect("a key"));
        async move { store.put(&key, RawValue::NULL.to_owned().into(), Precondition::Any).await }
    };
    let thread = |n: usize| ThreadOwner::new(company(n).as_str(), "ada").thread("t");
    for n in 0..COMPANIES {
        put(n).await.expect("put");
        store.begin_run(begin(thread(n), "r1", Vec::new())).await.expect("begun");
    }
    let holder = other(cluster, "waiting").await;
    let locks = "BEGIN; SELECT FROM app.threads FOR UPDATE; SELECT FROM app.records FOR UPDATE";
    holder.batch_execute(locks).await.expect("locked");
    let archive = |n: usize| {
        let (store, key) = (store.clone(), thread(n));
        let patch = ThreadPatch { archived: Some(true), ..ThreadPatch::default() };
        async move { store.patch(&key, patch, at(3)).await }
    };
    let patches: Vec<_> = (0..COMPANIES).map(|n| tokio::spawn(archive(n))).collect();
    let puts: Vec<_> = (0..COMPANIES).map(|n| tokio::spawn(put(n))).collect();
    let admin = other(cluster, "postgres").await;
    let waits = "SELECT FROM pg_stat_activity WHERE datname = 'waiting' AND wait_event_type = 'Lock'";
    let are_waiting = async || admin.query(waits, &[]).await.expect("read").len() > 1;
    wait_until("commits wait for locks", are_waiting).await;
    for n in 0..8 {
        let key = owner().thread(format!("t{n}").as_str());
        store.begin_run(begin(key, &format!("r{n}"), Vec::new())).await.expect("it does not wait for them");
    }
    assert!(patches.iter().all(|patch| !patch.is_finished()), "their threads are locked");
    assert!(puts.iter().all(|put| !put.is_finished()), "their records are locked");
    holder.batch_execute("ROLLBACK").await.expect("released");
    for patch in patches {
        patch.await.expect("done").expect("the lock is free in time");
    }
    for put in puts {
        put.await.expect("done").expect("the lock is free in time");
    }
}
