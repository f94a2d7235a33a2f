//! Conformance suite for [`Providers`] over a store of records.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::providers::{ProviderInput, Providers};
use crate::records::{Collection, Key, ListQuery, Precondition, Records, StoreError};
use crate::seal::Sealer;
use agent_core::ids::CompanyId;
use agent_core::role::{Container, RoleBlock};
use agent_core::secret::Secret;

/// Key that no stored text may contain.
const CANARY: &str = "sk-canary-0123456789";

/// Runs the conformance suite of [`Providers`] against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn providers(make: impl AsyncFn() -> Arc<dyn Records>) {
    keys_are_kept_replaced_and_cleared(make().await).await;
    keys_are_stored_sealed(make().await).await;
    companies_are_isolated(make().await).await;
    one_of_concurrent_writers_wins(make().await).await;
    a_change_is_seen_by_every_instance(make().await).await;
    providers_are_listed_and_deleted(make().await).await;
}

fn open_providers(records: &Arc<dyn Records>, sealer: &Arc<Sealer>) -> Providers {
    Providers::new(records.clone(), sealer.clone())
}

fn own(records: &Arc<dyn Records>) -> Providers {
    open_providers(records, &Arc::new(Sealer::ephemeral()))
}

fn done<T>(what: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

fn company() -> CompanyId {
    "company".into()
}

fn input(value: &Value) -> ProviderInput {
    let members: Map<String, Value> = value.as_object().cloned().unwrap_or_default();
    ProviderInput::read(&members).expect("the suite's providers are valid")
}

async fn put(providers: &Providers, value: &Value) -> u64 {
    let saved = providers.put(&company(), "acme", &input(value), Precondition::Any).await;
    done("saving a provider", saved)
}

/// Returns the API key for calls of an agent; empty if its provider has none.
async fn key_of(providers: &Providers, company: &str) -> Option<String> {
    let role = json!({"id": "a", "companyId": company,
        "children": [{"name": "EmbeddedAI", "content": {"provider": "acme", "model": "m"}}]});
    let role: RoleBlock = serde_json::from_value(role).expect("the suite's roles are such");
    let role = done("completing a role", providers.complete_role(Arc::new(role)).await);
    let Some(Container::EmbeddedAi(settings)) = role.children.first() else { return None };
    settings.company_model.is_some().then(|| settings.api_key.as_ref().map_or("", Secret::expose).to_owned())
}

async fn keys_are_kept_replaced_and_cleared(records: Arc<dyn Records>) {
    let providers = own(&records);
    let url = "https://a.example/v1";
    for (submitted_key, expected) in [
        (json!({"type": "openai", "baseUrl": url, "apiKey": "***"}), ""),
        (json!({"type": "openai", "baseUrl": url, "apiKey": "k1"}), "k1"),
        (json!({"type": "openai", "baseUrl": url}), "k1"),
        (json!({"type": "openai", "baseUrl": "https://A.example:443/v1/", "apiKey": "***"}), "k1"),
        (json!({"type": "openai", "baseUrl": url, "models": [{"model": "m"}], "apiKey": null}), "k1"),
        (json!({"type": "openai-responses", "baseUrl": url}), "k1"),
        (json!({"type": "openai", "baseUrl": url, "apiKey": "k2"}), "k2"),
        (json!({"type": "openai", "baseUrl": "https://b.example/v1", "apiKey": "***"}), ""),
        (json!({"type": "openai", "baseUrl": url, "apiKey": "***"}), ""),
        (json!({"type": "openai", "baseUrl": url, "apiKey": "k3"}), "k3"),
        (json!({"type": "openai", "apiKey": "***"}), ""),
        (json!({"type": "openai", "apiKey": "k4"}), "k4"),
        (json!({"type": "anthropic", "apiKey": "***"}), ""),
        (json!({"type": "openai", "apiKey": "k5"}), "k5"),
        (json!({"type": "openai", "apiKey": ""}), ""),
    ] {
        put(&providers, &submitted_key).await;
        assert_eq!(key_of(&providers, "company").await.as_deref(), Some(expected), "after {submitted_key}");
        let stored_provider = done("reading a provider", providers.get(&company(), "acme").await);
        let stored_provider = stored_provider.expect("a saved provider is returned").value;
        assert_eq!(stored_provider.has_key(), !expected.is_empty(), "after {submitted_key}");
        let shown = stored_provider.masked_json("acme");
        assert_eq!(
            shown.get("apiKey"),
            stored_provider.has_key().then(|| json!("***")).as_ref(),
            "after {submitted_key}"
        );
    }
}

async fn keys_are_stored_sealed(records: Arc<dyn Records>) {
    let providers = own(&records);
    put(&providers, &json!({"type": "openai", "baseUrl": "https://a.example", "apiKey": CANARY})).await;
    let collection = Collection::new("company", "providers").expect("a collection");
    let page = done("listing", records.list(&collection, &ListQuery::default()).await);
    let [record] = &page.records[..] else { panic!("a provider is one record: {page:?}") };
    assert!(!record.value.get().contains(CANARY), "the key is sealed");
    // A record that is copied to another company or name has a key that cannot be opened.
    for (company, id) in [("other", "acme"), ("company", "copy")] {
        let key = Key::new(company, "providers", id).expect("a key");
        done("copying", records.put(&key, record.value.clone(), Precondition::Absent).await);
        let opened = providers.open(&company.into(), id).await;
        assert!(matches!(opened, Err(StoreError::UnreadableSecret { .. })), "a key is bound to its record");
    }
    let unsealed = open_providers(&records, &Arc::new(Sealer::without_key()));
    let keyed = input(&json!({"type": "openai", "apiKey": "k"}));
    let refused = unsealed.put(&company(), "b", &keyed, Precondition::Any).await;
    assert!(matches!(refused, Err(StoreError::NotConfigured(_))), "a key needs a secret to seal it");
}

async fn companies_are_isolated(records: Arc<dyn Records>) {
    let providers = own(&records);
    put(&providers, &json!({"type": "openai", "apiKey": "k1"})).await;
    let other = CompanyId::from("other");
    assert!(done("reading", providers.get(&other, "acme").await).is_none(), "another company has none");
    assert!(done("opening", providers.open(&other, "acme").await).is_none(), "another company has none");
    assert_eq!(key_of(&providers, "other").await, None, "an agent of another company gets nothing");
    assert!(done("listing", providers.catalog(&other).await).is_empty(), "another company lists none");
    let deleted = providers.delete(&other, "acme", Precondition::Any).await;
    assert!(!done("deleting", deleted), "another company deletes none");
    let own_too = input(&json!({"type": "ollama", "baseUrl": "https://o.example", "apiKey": "k2"}));
    done("saving", providers.put(&other, "acme", &own_too, Precondition::Absent).await);
    assert_eq!(key_of(&providers, "other").await.as_deref(), Some("k2"), "an id is of one company");
    assert_eq!(key_of(&providers, "company").await.as_deref(), Some("k1"), "an id is of one company");
}

async fn one_of_concurrent_writers_wins(records: Arc<dyn Records>) {
    let providers = own(&records);
    let version = put(&providers, &json!({"type": "openai", "apiKey": "k0"})).await;
    let writes = (1..=8).map(|n| {
        let input = input(&json!({"type": "openai", "apiKey": format!("k{n}")}));
        let providers = &providers;
        async move { providers.put(&company(), "acme", &input, Precondition::Version(version)).await }
    });
    let written = join_all(writes).await;
    let winners: Vec<usize> =
        written.iter().enumerate().filter(|(_, written)| written.is_ok()).map(|(n, _)| n + 1).collect();
    let [winner] = winners[..] else { panic!("one of the writers wins: {written:?}") };
    let is_conflict = |written: &Result<u64, StoreError>| matches!(written, Err(StoreError::Conflict { .. }));
    assert_eq!(written.iter().filter(|written| is_conflict(written)).count(), 7, "the others conflict");
    assert_eq!(key_of(&providers, "company").await, Some(format!("k{winner}")), "the winner's key is used");
}

async fn a_change_is_seen_by_every_instance(records: Arc<dyn Records>) {
    let sealer = Arc::new(Sealer::ephemeral());
    let (one, two) = (open_providers(&records, &sealer), open_providers(&records, &sealer));
    for n in 0..5 {
        let key = format!("k{n}");
        let (writer, reader) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        put(writer, &json!({"type": "openai", "apiKey": key})).await;
        assert_eq!(key_of(reader, "company").await, Some(key), "a changed key is used by the next call");
    }
    done("deleting", one.delete(&company(), "acme", Precondition::Any).await);
    assert_eq!(key_of(&two, "company").await, None, "a deleted provider is gone at once");
    put(&one, &json!({"type": "openai", "apiKey": "new"})).await;
    assert_eq!(
        key_of(&two, "company").await.as_deref(),
        Some("new"),
        "a new provider of the same id is a different one"
    );
}

async fn providers_are_listed_and_deleted(records: Arc<dyn Records>) {
    let providers = own(&records);
    let models = json!([{"model": "m", "contextWindow": 4_096, "prices": {"input": "1", "output": "2"}}]);
    for id in ["c", "a", "b"] {
        let provider_input = input(&json!({"type": "openai", "models": models}));
        done("saving", providers.put(&company(), id, &provider_input, Precondition::Absent).await);
    }
    let list = ListQuery { limit: Some(2), ..ListQuery::default() };
    let page = done("listing", providers.list(&company(), &list).await);
    let ids: Vec<&str> = page.records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!((ids.as_slice(), page.next_cursor.is_some()), (&["a", "b"][..], true), "lists are in pages");
    assert_eq!(done("counting", providers.count(&company()).await), 3, "all providers are counted");
    let catalog = done("listing", providers.catalog(&company()).await);
    let names: Vec<&str> = catalog.iter().map(|(_, model)| model.provider.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "models have the ids of their providers");
    assert!(catalog.iter().all(|(_, model)| model.price.is_some()), "models have their prices");
    for (expected, what) in [(true, "a provider is deleted"), (false, "and only once")] {
        let deleted = providers.delete(&company(), "a", Precondition::Any).await;
        assert_eq!(done("deleting", deleted), expected, "{what}");
    }
    let gone = providers.delete(&company(), "b", Precondition::Version(1 << 50)).await;
    assert!(matches!(gone, Err(StoreError::Conflict { .. })), "a deletion has a condition");
}
