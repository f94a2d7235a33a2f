//! `agentd model`: weights of the embedded model, and the models of agents.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use agent_client::models::EmbeddedModels;
use agent_core::ids::CompanyId;
use agent_core::role::{AgentServer, Container, RoleBlock};
use agent_platform::fallback::fallback_settings;
use agent_platform::providers::ProviderType;
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS};
use agent_platform::roles::{RoleStore as _, company_provider_id};

use crate::command_error::CommandError;
use crate::config::AppConfig;
use crate::stores::Stores;
use crate::{compose, weights};

/// Columns of the agents whose models are unknown.
const UNKNOWN_HEADER: &str = "company\tagent\tprovider\tmodel";

/// Lists the known models, and which of them are downloaded.
pub(crate) fn list(config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    for line in weights::list(config) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Downloads a model's weights and writes their path.
pub(crate) async fn pull(
    name: Option<&str>,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let path = weights::pull(config, name).await?;
    writeln!(out, "{}", path.display())?;
    Ok(())
}

/// Prints the agents whose models the catalogue does not have, as a table with tabs, and fails if there are any.
pub(crate) async fn check(config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    check_in(&Stores::open_existing(config).await?, config, out).await
}

async fn check_in(stores: &Stores, config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    let models = compose::model_source(config)?;
    let mut unknown = 0;
    let mut last_company: Option<String> = None;
    loop {
        let companies = stores.records.companies(last_company.as_deref()).await?;
        let Some(last) = companies.last() else { break };
        last_company = Some(last.clone());
        // The platform's own records have an empty company.
        for company in companies.into_iter().filter(|company| !company.is_empty()) {
            unknown += check_company(stores, config, &models, (&company.into(), unknown == 0), out).await?;
        }
    }
    match unknown {
        0 => Ok(()),
        unknown => Err(CommandError::UnknownModels(unknown)),
    }
}

/// Prints the unknown models of a company's agents, below a header if `is_first`, and returns their number.
async fn check_company(
    stores: &Stores,
    config: &AppConfig,
    models: &EmbeddedModels,
    (company, is_first): (&CompanyId, bool),
    out: &mut dyn Write,
) -> Result<usize, CommandError> {
    let company_models = CompanyModels::load(stores, company).await?;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut unknown = 0;
    loop {
        let page = stores.roles.masked_roles(company, &list).await?;
        for role in page.records {
            let names = model_names(&role.value, config, models);
            let names = names.iter().filter(|(provider, model)| match company_provider_id(Some(provider)) {
                Some(id) => !company_models.is_known(config, id, model),
                None => !config.server.catalog.is_known(provider, model),
            });
            for (provider, model) in names {
                if is_first && unknown == 0 {
                    writeln!(out, "{UNKNOWN_HEADER}")?;
                }
                let cells = [company.as_str(), role.value.id.as_str(), provider, model];
                let cells = cells.map(|cell| cell.replace(char::is_control, "\u{fffd}"));
                writeln!(out, "{}", cells.join("\t"))?;
                unknown += 1;
            }
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(unknown);
        }
    }
}

/// Types of a company's providers, with the models whose context windows are known.
struct CompanyModels(BTreeMap<String, (ProviderType, BTreeSet<String>)>);

impl CompanyModels {
    async fn load(stores: &Stores, company: &CompanyId) -> Result<Self, CommandError> {
        let providers = stores.providers();
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut models = BTreeMap::new();
        loop {
            let page = providers.list(company, &list).await?;
            models.extend(page.records.into_iter().map(|record| {
                let provider = record.value.provider;
                let with_window = provider.models.iter().filter(|entry| entry.contains_key("contextWindow"));
                let names = with_window.filter_map(|entry| Some(entry.get("model")?.as_str()?.to_owned()));
                (record.id, (provider.provider_type, names.collect()))
            }));
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(Self(models));
            }
        }
    }

    fn is_known(&self, config: &AppConfig, provider: &str, model: &str) -> bool {
        self.0.get(provider).is_some_and(|(provider_type, models)| {
            models.contains(model) || config.server.catalog.is_known(provider_type.as_str(), model)
        })
    }
}

/// Returns providers and names of the models that an agent may call. Models that an agent server chooses are not included.
fn model_names(role: &RoleBlock, config: &AppConfig, models: &EmbeddedModels) -> BTreeSet<(String, String)> {
    let owned = |(provider, model): (&str, &str)| (provider.trim().to_owned(), model.trim().to_owned());
    let mut names = BTreeSet::new();
    let add_server = |server: &AgentServer, names: &mut BTreeSet<_>| {
        for server in std::iter::once(server).chain(&server.fallbacks) {
            let model = server.agent_server_model.as_deref().filter(|model| !model.trim().is_empty());
            if let Some(model) = model {
                names.insert(owned((server.agent_server_provider.as_deref().unwrap_or("auto"), model)));
            }
        }
    };
    add_server(&role.content.agent_server, &mut names);
    for container in &role.children {
        match container {
            Container::AgentServer(server) => add_server(server, &mut names),
            Container::EmbeddedAi(settings) => {
                names.insert(owned(models.names(settings)));
                let fallbacks = fallback_settings(settings, &config.fallback.defaults.fallbacks);
                names.extend(fallbacks.map(|settings| owned(models.names(&settings))));
            }
            Container::SubscriptionConnector(settings) => {
                names.insert(owned(("subscription", settings.model.as_deref().unwrap_or_default())));
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_platform::providers::ProviderInput;
    use agent_platform::records::Precondition;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Flags;

    async fn checked(workspace: &Value, settings: &[(&str, &str)]) -> (Result<(), CommandError>, String) {
        let stores = Stores::in_memory("the test's", &workspace.to_string()).await.expect("a workspace");
        let env: BTreeMap<&str, &str> = settings.iter().copied().collect();
        let config = AppConfig::load(&Flags::default(), &env).expect("settings");
        let mut out = Vec::new();
        let done = check_in(&stores, &config, &mut out).await;
        (done, String::from_utf8(out).expect("text"))
    }

    fn agent(company: &str, id: &str, container: &str, content: Value) -> Value {
        json!({"id": id, "companyId": company, "children": [{"name": container, "content": content}]})
    }

    #[tokio::test]
    async fn agents_whose_models_are_unknown_are_named() {
        let key = "sk-canary";
        let workspace = json!({"agents": [
            agent("c1", "known", "EmbeddedAI", json!({"provider": "openai", "model": "gpt-5-mini-2025-08-07"})),
            agent("c1", "default", "EmbeddedAI", json!({"provider": "anthropic"})),
            agent("c1", "local", "EmbeddedAI", json!({"provider": "local", "model": "any"})),
            agent("c1", "ollama", "EmbeddedAI", json!({"provider": "ollama", "model": "any"})),
            agent("c1", "auto", "EmbeddedAI", json!({})),
            agent("c1", "typo", "EmbeddedAI", json!({"provider": "openai", "model": "gpt-5-mino"})),
            agent("c1", "fallback", "EmbeddedAI", json!({"provider": "openai", "model": "gpt-5", "apiKey": key,
                "fallbacks": [{"provider": "anthropic", "model": "claude-x"}, {"provider": "anthropic", "model": "claude-x"}]})),
            agent("c1", "own", "EmbeddedAI", json!({"model": "mine", "baseUrl": "https://v.example/v1", "apiKey": key})),
            agent("c2", "remote", "AgentServer",
                json!({"agentServerUrl": "https://r.example", "agentServerProvider": "openai", "agentServerModel": "m-1"})),
            agent("c2", "silent", "AgentServer", json!({"agentServerUrl": "https://r.example"})),
            agent("c2", "typo", "SubscriptionConnector", json!({"model": "gpt-x"})),
        ]});
        let (done, table) = checked(&workspace, &[("DATA_SECRET", "data-secret-0000")]).await;
        let rows = [
            "c1\tfallback\tanthropic\tclaude-x",
            "c1\town\topenai\tmine",
            "c1\ttypo\topenai\tgpt-5-mino",
            "c2\tremote\topenai\tm-1",
            "c2\ttypo\tsubscription\tgpt-x",
        ];
        assert_eq!(table, format!("{UNKNOWN_HEADER}\n{}\n", rows.join("\n")));
        assert!(matches!(done, Err(CommandError::UnknownModels(5))), "{done:?}");
        let error = done.expect_err("unknown models").to_string();
        assert!(error.contains("tokens: 5;") && error.contains("MODEL_CATALOG"), "{error}");

        let catalog = tempfile::NamedTempFile::new().expect("a file");
        let models: Vec<Value> = ["claude-x", "mine", "gpt-5-mino", "m-1", "gpt-x"]
            .map(|model| json!({"provider": "openai", "model": model, "contextWindow": 9_000}))
            .into();
        let file = json!({"asOf": "2026-01-31", "models": models});
        std::fs::write(catalog.path(), file.to_string()).expect("written");
        let path = catalog.path().to_str().expect("UTF-8");
        let (done, table) = checked(&workspace, &[("MODEL_CATALOG", path)]).await;
        assert!(done.is_ok() && table.is_empty(), "{done:?} {table}");
    }

    #[tokio::test]
    async fn the_models_of_a_companys_provider_are_known_to_that_company() {
        let stores = Stores::in_memory("the test's", "{}").await.expect("stores");
        let provider_json = json!({"type": "openai", "models": [{"model": "own", "contextWindow": 9_000}, {"model": "bare"}]});
        let input = ProviderInput::read(provider_json.as_object().expect("an object")).expect("a provider");
        for company in ["c1", "c2"] {
            let id = if company == "c1" { "acme" } else { "second" };
            let saved = stores.providers().put(&company.into(), id, &input, Precondition::Any).await;
            saved.expect("saved");
        }
        let named = |company: &str, id: &str, provider: &str, model: &str| {
            agent(company, id, "EmbeddedAI", json!({"provider": provider, "model": model}))
        };
        let workspace = json!({"agents": [
            named("c1", "own", "acme", "own"),
            named("c1", "catalogue", "acme", "gpt-5"),
            named("c1", "bare", "acme", "bare"),
            named("c2", "own", "second", "own"),
            named("c2", "gone", "second", "gpt-5"),
        ]});
        stores.import("the test's", &workspace.to_string()).await.expect("imported");
        let deleted = stores.providers().delete(&"c2".into(), "second", Precondition::Any).await;
        assert!(deleted.expect("deleted"));
        let env: BTreeMap<&str, &str> = BTreeMap::new();
        let config = AppConfig::load(&Flags::default(), &env).expect("settings");
        let mut out = Vec::new();
        let done = check_in(&stores, &config, &mut out).await;
        let rows = ["c1\tbare\tacme\tbare", "c2\tgone\tsecond\tgpt-5", "c2\town\tsecond\town"];
        let table = String::from_utf8(out).expect("text");
        assert_eq!(table, format!("{UNKNOWN_HEADER}\n{}\n", rows.join("\n")));
        assert!(matches!(done, Err(CommandError::UnknownModels(3))), "{done:?}");
    }

    #[tokio::test]
    async fn the_defaults_are_checked_like_the_models_of_roles() {
        let workspace = json!({"agents": [agent("c1", "a", "EmbeddedAI", json!({}))]});
        let settings = [
            ("OPENAI_API_KEY", "sk-canary"),
            ("OPENAI_MODEL", "new"),
            ("MODEL_FALLBACKS", "anthropic/newer"),
        ];
        let (done, table) = checked(&workspace, &settings).await;
        assert_eq!(table, format!("{UNKNOWN_HEADER}\nc1\ta\tanthropic\tnewer\nc1\ta\topenai\tnew\n"));
        assert!(matches!(done, Err(CommandError::UnknownModels(2))), "{done:?}");
    }
}
