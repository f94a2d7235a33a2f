//! `agentd token`: creates, lists and revokes tokens on the operator's own machine.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{AppConfig, Env};
use crate::stores::Stores;
use agent_core::clock::{Clock, SystemClock};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::tool::Caller;
use agent_http::auth::mint_session;
use agent_platform::records::ListQuery;
use agent_platform::roles::RoleStore as _;
use agent_platform::run_tools::allowed_tools_in_run;
use agent_platform::token::{
    ApiGrant, Grant, McpGrant, MintedToken, NewToken, RunCaps, Token, TokenError, Tokens, WidgetGrant,
};

use crate::cli::{AgentArgs, ApiArgs, McpArgs, NewTokenArgs, SessionArgs, WidgetArgs};
use crate::command_error::CommandError;

/// Creates a session token and writes it alone on the last line, where scripts can read it.
pub(crate) fn session(args: SessionArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let config = args.settings.load(env)?;
    let secret = config.session_secret.ok_or(CommandError::Missing("SESSION_SECRET"))?;
    let token = mint_session(&secret, &args.user, &args.company, args.ttl)?;
    let life = humantime::format_duration(args.ttl);
    writeln!(out, "Session of {} at {}, valid for {life}:", args.user, args.company)?;
    writeln!(out, "{token}")?;
    Ok(())
}

/// Creates a widget token and writes it alone on the last line.
pub(crate) async fn widget(args: WidgetArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let WidgetArgs { token, origins, runs_per_minute, runs_per_day } = args;
    let NewTokenArgs { agent: AgentArgs { agent, company, settings }, ttl, label } = token;
    let grant = Grant::Widget(WidgetGrant { origins, caps: RunCaps { runs_per_minute, runs_per_day } });
    let grant = NewGrant { grant, ttl, label };
    mint(
        "Widget token",
        (&agent, company.as_ref()),
        grant,
        &Stores::open_existing(&settings.load(env)?).await?,
        out,
    )
    .await
}

/// Creates an MCP token and writes it alone on the last line.
pub(crate) async fn mcp(args: McpArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let McpArgs { token, user, todo_list, tools } = args;
    let NewTokenArgs { agent: AgentArgs { agent, company, settings }, ttl, label } = token;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let grant = McpGrant { user_id: user, todo_list_id: todo_list, tools, ..McpGrant::default() };
    let grant = NewGrant { grant: Grant::Mcp(grant), ttl, label };
    mint(
        "MCP token",
        (&agent, company.as_ref()),
        grant,
        &Stores::open_existing(&settings.load(env)?).await?,
        out,
    )
    .await
}

/// Creates an API token and writes it alone on the last line.
pub(crate) async fn api(args: ApiArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let ApiArgs { user, agents, company, runs_per_minute, runs_per_day, ttl, label, settings } = args;
    let caps = runs_per_minute.map(|runs_per_minute| RunCaps { runs_per_minute, runs_per_day });
    let grant = Grant::Api(ApiGrant { user_id: user, agents, caps });
    let stores = Stores::open_existing(&settings.load(env)?).await?;
    mint_api(company.as_ref(), NewGrant { grant, ttl, label }, &stores, out).await
}

/// Grant, lifetime and label of a new token.
struct NewGrant {
    grant: Grant,
    ttl: Option<Duration>,
    label: Option<String>,
}

async fn mint(
    what: &str,
    (agent, company): (&AgentId, Option<&CompanyId>),
    new: NewGrant,
    stores: &Stores,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let NewGrant { grant, ttl, label } = new;
    let company = stores.company_of(agent, company).await?;
    if let Grant::Mcp(McpGrant { tools: Some(tools), .. }) = &grant {
        check_tools(tools, (agent, &company), stores).await?;
    }
    let new = NewToken { ttl, label, ..NewToken::new(company, agent, grant) };
    let MintedToken { token, text } = tokens(stores).mint(new).await?;
    let life = ttl.map_or_else(
        || "until it is revoked".to_owned(),
        |ttl| format!("for {}", humantime::format_duration(ttl)),
    );
    let agents = token.agents().join(" and ");
    writeln!(out, "{what} {} of agent {agents}, valid {life}; it is not shown again:", token.id)?;
    writeln!(out, "{}", text.expose())?;
    Ok(())
}

/// Checks that the agent may use each of the tools, since a token for other tools would grant nothing.
async fn check_tools(
    tools: &[String],
    (agent, company): (&AgentId, &CompanyId),
    stores: &Stores,
) -> Result<(), CommandError> {
    let role = stores.roles.masked_role(company, agent).await?;
    let role = role.ok_or_else(|| CommandError::no_agent(agent, Some(company)))?.value;
    let allowed = allowed_tools_in_run(&role, Caller::Session);
    match tools.iter().find(|tool| !allowed.contains(tool.as_str())) {
        None => Ok(()),
        Some(tool) => {
            let problem = format!("{tool:?} is not a tool that the agent {agent:?} may use");
            Err(CommandError::Argument { argument: "--tool", problem })
        }
    }
}

/// Creates a token for the agents of its grant. They must exist in one company.
async fn mint_api(
    company: Option<&CompanyId>,
    new: NewGrant,
    stores: &Stores,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let agents = match &new.grant {
        Grant::Api(grant) => grant.agents.clone(),
        _ => Vec::new(),
    };
    let first = agents.first().cloned().unwrap_or_default();
    let company = stores.company_of(&first, company).await?;
    for agent in &agents {
        stores.company_of(agent, Some(&company)).await?;
    }
    mint("API token", (&first, Some(&company)), new, stores, out).await
}

/// Revokes a token.
pub(crate) async fn revoke(id: &str, config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    revoke_in(id, &Stores::open_existing(config).await?, out).await
}

async fn revoke_in(id: &str, stores: &Stores, out: &mut dyn Write) -> Result<(), CommandError> {
    if !tokens(stores).revoke(id, None).await? {
        return Err(CommandError::NoToken);
    }
    writeln!(out, "Token {id} is revoked.")?;
    Ok(())
}

/// Writes one line per token of an agent, oldest first: id, kind, state, label, and origins or user.
pub(crate) async fn list(args: AgentArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let AgentArgs { agent, company, settings } = args;
    list_of((&agent, company.as_ref()), &Stores::open_existing(&settings.load(env)?).await?, out).await
}

async fn list_of(
    (agent, company): (&AgentId, Option<&CompanyId>),
    stores: &Stores,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let company = stores.company_of(agent, company).await?;
    let tokens = tokens(stores);
    let mut list = ListQuery::default();
    loop {
        let page = tokens.list(&company, agent, &list).await?;
        for record in page.records {
            writeln!(out, "{}", token_line(&record.value))?;
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

fn token_line(token: &Token) -> String {
    let day = |time| humantime::format_rfc3339_seconds(time).to_string();
    let state = match (token.check(SystemClock.now()), token.expires_at) {
        (Err(TokenError::Revoked), _) => "revoked".to_owned(),
        (Err(_), _) => "expired".to_owned(),
        (Ok(()), Some(end)) => format!("until {}", day(end)),
        (Ok(()), None) => "valid".to_owned(),
    };
    let (kind, subject) = match &token.grant {
        Grant::Widget(WidgetGrant { origins, .. }) if origins.is_empty() => {
            ("widget", "any origin".to_owned())
        }
        Grant::Widget(WidgetGrant { origins, .. }) => ("widget", origins.join(" ")),
        Grant::Mcp(McpGrant { user_id, .. }) => ("mcp", user_id.to_string()),
        Grant::Api(ApiGrant { user_id, .. }) => ("api", user_id.to_string()),
        _ => ("other", String::new()),
    };
    let label = token.label.as_deref().unwrap_or("-");
    format!("{}\t{kind}\t{state}\t{label}\t{subject}", token.id)
}

fn tokens(stores: &Stores) -> Tokens {
    Tokens::new(stores.records.clone(), Arc::new(SystemClock))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use agent_core::secret::Secret;
    use agent_http::auth::{Authenticator, Credential};
    use agent_http::request::Query;

    use super::*;
    use crate::cli::ConfigFileArg;

    fn run(user: &str, env: &[(&str, &str)]) -> Result<String, CommandError> {
        let args = SessionArgs {
            user: user.into(),
            company: "acme".into(),
            ttl: Duration::from_secs(3600),
            settings: ConfigFileArg::default(),
        };
        let mut out = Vec::new();
        session(args, &env.iter().copied().collect::<BTreeMap<_, _>>(), &mut out)?;
        Ok(String::from_utf8(out).expect("the output is text"))
    }

    #[tokio::test]
    async fn the_last_line_signs_in() {
        let secret = "session-secret-0";
        let output = run("ann", &[("SESSION_SECRET", secret)]).expect("a token");
        assert!(output.starts_with("Session of ann at acme, valid for 1h:\n"), "{output}");
        let token = output.lines().last().expect("a last line");
        let request = http::Request::builder().header("authorization", format!("Bearer {token}")).body(());
        let (head, ()) = request.expect("a request").into_parts();
        let sessions = Authenticator::new(Some(&Secret::new(secret)), None, None);
        let query = Query::from_uri(&head.uri);
        let asked = sessions.authenticate(&head, &query).await;
        let Ok(Credential::Session(principal)) = asked else { panic!("the token holds") };
        assert_eq!((&*principal.user_id, &*principal.company_id), ("ann", "acme"));
    }

    #[test]
    fn a_missing_secret_is_named() {
        let missing = run("ann", &[]).expect_err("no secret");
        assert_eq!(
            missing.to_string(),
            "SESSION_SECRET is not configured; set it, or name a file with --config"
        );
        let short = run("ann", &[("SESSION_SECRET", "sk-1")]).expect_err("a short secret").to_string();
        assert!(short.contains("at least 16 bytes") && !short.contains("sk-1"), "{short}");
        assert!(matches!(
            run("", &[("SESSION_SECRET", "session-secret-0")]),
            Err(CommandError::MintSession(_))
        ));
    }

    /// Returns the output of a command.
    async fn written(
        command: impl AsyncFnOnce(&mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<String, CommandError> {
        let mut out = Vec::new();
        command(&mut out).await?;
        Ok(String::from_utf8(out).expect("the output is text"))
    }

    async fn stores() -> Stores {
        let file = r#"{"agents": [{"id": "guide", "companyId": "acme"}]}"#;
        Stores::in_memory("the test's workspace", file).await.expect("a valid workspace")
    }

    fn new_grant(grant: Grant, ttl: Option<Duration>, label: Option<&str>) -> NewGrant {
        NewGrant { grant, ttl, label: label.map(str::to_owned) }
    }

    fn widget_grant() -> NewGrant {
        let origins = vec!["https://shop.example".to_owned()];
        let grant = WidgetGrant { origins, caps: RunCaps::default() };
        new_grant(Grant::Widget(grant), Some(Duration::from_secs(3600)), None)
    }

    fn mcp_grant() -> NewGrant {
        let grant = McpGrant {
            user_id: "ann".into(),
            todo_list_id: Some("l".to_owned()),
            tools: Some(vec!["readTodos".to_owned()]),
            ..McpGrant::default()
        };
        new_grant(Grant::Mcp(grant), None, Some("IDE"))
    }

    #[tokio::test]
    async fn tokens_are_made_listed_and_revoked() {
        let (stores, guide) = (stores().await, AgentId::from("guide"));
        let widget =
            written(async |out| mint("Widget token", (&guide, None), widget_grant(), &stores, out).await)
                .await
                .expect("a token");
        let mcp = written(async |out| mint("MCP token", (&guide, None), mcp_grant(), &stores, out).await)
            .await
            .expect("a token");
        let mut ids = Vec::new();
        for (output, start, life) in
            [(&widget, "Widget token ", "for 1h"), (&mcp, "MCP token ", "until it is revoked")]
        {
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(lines.len(), 2, "{output}");
            let found_token = tokens(&stores).find(lines[1]).await.expect("the last line is the token");
            let id = &found_token.id;
            assert_eq!(lines[0], format!("{start}{id} of agent guide, valid {life}; it is not shown again:"));
            assert_eq!((&*found_token.company_id, &*found_token.agent_id), ("acme", "guide"));
            ids.push(found_token.id);
        }
        let Grant::Mcp(grant) =
            tokens(&stores).find(mcp.lines().last().expect("a line")).await.expect("found").grant
        else {
            panic!("an MCP token")
        };
        assert_eq!((&*grant.user_id, grant.todo_list_id.as_deref()), ("ann", Some("l")));
        assert_eq!(grant.tools, Some(vec!["readTodos".to_owned()]));

        let revoked = written(async |out| revoke_in(&ids[1], &stores, out).await).await.expect("revoked");
        assert_eq!(revoked, format!("Token {} is revoked.\n", ids[1]));
        let text = mcp.lines().last().expect("a line");
        assert!(tokens(&stores).find(text).await.is_err());

        let listed = written(async |out| list_of((&guide, None), &stores, out).await).await.expect("a list");
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
        assert!(lines[0][2].starts_with("until 2"), "{listed}");
        assert_eq!(
            [lines[0][0], lines[0][1], lines[0][3], lines[0][4]],
            [&*ids[0], "widget", "-", "https://shop.example"]
        );
        assert_eq!(lines[1], [&*ids[1], "mcp", "revoked", "IDE", "ann"]);
        assert_eq!(lines.len(), 2);
    }

    #[tokio::test]
    async fn an_mcp_token_is_for_tools_of_the_agent() {
        let file =
            r#"{"agents": [{"id": "guide", "companyId": "acme", "content": {"mcpPreset": ["readTodos"]}}]}"#;
        let stores = Stores::in_memory("the test's workspace", file).await.expect("a valid workspace");
        let guide = AgentId::from("guide");
        let mint = async |tools: &[&str]| {
            let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
            let grant = McpGrant { user_id: "ann".into(), tools: Some(tools), ..McpGrant::default() };
            let grant = new_grant(Grant::Mcp(grant), None, None);
            written(async |out| mint("MCP token", (&guide, None), grant, &stores, out).await).await
        };
        mint(&["readTodos"]).await.expect("a token");
        for unknown in ["nope", "createTodo"] {
            let error = mint(&["readTodos", unknown]).await.expect_err("not a tool of the agent").to_string();
            assert_eq!(error, format!("--tool {unknown:?} is not a tool that the agent \"guide\" may use"));
        }
        let listed = written(async |out| list_of((&guide, None), &stores, out).await).await.expect("a list");
        assert_eq!(listed.lines().count(), 1, "{listed}");
    }

    #[tokio::test]
    async fn an_api_token_is_for_agents_of_one_company() {
        let file = r#"{"agents": [{"id": "guide", "companyId": "acme"}, {"id": "cook", "companyId": "acme"},
            {"id": "other", "companyId": "zeta"}]}"#;
        let stores = Stores::in_memory("the test's workspace", file).await.expect("a valid workspace");
        let mint = async |agents: &[&str]| {
            let agents = agents.iter().map(|agent| AgentId::from(*agent)).collect();
            let grant = Grant::Api(ApiGrant { user_id: "ann".into(), agents, caps: None });
            written(async |out| mint_api(None, new_grant(grant, None, None), &stores, out).await).await
        };
        let output = mint(&["guide", "cook"]).await.expect("a token");
        assert!(output.contains(" of agent guide and cook, valid until it is revoked"), "{output}");
        let found_token = tokens(&stores).find(output.lines().last().expect("a line")).await.expect("found");
        assert_eq!(found_token.company_id, "acme");
        let listed = written(async |out| list_of((&"cook".into(), None), &stores, out).await).await;
        let listed = listed.expect("a list");
        assert!(listed.contains("\tapi\tvalid\t-\tann\n"), "{listed}");
        let error = mint(&["guide", "other"]).await.expect_err("another company's").to_string();
        assert!(error.starts_with("the company \"acme\" has no agent \"other\""), "{error}");
    }

    #[tokio::test]
    async fn the_company_decides_between_agents_of_the_same_id() {
        let file =
            r#"{"agents": [{"id": "guide", "companyId": "acme"}, {"id": "guide", "companyId": "zeta"}]}"#;
        let stores = Stores::in_memory("the test's workspace", file).await.expect("a valid workspace");
        let guide = AgentId::from("guide");
        let mint = async |company: Option<&CompanyId>| {
            written(async |out| mint("Widget token", (&guide, company), widget_grant(), &stores, out).await)
                .await
        };
        let expected = "several companies have an agent \"guide\"; name one with --company";
        assert_eq!(mint(None).await.expect_err("which one").to_string(), expected);
        let output = mint(Some(&"zeta".into())).await.expect("a token");
        let found_token = tokens(&stores).find(output.lines().last().expect("a line")).await.expect("found");
        assert_eq!(found_token.company_id, "zeta");
        let unknown = mint(Some(&"other".into())).await.expect_err("no such agent").to_string();
        let expected =
            "the company \"other\" has no agent \"guide\"; check --company, --agent and DATABASE_URL";
        assert_eq!(unknown, expected);
        let listed = |company: &'static str| {
            let stores = &stores;
            written(async move |out| list_of((&"guide".into(), Some(&company.into())), stores, out).await)
        };
        assert_eq!(listed("acme").await.expect("a list"), "");
        assert_eq!(listed("zeta").await.expect("a list").lines().count(), 1);
    }

    #[tokio::test]
    async fn a_missing_agent_is_reported() {
        let stores = stores().await;
        for agent in ["nobody", "", "a\0"] {
            let listed = written(async |out| list_of((&agent.into(), None), &stores, out).await).await;
            let expected =
                format!("there is no agent {agent:?} in the database; see --agent and DATABASE_URL");
            assert_eq!(listed.expect_err("no such agent").to_string(), expected);
        }
        let text = "agw_token-canary";
        let error =
            written(async |out| revoke_in(text, &stores, out).await).await.expect_err("no such token");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}
