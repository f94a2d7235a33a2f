//! Locks of other transactions that runs and threads meet.

use std::sync::Arc;
use std::time::Duration;

use agent_platform::conversation::{
    AppendedEvents, CancelReason, ConversationError, Conversations, EndRunRequest, LogEnd, MAX_REAPED_RUNS,
    MAX_TRIMMED_LOGS, RunChunk, RunClock, RunKey, RunSignal, RunState, ThreadOwner, ThreadPatch,
};
use agent_platform::records::{Key, Precondition, Records};
use agent_store::postgres::{PostgresErrorKind, PostgresOptions, PostgresRecords};
use serde_json::value::RawValue;

use super::conversation::{begin, chunk, end, owner};
use super::{Cluster, at, database, fault, impatient, other, wait_until};

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
        store
            .begin_run(begin(key, &format!("r{n}"), Vec::new()))
            .await
            .expect("the run does not wait for the locks");
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

/// Another program has locked the row of a run of one company, whose process logs runs of another one by the same statements.
/// Later, both runs are lost, and their logs expire.
pub(super) async fn a_locked_run_delays_no_run_of_another_company(cluster: &Cluster) {
    let url = database(cluster, "logs").await;
    let store = PostgresRecords::open(&url, impatient()).await.expect("open");
    let [locked, free] =
        ["c1", "c2"].map(|company| RunKey { owner: ThreadOwner::new(company, "ada"), id: "r1".into() });
    for run in [&locked, &free] {
        store.begin_run(begin(run.owner.thread("t"), "r1", Vec::new())).await.expect("begun");
    }
    let append = async |events: &[(&RunKey, u64)]| {
        let chunk =
            |(run, number): &(&RunKey, u64)| RunChunk { run: (*run).clone(), chunk: chunk(*number, "word") };
        store.append_events("process", events.iter().map(chunk).collect()).await.expect("appended")
    };
    let logged = async |run: &RunKey| {
        let page = store.events(&run.owner, &run.id, 0).await.expect("events").expect("a run");
        page.chunks.iter().map(|chunk| chunk.first).collect::<Vec<_>>()
    };
    let state =
        async |run: &RunKey| store.run(&run.owner, &run.id).await.expect("a read").expect("a run").state;
    let holder = other(cluster, "logs").await;
    let lock = "BEGIN; SELECT FROM app.runs WHERE company = 'c1' FOR UPDATE";
    let release = "ROLLBACK";

    holder.batch_execute(lock).await.expect("locked");
    for number in 0..3 {
        let appended = append(&[(&locked, 0), (&free, number)]).await;
        assert_eq!(appended, AppendedEvents { lost: Vec::new(), locked: vec![locked.clone()] });
    }
    assert_eq!((logged(&locked).await, logged(&free).await), (vec![], vec![0, 1, 2]));
    holder.batch_execute(release).await.expect("released");
    let appended = append(&[(&locked, 0), (&locked, 1), (&free, 3)]).await;
    assert_eq!(appended, AppendedEvents::default());
    assert_eq!((logged(&locked).await, logged(&free).await), (vec![0, 1], vec![0, 1, 2, 3]));

    let is_locked = |outcome: Result<usize, ConversationError>| match outcome {
        Err(ConversationError::Store(error)) => {
            assert_eq!(fault::<()>(Err(error)).kind(), PostgresErrorKind::Locked);
        }
        other => panic!("a run is locked: {other:?}"),
    };
    holder.batch_execute(lock).await.expect("locked");
    let clock = RunClock { now: at(20_000), log_until: at(30_000) };
    is_locked(store.reap(clock).await);
    assert_eq!((state(&locked).await, state(&free).await), (RunState::Running, RunState::Interrupted));
    holder.batch_execute(release).await.expect("released");
    assert_eq!(store.reap(clock).await.expect("reaped"), 1);
    assert_eq!(state(&locked).await, RunState::Interrupted);
    // Two events, and the end of the run.
    assert_eq!(logged(&locked).await, [0, 1, 2]);

    holder.batch_execute(lock).await.expect("locked");
    assert_eq!(store.trim_logs(at(40_000)).await.expect("trimmed"), 1, "the locked one is left");
    assert_eq!((logged(&locked).await, logged(&free).await), (vec![0, 1, 2], vec![]));
    holder.batch_execute(release).await.expect("released");
    assert_eq!(store.trim_logs(at(40_000)).await.expect("trimmed"), 1);
    assert!(logged(&locked).await.is_empty());
}

/// Another program has locked the signals against deletion. A connection that is lost before the answer has the same effect.
pub(super) async fn signals_that_cannot_be_deleted_are_taken(cluster: &Cluster) {
    let url = database(cluster, "signals").await;
    let options = PostgresOptions { lock_timeout: Duration::from_millis(200), ..impatient() };
    let store = PostgresRecords::open(&url, options).await.expect("open");
    store.begin_run(begin(owner().thread("t"), "r1", Vec::new())).await.expect("begun");
    let (run, start) = (RunKey { owner: owner(), id: "r1".into() }, RunSignal::Start);
    store.signal(&run, start, at(1_000)).await.expect("signalled").expect("a run");
    let holder = other(cluster, "signals").await;
    holder.batch_execute("BEGIN; LOCK TABLE app.signals IN SHARE MODE").await.expect("locked");
    let take = async || store.take_signals("process", at(2)).await.expect("taken");
    for _ in 0..2 {
        assert_eq!(take().await, [(run.clone(), start)]);
    }
    holder.batch_execute("ROLLBACK").await.expect("released");
    assert_eq!(take().await, [(run, start)]);
    assert_eq!(take().await, [], "it was deleted");
}

/// A signal expires while its process does nothing, and is stored again while the process deletes it.
pub(super) async fn a_signal_that_is_set_again_is_not_deleted(cluster: &Cluster) {
    let url = database(cluster, "anew").await;
    let store = Arc::new(PostgresRecords::open(&url, impatient()).await.expect("open"));
    store.begin_run(begin(owner().thread("t"), "r1", Vec::new())).await.expect("begun");
    let (run, cancel) =
        (RunKey { owner: owner(), id: "r1".into() }, RunSignal::Cancel(CancelReason::Requested));
    store.signal(&run, cancel, at(1_000)).await.expect("signalled").expect("a run");
    let holder = other(cluster, "anew").await;
    holder.batch_execute("BEGIN; LOCK TABLE app.signals IN SHARE MODE").await.expect("locked");
    let taking = store.clone();
    let taken = tokio::spawn(async move { taking.take_signals("process", at(2_000)).await });
    let admin = other(cluster, "anew").await;
    let waits = "SELECT FROM pg_locks WHERE relation = 'app.signals'::regclass AND NOT granted";
    let is_waiting = async || !admin.query(waits, &[]).await.expect("read").is_empty();
    wait_until("the deletion waits for the table", is_waiting).await;
    let renew = "UPDATE app.signals SET until_ms = until_ms + 60000; COMMIT";
    holder.batch_execute(renew).await.expect("left anew");
    assert_eq!(taken.await.expect("done").expect("taken"), [], "the expired signal is not delivered");
    let again = store.take_signals("process", at(2_000)).await.expect("taken");
    assert_eq!(again, [(run, cancel)], "the renewed signal is not deleted");
}

/// More lost runs of one company are locked than one call interrupts.
pub(super) async fn many_locked_runs_hide_no_lost_run_of_another_company(cluster: &Cluster) {
    let url = database(cluster, "lost").await;
    let store = PostgresRecords::open(&url, impatient()).await.expect("open");
    let locked = ThreadOwner::new("c1", "ada");
    for n in 0..=MAX_REAPED_RUNS {
        let thread = locked.thread(format!("t{n}").as_str());
        store.begin_run(begin(thread, &format!("r{n}"), Vec::new())).await.expect("begun");
    }
    let free = RunKey { owner: ThreadOwner::new("c2", "ada"), id: "r1".into() };
    store.begin_run(begin(free.owner.thread("t"), "r1", Vec::new())).await.expect("begun");
    let holder = other(cluster, "lost").await;
    let lock = "BEGIN; SELECT FROM app.runs WHERE company = 'c1' FOR UPDATE";
    holder.batch_execute(lock).await.expect("locked");
    let clock = RunClock { now: at(20_000), log_until: at(30_000) };
    let is_interrupted = async || {
        store.reap(clock).await.expect_err("runs are locked");
        let run = store.run(&free.owner, &free.id).await.expect("a read").expect("a run");
        run.state == RunState::Interrupted
    };
    wait_until("the run of the other company is interrupted", is_interrupted).await;
    holder.batch_execute("ROLLBACK").await.expect("released");
}

/// More expired logs of one company are locked than one call deletes.
pub(super) async fn many_locked_logs_hide_no_expired_log_of_another_company(cluster: &Cluster) {
    let url = database(cluster, "expired").await;
    let store = PostgresRecords::open(&url, impatient()).await.expect("open");
    let end_run = async |owner: &ThreadOwner, n: usize, until: i64| {
        let (thread, run) = (owner.thread(format!("t{n}").as_str()), format!("r{n}"));
        store.begin_run(begin(thread, &run, Vec::new())).await.expect("begun");
        let log = LogEnd { chunks: vec![chunk(0, "word")], until: Some(at(until)), ..LogEnd::default() };
        store
            .end_run(EndRunRequest { owner: owner.clone(), log, ..end(&run, Vec::new()) })
            .await
            .expect("ended");
    };
    for n in 0..=MAX_TRIMMED_LOGS {
        end_run(&ThreadOwner::new("c1", "ada"), n, 30_000).await;
    }
    end_run(&ThreadOwner::new("c2", "ada"), 0, 30_001).await;
    let holder = other(cluster, "expired").await;
    let lock = "BEGIN; SELECT FROM app.runs WHERE company = 'c1' FOR UPDATE";
    holder.batch_execute(lock).await.expect("locked");
    assert_eq!(
        store.trim_logs(at(40_000)).await.expect("trimmed"),
        1,
        "the log of the other company is deleted"
    );
    assert_eq!(store.trim_logs(at(40_000)).await.expect("trimmed"), 0);
    holder.batch_execute("ROLLBACK").await.expect("released");
    for expected in [MAX_TRIMMED_LOGS, 1] {
        assert_eq!(store.trim_logs(at(40_000)).await.expect("trimmed"), expected);
    }
}
