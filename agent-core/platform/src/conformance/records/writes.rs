//! Checks of the writes that neither put nor delete a value: checks and increments.

use futures_util::future::join_all;

use super::calls::{done, fill, get, ids, key, put, put_of, test_collection};
use crate::records::{
    Collection, ListQuery, MAX_PAGE_RECORDS, Precondition, RecordCounter, Records, RecordsExt, StoreError,
    Write,
};

pub(super) async fn checks_change_nothing(store: &dyn Records) {
    let version = put(store, &key("there"), "1").await;
    let check = |id: &str, precondition| Write::Check { key: key(id), precondition };
    let absent = check("none", Precondition::Absent);
    let there = check("there", Precondition::Version(version));
    let checked =
        store.commit(vec![there.clone(), absent.clone(), put_of("new", "2", Precondition::Any)]).await;
    let versions = done("a commit whose checks hold", checked);
    assert_eq!(versions[..2], [Some(version), None], "a check returns the version found");
    let record = get(store, &key("there")).await.expect("the checked record still exists");
    assert_eq!((record.version, record.value.get()), (version, "1"), "a check changes nothing");
    assert!(get(store, &key("none")).await.is_none(), "a check creates nothing");
    for (case, fails) in [
        ("a version", check("there", Precondition::Version(version + 1))),
        ("an absence", check("there", Precondition::Absent)),
        ("a presence", check("none", Precondition::Version(version))),
    ] {
        let refused = store.commit(vec![put_of("other", "2", Precondition::Any), fails]).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { .. })),
            "a commit with {case} that does not hold fails: {refused:?}"
        );
        assert!(get(store, &key("other")).await.is_none(), "{case}: a refused commit writes nothing");
    }
    let alone = done("a commit of checks only", store.commit(vec![there, absent]).await);
    assert_eq!(alone, [Some(version), None]);
}

pub(super) async fn increments_do_not_conflict(store: &dyn Records) {
    const LIMIT: u64 = 50;
    let counter = key("counter");
    let increment = || {
        let id = agent_core::new_id();
        let count = Write::Increment { key: counter.clone(), limit: LIMIT };
        store.commit(vec![count, put_of(&id, "1", Precondition::Absent)])
    };
    let counted = join_all((0..LIMIT).map(|_| increment())).await;
    let mut versions: Vec<u64> = counted
        .into_iter()
        .map(|counted| done("an increment", counted)[0].expect("an increment returns its version"))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len() as u64, LIMIT, "each increment gives a new version");
    let record = done("get", store.get_as::<RecordCounter>(&counter).await).expect("the counter exists");
    assert_eq!(record.value.count, LIMIT, "no concurrent increment is lost");
    assert_eq!(versions.last(), Some(&record.version), "the last increment's version is the record's");
    let refused = increment().await;
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "an increment at the limit conflicts: {refused:?}"
    );
    let all = ids(store, ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() }).await;
    assert_eq!(all.len() as u64, LIMIT + 1, "a refused increment changes nothing");
    put(store, &key("text"), "1").await;
    let wrong = store.commit(vec![Write::Increment { key: key("text"), limit: LIMIT }]).await;
    assert!(
        matches!(wrong, Err(StoreError::Malformed { .. })),
        "incrementing a value that is not a counter: {wrong:?}"
    );
}

pub(super) async fn a_count_is_of_one_collection(store: &dyn Records) {
    let count = async |collection: &Collection| done("count", store.count(collection).await);
    assert_eq!(count(&test_collection()).await, 0, "an empty collection has no records");
    fill(store, &["a", "b", "c"]).await;
    put(store, &key("a"), "2").await;
    let elsewhere = [Collection::new("other", "things"), Collection::new("company", "others")];
    for collection in elsewhere {
        let collection = collection.expect("the suite's collections are valid");
        assert_eq!(count(&collection).await, 0, "records of other collections do not count");
        put(store, &collection.key("a").expect("the suite's keys are valid"), "1").await;
        assert_eq!(count(&collection).await, 1, "a collection's own records count");
    }
    done("delete", store.delete(&key("b"), Precondition::Any).await);
    assert_eq!(count(&test_collection()).await, 2, "a record counts once, and not after its deletion");
}
