//! An MCP server with ten todos in memory for an agent of each of several companies: `mcp_server product FILE` is the
//! product's, with its tokens, `mcp_server bare FILE` is a bare `rmcp` server on hyper with the same tool and no
//! authentication. It listens on a free loopback port, writes the tokens to FILE, one a line, and then its address as
//! the first line of stdout.
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use std::{env, fs, num::NonZeroU32, sync::Arc, time::Duration};

use agent_core::clock::SystemClock;
use agent_core::tool::{ExecutionContext, NoProgress, ToolRegistry};
use agent_http::mcp;
use agent_http::request::BodyLimits;
use agent_http::serve::{self, ServeLimits};
use agent_http::service::service_fn;
use agent_http::shutdown::Shutdown;
use agent_mcp::server::{AgentLimits, HostGuard, McpAuthenticator, McpServer, McpServerLimits};
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens};
use agent_platform::tools::{ToolServices, builtin_tools};
use agentd::stores::Stores;
use anyhow::{Context, Result, bail};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::{
    RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ServerConfig},
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Number of companies; sessions are limited per company.
const COMPANIES: usize = 4;
/// Number of tokens per company; sessions are limited per token too.
const TOKENS_PER_COMPANY: usize = 20;

/// Returns the context of the first company's agent.
fn context() -> ExecutionContext {
    ExecutionContext {
        user_id: "u1".into(),
        company_id: "c0".into(),
        agent_id: "a1".into(),
        todo_list_id: Some("l1".into()),
        timezone: Some("Europe/Berlin".into()),
        ..ExecutionContext::default()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let todos: Vec<Value> = (0..10)
        .map(|i| json!({"id": format!("t{i}"), "title": format!("Water plant number {i}"), "done": false}))
        .collect();
    let companies = || (0..COMPANIES).map(|n| format!("c{n}"));
    let each = |record: &dyn Fn(String) -> Value| companies().map(record).collect::<Vec<_>>();
    let workspace = json!({
        "users": each(&|company| json!({"id": "u1", "companyId": company})),
        "agents": each(&|company| json!({"id": "a1", "name": "One", "ownerId": "u1", "companyId": company})),
        "todoLists": each(&|company| {
            json!({"id": "l1", "ownerId": "u1", "companyId": company, "name": "Mine", "todos": todos})
        }),
    });
    let Stores { roles, records, .. } = Stores::in_memory("the workspace", &workspace.to_string()).await?;
    let tools: Arc<dyn ToolRegistry> =
        Arc::new(builtin_tools(records.clone(), roles.clone(), ToolServices::default()));
    let tokens = Arc::new(Tokens::new(records.clone(), Arc::new(SystemClock)));
    let mut arguments = env::args().skip(1);
    let (kind, file) = (arguments.next(), arguments.next().context("the file for the tokens is missing")?);
    fs::write(file, mint(&tokens, companies()).await?)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    match kind.as_deref() {
        Some("product") => product(listener, roles, records, tokens, tools).await,
        Some("bare") => bare(listener, tools).await,
        _ => bail!("usage: mcp_server product|bare FILE"),
    }
}

/// Creates the tokens of all companies and returns their texts, one a line.
async fn mint(tokens: &Tokens, companies: impl Iterator<Item = String>) -> Result<String> {
    let mut lines = String::new();
    for company in companies {
        for _ in 0..TOKENS_PER_COMPANY {
            let grant =
                McpGrant { user_id: "u1".into(), todo_list_id: Some("l1".into()), ..McpGrant::default() };
            let minted = tokens.mint(NewToken::new(company.as_str(), "a1", Grant::Mcp(grant))).await?;
            lines.push_str(minted.text.expose());
            lines.push('\n');
        }
    }
    Ok(lines)
}

async fn product(
    listener: TcpListener,
    roles: Arc<dyn RoleStore>,
    records: Arc<dyn Records>,
    tokens: Arc<Tokens>,
    tools: Arc<dyn ToolRegistry>,
) -> Result<()> {
    let address = listener.local_addr()?;
    let door = HostGuard::new(&format!("http://{address}/").parse()?, address, []);
    let limits = McpServerLimits {
        json_depth: 64,
        timeout: Duration::from_secs(60),
        per_agent: AgentLimits {
            concurrency: 16,
            per_minute: NonZeroU32::MAX,
            wait: Duration::from_secs(60),
        },
        connections: ServeLimits::default().connections,
        token_recheck_interval: Duration::from_secs(60),
    };
    let authority = McpAuthenticator::new(tokens, None);
    let server = Arc::new(McpServer::for_agents(door, authority, roles, records, tools, limits));
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { mcp::handle(&server, &BodyLimits::default(), request).await }
    });
    Ok(serve::serve(listener, service, ServeLimits::default(), Shutdown::default()).await?)
}

struct Bare(Arc<dyn ToolRegistry>);

impl ServerHandler for Bare {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(Default::default())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let output = self.0.call(&context(), &call.name, arguments, &NoProgress).await;
        let output = output.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut result = CallToolResult::success(vec![ContentBlock::text(output.text)]);
        result.structured_content = output.structured;
        Ok(result.into())
    }
}

async fn bare(listener: TcpListener, tools: Arc<dyn ToolRegistry>) -> Result<()> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(Bare(tools.clone())), sessions, config);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
