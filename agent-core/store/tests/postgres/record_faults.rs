use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::JobStore;
use agent_platform::conversation::{Conversations, ThreadOwner};
use agent_platform::records::{Collection, Key, Precondition, Records, StoreError, Write};
use agent_store::postgres::{PostgresErrorKind, PostgresOptions, PostgresRecords};
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::value::RawValue;

use super::conversation::begin;
use super::conversation_locks::{
    a_locked_lease_delays_no_run, a_locked_run_delays_no_run_of_another_company,
    a_signal_that_is_set_again_is_not_deleted, commits_that_wait_for_locks_leave_connections_to_others,
    many_locked_logs_hide_no_expired_log_of_another_company,
    many_locked_runs_hide_no_lost_run_of_another_company, signals_that_cannot_be_deleted_are_taken,
};
use super::ledger_locks::a_locked_ledger_delays_no_booking_of_another_company;
use super::read_only::set_read_only;
use super::{Cluster, at, damaged_runs, database, fault, impatient, other, wait_until};

fn key(company: &str, id: &str) -> Key {
    Key::new(company, "things", id).expect("a key")
}

fn put(key: &Key, text: &str) -> Vec<Write> {
    let value = RawValue::from_string(text.to_owned()).expect("JSON").into();
    vec![Write::Put { key: key.clone(), value, precondition: Precondition::Any }]
}

async fn is_there(store: &PostgresRecords, key: &Key) -> bool {
    store.get(key).await.expect("read").is_some()
}

/// Returns options without a cache and with a short lock timeout.
fn hasty() -> PostgresOptions {
    PostgresOptions { cache_bytes: 0, lock_timeout: Duration::from_millis(500), ..impatient() }
}

async fn open(url: &str, options: PostgresOptions) -> PostgresRecords {
    PostgresRecords::open(url, options).await.expect("open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_of_the_server_are_typed_and_lose_nothing() {
    // Half a page more than a WAL segment, which the server creates in one piece.
    let cluster = Cluster::start_with_small_files((16 << 20) + 4096);
    a_full_disk_stores_nothing_in_part(&cluster).await;
    a_read_only_database_is_reported(&cluster).await;
    a_held_key_delays_its_own_commits_only(&cluster).await;
    commits_beside_a_held_record_do_not_wait_for_it(&cluster).await;
    companies_that_wait_for_connections_share_transactions(&cluster).await;
    damaged_data_of_a_company_fails_no_commit_of_another(&cluster).await;
    a_damaged_run_hides_no_due_run_of_another_company(&cluster).await;
    many_damaged_runs_hide_no_lost_run_and_no_expired_log(&cluster).await;
    lookups_of_one_token_delay_no_other(&cluster).await;
    a_locked_lease_delays_no_run(&cluster).await;
    a_locked_run_delays_no_run_of_another_company(&cluster).await;
    many_locked_runs_hide_no_lost_run_of_another_company(&cluster).await;
    many_locked_logs_hide_no_expired_log_of_another_company(&cluster).await;
    signals_that_cannot_be_deleted_are_taken(&cluster).await;
    a_signal_that_is_set_again_is_not_deleted(&cluster).await;
    a_locked_ledger_delays_no_booking_of_another_company(&cluster).await;
    commits_that_wait_for_locks_leave_connections_to_others(&cluster).await;
    a_statement_that_takes_too_long_is_given_up(&cluster).await;
    exhausted_connections_are_reported(&cluster).await;
    connections_that_were_lost_while_idle_are_replaced(&cluster).await;
}

async fn a_damaged_run_hides_no_due_run_of_another_company(cluster: &Cluster) {
    let store = open(&database(cluster, "due").await, hasty()).await;
    let owners = ["c1", "c2"].map(|company| ThreadOwner::new(company, "ada"));
    for owner in &owners {
        store.begin_run(begin(owner.thread("t"), "r", Vec::new())).await.expect("begun");
    }
    let sql = "UPDATE app.runs SET state = 'waiting', due_ms = 0;
               UPDATE app.runs SET body = '{' WHERE company = 'c1'";
    other(cluster, "due").await.batch_execute(sql).await.expect("damaged");
    let due = store.due_runs(at(0), None).await.expect("read").runs;
    assert_eq!(due.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), owners[1..]);
}

async fn many_damaged_runs_hide_no_lost_run_and_no_expired_log(cluster: &Cluster) {
    let store = open(&database(cluster, "damaged_runs").await, hasty()).await;
    let damage = async || {
        let sql = format!("SET search_path = app; {}", damaged_runs::DAMAGE);
        other(cluster, "damaged_runs").await.batch_execute(&sql).await.expect("damaged");
    };
    damaged_runs::hide_no_other(&store, damage).await;
}

/// Tokens are looked up before their companies are known.
async fn lookups_of_one_token_delay_no_other(cluster: &Cluster) {
    let options = PostgresOptions { connections: 1, ..hasty() };
    let store = open(&database(cluster, "lookups").await, options).await;
    let tokens = Collection::of_platform("tokens").expect("a name");
    let mut reads = Vec::new();
    for token in std::iter::repeat_n("large", 50).chain(["small"]) {
        let (store, key) = (&store, tokens.key(token).expect("a key"));
        let mut read = async move { store.get(&key).await.map(|_| token) }.boxed();
        assert!((&mut read).now_or_never().is_none(), "it waits");
        reads.push(read);
    }
    let reads: FuturesUnordered<_> = reads.into_iter().collect();
    let order: Vec<&str> = reads.map(|read| read.expect("read")).collect().await;
    let place = order.iter().position(|token| *token == "small");
    assert!(place.is_some_and(|place| place <= 2), "the lookups alternate by token: {order:?}");
}

async fn a_full_disk_stores_nothing_in_part(cluster: &Cluster) {
    let store = open(&database(cluster, "packed").await, hasty()).await;
    let mut stored: Vec<Key> = Vec::new();
    let refused = loop {
        // Random text, which the server cannot compress.
        let text = format!("\"{}\"", (0..12_000).map(|_| agent_core::new_id()).collect::<String>());
        let keys = [0, 1].map(|n| key("acme", &format!("{}-{n}", stored.len())));
        match store.commit(keys.iter().flat_map(|key| put(key, &text)).collect()).await {
            Ok(_) => stored.extend(keys),
            Err(error) => break (fault::<()>(Err(error)), keys),
        }
        assert!(stored.len() < 500, "the disk becomes full");
    };
    // Newer servers allocate space in another way and do not report a distinct error for it.
    let is_told = matches!(refused.0.kind(), PostgresErrorKind::Full | PostgresErrorKind::Failed);
    assert!(is_told, "{:?}", refused.0);
    for key in &refused.1 {
        assert!(!is_there(&store, key).await, "a refused commit stores nothing");
    }
    for key in &stored {
        assert!(is_there(&store, key).await, "an acknowledged record is there");
    }
    other(cluster, "packed").await.batch_execute("TRUNCATE app.records").await.expect("room");
    store.commit(put(&stored[0], "1")).await.expect("it goes on");
    store.check_writable().await.expect("it can be written");
}

async fn a_read_only_database_is_reported(cluster: &Cluster) {
    let url = database(cluster, "frozen").await;
    let (store, jobs) = (open(&url, hasty()).await, super::store(&url).await);
    let (first, refused) = (super::job("acme", 0), super::job("acme", 1));
    store.commit(put(&key("acme", "a"), "1")).await.expect("put");
    jobs.insert(vec![first.clone()]).await.expect("insert");
    set_read_only(&url, true).await;
    let is_told =
        async || fault(store.commit(put(&key("acme", "b"), "1")).await).kind() == PostgresErrorKind::ReadOnly;
    wait_until("the caller gets the read-only error", is_told).await;
    let is_told =
        async || fault(jobs.insert(vec![refused.clone()]).await).kind() == PostgresErrorKind::ReadOnly;
    wait_until("the caller learns that jobs cannot be stored", is_told).await;
    for _ in 0..2 {
        // Neither a read nor a commit that is rejected before it writes makes the store writable.
        assert!(is_there(&store, &key("acme", "a")).await, "it can be read");
        assert!(super::is_there(&jobs, &first).await, "jobs can be read");
        let (key, precondition) = (key("acme", "a"), Precondition::Absent);
        let conflicting = store.commit(vec![Write::Check { key, precondition }]).await;
        assert!(matches!(conflicting, Err(StoreError::Conflict { .. })), "{conflicting:?}");
        assert_eq!(fault(store.check_writable().await).kind(), PostgresErrorKind::ReadOnly);
        assert_eq!(fault(jobs.check_writable().await).kind(), PostgresErrorKind::ReadOnly);
    }
    // The connections stay open, and read-only.
    let admin = other(cluster, "postgres").await;
    let sql = "ALTER DATABASE frozen RESET default_transaction_read_only";
    admin.batch_execute(sql).await.expect("reset");
    store.check_writable().await.expect("it can be written");
    jobs.check_writable().await.expect("jobs can be written");
    store.commit(put(&key("acme", "b"), "1")).await.expect("it is written");
    jobs.insert(vec![refused]).await.expect("the job is stored");
}

/// Both the primary and its standby are hosts of the URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_promoted_standby_is_written_in_place_of_the_primary() {
    let mut primary = Cluster::start();
    database(&primary, "app").await;
    let standby = Cluster::start_standby(&primary);
    let hosts = [&standby, &primary].map(|cluster| {
        let folder = cluster.folder().display().to_string().replace('/', "%2F");
        format!("{folder}:{}", cluster.port())
    });
    let url = format!("postgres://postgres@{}/app?target_session_attrs=read-write", hosts.join(","));
    let (store, jobs) = (open(&url, hasty()).await, super::store(&url).await);
    let (first, second) = (super::job("acme", 0), super::job("acme", 1));
    store.commit(put(&key("acme", "a"), "1")).await.expect("the primary is written");
    jobs.insert(vec![first.clone()]).await.expect("the primary is written");
    let replica = other(&standby, "app").await;
    let sql = "SELECT FROM scheduler.jobs";
    wait_until("the standby has it", async || {
        replica.query(sql, &[]).await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;

    primary.crash();
    let is_told = async || {
        fault(store.commit(put(&key("acme", "b"), "1")).await).kind() == PostgresErrorKind::Unreachable
    };
    wait_until("no host can be written", is_told).await;
    fault(store.check_writable().await);
    fault(jobs.insert(vec![second.clone()]).await);
    fault(jobs.check_writable().await);

    standby.promote();
    store.check_writable().await.expect("the standby can be written");
    jobs.check_writable().await.expect("the standby can be written");
    assert!(is_there(&store, &key("acme", "a")).await, "a replicated record exists");
    store.commit(put(&key("acme", "b"), "1")).await.expect("it goes on");
    jobs.insert(vec![second.clone()]).await.expect("it goes on");
    for job in [&first, &second] {
        assert!(super::is_there(&jobs, job).await);
    }
}

/// Another program holds the lock of a key, as a process that was suspended within a transaction does.
async fn a_held_key_delays_its_own_commits_only(cluster: &Cluster) {
    let url = database(cluster, "locked").await;
    let store = open(&url, hasty()).await;
    let held = key("acme", "held");
    // Commits of one key would wait for one another, on a busy disk for longer than the timeout.
    let key_of = |n: usize| if n == 3 { held.clone() } else { key("acme", &format!("free-{n}")) };
    let holder = other(cluster, "locked").await;
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended(
                    concat_ws(chr(31), 'acme', 'things', 'held'), 0))";
    holder.batch_execute(lock).await.expect("locked");
    let outcomes = join_all((0..8).map(|n| store.commit(put(&key_of(n), "1")))).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n {
            3 => assert_eq!(fault(outcome).kind(), PostgresErrorKind::Locked),
            _ => drop(outcome.unwrap_or_else(|error| panic!("commit {n} does not wait: {error:?}"))),
        }
    }
    assert!(!is_there(&store, &held).await);
    holder.batch_execute("ROLLBACK").await.expect("released");
    store.commit(put(&held, "1")).await.expect("it goes on");
}

/// The lock of a key, and that of a row, which another program holds for longer than the statements may take.
async fn commits_beside_a_held_record_do_not_wait_for_it(cluster: &Cluster) {
    let url = database(cluster, "beside").await;
    let options = PostgresOptions { lock_timeout: Duration::from_secs(25), ..hasty() };
    let store = Arc::new(open(&url, options).await);
    let held = key("acme", "held");
    store.commit(put(&held, "0")).await.expect("put");
    let key_lock = "SELECT pg_advisory_xact_lock(hashtextextended(
                        concat_ws(chr(31), 'acme', 'things', 'held'), 0))";
    let row_lock = "SELECT FROM app.records WHERE id = 'held' FOR UPDATE";
    for (round, lock) in [key_lock, row_lock].into_iter().enumerate() {
        let holder = other(cluster, "beside").await;
        holder.batch_execute(&format!("BEGIN; {lock}")).await.expect("locked");
        let mut waiting = Vec::new();
        for part in 0..3 {
            let (held_store, writes) = (store.clone(), put(&held, &part.to_string()));
            waiting.push(tokio::spawn(async move { held_store.commit(writes).await }));
            let free = (0..8).map(|n| key("acme", &format!("{round}-{part}-{n}")));
            for outcome in join_all(free.map(|key| store.commit(put(&key, "1")))).await {
                outcome.expect("it does not wait");
            }
        }
        assert!(waiting.iter().all(|commit| !commit.is_finished()), "their key or row is locked");
        holder.batch_execute("ROLLBACK").await.expect("released");
        for commit in waiting {
            commit.await.expect("done").expect("the lock is free in time");
        }
    }
}

/// A held lock of one of the companies, or a conflict, does not affect the others.
async fn companies_that_wait_for_connections_share_transactions(cluster: &Cluster) {
    let url = database(cluster, "sharing").await;
    let options = PostgresOptions { connections: 2, lock_timeout: Duration::from_secs(25), ..hasty() };
    let store = Arc::new(open(&url, options).await);
    store.commit(put(&key("c4", "a"), "0")).await.expect("put");
    let holder = other(cluster, "sharing").await;
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended(
                    concat_ws(chr(31), 'c3', 'things', 'a'), 0))";
    holder.batch_execute(lock).await.expect("locked");
    let before = store.counters();
    let commit = |n: usize| {
        let (store, key) = (store.clone(), key(&format!("c{n}"), "a"));
        let precondition = if n == 4 { Precondition::Absent } else { Precondition::Any };
        let value = RawValue::from_string(n.to_string()).expect("JSON").into();
        tokio::spawn(async move { store.commit(vec![Write::Put { key, value, precondition }]).await })
    };
    let held = commit(3);
    let commits: Vec<_> = (0..20).filter(|n| *n != 3).map(|n| (n, commit(n))).collect();
    for (n, commit) in commits {
        let outcome = commit.await.expect("done");
        match n {
            4 => assert!(matches!(outcome, Err(StoreError::Conflict { .. })), "{outcome:?}"),
            _ => drop(outcome.unwrap_or_else(|error| panic!("c{n} does not wait: {error:?}"))),
        }
    }
    assert!(!held.is_finished(), "its key is locked");
    let after = store.counters();
    assert_eq!(after.commits - before.commits, 18);
    assert!(after.transactions - before.transactions < 18, "{after:?}");
    holder.batch_execute("ROLLBACK").await.expect("released");
    held.await.expect("done").expect("the lock is free in time");
    for n in (0..20).filter(|n| *n != 4) {
        let found = store.get(&key(&format!("c{n}"), "a")).await.expect("read").expect("there");
        assert_eq!(found.value.get(), n.to_string());
    }
}

/// The server finds that a page with a record is damaged, in a transaction that many companies share.
async fn damaged_data_of_a_company_fails_no_commit_of_another(cluster: &Cluster) {
    let url = database(cluster, "damaged").await;
    let store = Arc::new(open(&url, PostgresOptions { connections: 2, ..hasty() }).await);
    let damage = "
        CREATE FUNCTION app.find_damage() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END $$;
        CREATE TRIGGER damage BEFORE INSERT ON app.records FOR EACH ROW WHEN (NEW.company = 'c10')
            EXECUTE FUNCTION app.find_damage()";
    other(cluster, "damaged").await.batch_execute(damage).await.expect("made");
    let commit = |n: usize| {
        let (store, writes) = (store.clone(), put(&key(&format!("c{n}"), "a"), "1"));
        tokio::spawn(async move { store.commit(writes).await })
    };
    let commits: Vec<_> = (0..20).map(|n| (n, commit(n))).collect();
    for (n, commit) in commits {
        let outcome = commit.await.expect("done");
        match n {
            10 => assert_eq!(fault(outcome).kind(), PostgresErrorKind::Damaged),
            _ => drop(outcome.unwrap_or_else(|error| panic!("c{n} is not damaged: {error:?}"))),
        }
    }
}

async fn a_statement_that_takes_too_long_is_given_up(cluster: &Cluster) {
    let url = database(cluster, "slow").await;
    // Enough for the statements that succeed on a busy disk.
    let statement_timeout = Duration::from_secs(2);
    let options = PostgresOptions { statement_timeout, lock_timeout: Duration::from_secs(60), ..hasty() };
    let store = open(&url, options).await;
    let holder = other(cluster, "slow").await;
    holder.batch_execute("BEGIN; LOCK TABLE app.records IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    assert_eq!(fault(store.get(&key("acme", "a")).await).kind(), PostgresErrorKind::TimedOut);
    assert_eq!(fault(store.commit(put(&key("acme", "a"), "1")).await).kind(), PostgresErrorKind::TimedOut);
    holder.batch_execute("ROLLBACK").await.expect("released");
    store.commit(put(&key("acme", "a"), "2")).await.expect("it goes on");
    let found = store.get(&key("acme", "a")).await.expect("read").expect("there");
    assert_eq!(found.value.get(), "2");
}

/// A company that waits for its locks leaves connections to another company.
async fn exhausted_connections_are_reported(cluster: &Cluster) {
    let url = database(cluster, "busy").await;
    let options = PostgresOptions {
        connections: 4,
        wait_timeout: Duration::from_secs(1),
        lock_timeout: Duration::from_secs(60),
        ..hasty()
    };
    let store = Arc::new(open(&url, options).await);
    store.commit(put(&key("small", "a"), "1")).await.expect("put");
    let holder = other(cluster, "busy").await;
    holder
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('large', 0))")
        .await
        .expect("locked");
    let commits: Vec<_> = (0..6)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(put(&key("large", &n.to_string()), "1")).await })
        })
        .collect();
    let waits = "SELECT FROM pg_stat_activity WHERE datname = 'busy' AND wait_event_type = 'Lock'";
    let admin = other(cluster, "postgres").await;
    let wait = async || !admin.query(waits, &[]).await.expect("read").is_empty();
    wait_until("a commit waits for the lock", wait).await;
    assert!(is_there(&store, &key("small", "a")).await, "another company is served");
    store.commit(put(&key("small", "b"), "1")).await.expect("another company writes");
    holder.batch_execute("ROLLBACK").await.expect("released");
    for commit in commits {
        match commit.await.expect("done") {
            Ok(_) => {}
            Err(error @ StoreError::Unavailable(_)) => {
                assert_eq!(fault::<()>(Err(error)).kind(), PostgresErrorKind::Busy);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn connections_that_were_lost_while_idle_are_replaced(cluster: &Cluster) {
    let url = database(cluster, "idle").await;
    let store = open(&url, hasty()).await;
    let admin = other(cluster, "postgres").await;
    for round in 0..10 {
        join_all((0..8).map(|n| store.commit(put(&key(&format!("c{n}"), "a"), &round.to_string())))).await;
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'idle'";
        admin.batch_execute(sql).await.expect("terminated");
        assert!(is_there(&store, &key("c1", "a")).await);
        store.commit(put(&key("c2", "a"), "1")).await.expect("put");
    }
}
