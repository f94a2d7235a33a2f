//! Conformance suite for [`Inventory`].

use std::sync::Arc;

use super::calls::{done, put};
use crate::records::{Collection, Inventory, Key, MAX_PAGE_RECORDS, Precondition};

/// Runs the conformance suite of [`Inventory`] against stores from `make`, which must return an empty one at every
/// call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn inventory(make: impl AsyncFn() -> Arc<dyn Inventory>) {
    let store = make().await;
    assert!(companies(&*store).await.is_empty(), "an empty store has no companies");
    let many: Vec<String> = (0..MAX_PAGE_RECORDS + 1).map(|n| format!("c{n:05}")).collect();
    let agents = Collection::of_platform("agents").expect("a valid collection");
    put(&*store, &agents.key("a").expect("a valid key"), "1").await;
    for company in &many {
        put(&*store, &Key::new(company.as_str(), "things", "a").expect("a valid key"), "1").await;
    }
    let listed = companies(&*store).await;
    assert!(
        !listed.contains(&String::new()),
        "the platform's records, whose company is \"\", belong to no listed company"
    );
    let missing = many.iter().find(|company| !listed.contains(company));
    assert_eq!((missing, listed.len()), (None, many.len()), "each company is listed once");
    assert!(listed.is_sorted(), "companies are in the order of their bytes: {listed:?}");
    let of_platform = done("collections", store.collections("", None).await);
    assert_eq!(of_platform, [agents], "the collections of the company \"\" are the platform's");

    let mut expected: Vec<Collection> = Vec::new();
    for name in ["b", "a/b", "a", "é"] {
        let collection = Collection::new("c00000", name).and_then(|collection| collection.within("x/y"));
        let collection = collection.expect("a valid collection");
        put(&*store, &collection.key("1").expect("a valid key"), "1").await;
        put(&*store, &collection.key("2").expect("a valid key"), "1").await;
        expected.push(collection);
    }
    expected.push(Collection::new("c00000", "things").expect("a valid collection"));
    expected.sort_unstable();
    let first_collections = done("collections", store.collections("c00000", None).await);
    assert_eq!(first_collections, expected, "each of a company's collections is listed once");
    let remaining_collections =
        done("collections", store.collections("c00000", Some(expected[1].path())).await);
    assert_eq!(remaining_collections, expected[2..], "a page continues after the returned path");
    let gone = Key::new("c00001", "things", "a").expect("a valid key");
    done("delete", store.delete(&gone, Precondition::Any).await);
    assert!(
        done("collections", store.collections("c00001", None).await).is_empty(),
        "empty collections are not listed"
    );
}

/// Returns all companies, page by page.
async fn companies(store: &dyn Inventory) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let page = done("companies", store.companies(all.last().map(String::as_str)).await);
        assert!(page.len() <= MAX_PAGE_RECORDS, "a page is bounded");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}
