//! An MCP server with one agent and ten todos in memory: `mcp_server product` is the product's, `mcp_server bare` is
//! a bare `rmcp` server with the same tool and no authentication. It listens on a free loopback port and writes its
//! address as the first line of stdout.
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use std::{env, num::NonZeroU32, sync::Arc, time::Duration};

use agent_core::tool::{ExecutionContext, NoProgress, ToolRegistry};
use agent_http::mcp;
use agent_http::request::BodyLimits;
use agent_http::serve::{self, ServeLimits};
use agent_http::service::service_fn;
use agent_http::shutdown::Shutdown;
use agent_mcp::server::{
    AgentLimits, HostGuard, Identity, McpAuthenticator, McpServer, McpServerLimits, TokenResolver,
};
use agent_platform::records::{Records, StoreError};
use agent_platform::roles::RoleStore;
use agent_platform::tools::{ToolServices, builtin_tools};
use agentd::stores::Stores;
use anyhow::{Result, bail};
use async_trait::async_trait;
use http_body_util::BodyExt;
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

fn context() -> ExecutionContext {
    ExecutionContext {
        user_id: "u1".into(),
        company_id: "c1".into(),
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
    let workspace = json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": [{"id": "a1", "name": "One", "ownerId": "u1", "companyId": "c1"}],
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine", "todos": todos}]
    });
    let Stores { roles, records, .. } = Stores::in_memory("the workspace", &workspace.to_string()).await?;
    let tools: Arc<dyn ToolRegistry> =
        Arc::new(builtin_tools(records.clone(), roles.clone(), ToolServices::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    match env::args().nth(1).as_deref() {
        Some("product") => product(listener, roles, records, tools).await,
        Some("bare") => bare(listener, tools).await,
        _ => bail!("usage: mcp_server product|bare"),
    }
}

/// Accepts every token that begins with `token`, without a lookup.
struct PrefixTokens;

#[async_trait]
impl TokenResolver for PrefixTokens {
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        Ok(text.starts_with("token").then(|| Identity { id: text.into(), context: context(), calls: None }))
    }
}

async fn product(
    listener: TcpListener,
    roles: Arc<dyn RoleStore>,
    records: Arc<dyn Records>,
    tools: Arc<dyn ToolRegistry>,
) -> Result<()> {
    let address = listener.local_addr()?;
    let door = HostGuard::new(&format!("http://{address}/").parse()?, address, []);
    let limits = McpServerLimits {
        json_depth: 64,
        timeout: Duration::from_secs(60),
        gate: AgentLimits { concurrency: 16, per_minute: NonZeroU32::MAX, wait: Duration::from_secs(60) },
        token_recheck_interval: Duration::from_secs(60),
    };
    let authority = McpAuthenticator::new(Arc::new(PrefixTokens), None);
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
    let service = service_fn(move |request| {
        let service = service.clone();
        async move {
            Ok(service.handle(request).await.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
        }
    });
    Ok(serve::serve(listener, service, ServeLimits::default(), Shutdown::default()).await?)
}
