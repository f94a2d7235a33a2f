//! `agentd provider`: the operator's commands on the providers of companies.

use std::io::{Read, Write};
use std::path::Path;

use agent_core::ids::CompanyId;
use agent_platform::providers::{ProviderInput, Providers, agents_with_provider};
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, Precondition};
use agent_platform::roles::check_provider_id;
use serde_json::{Map, Value};

use crate::cli::{ConfigFileArg, ProviderCommand};
use crate::command_error::CommandError;
use crate::compose;
use crate::config::{AppConfig, Env};
use crate::stores::Stores;
use crate::{StartError, with_source};

/// Maximum size of a file with a provider, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Runs a subcommand.
pub(crate) async fn run(
    command: ProviderCommand,
    env: &dyn Env,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    match command {
        ProviderCommand::List { company } => {
            let (stores, _) = open(company.settings, env).await?;
            list(&stores.providers(), &company.company, out).await
        }
        ProviderCommand::Set { id, file, company } => {
            check_provider_id(&id).map_err(|error| argument("ID", error.to_string()))?;
            let text = read(&file)?;
            let (stores, config) = open(company.settings, env).await?;
            let input = parse(&text, &config)?;
            stores.providers().put(&company.company, &id, &input, Precondition::Any).await?;
            Ok(writeln!(out, "The provider {id:?} of {} is set.", company.company)?)
        }
        ProviderCommand::Delete { id, company } => {
            let (stores, _) = open(company.settings, env).await?;
            delete(&stores, &company.company, &id, out).await
        }
    }
}

async fn open(settings: ConfigFileArg, env: &dyn Env) -> Result<(Stores, AppConfig), CommandError> {
    let config = settings.load(env)?;
    Ok((Stores::open_existing(&config).await?, config))
}

fn argument(argument: &'static str, problem: String) -> CommandError {
    CommandError::Argument { argument, problem }
}

/// Reads a file; `-` is the standard input.
fn read(path: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let result = match path.as_os_str() == "-" {
        true => std::io::stdin().take(MAX_FILE_BYTES).read_to_string(&mut text),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
        }
    };
    match result {
        Ok(_) => Ok(text),
        Err(source) => Err(StartError::Unreadable { path: path.display().to_string(), source }.into()),
    }
}

/// Parses a provider. Errors do not repeat its values, among which is the key.
fn parse(text: &str, config: &AppConfig) -> Result<ProviderInput, CommandError> {
    let invalid = |problem: String| argument("--file", problem);
    let members: Map<String, Value> =
        serde_json::from_str(text).map_err(|_| invalid("does not contain a JSON object".to_owned()))?;
    let input = ProviderInput::read(&members).map_err(|error| invalid(format!("is not valid: {error}")))?;
    if let Some(url) = &input.provider.base_url {
        let checked = compose::model_source(config)?.check_address(url);
        checked
            .map_err(|error| invalid(format!("has a baseUrl that is refused: {}", with_source(&error))))?;
    }
    Ok(input)
}

async fn list(providers: &Providers, company: &CompanyId, out: &mut dyn Write) -> Result<(), CommandError> {
    let mut query = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    writeln!(out, "provider\ttype\taddress\tkey\tmodels")?;
    loop {
        let page = providers.list(company, &query).await?;
        for record in page.records {
            let key = if record.value.has_key() { "set" } else { "-" };
            let provider = record.value.provider;
            let (name, address) =
                (provider.provider_type.as_str(), provider.base_url.as_deref().unwrap_or("-"));
            writeln!(out, "{}\t{name}\t{address}\t{key}\t{}", record.id, provider.models.len())?;
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

async fn delete(
    stores: &Stores,
    company: &CompanyId,
    id: &str,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let agents = agents_with_provider(&*stores.roles, company, id).await?;
    if !agents.is_empty() {
        let agents: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
        return Err(argument("ID", format!("{id:?} is named by agents: {}", agents.join(", "))));
    }
    match stores.providers().delete(company, id, Precondition::Any).await? {
        true => Ok(writeln!(out, "The provider {id:?} of {company} is deleted.")?),
        false => Err(argument("ID", format!("{id:?} is not a provider of {company}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::config::Flags;

    #[tokio::test]
    async fn providers_are_set_listed_and_deleted() {
        let agent = |provider: Value| {
            json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI",
                "content": {"provider": provider, "model": "m"}}]})
        };
        let stores = Stores::in_memory("the test's", "{}").await.expect("stores");
        let env: BTreeMap<&str, &str> = BTreeMap::new();
        let config = AppConfig::load(&Flags::default(), &env).expect("settings");
        for text in [
            "",
            "[]",
            r#"{"type":"canary"}"#,
            r#"{"type":"openai","apiKey":"canary key"}"#,
            r#"{"type":"openai","baseUrl":"http://169.254.169.254/canary"}"#,
            r#"{"type":"openai","baseUrl":"http://10.0.0.1/canary"}"#,
        ] {
            let error = parse(text, &config).expect_err(text).to_string();
            assert!(!error.contains("canary"), "{error}");
        }
        let text = r#"{"type":"openai","baseUrl":"https://v.example/v1","apiKey":"sk-canary","models":[{"model":"m"}]}"#;
        let (providers, company) = (stores.providers(), CompanyId::from("c"));
        let input = parse(text, &config).expect("a provider");
        providers.put(&company, "acme", &input, Precondition::Any).await.expect("saved");
        stores
            .import("the test's", &json!({"agents": [agent(json!("acme"))]}).to_string())
            .await
            .expect("imported");
        let missing =
            stores.import("the test's", &json!({"agents": [agent(json!("other"))]}).to_string()).await;
        let error = missing.expect_err("no such provider").to_string();
        assert!(error.contains("agents[0].children[0].content.provider"), "{error}");
        let mut out = Vec::new();
        list(&providers, &company, &mut out).await.expect("listed");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "provider\ttype\taddress\tkey\tmodels\nacme\topenai\thttps://v.example/v1\tset\t1\n"
        );
        let mut out = Vec::new();
        let error = delete(&stores, &company, "acme", &mut out).await.expect_err("in use").to_string();
        assert!(error.contains("named by agents: a"), "{error}");
        stores
            .import("the test's", &json!({"agents": [agent(json!("openai"))]}).to_string())
            .await
            .expect("imported");
        delete(&stores, &company, "acme", &mut out).await.expect("deleted");
        delete(&stores, &company, "acme", &mut out).await.expect_err("gone");
    }
}
