use agent_platform::records::{Key, Precondition, Records, StoreError, Write};
use agent_store::sqlite::{SqliteErrorKind, SqliteOptions, StoreCounters};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};

use super::{TempStore, fault, json, key, other, put, uncached};

/// Runs `commits` such that all of them are queued when the writer can proceed. They are polled in order, and
/// the lock that the writer waits for is released after the last one is queued.
async fn at_once<T>(
    temp_store: &TempStore,
    commits: impl IntoIterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let release = async { lock.execute_batch("ROLLBACK").expect("released") };
    join(join_all(commits.into_iter().map(Box::pin)), release).await.0
}

#[tokio::test]
async fn commits_that_wait_share_a_transaction() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    // Few enough that all are polled before any is polled again.
    let ids: Vec<String> = (0..25).map(|n| n.to_string()).collect();
    let results = at_once(
        &temp_store,
        ids.iter().map(|id| {
            store.commit(vec![put(id, "1", Precondition::Absent), put("x", id, Precondition::Any)])
        }),
    )
    .await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let StoreCounters { commits, transactions, .. } = store.counters();
    assert_eq!(commits, 25);
    // The writer may take the first one before the others are queued.
    assert!((1..=2).contains(&transactions), "{transactions} transactions");
}

#[tokio::test]
async fn a_commit_does_not_wait_for_all_those_of_another_company() {
    const LARGE_COMPANY_COMMITS: u64 = 1_000;
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let queue = |writes: Vec<Write>| {
        let mut commit = store.commit(writes);
        assert!((&mut commit).now_or_never().is_none(), "the writer waits for the lock");
        commit
    };
    let waiting: Vec<_> = (0..LARGE_COMPANY_COMMITS)
        .map(|n| queue(vec![put(&n.to_string(), "1", Precondition::Absent)]))
        .collect();
    let key = Key::new("small", "things", "1").expect("a key");
    let small = queue(vec![Write::Put { key, value: json("1"), precondition: Precondition::Absent }]);
    lock.execute_batch("ROLLBACK").expect("released");
    let version = small.await.expect("stored")[0].expect("a version");
    let last = join_all(waiting).await.pop().expect("a result").expect("stored")[0].expect("a version");
    // The first transaction may have been formed before the commit was queued, and has at most 256 commits.
    assert!(version <= 258, "{version} of {}", LARGE_COMPANY_COMMITS + 1);
    assert_eq!(last, LARGE_COMPANY_COMMITS + 1);
    let StoreCounters { commits, transactions, .. } = store.counters();
    assert_eq!(commits, LARGE_COMPANY_COMMITS + 1);
    assert!(transactions <= 5, "{transactions} transactions: commits of several companies share them");
}

#[tokio::test]
async fn a_refused_commit_does_not_affect_its_group() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let there = store.put(&key("there"), json("1"), Precondition::Absent).await.expect("put");
    let commits = [
        vec![put("a", "1", Precondition::Absent)],
        vec![put("b", "1", Precondition::Absent), put("there", "2", Precondition::Absent)],
        vec![put("there", "3", Precondition::Version(there)), put("c", "1", Precondition::Absent)],
        vec![put("d", "1", Precondition::Absent), put("there", "4", Precondition::Version(there))],
    ];
    let results = at_once(&temp_store, commits.map(|writes| store.commit(writes))).await;
    let [Ok(_), Err(StoreError::Conflict { .. }), Ok(changed), Err(StoreError::Conflict { found, .. })] =
        &results[..]
    else {
        panic!("the second and the last are refused: {results:?}")
    };
    assert_eq!(*found, changed[0], "a commit sees those before it");
    let found = store.get_many(&["a", "b", "c", "d", "there"].map(key)).await.expect("read");
    let found: Vec<_> = found.iter().map(|record| record.as_ref().map(|record| record.value.get())).collect();
    assert_eq!(found, [Some("1"), None, Some("1"), None, Some("3")]);
    let versions = [results[0].as_ref().expect("done")[0], changed[0], changed[1]];
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

#[tokio::test]
async fn a_commit_that_fills_the_disk_fails_without_affecting_others() {
    let temp_store = TempStore::new();
    let large = format!("\"{}\"", "x".repeat(300_000));
    let limit = SqliteOptions { max_file_bytes: Some(300_000), ..SqliteOptions::default() };
    {
        let store = temp_store.store(limit.clone());
        let commits = [
            vec![put("a", "1", Precondition::Any)],
            vec![put("b", "1", Precondition::Any), put("large", &large, Precondition::Any)],
            vec![put("c", "1", Precondition::Any)],
        ];
        let results = at_once(&temp_store, commits.map(|writes| store.commit(writes))).await;
        let [Ok(_), full, Ok(_)] = <[_; 3]>::try_from(results).expect("three") else {
            panic!("the small ones are stored")
        };
        assert_eq!(fault(full).kind(), SqliteErrorKind::Full);
        let refused = store.put(&key("large"), json(&large), Precondition::Any).await;
        assert_eq!(fault(refused).kind(), SqliteErrorKind::Full);
        store.put(&key("d"), json("1"), Precondition::Any).await.expect("there is room for little");
    }
    for options in [limit, uncached()] {
        let store = temp_store.store(options);
        let read_records = store.get_many(&["a", "b", "c", "d", "large"].map(key)).await.expect("read");
        let is_stored: Vec<bool> = read_records.iter().map(Option::is_some).collect();
        assert_eq!(is_stored, [true, false, true, true, false]);
        assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new());
    }
}
