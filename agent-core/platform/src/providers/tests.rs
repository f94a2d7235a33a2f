use std::sync::{Arc, Mutex};

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::model::{Model, ModelInfo};
use agent_core::payload::Payload;
use agent_core::role::RoleSource as _;
use agent_core::role::{Container, EmbeddedAi, RoleBlock, StaticRoles};
use agent_core::secret::Secret;
use agent_core::testing::ScriptedModel;
use agent_core::tool::ExecutionContext;
use futures_util::FutureExt;
use serde_json::{Map, Value, json};

use super::*;
use crate::catalog::CatalogModel;
use crate::memory::MemoryRecords;
use crate::model_cache::ModelCache;
use crate::records::Precondition;
use crate::roles::{RecordRoleStore, RoleStore, RotationReport};
use crate::seal::Sealer;

const KEY: &str = "sk-canary-1";

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

fn body(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

fn input(value: Value) -> ProviderInput {
    ProviderInput::read(&body(value)).expect("a provider")
}

fn company() -> CompanyId {
    "c".into()
}

fn put(providers: &Providers, value: Value) -> u64 {
    ready(providers.put(&company(), "acme", &input(value), Precondition::Any)).expect("saved")
}

fn providers() -> Arc<Providers> {
    Arc::new(Providers::new(Arc::new(MemoryRecords::default()), Arc::new(Sealer::ephemeral())))
}

fn role(embedded: Value) -> Arc<RoleBlock> {
    let role =
        json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI", "content": embedded}]});
    Arc::new(serde_json::from_value(role).expect("a role"))
}

fn settings(role: &RoleBlock) -> &EmbeddedAi {
    match &role.children[0] {
        Container::EmbeddedAi(settings) => settings,
        other => panic!("{other:?}"),
    }
}

fn key(settings: &EmbeddedAi) -> &str {
    settings.api_key.as_ref().map_or("", Secret::expose)
}

#[test]
fn a_provider_is_read_whole_or_refused_without_its_values() {
    let models = json!([{"model": "m", "contextWindow": 8_192, "prices": {"input": "1", "output": "2.5"}}]);
    let read = input(
        json!({"type": "openai", "baseUrl": " https://a.example/v1 ", "apiKey": KEY, "models": models}),
    );
    assert_eq!(read.provider.base_url.as_deref(), Some("https://a.example/v1"));
    assert!(!format!("{read:?}").contains(KEY));
    let long_key = "k".repeat(10 << 10);
    let long_url = format!("https://a.example/{}", "x".repeat(3 << 10));
    let model = |entry: Value| json!({"type": "openai", "models": [entry]});
    let prices = |prices: Value| model(json!({"model": "m", "prices": prices}));
    let many: Vec<Value> = (0..=MAX_PROVIDER_MODELS).map(|n| json!({"model": format!("m{n}")})).collect();
    for (value, path) in [
        (json!({}), "type"),
        (json!({"type": "local"}), "type"),
        (json!({"type": "auto"}), "type"),
        (json!({"type": 7}), "type"),
        (json!({"type": "openai", "key": KEY}), "key"),
        (json!({"type": "openai", "baseUrl": 1}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "file:///etc/passwd"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "gopher://a.example"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "no URL"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://u:canary@a.example/v1"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://u@a.example/v1"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://a.example/v1\r\nX: canary"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://a.exa\tmple/v1"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://a.example/v1?key=canary"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://a.example/v1#canary"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": "https://a.example:0/v1"}), "baseUrl"),
        (json!({"type": "openai", "baseUrl": long_url}), "baseUrl"),
        (json!({"type": "openai", "apiKey": long_key}), "apiKey"),
        (json!({"type": "openai", "apiKey": "canary\r\nX: y"}), "apiKey"),
        (json!({"type": "openai", "apiKey": "canary ü"}), "apiKey"),
        (json!({"type": "openai", "apiKey": ["canary"]}), "apiKey"),
        (json!({"type": "openai", "models": {}}), "models"),
        (json!({"type": "openai", "models": many}), "models"),
        (model(json!("canary")), "models[0]"),
        (model(json!({})), "models[0].model"),
        (model(json!({"model": "*"})), "models[0].model"),
        (model(json!({"model": " m"})), "models[0].model"),
        (model(json!({"model": "m", "provider": "openai"})), "models[0].provider"),
        (model(json!({"model": "m", "contextWindow": 0})), "models[0].contextWindow"),
        (model(json!({"model": "m", "contextWindow": "canary"})), "models[0].contextWindow"),
        (model(json!({"model": "m", "input": ["canary"]})), "models[0].input[0]"),
        (prices(json!({"input": "1"})), "models[0].prices"),
        (prices(json!({"input": "1e400", "output": "1"})), "models[0].prices.input"),
        (prices(json!({"input": "1", "output": "-1"})), "models[0].prices.output"),
        (prices(json!({"input": "1", "output": "10001"})), "models[0].prices.output"),
        (json!({"type": "openai", "models": [{"model": "m"}, {"model": "m"}]}), "models[1].model"),
    ] {
        let error = ProviderInput::read(&body(value.clone())).expect_err("a fault");
        assert_eq!(error.path, path, "{value}: {error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn a_role_is_completed_with_everything_of_the_provider() {
    let providers = providers();
    let models = json!([{"model": "m", "contextWindow": 8_192, "maxOutputTokens": 64,
        "prices": {"input": "1", "output": "2"}}]);
    put(
        &providers,
        json!({"type": "anthropic", "baseUrl": "https://a.example", "apiKey": KEY, "models": models}),
    );
    let embedded = json!({"provider": " acme ", "model": "m-2026-01-31", "baseUrl": "https://evil.example",
        "apiKey": "own", "fallbacks": [{"provider": "acme", "model": "other"}, {"provider": "openai"},
            {"provider": "none", "model": "m"}]});
    let completed = ready(providers.complete_role(role(embedded))).expect("completed");
    let container = settings(&completed);
    assert_eq!(container.provider.as_deref(), Some("anthropic"));
    assert_eq!(container.base_url.as_deref(), Some("https://a.example"), "not the role's");
    assert_eq!(key(container), KEY);
    let entry = CatalogModel::of_company(container.company_model.as_deref()).expect("an entry");
    assert_eq!((entry.provider.as_str(), entry.model.as_str()), ("acme", "m-2026-01-31"));
    assert_eq!(entry.limits().context_window.map(u32::from), Some(8_192));
    let price = entry.price.expect("a price");
    assert_eq!(price.as_of.len(), "2026-01-31".len(), "{price:?}");
    let [own, built_in, unknown] = &container.fallbacks[..] else { panic!("three fallbacks") };
    let entry = CatalogModel::of_company(own.company_model.as_deref()).expect("an entry");
    assert_eq!((entry.provider.as_str(), entry.model.as_str(), entry.price), ("acme", "other", None));
    assert_eq!(own.api_key.as_ref().map(Secret::expose), Some(KEY));
    assert!(built_in.company_model.is_none() && built_in.api_key.is_none());
    assert_eq!((unknown.provider.as_deref(), unknown.company_model.is_none()), (Some("none"), true));
    let shown = serde_json::to_string(&*completed).expect("JSON");
    assert!(!shown.contains("companyModel") && !shown.contains(KEY), "{shown}");

    // A role that names none is not copied.
    let plain = role(json!({"provider": "openai"}));
    let same = ready(providers.complete_role(plain.clone())).expect("completed");
    assert!(Arc::ptr_eq(&plain, &same));
}

#[test]
fn a_container_cannot_bring_an_entry_of_its_own() {
    let entry = json!({"provider": "acme", "model": "m"});
    let forged = role(json!({"provider": "openai", "companyModel": entry, "company_model": entry}));
    assert!(settings(&forged).company_model.is_none());
}

#[test]
fn roles_of_a_source_are_completed() {
    let providers = providers();
    put(&providers, json!({"type": "ollama", "baseUrl": "https://o.example"}));
    let stored =
        StaticRoles::new().with_role(RoleBlock::clone(&role(json!({"provider": "acme", "model": "m"}))));
    let roles = ProviderRoles::new(Arc::new(stored), providers);
    let completed_role = ready(roles.role(&company(), &"a".into())).expect("read").expect("a role");
    assert_eq!(settings(&completed_role).provider.as_deref(), Some("ollama"));
    assert!(ready(roles.role(&company(), &"b".into())).expect("read").is_none());
}

#[test]
fn a_role_is_completed_again_only_after_a_change() {
    let providers = providers();
    let save_key = |key: &str| put(&providers, json!({"type": "openai", "apiKey": key}));
    let stored = Arc::new(RecordRoleStore::in_memory());
    let save_model = |model: &str| {
        let role = RoleBlock::clone(&role(json!({"provider": "acme", "model": model})));
        ready(stored.put_role(role, Precondition::Any)).expect("saved");
    };
    save_key("k1");
    save_model("m");
    let roles = ProviderRoles::new(stored.clone(), providers.clone());
    let read = || ready(roles.role(&company(), &"a".into())).expect("read").expect("a role");
    let first = read();
    assert_eq!(key(settings(&first)), "k1");
    assert!(Arc::ptr_eq(&first, &read()), "a turn copies no role");

    save_key("k2");
    let rotated = read();
    assert_eq!((key(settings(&rotated)), key(settings(&first))), ("k2", "k1"));
    assert!(Arc::ptr_eq(&rotated, &read()));
    save_model("n");
    assert_eq!(settings(&read()).model.as_deref(), Some("n"));
    assert!(ready(providers.delete(&company(), "acme", Precondition::Any)).expect("deleted"));
    assert_eq!(settings(&read()).provider.as_deref(), Some("acme"), "as it is stored");
    save_key("k3");
    assert_eq!(key(settings(&read())), "k3");
}

#[test]
fn providers_of_one_company_evict_none_of_another() {
    let providers = providers();
    put(&providers, json!({"type": "openai", "apiKey": KEY}));
    let open = || ready(providers.open(&company(), "acme")).expect("read").expect("a provider");
    let first = open();
    let model = |number: usize| json!({"model": format!("{number:0>100}"), "contextWindow": 8_192});
    let models: Vec<Value> = (0..100).map(model).collect();
    let (large, many) = (CompanyId::from("large"), input(json!({"type": "openai", "models": models})));
    // Together they have more than the capacity of the cache.
    for number in 0..150 {
        let id = number.to_string();
        ready(providers.put(&large, &id, &many, Precondition::Any)).expect("saved");
        ready(providers.open(&large, &id)).expect("read").expect("a provider");
    }
    assert!(Arc::ptr_eq(&first, &open()), "it is still cached");
}

#[test]
fn completed_roles_of_one_company_evict_none_of_another() {
    let (providers, large) = (providers(), CompanyId::from("large"));
    let provider_input = input(json!({"type": "openai", "apiKey": KEY}));
    for company in [&company(), &large] {
        ready(providers.put(company, "acme", &provider_input, Precondition::Any)).expect("saved");
    }
    let small = RoleBlock::clone(&role(json!({"provider": "acme", "model": "m"})));
    let mut stored = StaticRoles::new().with_role(small.clone());
    let ids: Vec<AgentId> = (0..6).map(|number| number.to_string().into()).collect();
    for id in &ids {
        let mut long = RoleBlock { id: id.clone(), company_id: large.clone(), ..small.clone() };
        long.content.personality = Some("x".repeat(1 << 20));
        stored = stored.with_role(long);
    }
    let roles = ProviderRoles::new(Arc::new(stored), providers);
    let read =
        |company: &CompanyId, id: &AgentId| ready(roles.role(company, id)).expect("read").expect("a role");
    let first = read(&company(), &"a".into());
    // Together they have more than the capacity of the cache.
    for id in &ids {
        assert_eq!(key(settings(&read(&large, id))), KEY);
    }
    assert!(Arc::ptr_eq(&first, &read(&company(), &"a".into())), "it is still cached");
}

/// A source that records the keys of the models that are called.
#[derive(Clone, Default)]
struct KeyedModels(Arc<Mutex<Vec<String>>>);

struct KeyedModel {
    calls: Arc<Mutex<Vec<String>>>,
    key: String,
    model: ScriptedModel,
}

impl ModelSource for KeyedModels {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        let address = settings.base_url.as_deref().unwrap_or_default();
        let key = format!("{} at {address}", key(settings));
        let model = ScriptedModel::repeating("ok");
        Ok(Arc::new(KeyedModel { calls: self.0.clone(), key, model }))
    }
}

#[async_trait::async_trait]
impl Model for KeyedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn prepare(&self, request: &agent_core::model::ModelRequest) -> Result<Payload, AgentError> {
        self.model.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<agent_core::model::ModelStream, AgentError> {
        self.calls.lock().expect("unpoisoned").push(self.key.clone());
        self.model.start(payload).await
    }
}

#[test]
fn each_call_of_a_run_uses_the_key_and_the_address_of_its_time() {
    let providers = providers();
    let save =
        |url: &str, key: &str| put(&providers, json!({"type": "openai", "baseUrl": url, "apiKey": key}));
    save("https://a.example", "k1");
    let source = KeyedModels::default();
    let models = ProviderModels::new(ModelCache::new(source.clone()), providers.clone());
    let role =
        ready(providers.complete_role(role(json!({"provider": "acme", "model": "m"})))).expect("completed");
    let context = ExecutionContext { company_id: company(), ..ExecutionContext::default() };
    let model = models.model_for_run(settings(&role), &context).expect("a model");
    let call = || ready(model.start(Payload::text("x"))).map(drop);
    call().expect("called");
    save("https://a.example", "k2");
    call().expect("called");
    call().expect("called");
    save("https://b.example", "***");
    call().expect("called");
    let calls = source.0.lock().expect("unpoisoned").clone();
    let expected = [
        "k1 at https://a.example",
        "k2 at https://a.example",
        "k2 at https://a.example",
        " at https://b.example",
    ];
    assert_eq!(calls, expected, "the key of one address is not sent to another");

    put(&providers, json!({"type": "ollama", "baseUrl": "https://b.example"}));
    assert_eq!(call().expect_err("refused").kind(), AgentErrorKind::InvalidRequest);
    assert!(ready(providers.delete(&company(), "acme", Precondition::Any)).expect("deleted"));
    let error = call().expect_err("refused");
    assert_eq!(error.kind(), AgentErrorKind::UnknownProvider);
    assert!(error.message().contains("\"acme\""), "{error}");
    assert_eq!(source.0.lock().expect("unpoisoned").len(), 4, "nothing is sent after that");
}

#[test]
fn keys_are_sealed_for_their_place_and_resealed() {
    let records = Arc::new(MemoryRecords::default());
    let (old, new) = (Secret::new("the secret of last year"), Secret::new("the secret of this year"));
    let of = |secret: &Secret, previous: Option<&Secret>| {
        Providers::new(records.clone(), Arc::new(Sealer::new(secret, previous)))
    };
    put(&of(&old, None), json!({"type": "openai", "apiKey": KEY}));
    let open = |providers: &Providers| ready(providers.open(&company(), "acme"));
    let error = open(&of(&new, None)).expect_err("another key");
    assert!(
        matches!(error, crate::records::StoreError::UnreadableSecret { .. })
            && !error.to_string().contains(KEY)
    );
    let mut report = RotationReport::default();
    ready(rotate_secrets(&*records, &Sealer::new(&new, Some(&old)), &mut report)).expect("rotated");
    assert_eq!((report.resealed, report.unopened), (1, 0));
    let opened = open(&of(&new, None)).expect("opened").expect("a provider");
    assert!(!format!("{opened:?}").contains(KEY));
    let role = ready(of(&new, None).complete_role(role(json!({"provider": "acme", "model": "m"}))))
        .expect("completed");
    assert_eq!(key(settings(&role)), KEY);
}
