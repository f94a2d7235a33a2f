//! `agentd token`: credentials, made on the operator's own machine.

use std::io::Write;
use std::sync::Arc;

use agent_core::clock::{Clock, SystemClock};
use agent_core::records::{Collection, List, RecordsExt, StoreError};
use agent_core::token::{Caps, FindError, Grant, McpGrant, Minted, NewToken, Token, Tokens, WidgetGrant};
use agent_http::auth::mint_session;
use agent_http::config::{AppConfig, Env, Flags};
use agentd::compose::Stores;
use serde::Deserialize;

use crate::cli::{AgentArgs, McpArgs, NewTokenArgs, SessionArgs, WidgetArgs};
use crate::failure::CommandError;

/// Writes a session token, alone on the last line, so that scripts can take it from there.
pub(crate) fn session(args: &SessionArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let flags = Flags { config: args.config.clone(), ..Flags::default() };
    let config = AppConfig::load(&flags, env)?;
    let secret = config.session_secret.ok_or(CommandError::Missing("SESSION_SECRET"))?;
    let token = mint_session(&secret, &args.user, &args.company, args.ttl)?;
    let life = humantime::format_duration(args.ttl);
    writeln!(out, "Session of {} at {}, valid for {life}:", args.user, args.company)?;
    writeln!(out, "{token}")?;
    Ok(())
}

/// Makes a widget token and writes it, alone on the last line.
pub(crate) async fn widget(
    args: WidgetArgs,
    stores: &Stores,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let WidgetArgs { token, origins, runs_per_minute, runs_per_day } = args;
    let grant = WidgetGrant { origins, caps: Caps { runs_per_minute, runs_per_day } };
    mint("Widget token", token, Grant::Widget(grant), stores, out).await
}

/// Makes an MCP token and writes it, alone on the last line.
pub(crate) async fn mcp(args: McpArgs, stores: &Stores, out: &mut dyn Write) -> Result<(), CommandError> {
    let McpArgs { token, user, todo_list, tools } = args;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let grant = McpGrant { user_id: user, todo_list_id: todo_list, tools, ..McpGrant::default() };
    mint("MCP token", token, Grant::Mcp(grant), stores, out).await
}

async fn mint(
    what: &str,
    args: NewTokenArgs,
    grant: Grant,
    stores: &Stores,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let NewTokenArgs { agent, ttl, label } = args;
    let company = company_of(&agent, stores).await?;
    let new = NewToken { ttl, label, ..NewToken::new(company, agent.agent, grant) };
    let Minted { token, text } = tokens(stores).mint(new).await?;
    let life = ttl.map_or_else(
        || "until it is revoked".to_owned(),
        |ttl| format!("for {}", humantime::format_duration(ttl)),
    );
    writeln!(out, "{what} {} of agent {}, valid {life}; it is not shown again:", token.id, token.agent_id)?;
    writeln!(out, "{}", text.expose())?;
    Ok(())
}

/// Revokes a token.
pub(crate) async fn revoke(id: &str, stores: &Stores, out: &mut dyn Write) -> Result<(), CommandError> {
    if !tokens(stores).revoke(id, None).await? {
        return Err(CommandError::NoToken);
    }
    writeln!(out, "Token {id} is revoked.")?;
    Ok(())
}

/// Writes a line for each token of an agent, the oldest first: id, kind, state, and what it is good for.
pub(crate) async fn list(args: &AgentArgs, stores: &Stores, out: &mut dyn Write) -> Result<(), CommandError> {
    let company = company_of(args, stores).await?;
    let tokens = tokens(stores);
    let mut list = List::default();
    loop {
        let page = tokens.list(&company, &args.agent, &list).await?;
        for record in page.records {
            writeln!(out, "{}", line(&record.value))?;
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

fn line(token: &Token) -> String {
    let day = |time| humantime::format_rfc3339_seconds(time).to_string();
    let state = match (token.check(SystemClock.now()), token.expires_at) {
        (Err(FindError::Revoked), _) => "revoked".to_owned(),
        (Err(_), _) => "expired".to_owned(),
        (Ok(()), Some(end)) => format!("until {}", day(end)),
        (Ok(()), None) => "valid".to_owned(),
    };
    let (kind, of) = match &token.grant {
        Grant::Widget(WidgetGrant { origins, .. }) if origins.is_empty() => {
            ("widget", "any origin".to_owned())
        }
        Grant::Widget(WidgetGrant { origins, .. }) => ("widget", origins.join(" ")),
        Grant::Mcp(McpGrant { user_id, .. }) => ("mcp", user_id.clone()),
        _ => ("other", String::new()),
    };
    let label = token.label.as_deref().unwrap_or("-");
    format!("{}\t{kind}\t{state}\t{label}\t{of}", token.id)
}

fn tokens(stores: &Stores) -> Tokens {
    Tokens::new(stores.records.clone(), Arc::new(SystemClock))
}

async fn company_of(agent: &str, stores: &Stores) -> Result<String, CommandError> {
    let company = stores.roles.company_of(agent).await?;
    company.ok_or_else(|| CommandError::NoAgent(agent.to_owned()))
}

/// The stores that the application works with.
fn open(config: &AppConfig) -> Result<Stores, CommandError> {
    Ok(Stores::over(Arc::new(stores::open_existing(config)?), config))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use agent_core::records::Precondition;
    use agent_core::role::Secret;
    use agent_http::auth::{Authenticator, Credential};
    use agent_http::request::Query;

    use super::*;

    fn run(user: &str, env: &[(&str, &str)]) -> Result<String, CommandError> {
        let args = SessionArgs {
            user: user.to_owned(),
            company: "acme".to_owned(),
            ttl: Duration::from_secs(3600),
            config: None,
        };
        let mut out = Vec::new();
        session(&args, &env.iter().copied().collect::<BTreeMap<_, _>>(), &mut out)?;
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
        let query = Query::of(&head.uri);
        let asked = sessions.authenticate(&head, &query).await;
        let Ok(Credential::Session(principal)) = asked else { panic!("the token holds") };
        assert_eq!((&*principal.user_id, &*principal.company_id), ("ann", "acme"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = run("ann", &[]).expect_err("no secret");
        assert_eq!(
            missing.to_string(),
            "SESSION_SECRET is not configured; set it, or name a file with --config"
        );
        let short = run("ann", &[("SESSION_SECRET", "sk-1")]).expect_err("a short secret").to_string();
        assert!(short.contains("at least 16 bytes") && !short.contains("sk-1"), "{short}");
        assert!(matches!(run("", &[("SESSION_SECRET", "session-secret-0")]), Err(CommandError::Mint(_))));
    }

    /// What a command writes.
    async fn written(
        command: impl AsyncFnOnce(&mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<String, CommandError> {
        let mut out = Vec::new();
        command(&mut out).await?;
        Ok(String::from_utf8(out).expect("the output is text"))
    }

    async fn stores() -> Stores {
        let file = r#"{"agents": [{"id": "guide", "companyId": "acme"}]}"#;
        Stores::in_memory("the test's workspace", file).await.expect("it is right")
    }

    fn agent(agent: &str, company: Option<&str>) -> AgentArgs {
        AgentArgs { agent: agent.to_owned(), company: company.map(str::to_owned), config: None }
    }

    fn new_token(label: Option<&str>) -> NewTokenArgs {
        let label = label.map(str::to_owned);
        NewTokenArgs { agent: agent("guide", Some("acme")), ttl: None, label }
    }

    fn widget_args() -> WidgetArgs {
        WidgetArgs {
            token: NewTokenArgs { ttl: Some(Duration::from_secs(3600)), ..new_token(None) },
            origins: vec!["https://shop.example".to_owned()],
            runs_per_minute: Caps::default().runs_per_minute,
            runs_per_day: None,
        }
    }

    fn mcp_args() -> McpArgs {
        let tools = vec!["readTodos".to_owned()];
        McpArgs {
            token: new_token(Some("IDE")),
            user: "ann".to_owned(),
            todo_list: Some("l".to_owned()),
            tools,
        }
    }

    #[tokio::test]
    async fn tokens_are_made_listed_and_revoked() {
        let stores = stores().await;
        let widget = written(async |out| widget(widget_args(), &stores, out).await).await.expect("a token");
        let mcp = written(async |out| mcp(mcp_args(), &stores, out).await).await.expect("a token");
        let mut ids = Vec::new();
        for (output, start, life) in
            [(&widget, "Widget token ", "for 1h"), (&mcp, "MCP token ", "until it is revoked")]
        {
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(lines.len(), 2, "{output}");
            let found = tokens(&stores).find(lines[1]).await.expect("the last line is the token");
            let id = &found.id;
            assert_eq!(lines[0], format!("{start}{id} of agent guide, valid {life}; it is not shown again:"));
            assert_eq!((&*found.company_id, &*found.agent_id), ("acme", "guide"));
            ids.push(found.id);
        }
        let Grant::Mcp(grant) =
            tokens(&stores).find(mcp.lines().last().expect("a line")).await.expect("found").grant
        else {
            panic!("an MCP token")
        };
        assert_eq!((&*grant.user_id, grant.todo_list_id.as_deref()), ("ann", Some("l")));
        assert_eq!(grant.tools, Some(vec!["readTodos".to_owned()]));

        let revoked = written(async |out| revoke(&ids[1], &stores, out).await).await.expect("revoked");
        assert_eq!(revoked, format!("Token {} is revoked.\n", ids[1]));
        let text = mcp.lines().last().expect("a line");
        assert!(tokens(&stores).find(text).await.is_err());

        let args = agent("guide", Some("acme"));
        let listed = written(async |out| list(&args, &stores, out).await).await.expect("a list");
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
    async fn what_is_not_there_is_said() {
        let stores = stores().await;
        let refused = async |args: AgentArgs| {
            let listed = written(async |out| list(&args, &stores, out).await).await;
            listed.expect_err("no such agent").to_string()
        };
        for (agent_id, company) in [("nobody", None), ("nobody", Some("acme")), ("guide", Some("other"))] {
            let expected = format!("there is no agent {agent_id:?} here; see --agent and --company");
            assert_eq!(refused(agent(agent_id, company)).await, expected);
        }
        let text = "agw_token-canary";
        let error = written(async |out| revoke(text, &stores, out).await).await.expect_err("no such token");
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[tokio::test]
    async fn the_platforms_index_leads_from_an_agent_to_its_company() {
        let stores = stores().await;
        let key = Collection::of_platform("agents").and_then(|agents| agents.key("indexed")).expect("a key");
        let holder = serde_json::json!({"companyId": "acme"});
        stores.records.put_as(&key, &holder, Precondition::Absent).await.expect("put");
        for company in [None, Some("acme")] {
            let args = agent("indexed", company);
            assert_eq!(company_of(&args, &stores).await.expect("found"), "acme");
        }
        assert!(company_of(&agent("indexed", Some("other")), &stores).await.is_err());
    }
}
