//! A third-party MCP server: the reference implementation (`rmcp`) on hyper.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;
use std::borrow::Cow;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::tool_server::McpRevision;

/// The server; dropping it stops it and closes every connection.
pub struct RmcpServer {
    pub address: SocketAddr,
    /// The state of its tools.
    pub works: RmcpTools,
    task: JoinHandle<()>,
}

/// The tools and the state that they wait on. Clones share the state.
#[derive(Clone)]
pub struct RmcpTools {
    era: McpRevision,
    meeting: Arc<Barrier>,
    /// Number of `wait` calls that have started.
    pub begun: watch::Sender<usize>,
    /// Number of `wait` calls that were cancelled.
    pub cancelled: watch::Sender<usize>,
    /// True once `wait` calls may return.
    pub released: watch::Sender<bool>,
}

impl RmcpServer {
    /// Starts a server on a free port.
    pub async fn start(era: McpRevision) -> Self {
        Self::start_at(era, ([127, 0, 0, 1], 0).into()).await
    }

    /// Starts a server at an address, without the sessions of an earlier server there.
    pub async fn start_at(era: McpRevision, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let address = listener.local_addr().expect("a bound listener");
        let works = RmcpTools {
            era,
            meeting: Arc::new(Barrier::new(2)),
            begun: watch::Sender::new(0),
            cancelled: watch::Sender::new(0),
            released: watch::Sender::new(false),
        };
        let service = StreamableHttpService::new(
            {
                let works = works.clone();
                move || Ok(works.clone())
            },
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, works, task }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Stops the server and waits until its port is closed.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for RmcpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerHandler for RmcpTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            McpRevision::Sessions => Cow::Borrowed(&[ProtocolVersion::V_2025_11_25]),
            McpRevision::Stateless => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28]),
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = |text: &str| Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        match &*request.name {
            // Both calls must have arrived before either continues.
            "meet" => {
                self.meeting.wait().await;
                text("met")
            }
            "wait" => self.wait(context).await,
            "add" => {
                let arguments = request.arguments.unwrap_or_default();
                let sum: i64 = arguments.values().filter_map(serde_json::Value::as_i64).sum();
                Ok(CallToolResult::structured(json!({"sum": sum})).into())
            }
            "refuse" => Err(ErrorData::invalid_params("that will not do", None)),
            _ => Ok(CallToolResult::error(vec![ContentBlock::text("no such thing")]).into()),
        }
    }
}

impl RmcpTools {
    async fn wait(&self, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            let report = ProgressNotificationParam::new(token, 1.0).with_total(2.0).with_message("half way");
            let _ = context.peer.notify_progress(report).await;
        }
        self.begun.send_modify(|begun| *begun += 1);
        let mut released = self.released.subscribe();
        tokio::select! {
            () = context.ct.cancelled() => {
                self.cancelled.send_modify(|cancelled| *cancelled += 1);
                Err(ErrorData::internal_error("cancelled", None))
            }
            _ = released.wait_for(|released| *released) => {
                Ok(CallToolResult::success(vec![ContentBlock::text("waited")]).into())
            }
        }
    }
}
