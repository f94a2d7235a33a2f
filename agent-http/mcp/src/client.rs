//! MCP client: calls tools that another server runs.
//!
//! [`McpTools`] is the tool registry of one run. It connects at the first call, and the run's calls share that
//! connection concurrently. A server of revision 2026-07-28 is used without a session. Any other server receives
//! `initialize`, and a session of 2025-11-25 or of a revision that it supports, which is ended with the run. A session
//! that the server has forgotten is re-opened and the call repeated, since a server that does not know the session
//! (404) has not run the call; no other request is ever sent twice.
//!
//! Dropping a call cancels it at the server (`notifications/cancelled`, or the end of its connection), and dropping the
//! registry ends the session; the messages for that are sent by a separate task.
//!
//! Any error of the server becomes the result of the one call, for the model to read, and never ends the run. The URL
//! is a secret, because it carries the run token: only the [`ToolServerTransport`] knows it.

mod connection;
mod events;
mod fault;
mod http_client;
mod transport;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde_json::Value;

use self::connection::Connection;

pub use self::fault::MAX_RESULT_BYTES;
pub use self::transport::{ResponseStream, ToolServerTransport, TransportResponse};

/// Limits of a run's calls.
#[derive(Debug, Clone, Copy)]
pub struct McpClientLimits {
    /// Timeout for connecting, and for each call. Callers may use a shorter one.
    pub call_timeout: Duration,
    /// Maximum number of concurrent calls; further calls wait.
    pub max_calls: usize,
}

/// Tool registry of one run, backed by the MCP server that its request names.
pub struct McpTools {
    tools: Vec<Arc<ToolSpec>>,
    transport: Arc<dyn ToolServerTransport>,
    limits: McpClientLimits,
    /// The connection, or a pending attempt to connect that concurrent calls share.
    connection: Mutex<Option<Connecting>>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<str>>>>;

impl McpTools {
    /// Creates the registry of `tools`, which [`ToolRegistry::list`] returns, at the server behind `transport`. Nothing
    /// is sent before the first call.
    pub fn new(
        transport: Arc<dyn ToolServerTransport>,
        tools: Vec<Arc<ToolSpec>>,
        limits: McpClientLimits,
    ) -> Self {
        Self { tools, transport, limits, connection: Mutex::default() }
    }

    /// Returns the run's connection. Concurrent calls share one attempt to connect and its outcome; a call after a
    /// failed attempt tries again.
    async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let connecting = {
            let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            match slot.as_ref().filter(|connecting| is_usable(connecting)) {
                Some(connecting) => connecting.clone(),
                None => {
                    let connect = Connection::open(self.transport.clone(), self.limits);
                    slot.insert(connect.boxed().shared()).clone()
                }
            }
        };
        connecting.await.map_err(|fault| ToolError::Unavailable(fault.to_string()))
    }
}

/// Returns true if a connection is open or being opened.
fn is_usable(connecting: &Connecting) -> bool {
    match connecting.peek() {
        None => true,
        Some(Ok(connection)) => connection.is_open(),
        Some(Err(_)) => false,
    }
}

#[async_trait]
impl ToolRegistry for McpTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(self.tools.clone())
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        if !self.tools.iter().any(|tool| tool.name == name) {
            return Err(ToolError::Unknown(name.to_owned()));
        }
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::InvalidArguments("they must be a JSON object".to_owned()));
        };
        self.connection().await?.call(name, arguments, progress).await
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}
