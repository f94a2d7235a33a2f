//! The suite of tool registries, with the MCP client as the registry and a real server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::conformance::{self, SampleCall, Scenario, TenantProbe, ToolRegistrySubject};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use agent_mcp::client::{DiscoveryCache, McpClientLimits, McpTools, ToolServerTransport, TransportResponse};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use serde_json::{Value, json};

use super::test_server::{McpTestConfig, McpTestServer, identity};
use crate::support;

/// Sends the client's requests to a test server with one token.
struct TokenTransport {
    client: reqwest::Client,
    url: String,
    token: &'static str,
}

fn unreachable(error: reqwest::Error) -> AgentError {
    AgentError::new(AgentErrorKind::Unreachable, "the tool server is away").with_source(error.without_url())
}

#[async_trait]
impl ToolServerTransport for TokenTransport {
    async fn send(&self, request: Request<Bytes>, _: Duration) -> Result<TransportResponse, AgentError> {
        let (head, body) = request.into_parts();
        let request =
            self.client.request(head.method, &self.url).headers(head.headers).bearer_auth(self.token);
        let response = request.body(body).send().await.map_err(unreachable)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let status_error =
            (!status.is_success()).then(|| AgentError::new(AgentErrorKind::Failed, "it refuses"));
        let body = response.bytes_stream().map(|chunk| chunk.map_err(unreachable)).boxed();
        Ok(TransportResponse { status, headers, body, status_error })
    }
}

/// The MCP clients of two companies' runs: each call goes to the client of its company.
struct RunsOfTwoCompanies {
    first: McpTools,
    second: McpTools,
}

#[async_trait]
impl ToolRegistry for RunsOfTwoCompanies {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.first.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let run = if context.company_id == identity("ada", "c1", "a1").context.company_id {
            &self.first
        } else {
            &self.second
        };
        run.call(context, name, arguments, progress).await
    }
}

/// Returns the definitions that the server lists for Ada, without `hidden`, sorted by name.
async fn listed_specs(server: &McpTestServer, hidden: &str) -> Vec<Arc<ToolSpec>> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}});
    let post = server.post("", request.to_string()).bearer_auth("ada");
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let post = headers.into_iter().fold(post, |post, (name, value)| post.header(name, value));
    let listed: Value = post.send().await.expect("a response").json().await.expect("one message");
    let specs: Vec<Arc<ToolSpec>> =
        serde_json::from_value(listed["result"]["tools"].clone()).unwrap_or_else(|_| panic!("{listed}"));
    let names: BTreeSet<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    assert!(names.contains(hidden), "the server has {hidden}: {names:?}");
    specs.into_iter().filter(|spec| spec.name != hidden).collect()
}

fn meta() -> Value {
    serde_json::from_str(super::test_server::REQUEST_META).expect("it is JSON")
}

#[tokio::test]
async fn the_mcp_client_conforms_to_the_tool_registry_contract() {
    let server = McpTestServer::start(McpTestConfig::default()).await;
    server.tokens.add("eve", identity("eve", "c2", "a2"));
    let specs = listed_specs(&server, "fails").await;
    let limits = McpClientLimits { call_timeout: support::TEST_TIMEOUT, max_calls: 8 };
    let run = |url: String, token| {
        let entry = DiscoveryCache::default().entry(&url.parse().expect("a URL"));
        let transport = TokenTransport { client: support::client(), url, token };
        McpTools::new(Arc::new(transport), specs.clone(), limits, entry)
    };
    let call = |tool: &str, arguments: Value| SampleCall::new(tool, arguments);
    conformance::tool_registry(async |scenario| {
        let url = match scenario {
            Scenario::Completes | Scenario::Hangs => server.url(""),
            Scenario::Rejects => "http://127.0.0.1:9/".to_owned(),
            _ => return None,
        };
        let tools = Arc::new(RunsOfTwoCompanies { first: run(url.clone(), "ada"), second: run(url, "eve") });
        let calls = match scenario {
            Scenario::Hangs => vec![call("slow", json!({}))],
            _ => vec![call("createTodo", json!({"title": "Dig"})), call("readTodos", json!({}))],
        };
        let slow = server.tool_state.slow.subscribe();
        Some(ToolRegistrySubject {
            forbidden: vec![call("fails", json!({})), call("deleteTodo", json!({"id": "t1"}))],
            progress: Some(call("steps", json!({}))),
            tenants: Some(TenantProbe {
                other_context: identity("eve", "c2", "a2").context,
                write: call("createTodo", json!({"title": "the marker"})),
                read: call("readTodos", json!({})),
                marker: "the marker".to_owned(),
            }),
            max_output_bytes: agent_mcp::client::MAX_RESULT_BYTES,
            open: Some(Box::new(move || slow.borrow().0)),
            ..ToolRegistrySubject::new(tools, identity("ada", "c1", "a1").context, calls)
        })
    })
    .await;
}
