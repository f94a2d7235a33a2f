//! An MCP server over its own stores, with tokens that tests add and revoke.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::tool::{Caller, ExecutionContext, Progress, Tool, ToolError, ToolOutput, ToolSpec};
use agent_http::cors::parse_origins;
use agent_http::mcp;
use agent_http::request::BodyLimits;
use agent_http::serve::{self, ServeLimits};
use agent_http::service::service_fn;
use agent_http::shutdown::Shutdown;
use agent_mcp::server::{
    AgentLimits, HostGuard, Identity, LegacyQuery, McpAuthenticator, McpServer, McpServerLimits,
    TokenResolver,
};
use agent_platform::records::StoreError;
use agent_platform::tools::{ToolServices, builtin_tools};
use agentd::stores::Stores;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::support;

/// `_meta` of requests in protocol versions without sessions.
pub const REQUEST_META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// An in-memory token table: identities by token text.
#[derive(Default)]
pub struct TokenTable(Mutex<HashMap<String, Identity>>);

impl TokenTable {
    pub fn add(&self, text: &str, identity: Identity) {
        self.0.lock().expect("whole").insert(text.to_owned(), identity);
    }

    pub fn revoke(&self, text: &str) {
        self.0.lock().expect("whole").remove(text);
    }
}

#[async_trait]
impl TokenResolver for TokenTable {
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        Ok(self.0.lock().expect("whole").get(text).cloned())
    }
}

/// Builds an identity of a user, a company and an agent; its id is composed of the three.
pub fn identity(user: &str, company: &str, agent: &str) -> Identity {
    let caller = if user.starts_with("widget:") { Caller::Widget } else { Caller::Session };
    Identity {
        id: format!("{user}/{company}/{agent}"),
        context: ExecutionContext {
            user_id: user.into(),
            company_id: company.into(),
            agent_id: agent.into(),
            todo_list_id: Some(format!("list-of-{user}")),
            caller,
            ..ExecutionContext::default()
        },
        calls: None,
    }
}

/// Shared state of the test tools.
#[derive(Default)]
pub struct TestToolState {
    /// Wakes waiting calls of the tool `slow`.
    pub release: Notify,
    /// Numbers of `slow` calls that are running, have completed and were dropped.
    pub slow: watch::Sender<(usize, usize, usize)>,
}

struct SlowTool(Arc<TestToolState>);

struct RunningCall<'s>(&'s TestToolState, bool);

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.slow.send_modify(|(running, ended, dropped)| {
            *running -= 1;
            *if self.1 { ended } else { dropped } += 1;
        });
    }
}

fn spec(name: &str) -> Arc<ToolSpec> {
    let schema = serde_json::value::to_raw_value(&json!({"type": "object"})).expect("JSON");
    Arc::new(ToolSpec {
        name: name.into(),
        description: String::new(),
        input_schema: schema.into(),
        output_schema: None,
        annotations: None,
        is_client_side: false,
    })
}

#[async_trait]
impl Tool for SlowTool {
    fn spec(&self) -> Arc<ToolSpec> {
        spec("slow")
    }

    async fn call(&self, _: &ExecutionContext, _: Value, _: &dyn Progress) -> Result<ToolOutput, ToolError> {
        self.0.slow.send_modify(|slow| slow.0 += 1);
        let mut running = RunningCall(&self.0, false);
        self.0.release.notified().await;
        running.1 = true;
        Ok(ToolOutput::text("at last"))
    }
}

/// A tool that reports three progress steps before its result.
struct ProgressTool;

#[async_trait]
impl Tool for ProgressTool {
    fn spec(&self) -> Arc<ToolSpec> {
        spec("steps")
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        _: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        for step in 1..=3 {
            progress.report(f64::from(step), Some(3.0), Some("a step"));
            tokio::task::yield_now().await;
        }
        Ok(ToolOutput::text("done"))
    }
}

/// A tool that fails in the way its argument `how` names.
struct FailingTool;

#[async_trait]
impl Tool for FailingTool {
    fn spec(&self) -> Arc<ToolSpec> {
        spec("fails")
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        arguments: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        match arguments["how"].as_str() {
            Some("output") => Ok(ToolOutput::error("it did not work")),
            Some("defect") => Err(ToolError::internal("a secret cause")),
            Some("unknown") => Err(ToolError::Unknown("fails".into())),
            _ => Err(ToolError::InvalidArguments("how: is missing".into())),
        }
    }
}

/// Settings of the server.
pub struct McpTestConfig {
    pub concurrency: usize,
    pub per_minute: u32,
    pub timeout: Duration,
    pub legacy: bool,
}

impl Default for McpTestConfig {
    fn default() -> Self {
        Self { concurrency: 16, per_minute: 1_000_000, timeout: support::TEST_TIMEOUT, legacy: false }
    }
}

/// A running MCP server and the state behind it.
pub struct McpTestServer {
    pub address: SocketAddr,
    pub server: Arc<McpServer>,
    pub tokens: Arc<TokenTable>,
    pub tool_state: Arc<TestToolState>,
    client: reqwest::Client,
}

impl McpTestServer {
    /// Starts a server with two companies, an agent in each, and the tokens `ada` and `bob`.
    pub async fn start(setup: McpTestConfig) -> Self {
        Self::start_with(setup, &workspace()).await
    }

    pub async fn start_with(setup: McpTestConfig, workspace: &Value) -> Self {
        let Stores { roles, records, .. } = support::server::stores(workspace).await;
        let tokens = Arc::new(TokenTable::default());
        tokens.add("ada", identity("ada", "c1", "a1"));
        tokens.add("bob", identity("bob", "c1", "a1"));
        let tool_state = Arc::new(TestToolState::default());
        let tools = builtin_tools(records.clone(), roles.clone(), ToolServices::default())
            .with_tool(SlowTool(tool_state.clone()))
            .with_tool(ProgressTool)
            .with_tool(FailingTool);

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let host_guard = HostGuard::new(
            &format!("http://{address}/").parse().expect("an address"),
            address,
            parse_origins("https://app.example").expect("an origin"),
        );
        let legacy = setup.legacy.then(|| LegacyQuery::new(roles.clone(), records.clone()));
        let limits = McpServerLimits {
            json_depth: 64,
            timeout: setup.timeout,
            per_agent: AgentLimits {
                concurrency: setup.concurrency,
                per_minute: NonZeroU32::new(setup.per_minute).expect("not zero"),
                wait: setup.timeout,
            },
            connections: ServeLimits::default().connections,
            token_recheck_interval: Duration::from_millis(50),
        };
        let authority = McpAuthenticator::new(tokens.clone(), legacy);
        let tools = Arc::new(tools);
        let server =
            McpServer::for_agents(host_guard, authority, roles.clone(), records.clone(), tools, limits);
        let server = Arc::new(server);
        let handler = server.clone();
        let service = service_fn(move |request| {
            let server = handler.clone();
            async move { mcp::handle(&server, &BodyLimits::default(), request).await }
        });
        tokio::spawn(serve::serve(listener, service, ServeLimits::default(), Shutdown::default()));
        Self { address, server, tokens, tool_state, client: support::client() }
    }

    pub fn url(&self, query: &str) -> String {
        format!("http://{}/api/agent/mcp{query}", self.address)
    }

    /// Builds a POST with a JSON body and no `Accept` header.
    pub fn post(&self, query: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.client.post(self.url(query)).header("content-type", "application/json").body(body)
    }

    pub fn request(&self, method: &str, query: &str) -> reqwest::RequestBuilder {
        self.client.request(method.parse().expect("a method"), self.url(query))
    }

    /// Sends a request without a session, with the bearer `token`, and returns the response message.
    pub async fn ask(&self, token: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = self.post("", body.to_string()).bearer_auth(token).send().await.expect("an answer");
        response.json().await.expect("one message")
    }

    /// Waits until `condition` holds for the counts of running, completed and dropped `slow` calls.
    pub async fn wait_for_slow_calls(&self, condition: impl Fn(usize, usize, usize) -> bool) {
        let mut slow = self.tool_state.slow.subscribe();
        let reached = slow.wait_for(|(running, ended, dropped)| condition(*running, *ended, *dropped));
        tokio::time::timeout(support::TEST_TIMEOUT, reached)
            .await
            .expect("the server reaches the state")
            .expect("the tools exist");
    }

    /// Initializes a session and returns its id.
    pub async fn open_session(&self, token: &str, version: &str) -> String {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = self.in_session(token, None, &body).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        let id = response.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        let answer: Value = response.json().await.expect("one message");
        assert_eq!(answer["result"]["protocolVersion"], version);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let response = self.in_session(token, Some(&id), &initialized).send().await.expect("an answer");
        assert_eq!(response.status(), 202);
        id
    }

    /// Builds the POST of a message in a session, with the headers of a standard client.
    pub fn in_session(&self, token: &str, session: Option<&str>, body: &Value) -> reqwest::RequestBuilder {
        let post = self
            .post("", body.to_string())
            .bearer_auth(token)
            .header("accept", "application/json, text/event-stream");
        match session {
            Some(session) => post.header("mcp-session-id", session),
            None => post,
        }
    }
}

fn workspace() -> Value {
    let tools = json!(["readTodos", "createTodo", "slow", "steps", "fails"]);
    json!({
        "users": [{"id": "ada", "companyId": "c1"}, {"id": "bob", "companyId": "c1"}, {"id": "eve", "companyId": "c2"}],
        "agents": [
            {"id": "a1", "name": "One", "ownerId": "ada", "companyId": "c1", "content": {"mcpPreset": tools,
                "promptBlocks": [{"title": "Tone", "text": "Be brief."}]}},
            {"id": "a2", "name": "Two", "ownerId": "eve", "companyId": "c2", "content": {"mcpPreset": tools}}
        ],
        "todoLists": [
            {"id": "list-of-ada", "ownerId": "ada", "companyId": "c1", "name": "Ada's",
                "todos": [{"id": "t1", "title": "Water the basil", "done": false}]},
            {"id": "list-of-bob", "ownerId": "bob", "companyId": "c1", "name": "Bob's",
                "todos": [{"id": "t2", "title": "Feed the cat", "done": false}]},
            {"id": "list-of-eve", "ownerId": "eve", "companyId": "c2", "name": "Eve's", "todos": []}
        ]
    })
}
