use std::time::Duration;

use agent_platform::records::{Key, Precondition, Records, StoreError, Write};
use agent_store::postgres::PostgresRecords;
use futures_util::future::{join, join_all};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::{Cluster, database, impatient, other, wait_until};

/// Time within which a change is certainly seen, however busy the machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn key(company: &str, id: &str) -> Key {
    Key::new(company, "things", id).expect("a key")
}

fn put(key: &Key, text: &str, precondition: Precondition) -> Write {
    let value = RawValue::from_string(text.to_owned()).expect("JSON").into();
    Write::Put { key: key.clone(), value, precondition }
}

pub(crate) async fn set(store: &PostgresRecords, key: &Key, text: &str) {
    store.commit(vec![put(key, text, Precondition::Any)]).await.expect("put");
}

pub(crate) async fn value(store: &PostgresRecords, key: &Key) -> String {
    store.get(key).await.expect("read").map_or_else(String::new, |record| record.value.get().to_owned())
}

pub(crate) async fn open(url: &str) -> PostgresRecords {
    PostgresRecords::open(url, impatient()).await.expect("open")
}

/// Reads until the store serves the record from its cache.
pub(crate) async fn wait_until_cached(store: &PostgresRecords, key: &Key) {
    let cached = async {
        loop {
            let before = store.counters().reads;
            value(store, key).await;
            if store.counters().reads == before {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, cached).await.expect("the record is cached");
}

/// Reads until the store returns a value.
pub(crate) async fn wait_for(store: &PostgresRecords, key: &Key, expected: &str) {
    let observed = async {
        while value(store, key).await != expected {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, observed).await.expect("the change is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn caches_are_invalidated_by_changes() {
    let mut cluster = Cluster::start();
    let url = database(&cluster, "feed").await;
    let (one, two) = (open(&url).await, open(&url).await);
    a_change_of_another_process_invalidates_the_cache(&one, &two).await;
    a_transaction_that_commits_late_is_not_missed(&cluster, &one, &two).await;
    an_open_transaction_delays_no_other(&cluster, &one, &two).await;
    more_changes_than_are_listed_end_all_that_is_cached(&cluster, &two).await;
    a_commit_of_many_records_invalidates_caches(&one, &two).await;
    changes_of_another_server_end_nothing(&cluster, &one, &two).await;
    a_restarted_server_loses_no_change(&mut cluster, &one, &two).await;
}

async fn a_change_of_another_process_invalidates_the_cache(one: &PostgresRecords, two: &PostgresRecords) {
    let (watched, elsewhere) = (key("acme", "watched"), key("acme", "elsewhere"));
    for round in 0..20 {
        let text = round.to_string();
        set(one, &watched, &text).await;
        assert_eq!(value(one, &watched).await, text, "a process sees its own writes at once");
        wait_for(two, &watched, &text).await;
        wait_until_cached(two, &watched).await;
        wait_until_cached(two, &elsewhere).await;
    }
}

async fn a_transaction_that_commits_late_is_not_missed(
    cluster: &Cluster,
    one: &PostgresRecords,
    two: &PostgresRecords,
) {
    let late = key("acme", "late");
    set(one, &late, "1").await;
    wait_for(two, &late, "1").await;
    let client = other(cluster, "feed").await;
    let sql = "BEGIN; UPDATE app.records SET value = '2' WHERE company = 'acme' AND id = 'late';
               INSERT INTO app.change (origin, company, collections, ids)
               VALUES ('other', 'acme', '{things}', '{late}')";
    client.batch_execute(sql).await.expect("begun");
    for round in 0..30 {
        set(one, &key("acme", "busy"), &round.to_string()).await;
        wait_for(two, &key("acme", "busy"), &round.to_string()).await;
    }
    wait_until_cached(two, &late).await;
    assert_eq!(value(two, &late).await, "1", "an uncommitted value is not read");
    client.batch_execute("COMMIT").await.expect("committed");
    wait_for(two, &late, "2").await;
}

async fn an_open_transaction_delays_no_other(
    cluster: &Cluster,
    one: &PostgresRecords,
    two: &PostgresRecords,
) {
    let client = other(cluster, "feed").await;
    client.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("begun");
    a_change_of_another_process_invalidates_the_cache(one, two).await;
    client.batch_execute("ROLLBACK").await.expect("ended");
}

async fn more_changes_than_are_listed_end_all_that_is_cached(cluster: &Cluster, two: &PostgresRecords) {
    let late = key("acme", "late");
    wait_until_cached(two, &late).await;
    let sql = "BEGIN; UPDATE app.records SET value = '3' WHERE company = 'acme' AND id = 'late';
               INSERT INTO app.change (origin, company, collections, ids)
               SELECT 'other', 'other', '{x}', '{y}' FROM generate_series(1, 10001); COMMIT";
    other(cluster, "feed").await.batch_execute(sql).await.expect("committed");
    wait_for(two, &late, "3").await;
}

async fn a_commit_of_many_records_invalidates_caches(one: &PostgresRecords, two: &PostgresRecords) {
    let keys: Vec<Key> = (0..1200).map(|n| key("acme", &format!("many-{n}"))).collect();
    wait_until_cached(two, &keys[7]).await;
    one.commit(keys.iter().map(|key| put(key, "1", Precondition::Absent)).collect()).await.expect("put");
    wait_for(two, &keys[7], "1").await;
    let delete = |key: &Key| Write::Delete { key: key.clone(), precondition: Precondition::Any };
    one.commit(keys.iter().map(delete).collect()).await.expect("deleted");
    wait_for(two, &keys[7], "").await;
}

/// Rows of the feed that were restored from a backup name transactions of the server from which they are.
async fn changes_of_another_server_end_nothing(
    cluster: &Cluster,
    one: &PostgresRecords,
    two: &PostgresRecords,
) {
    let watched = key("acme", "watched");
    let sql = "INSERT INTO app.change (xid, origin, company, collections, ids)
               SELECT (pg_current_xact_id()::text::int8 + 1000000000)::text::xid8, 'other', 'acme', '{things}', '{watched}'";
    other(cluster, "feed").await.batch_execute(sql).await.expect("restored");
    let control = key("acme", "elsewhere");
    let (mut rounds, mut cached, mut ended) = (0, 0, 0);
    while cached < 10 {
        rounds += 1;
        set(one, &key("acme", "busy"), &rounds.to_string()).await;
        // The poll that reads this change would invalidate the cache here.
        value(two, &control).await;
        value(two, &watched).await;
        wait_for(two, &key("acme", "busy"), &rounds.to_string()).await;
        if is_cached(two, &control).await {
            cached += 1;
            ended += usize::from(!is_cached(two, &watched).await);
        }
    }
    assert!(2 * ended < cached, "{ended} of {cached} cached reads have ended");
}

/// Reads a record, and returns true if that ran no statement.
async fn is_cached(store: &PostgresRecords, key: &Key) -> bool {
    let before = store.counters().reads;
    value(store, key).await;
    store.counters().reads == before
}

async fn a_restarted_server_loses_no_change(
    cluster: &mut Cluster,
    one: &PostgresRecords,
    two: &PostgresRecords,
) {
    let watched = key("acme", "watched");
    wait_until_cached(two, &watched).await;
    cluster.crash();
    let failed = one.commit(vec![put(&watched, "9", Precondition::Any)]).await.expect_err("no server");
    assert!(matches!(failed, StoreError::Unavailable(_)), "{failed:?}");
    one.check_writable().await.expect_err("the store cannot be written");
    let is_noticed = async || two.check_writable().await.is_err();
    wait_until("a process without requests notices by its polls", is_noticed).await;
    cluster.restart();
    set(one, &watched, "10").await;
    for store in [one, two] {
        store.check_writable().await.expect("the store can be written");
    }
    wait_for(two, &watched, "10").await;
    wait_until_cached(two, &watched).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_of_several_processes_are_serialized() {
    let cluster = Cluster::start();
    let url = database(&cluster, "commits").await;
    let stores = join_all((0..3).map(|_| open(&url))).await;
    checks_of_absent_records_hold_until_the_commit(&stores).await;
    a_count_of_many_is_exact_and_shares_transactions(&stores).await;
    commits_that_cross_do_not_deadlock(&stores).await;
}

/// Two commits, each of which requires the absence of the record that the other commit creates: one of them fails.
async fn checks_of_absent_records_hold_until_the_commit(stores: &[PostgresRecords]) {
    for round in 0..100 {
        let (a, b) = (key("acme", &format!("a-{round}")), key("acme", &format!("b-{round}")));
        let claim = |absent: &Key, new: &Key| {
            let check = Write::Check { key: absent.clone(), precondition: Precondition::Absent };
            vec![check, put(new, "1", Precondition::Absent)]
        };
        let (first, second) = join(stores[0].commit(claim(&a, &b)), stores[1].commit(claim(&b, &a))).await;
        assert_ne!(first.is_ok(), second.is_ok(), "round {round}: {first:?} {second:?}");
    }
}

async fn a_count_of_many_is_exact_and_shares_transactions(stores: &[PostgresRecords]) {
    const COMMITS: u64 = 1500;
    let hot = key("acme", "hot");
    let before: u64 = stores.iter().map(|store| store.counters().transactions).sum();
    let increments = (0..COMMITS).map(|n| {
        let increment = Write::Increment { key: hot.clone(), limit: COMMITS - 1 };
        stores[n as usize % stores.len()].commit(vec![increment])
    });
    let refused = join_all(increments).await.iter().filter(|done| done.is_err()).count();
    assert_eq!(refused, 1, "the limit is exact");
    assert_eq!(value(&stores[0], &hot).await, format!("{{\"count\":{}}}", COMMITS - 1));
    let transactions = stores.iter().map(|store| store.counters().transactions).sum::<u64>() - before;
    assert!(transactions < COMMITS / 4, "{transactions} transactions for {COMMITS} commits");
}

async fn commits_that_cross_do_not_deadlock(stores: &[PostgresRecords]) {
    let keys: Vec<Key> = (0..8).map(|n| key("acme", &format!("cross-{n}"))).collect();
    let large: Vec<Key> = (0..300).map(|n| key("acme", &format!("large-{n}"))).collect();
    let begun = Instant::now();
    let commits = (0..60).map(|n| {
        let mut keys = if n % 10 == 9 { large.clone() } else { keys.clone() };
        let middle = n % keys.len();
        keys.rotate_left(middle);
        let writes = keys.iter().map(|key| put(key, &n.to_string(), Precondition::Any)).collect();
        stores[n % stores.len()].commit(writes)
    });
    for done in join_all(commits).await {
        done.unwrap_or_else(|error| panic!("after {:?}: {error:?}", begun.elapsed()));
    }
}
