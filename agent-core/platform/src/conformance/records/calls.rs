//! Calls of the store under test that must succeed, with the keys and values that the checks share.

use serde_json::value::RawValue;

use crate::records::{Collection, Key, ListQuery, Precondition, Record, Records, StoreError, Write};
use agent_core::message::SharedJson;

pub(super) fn key(id: &str) -> Key {
    Key::new("company", "things", id).expect("the suite's keys are valid")
}

pub(super) fn test_collection() -> Collection {
    Collection::new("company", "things").expect("the suite's collections are valid")
}

pub(super) fn json(text: &str) -> SharedJson {
    RawValue::from_string(text.to_owned()).expect("the suite's values are JSON").into()
}

pub(super) fn put_of(id: &str, text: &str, precondition: Precondition) -> Write {
    Write::Put { key: key(id), value: json(text), precondition }
}

pub(super) async fn put(store: &dyn Records, key: &Key, text: &str) -> u64 {
    done("put", store.put(key, json(text), Precondition::Any).await)
}

pub(super) async fn get(store: &dyn Records, key: &Key) -> Option<Record> {
    done("get", store.get(key).await)
}

pub(super) async fn fill(store: &dyn Records, ids: &[&str]) {
    for id in ids {
        put(store, &key(id), "1").await;
    }
}

/// Returns all ids of a list, page by page.
pub(super) async fn ids(store: &dyn Records, mut list: ListQuery) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = done("list", store.list(&test_collection(), &list).await);
        assert!(page.records.len() <= list.page_size(), "a page has no more records than its limit");
        ids.extend(page.records.into_iter().map(|record| record.id));
        assert!(ids.len() <= 10_000, "a list ends");
        match page.next_cursor {
            Some(cursor) => list.cursor = Some(cursor),
            None => return ids,
        }
    }
}

pub(super) fn done<T>(what: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}
