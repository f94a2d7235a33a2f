//! Conformance suite for [`Records`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde_json::json;

use crate::records::{
    Collection, Key, ListQuery, MAX_COLLECTION_BYTES, MAX_ID_BYTES, MAX_KEY_ID_BYTES, MAX_PAGE_RECORDS,
    MAX_VALUE_BYTES, Order, Precondition, Record, Records, RecordsExt, StoreError, Write,
};

mod calls;
mod inventory;
mod writes;

pub use inventory::inventory;

use calls::{done, fill, get, ids, json, key, put, put_of, test_collection};

pub(super) type SharedRecords = Arc<dyn Records>;

/// Runs the conformance suite of [`Records`] against stores from `make`, which must return an empty one at every call.
/// The stores must accept values of [`MAX_VALUE_BYTES`] and reject larger ones.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn records(make: impl AsyncFn() -> SharedRecords) {
    a_stored_record_is_returned(&*make().await).await;
    the_text_stays_as_it_was(&*make().await).await;
    preconditions_hold(&*make().await).await;
    versions_never_come_back(&*make().await).await;
    tenants_are_apart(&*make().await).await;
    collections_are_isolated(&*make().await).await;
    keys_have_their_full_length(&*make().await).await;
    values_have_a_limit(&*make().await).await;
    lists_are_in_the_order_of_bytes(&*make().await).await;
    prefixes_are_literal(&*make().await).await;
    pages_join(&*make().await).await;
    writes::a_count_is_of_one_collection(&*make().await).await;
    pages_are_bounded(&*make().await).await;
    a_list_is_read_while_others_write(&*make().await).await;
    appended_records_are_in_order(&*make().await).await;
    one_of_many_creates(&*make().await).await;
    no_update_is_lost(&*make().await).await;
    writes_happen_together_or_not_at_all(&*make().await).await;
    writes_happen_in_their_order(&*make().await).await;
    writes::checks_change_nothing(&*make().await).await;
    writes::increments_do_not_conflict(&*make().await).await;
    many_are_read_at_once(&*make().await).await;
    versions_of_many_are_never_stale(&*make().await).await;
    reads_never_see_half_a_commit(&*make().await).await;
}

async fn a_stored_record_is_returned(store: &dyn Records) {
    assert!(get(store, &key("a")).await.is_none(), "a record that was never put is absent");
    let version = put(store, &key("a"), r#"{"n":1}"#).await;
    let record = get(store, &key("a")).await.expect("a record that was put is returned");
    assert_eq!((record.id.as_str(), record.version), ("a", version), "a record has its id and version");
    assert_eq!(record.value.get(), r#"{"n":1}"#, "a record has its value");
    let age = SystemTime::now().duration_since(record.updated).unwrap_or_default();
    assert!(age < Duration::from_secs(60), "a record says when it was written, and not {age:?} ago");

    let newer = put(store, &key("a"), "2").await;
    let record = get(store, &key("a")).await.expect("a record that was put twice exists");
    assert_eq!((record.version, record.value.get()), (newer, "2"), "the later value is stored");
    assert!(newer > version, "versions grow: {newer} came after {version}");

    assert!(
        done("delete", store.delete(&key("a"), Precondition::Any).await),
        "delete returns true for an existing record"
    );
    assert!(get(store, &key("a")).await.is_none(), "a deleted record is absent");
    assert!(
        !done("delete", store.delete(&key("a"), Precondition::Any).await),
        "delete returns false for an absent record"
    );
}

async fn the_text_stays_as_it_was(store: &dyn Records) {
    for text in [
        r#"{"b":1.0,"a":1e3,"b2":12345678901234567890123}"#,
        r#"{ "spaced" : [ 1 , 2 ] }"#,
        r#""ü \u00fc \u0000 \ud83d\ude00 😀""#,
        "null",
        "{}",
    ] {
        put(store, &key("a"), text).await;
        let record = get(store, &key("a")).await.expect("a record that was put is returned");
        assert_eq!(record.value.get(), text, "a value is given back as the text that was put");
    }
}

async fn preconditions_hold(store: &dyn Records) {
    use Precondition::{Absent, Any, Version};
    let put = async |precondition| store.put(&key("a"), json("1"), precondition).await;
    let delete = async |precondition| store.delete(&key("a"), precondition).await;
    let conflict = |result: Result<_, StoreError>, expected, found, case: &str| match result {
        Err(StoreError::Conflict { expected: e, found: f }) if (e, f) == (expected, found) => {}
        other => panic!("{case}: expected a conflict of {expected:?} with {found:?}, and got {other:?}"),
    };
    conflict(put(Version(1)).await.map(drop), Some(1), None, "writing a version of an absent record");
    conflict(delete(Version(1)).await.map(drop), Some(1), None, "deleting a version of an absent record");
    assert!(get(store, &key("a")).await.is_none(), "a write that was refused changes nothing");
    done("deleting an absent record as absent", delete(Absent).await);

    let first = done("creating", put(Absent).await);
    conflict(put(Absent).await.map(drop), None, Some(first), "creating an existing record");
    conflict(delete(Absent).await.map(drop), None, Some(first), "deleting an existing record as absent");
    let second = done("replacing the current version", put(Version(first)).await);
    conflict(put(Version(first)).await.map(drop), Some(first), Some(second), "replacing an old version");
    conflict(delete(Version(first)).await.map(drop), Some(first), Some(second), "deleting an old version");
    let record = get(store, &key("a")).await.expect("a delete that was refused changes nothing");
    assert_eq!(record.version, second, "a write that was refused changes no version");
    done("replacing without a condition", put(Any).await);
    let third = get(store, &key("a")).await.expect("there").version;
    assert!(done("deleting the current version", delete(Version(third)).await));
}

async fn versions_never_come_back(store: &dyn Records) {
    let mut last = 0;
    for round in 0..3 {
        let version = done("creating", store.put(&key("a"), json("1"), Precondition::Absent).await);
        assert!(
            version > last,
            "round {round}: a record that is created again has version {version}, which is not above {last}"
        );
        last = put(store, &key("a"), "2").await;
        done("delete", store.delete(&key("a"), Precondition::Any).await);
    }
    assert!(last < 1 << 53, "versions are numbers that every JSON parser reads exactly");
}

async fn tenants_are_apart(store: &dyn Records) {
    let theirs = Key::new("other", "things", "a").expect("a valid key");
    put(store, &key("a"), "1").await;
    assert!(get(store, &theirs).await.is_none(), "another company's record is absent");
    let page = done("list", store.list(theirs.collection(), &ListQuery::default()).await);
    assert!(page.records.is_empty(), "another company's records are not in a list");
    let deleted = done("delete", store.delete(&theirs, Precondition::Any).await);
    assert!(!deleted, "another company's record cannot be deleted");
    done("companies may use the same id", store.put(&theirs, json("2"), Precondition::Absent).await);
    let ours = get(store, &key("a")).await.expect("this company's record exists");
    assert_eq!(ours.value.get(), "1", "a write of another company does not change this company's record");
}

async fn collections_are_isolated(store: &dyn Records) {
    let below = test_collection().within("a").expect("a valid collection");
    let beside = Collection::new("company", "thing").expect("a valid collection");
    let tricky = Collection::new("company", "things/a").expect("a valid collection");
    for (n, collection) in [test_collection(), below, beside, tricky].iter().enumerate() {
        let key = collection.key("a").expect("a valid key");
        assert!(get(store, &key).await.is_none(), "{collection:?} is a separate collection");
        put(store, &key, &n.to_string()).await;
        let page = done("list", store.list(collection, &ListQuery::default()).await);
        let values: Vec<&str> = page.records.iter().map(|record| record.value.get()).collect();
        assert_eq!(values, [n.to_string()], "a list has only the records of {collection:?}");
    }
}

async fn keys_have_their_full_length(store: &dyn Records) {
    let company = "c".repeat(MAX_ID_BYTES);
    let collection = Collection::new(company, &"p".repeat(MAX_COLLECTION_BYTES)).expect("a valid collection");
    let longest = collection.key("😀".repeat(MAX_KEY_ID_BYTES / 4)).expect("a valid key");
    put(store, &longest, "1").await;
    assert!(get(store, &longest).await.is_some(), "the longest key is taken");
    let odd = key(" '\"\\;--%_?*$\u{1F600}é");
    put(store, &odd, "1").await;
    assert!(get(store, &odd).await.is_some(), "an id is any text");
    // The same letter in two Unicode normalization forms: ids are bytes and never normalized.
    put(store, &key("\u{e9}"), "1").await;
    assert!(get(store, &key("e\u{301}")).await.is_none(), "ids are compared by their bytes");
    put(store, &key("lower"), "1").await;
    assert!(get(store, &key("LOWER")).await.is_none(), "ids that differ in case differ");
    assert!(get(store, &key("lower ")).await.is_none(), "ids that differ in a trailing blank differ");
}

async fn values_have_a_limit(store: &dyn Records) {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    put(store, &key("a"), &text(MAX_VALUE_BYTES)).await;
    let refused = store.put(&key("a"), json(&text(MAX_VALUE_BYTES + 1)), Precondition::Any).await;
    assert!(
        matches!(refused, Err(StoreError::TooLarge { bytes, limit })
            if (bytes, limit) == (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES)),
        "a value of one byte more than the limit is refused as too large: {refused:?}"
    );
    let kept = get(store, &key("a")).await.expect("the earlier value is unchanged");
    assert_eq!(kept.value.get().len(), MAX_VALUE_BYTES, "a write that was refused changes nothing");
}

async fn lists_are_in_the_order_of_bytes(store: &dyn Records) {
    // UTF-16 order would swap the last two; dictionary order would swap a and B.
    let sorted = ["!", "10", "9", "B", "a", "a b", "a!", "a/b", "aa", "é", "\u{ff5e}", "\u{1F600}"];
    let mut put_in = sorted;
    put_in.reverse();
    fill(store, &put_in).await;
    assert_eq!(ids(store, ListQuery::default()).await, sorted, "a list is in the order of the ids' bytes");
    let descending = ListQuery { order: Order::Descending, ..ListQuery::default() };
    assert_eq!(ids(store, descending).await, put_in, "a descending list has the reverse order");
}

async fn prefixes_are_literal(store: &dyn Records) {
    fill(store, &["a", "a%", "a%b", "a_", "aB", "ab", "abc", "b", "\u{10ffff}", "\u{10ffff}x"]).await;
    for (prefix, expected) in [
        ("", &["a", "a%", "a%b", "aB", "a_", "ab", "abc", "b", "\u{10ffff}", "\u{10ffff}x"][..]),
        ("a%", &["a%", "a%b"]),
        ("a_", &["a_"]),
        ("ab", &["ab", "abc"]),
        ("aB", &["aB"]),
        ("\u{10ffff}", &["\u{10ffff}", "\u{10ffff}x"]),
        ("c", &[]),
    ] {
        for limit in [None, Some(1), Some(2)] {
            let mut list = ListQuery { prefix: prefix.to_owned(), limit, ..ListQuery::default() };
            let record_ids = ids(store, list.clone()).await;
            assert_eq!(
                record_ids, expected,
                "the prefix {prefix:?} is compared literally, in pages of {limit:?}"
            );
            list.order = Order::Descending;
            let mut record_ids = ids(store, list).await;
            record_ids.reverse();
            assert_eq!(
                record_ids, expected,
                "the prefix {prefix:?} is compared literally, in descending order"
            );
        }
    }
}

async fn pages_join(store: &dyn Records) {
    let all: Vec<String> = (0..7).map(|n| format!("é%{n}")).collect();
    fill(store, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for limit in [1, 2, 3, 6, 7, 8] {
        let list = ListQuery { limit: Some(limit), ..ListQuery::default() };
        assert_eq!(ids(store, list).await, all, "pages of {limit} are together the whole list");
    }
    let list = ListQuery { limit: Some(7), ..ListQuery::default() };
    let page = done("list", store.list(&test_collection(), &list).await);
    assert_eq!(page.next_cursor, None, "a page that ends the list has no cursor");
    let list = ListQuery { cursor: Some("not a cursor".to_owned()), ..ListQuery::default() };
    let refused = store.list(&test_collection(), &list).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "a made-up cursor is invalid: {refused:?}");
}

async fn pages_are_bounded(store: &dyn Records) {
    let all: Vec<String> = (0..MAX_PAGE_RECORDS + 1).map(|n| format!("{n:05}")).collect();
    fill(store, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (limit, expected) in [(None, 50), (Some(0), 1), (Some(usize::MAX), MAX_PAGE_RECORDS)] {
        let list = ListQuery { limit, ..ListQuery::default() };
        let page = done("list", store.list(&test_collection(), &list).await);
        assert_eq!(page.records.len(), expected, "a page of {limit:?} has as many records");
        assert!(page.next_cursor.is_some(), "a page that does not end the list has a cursor");
    }
}

async fn a_list_is_read_while_others_write(store: &dyn Records) {
    fill(store, &["b", "d", "f", "h"]).await;
    let list = ListQuery { limit: Some(2), ..ListQuery::default() };
    let page = done("list", store.list(&test_collection(), &list).await);
    fill(store, &["a", "c", "e"]).await;
    done("delete", store.delete(&key("d"), Precondition::Any).await);
    let second_page = ids(store, ListQuery { cursor: page.next_cursor, ..list }).await;
    assert_eq!(
        second_page,
        ["e", "f", "h"],
        "a page continues after the last returned id, regardless of later writes"
    );
}

async fn appended_records_are_in_order(store: &dyn Records) {
    let mut appended = Vec::new();
    for n in 0..20 {
        appended.push(done("append", store.append_as(&test_collection(), &json!(n)).await));
    }
    assert_eq!(
        ids(store, ListQuery::default()).await,
        appended,
        "records that are appended later have later positions"
    );
    let things = test_collection();
    let more = join_all((0..20).map(|n| store.append(&things, json(&n.to_string())))).await;
    let last = appended.last().expect("some records were appended");
    for id in more {
        assert!(done("append", id) > *last, "records that are appended concurrently follow earlier records");
    }
    assert_eq!(
        ids(store, ListQuery::default()).await.len(),
        40,
        "all records that are appended concurrently are stored"
    );
}

async fn one_of_many_creates(store: &dyn Records) {
    let key = key("a");
    let tries = (0..10).map(|n| store.put(&key, json(&n.to_string()), Precondition::Absent));
    let results = join_all(tries).await;
    let winners: Vec<usize> = (0..10).filter(|n| results[*n].is_ok()).collect();
    let [winner] = winners[..] else {
        panic!("exactly one of ten concurrent writers creates a record, not {winners:?}")
    };
    for result in results {
        assert!(
            matches!(result, Ok(_) | Err(StoreError::Conflict { .. })),
            "the others conflict: {result:?}"
        );
    }
    let record = get(store, &key).await.expect("the winner's record is stored");
    assert_eq!(record.value.get(), winner.to_string(), "the record is the winner's");
}

async fn no_update_is_lost(store: &dyn Records) {
    let key = key("counter");
    let add = |count: Option<Record<u64>>| Ok::<_, StoreError>(count.map_or(0, |record| record.value) + 1);
    for result in join_all((0..16).map(|_| store.update(&key, add))).await {
        done("update", result);
    }
    let record = done("get", store.get_as::<u64>(&key).await).expect("the counter is there");
    assert_eq!(record.value, 16, "none of 16 concurrent updates is lost");
}

async fn writes_happen_together_or_not_at_all(store: &dyn Records) {
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
        ("writing an existing record as absent", put_of("there", "3", Precondition::Absent)),
        (
            "writing an old version",
            Write::Delete { key: key("there"), precondition: Precondition::Version(there) },
        ),
        ("a value that is too large", put_of("large", &too_large, Precondition::Any)),
    ] {
        let refused = store.commit(batch(last)).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { .. } | StoreError::TooLarge { .. })),
            "{case}: {refused:?}"
        );
        assert!(get(store, &key("new")).await.is_none(), "{case}: a refused commit creates no record");
        assert!(get(store, &elsewhere).await.is_none(), "{case}: a refused commit writes nowhere else");
        let record = get(store, &key("there")).await.expect("the earlier value is unchanged");
        assert_eq!(
            (record.version, record.value.get()),
            (there, "1"),
            "{case}: the earlier value is unchanged"
        );
    }
    let gone = Write::Delete { key: key("gone"), precondition: Precondition::Any };
    let done = done("commit", store.commit(batch(gone)).await);
    let [Some(new), Some(again), Some(other), None] = done[..] else {
        panic!(
            "a commit returns a version for each put, and none for a deletion of an absent record: {done:?}"
        )
    };
    assert!(again > there, "versions grow: {again} came after {there}");
    for (key, version) in [(key("new"), new), (key("there"), again), (elsewhere, other)] {
        let record = get(store, &key).await.expect("a committed record is stored");
        assert_eq!((record.version, record.value.get()), (version, "2"), "a committed record is stored");
    }
    let nothing = store.commit(Vec::new()).await;
    assert!(matches!(nothing.as_deref(), Ok([])), "an empty commit has no effect: {nothing:?}");
}

async fn writes_happen_in_their_order(store: &dyn Records) {
    let writes = vec![
        put_of("a", "1", Precondition::Absent),
        Write::Delete { key: key("a"), precondition: Precondition::Any },
        put_of("a", "2", Precondition::Absent),
    ];
    let done = done("writing one record three times", store.commit(writes).await);
    let [Some(first), Some(removed), Some(last)] = done[..] else { panic!("three versions, not {done:?}") };
    assert!(first == removed && last > first, "each write sees the one before it: {done:?}");
    assert_eq!(get(store, &key("a")).await.expect("there").value.get(), "2", "the last write is stored");
}

async fn many_are_read_at_once(store: &dyn Records) {
    fill(store, &["b", "a"]).await;
    let keys =
        [key("a"), key("none"), key("b"), key("a"), Key::new("other", "things", "a").expect("a valid key")];
    let read_records = done("get_many", store.get_many(&keys).await);
    let ids: Vec<_> =
        read_records.iter().map(|record| record.as_ref().map(|record| record.id.as_str())).collect();
    assert_eq!(ids, [Some("a"), None, Some("b"), Some("a"), None], "records come in the order of the keys");
    assert!(done("get_many", store.get_many(&[]).await).is_empty(), "no keys give no records");
    let version = |record: &Option<Record>| record.as_ref().map(|record| record.version);
    let expected: Vec<Option<u64>> = read_records.iter().map(version).collect();
    assert_eq!(
        done("versions", store.versions(&keys).await),
        expected,
        "the versions are the records' versions"
    );
    assert!(done("versions", store.versions(&[]).await).is_empty(), "no keys give no versions");
    let newer = put(store, &key("a"), "9").await;
    assert_eq!(done("versions", store.versions(&keys[..1]).await), [Some(newer)], "a write is seen at once");
}

async fn versions_of_many_are_never_stale(store: &dyn Records) {
    let keys: Vec<Key> = (0..40).map(|number| key(&format!("k{number}"))).collect();
    let mut expected = vec![None; keys.len()];
    for position in [3, 7, 3, 39] {
        assert_eq!(done("versions", store.versions(&keys).await), expected, "before a write");
        expected[position] = Some(put(store, &keys[position], "1").await);
        assert_eq!(done("versions", store.versions(&keys).await), expected, "a write is seen at once");
    }
    done("delete", store.delete(&keys[7], Precondition::Any).await);
    expected[7] = None;
    assert_eq!(done("versions", store.versions(&keys).await), expected, "a deletion is seen at once");
    let others: Vec<Key> = keys.iter().rev().cloned().collect();
    expected.reverse();
    assert_eq!(
        done("versions", store.versions(&others).await),
        expected,
        "versions are in the order of the keys"
    );
}

/// Two records are changed together repeatedly while they are read together.
async fn reads_never_see_half_a_commit(store: &dyn Records) {
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
            let read_records = done("get_many", store.get_many(&[key("left"), key("right")]).await);
            let values: Vec<_> =
                read_records.into_iter().flatten().map(|record| record.value.get().to_owned()).collect();
            assert_eq!(values[0], values[1], "a reader sees a commit as a whole or not at all");
        }
    };
    futures_util::join!(writes, reads);
}
