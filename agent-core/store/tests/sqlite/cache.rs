use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::testing::ManualClock;
use agent_platform::records::{Collection, ListQuery, Order, Precondition, Records, Write};
use agent_store::sqlite::{MAX_STALENESS, SqliteOptions, SqliteStore};

use super::{TempStore, json, key, put, things};

fn at(clock: &ManualClock) -> SqliteOptions {
    SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() }
}

async fn value(store: &SqliteStore, id: &str) -> Option<String> {
    store.get(&key(id)).await.expect("read").map(|record| record.value.get().to_owned())
}

/// Returns the number of reads that ran statements during `work`.
async fn reads(store: &SqliteStore, work: impl Future) -> u64 {
    let before = store.counters().reads;
    work.await;
    store.counters().reads - before
}

#[tokio::test]
async fn cached_records_are_read_without_a_statement() {
    let temp_store = TempStore::new();
    let store = temp_store.store(at(&ManualClock::new()));
    store
        .commit(vec![put("a", "1", Precondition::Any), put("b", "2", Precondition::Any)])
        .await
        .expect("put");
    let lists =
        [Order::Ascending, Order::Descending].map(|order| ListQuery { order, ..ListQuery::default() });
    let all = async || {
        assert_eq!(value(&store, "a").await.as_deref(), Some("1"));
        assert_eq!(value(&store, "none").await, None);
        let cached_records = store.get_many(&["none", "b", "a", "a"].map(key)).await.expect("read");
        let versions: Vec<_> =
            cached_records.iter().map(|record| record.as_ref().map(|r| r.version)).collect();
        assert_eq!(versions, [None, Some(2), Some(1), Some(1)]);
        for (list, expected) in lists.iter().zip([["a", "b"], ["b", "a"]]) {
            let page = store.list(&things(), list).await.expect("list");
            let ids: Vec<_> = page.records.iter().map(|record| record.id.as_str()).collect();
            assert_eq!(ids, expected);
        }
    };
    assert_eq!(reads(&store, all()).await, 5);
    assert_eq!(reads(&store, all()).await, 0);

    // A put invalidates pages of the collection, but no other record.
    store.put(&key("c"), json("3"), Precondition::Any).await.expect("put");
    assert_eq!(reads(&store, value(&store, "a")).await, 0);
    assert_eq!(reads(&store, store.list(&things(), &lists[0])).await, 1);
    store.delete(&key("a"), Precondition::Any).await.expect("deleted");
    assert_eq!(value(&store, "a").await, None);
    assert_eq!(store.list(&things(), &lists[0]).await.expect("list").records.len(), 2);
}

#[tokio::test]
async fn the_platforms_own_is_never_kept() {
    let temp_store = TempStore::new();
    let store = temp_store.store(at(&ManualClock::new()));
    let tokens = Collection::of_platform("tokens").expect("a collection");
    let token = tokens.key("t").expect("a key");
    store.put(&token, json("1"), Precondition::Any).await.expect("put");
    value(&store, "a").await;
    for _ in 0..2 {
        assert_eq!(reads(&store, store.get(&token)).await, 1);
        assert_eq!(reads(&store, store.get_many(&[key("a"), token.clone()])).await, 1);
        assert_eq!(reads(&store, store.list(&tokens, &ListQuery::default())).await, 1);
    }
    let other = temp_store.store(SqliteOptions::default());
    other.delete(&token, Precondition::Any).await.expect("revoked");
    assert!(store.get(&token).await.expect("read").is_none(), "a revocation holds at once");
}

#[tokio::test]
async fn versions_of_many_are_never_older_than_another_process_wrote() {
    let temp_store = TempStore::new();
    let (store, other) =
        (temp_store.store(at(&ManualClock::new())), temp_store.store(SqliteOptions::default()));
    let keys: Vec<_> = (0..40).map(|number| key(&format!("k{number}"))).collect();
    for (index, key) in keys.iter().enumerate() {
        let version = other.put(key, json("1"), Precondition::Any).await.expect("put");
        let versions = store.versions(&keys).await.expect("read");
        assert_eq!(versions[index], Some(version), "key {index}");
        assert_eq!(store.versions(&keys).await.expect("read"), versions);
        assert_eq!(other.versions(&keys).await.expect("read"), versions);
    }
    other.delete(&keys[5], Precondition::Any).await.expect("deleted");
    assert_eq!(store.versions(&keys).await.expect("read")[5], None);
    let some = [keys[7].clone(), key("absent"), keys[5].clone(), keys[7].clone()];
    let version = Some(store.get(&keys[7]).await.expect("read").expect("there").version);
    assert_eq!(store.versions(&some).await.expect("read"), [version, None, None, version]);
    let version = Some(other.put(&keys[7], json("2"), Precondition::Any).await.expect("put"));
    assert_eq!(store.versions(&some).await.expect("read"), [version, None, None, version]);
}

#[tokio::test]
async fn writes_of_other_processes_become_visible_in_time() {
    let temp_store = TempStore::new();
    let clock = ManualClock::new();
    let store = temp_store.store(at(&clock));
    let other = temp_store.store(SqliteOptions::default());
    store.put(&key("a"), json("1"), Precondition::Any).await.expect("put");
    let list = async || store.list(&things(), &ListQuery::default()).await.expect("list").records.len();
    assert_eq!((value(&store, "a").await.as_deref(), list().await), (Some("1"), 1));

    other
        .commit(vec![put("a", "2", Precondition::Any), put("b", "2", Precondition::Any)])
        .await
        .expect("put");
    clock.advance(MAX_STALENESS - Duration::from_millis(1));
    assert_eq!(reads(&store, value(&store, "a")).await, 0, "a look is recent enough");
    clock.advance(Duration::from_millis(1));
    assert_eq!((value(&store, "a").await.as_deref(), list().await), (Some("2"), 2));

    // A removal is a change as well.
    other.delete(&key("b"), Precondition::Any).await.expect("deleted");
    clock.advance(MAX_STALENESS);
    // This read misses the cache and checks the counter, which invalidates the cached page.
    value(&store, "c").await;
    assert_eq!(list().await, 1);

    // A read of any other record detects the change, and so does a write.
    other.put(&key("a"), json("3"), Precondition::Any).await.expect("put");
    value(&store, "never read before").await;
    assert_eq!(value(&store, "a").await.as_deref(), Some("3"));
    other.put(&key("a"), json("4"), Precondition::Any).await.expect("put");
    store.put(&key("c"), json("1"), Precondition::Any).await.expect("put");
    assert_eq!(value(&store, "a").await.as_deref(), Some("4"));

    // Without other writes, a check keeps the cached entries.
    value(&store, "c").await;
    clock.advance(MAX_STALENESS);
    assert_eq!(reads(&store, value(&store, "a")).await, 1);
    assert_eq!(reads(&store, value(&store, "c")).await, 0);
}

#[tokio::test]
async fn a_cache_is_bounded() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions { cache_bytes: 200_000, ..at(&ManualClock::new()) });
    let text = format!("\"{}\"", "x".repeat(10_000));
    let ids: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let writes = ids.iter().map(|id| put(id, &text, Precondition::Any)).collect();
    store.commit(writes).await.expect("put");
    let all = async || {
        for id in &ids {
            value(&store, id).await.expect("there");
        }
    };
    all().await;
    let again = reads(&store, all()).await;
    assert!(again >= 80, "of a million bytes at most 200,000 are kept, and {again} of 100 were read again");
}

/// Number of record pairs in [`cached_reads_are_never_stale`].
const PAIRS: usize = 3;

/// Writes, removes and recreates pairs of records in single commits, while other tasks read them in all ways.
/// The model has the last acknowledged number of each pair: no later read returns a smaller one, and no read
/// returns two different numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cached_reads_are_never_stale() {
    let temp_store = TempStore::new();
    let store = Arc::new(temp_store.store(SqliteOptions::default()));
    // Writes other records, so that counter checks find foreign changes all the time.
    let other = Arc::new(temp_store.store(SqliteOptions::default()));
    let acknowledged: Arc<[AtomicU64; PAIRS]> = Arc::default();
    for pair in 0..PAIRS {
        write(&store, pair, 0).await;
    }

    let mut writers = Vec::new();
    for pair in 0..PAIRS {
        let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
        writers.push(tokio::spawn(async move {
            for n in 1..=150 {
                write(&store, pair, n).await;
                acknowledged[pair].store(n, Ordering::SeqCst);
            }
        }));
    }
    writers.push(tokio::spawn(async move {
        for n in 0..100 {
            other.put(&key("elsewhere"), json(&n.to_string()), Precondition::Any).await.expect("put");
        }
    }));
    let mut readers = Vec::new();
    for reader in 0..4 {
        let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
        readers.push(tokio::spawn(async move {
            let mut pair = reader % PAIRS;
            while acknowledged.iter().any(|last| last.load(Ordering::SeqCst) < 150) {
                for _ in 0..20 {
                    let least = acknowledged[pair].load(Ordering::SeqCst);
                    let read_version = read(&store, pair, least % 3).await;
                    assert!(
                        read_version >= least,
                        "{read_version} was read after {least} had been acknowledged"
                    );
                }
                pair = (pair + 1) % PAIRS;
                tokio::task::yield_now().await;
            }
        }));
    }
    for task in writers.into_iter().chain(readers) {
        task.await.expect("no assertion failed");
    }
    let counters = store.counters();
    assert!(counters.commits >= 300, "{counters:?}");
}

/// Returns the ids of a pair's records.
fn pair_ids(pair: usize) -> [String; 2] {
    [format!("{pair}-left"), format!("{pair}-right")]
}

async fn write(store: &SqliteStore, pair: usize, n: u64) {
    let ids = pair_ids(pair);
    let puts = ids.iter().map(|id| put(id, &n.to_string(), Precondition::Any));
    let removals = ids.iter().map(|id| Write::Delete { key: key(id), precondition: Precondition::Any });
    // Every fourth commit removes the pair and recreates it.
    let removals = removals.filter(|_| n.is_multiple_of(4));
    store.commit(removals.chain(puts).collect()).await.expect("commit");
}

/// Reads a pair in one of three ways and returns the number that both records contain.
async fn read(store: &SqliteStore, pair: usize, way: u64) -> u64 {
    let ids = pair_ids(pair);
    let records = match way {
        0 => {
            let read_records = store.get_many(&ids.each_ref().map(|id| key(id))).await.expect("read");
            read_records.into_iter().flatten().collect()
        }
        1 => {
            let list = ListQuery { prefix: format!("{pair}-"), ..ListQuery::default() };
            store.list(&things(), &list).await.expect("list").records
        }
        _ => {
            // Read one after another: the second must not be older than the first.
            let left = store.get(&key(&ids[0])).await.expect("read").expect("there");
            let right = store.get(&key(&ids[1])).await.expect("read").expect("there");
            assert!(left.version < right.version, "{left:?} was read before {right:?}");
            vec![left]
        }
    };
    let numbers: Vec<u64> =
        records.iter().map(|record| record.value.get().parse().expect("a number")).collect();
    assert!(!numbers.is_empty() && numbers.iter().all(|n| *n == numbers[0]), "half a commit: {numbers:?}");
    numbers[0]
}
