//! Connection to a tool server that a role names: its list of tools, and calls by the names in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::tool::{Progress, ToolError, ToolOutput};
use agent_platform::own_tools::{CallMeta, ToolDefinition, ToolServerConnection};
use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool};
use tokio::time;

use super::discovery::DiscoveryEntry;
use super::errors;
use super::transport::ToolServerTransport;
use super::{McpClientLimits, McpTools};

/// Time without a request after which the connection is closed; the next request opens another one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// [`ToolServerConnection`] over [`McpTools`].
pub struct ToolServerSession(Arc<SessionState>);

impl std::fmt::Debug for ToolServerSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolServerSession").finish_non_exhaustive()
    }
}

struct SessionState {
    tools: McpTools,
    /// Number of requests that have started or ended.
    changes: AtomicU64,
    /// Number of requests that have not ended.
    open: AtomicU64,
}

impl ToolServerSession {
    /// Creates the connection to the server behind `transport`. Nothing is sent before the first request. `discovery` is
    /// the server's entry in the process's cache.
    pub fn new(
        transport: Arc<dyn ToolServerTransport>,
        limits: McpClientLimits,
        discovery: DiscoveryEntry,
    ) -> Self {
        let tools = McpTools::new(transport, Vec::new(), limits, discovery);
        Self(Arc::new(SessionState { tools, changes: AtomicU64::new(0), open: AtomicU64::new(0) }))
    }

    fn begin(&self) -> OpenRequest<'_> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        OpenRequest(&self.0)
    }
}

/// A request that has not ended. Dropping it closes the connection later, unless another request begins before.
struct OpenRequest<'s>(&'s Arc<SessionState>);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        let change = self.0.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let state = Arc::downgrade(self.0);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            time::sleep(IDLE_TIMEOUT).await;
            let Some(state) = state.upgrade() else { return };
            let is_idle = state.changes.load(Ordering::SeqCst) == change;
            if is_idle && state.open.load(Ordering::SeqCst) == 0 {
                state.tools.close();
            }
        });
    }
}

#[async_trait]
impl ToolServerConnection for ToolServerSession {
    async fn list(&self) -> Result<Vec<ToolDefinition>, ToolError> {
        let _open = self.begin();
        let tools = self.0.tools.list_at_server().await?;
        tools.into_iter().map(definition).collect()
    }

    async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        meta: CallMeta<'_>,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let _open = self.begin();
        self.0.tools.call_at_server(name, arguments, meta, progress).await
    }

    fn list_changes(&self) -> u64 {
        self.0.tools.list_changes()
    }
}

/// Returns the members that a fingerprint covers, in the form in which this client understands them.
fn definition(tool: Tool) -> Result<ToolDefinition, ToolError> {
    let value = serde_json::to_value(tool).and_then(serde_json::from_value);
    value.map_err(|_| errors::unavailable(errors::NOT_A_TOOL_LIST))
}

#[cfg(test)]
mod tests {
    use agent_core::error::AgentError;
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, Request, StatusCode};
    use serde_json::{Value, json};

    use super::super::{DiscoveryCache, TransportResponse};
    use super::*;

    /// A server with an endless list of tools, which takes half a minute for each page.
    struct SlowServer;

    #[async_trait]
    impl ToolServerTransport for SlowServer {
        async fn send(&self, request: Request<Bytes>, _: Duration) -> Result<TransportResponse, AgentError> {
            let message: Value = serde_json::from_slice(request.body()).expect("JSON");
            let result = match message["method"].as_str() {
                Some("tools/list") => {
                    time::sleep(Duration::from_secs(30)).await;
                    json!({"tools": [], "nextCursor": format!("after {}", message["params"]["cursor"])})
                }
                _ => json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
            };
            let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(TransportResponse {
                status: StatusCode::OK,
                headers: HeaderMap::from_iter([content_type]),
                body: stream::iter([Ok(Bytes::from(body))]).boxed(),
                status_error: None,
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_of_a_list_together_have_a_time_limit() {
        let limits = McpClientLimits { call_timeout: Duration::from_secs(40), max_calls: 1 };
        let discovery = DiscoveryCache::default().entry(&"http://a.example/".parse().expect("a URL"));
        let session = ToolServerSession::new(Arc::new(SlowServer), limits, discovery);
        let begin = time::Instant::now();
        let error = session.list().await.expect_err("no list");
        assert_eq!(error.to_string(), errors::SLOW_LIST);
        assert!(begin.elapsed() <= Duration::from_secs(61), "{:?}", begin.elapsed());
    }
}
