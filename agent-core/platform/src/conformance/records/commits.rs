//! Conformance of commits of several writes.

use super::*;

pub(super) fn put_of(id: &str, text: &str, precondition: Precondition) -> Write {
    Write::Put { key: key(id), value: json(text), precondition }
}

pub(super) async fn writes_happen_together_or_not_at_all(store: &dyn Records) {
    let there = put(store, &key("there"), "1").await;
    let elsewhere = Key::new("other", "things", "a").expect("a valid key");
    let batch = |last: Write| {
        vec![
            put_of("new", "2", Precondition::Absent),
            put_of("there", "2", Precondition::Version(there)),
            Write::Put { key: elsewhere.clone(), value: json("2"), precondition: Precondition::Any },
            last,
        ]
    };
    let too_large = format!("\"{}\"", "x".repeat(MAX_VALUE_BYTES));
    for (case, last) in [
        ("an absence that does not hold", put_of("there", "3", Precondition::Absent)),
        (
            "a version that does not hold",
            Write::Delete { key: key("there"), precondition: Precondition::Version(there) },
        ),
        ("a value that is too large", put_of("large", &too_large, Precondition::Any)),
    ] {
        let refused = store.commit(batch(last)).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { .. } | StoreError::TooLarge { .. })),
            "{case}: {refused:?}"
        );
        assert!(get(store, &key("new")).await.is_none(), "{case}: of a refused commit nothing is new");
        assert!(get(store, &elsewhere).await.is_none(), "{case}: of a refused commit nothing is elsewhere");
        let record = get(store, &key("there")).await.expect("what was there stays");
        assert_eq!((record.version, record.value.get()), (there, "1"), "{case}: what was there stays");
    }
    let gone = Write::Delete { key: key("gone"), precondition: Precondition::Any };
    let done = done("commit", store.commit(batch(gone)).await);
    let [Some(new), Some(again), Some(other), None] = done[..] else {
        panic!("a commit gives a version for each put, and none for what was not there: {done:?}")
    };
    assert!(again > there, "versions grow: {again} came after {there}");
    for (key, version) in [(key("new"), new), (key("there"), again), (elsewhere, other)] {
        let record = get(store, &key).await.expect("what was committed is there");
        assert_eq!((record.version, record.value.get()), (version, "2"), "what was committed is there");
    }
    let nothing = store.commit(Vec::new()).await;
    assert!(matches!(nothing.as_deref(), Ok([])), "a commit of nothing does nothing: {nothing:?}");
}

pub(super) async fn writes_happen_in_their_order(store: &dyn Records) {
    let writes = vec![
        put_of("a", "1", Precondition::Absent),
        Write::Delete { key: key("a"), precondition: Precondition::Any },
        put_of("a", "2", Precondition::Absent),
    ];
    let done = done("writing one record three times", store.commit(writes).await);
    let [Some(first), Some(removed), Some(last)] = done[..] else { panic!("three versions, not {done:?}") };
    assert!(first == removed && last > first, "each write sees the one before it: {done:?}");
    assert_eq!(get(store, &key("a")).await.expect("there").value.get(), "2", "the last write counts");
}

pub(super) async fn checks_change_nothing(store: &dyn Records) {
    let version = put(store, &key("there"), "1").await;
    let check = |id: &str, precondition| Write::Check { key: key(id), precondition };
    let absent = check("none", Precondition::Absent);
    let there = check("there", Precondition::Version(version));
    let checked =
        store.commit(vec![there.clone(), absent.clone(), put_of("new", "2", Precondition::Any)]).await;
    let versions = done("a commit with checks that hold", checked);
    assert_eq!(versions[..2], [Some(version), None], "a check returns the version found");
    let record = get(store, &key("there")).await.expect("what was checked is there");
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
            "{case} that does not hold: {refused:?}"
        );
        assert!(get(store, &key("other")).await.is_none(), "{case}: of a refused commit nothing is there");
    }
    let alone = done("a commit of checks alone", store.commit(vec![there, absent]).await);
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
    assert_eq!(versions.len() as u64, LIMIT, "each increment has a version of its own");
    let record = done("get", store.get_as::<RecordCounter>(&counter).await).expect("the counter is there");
    assert_eq!(record.value.count, LIMIT, "of increments side by side none is lost");
    assert_eq!(versions.last(), Some(&record.version), "the last increment's version is the record's");
    let refused = increment().await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "at its limit: {refused:?}");
    let all = ids(store, ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() }).await;
    assert_eq!(all.len() as u64, LIMIT + 1, "of a refused increment nothing is there");
    put(store, &key("text"), "1").await;
    let wrong = store.commit(vec![Write::Increment { key: key("text"), limit: LIMIT }]).await;
    assert!(matches!(wrong, Err(StoreError::Malformed { .. })), "what is no counter: {wrong:?}");
}

pub(super) async fn nobody_sees_half_a_commit(store: &dyn Records) {
    let pair = |n: u32| {
        vec![
            put_of("left", &n.to_string(), Precondition::Any),
            put_of("right", &n.to_string(), Precondition::Any),
        ]
    };
    done("commit", store.commit(pair(0)).await);
    let writes = async {
        for n in 1..50 {
            done("commit", store.commit(pair(n)).await);
        }
    };
    let reads = async {
        for _ in 0..50 {
            let found = done("get_many", store.get_many(&[key("left"), key("right")]).await);
            let values: Vec<_> =
                found.into_iter().flatten().map(|record| record.value.get().to_owned()).collect();
            assert_eq!(values[0], values[1], "a reader sees all of a commit or nothing");
        }
    };
    futures_util::join!(writes, reads);
}
