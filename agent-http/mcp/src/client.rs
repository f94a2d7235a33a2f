//! MCP client: calls tools that another server runs.
//!
//! [`McpTools`] is the tool registry of one run. It connects at the first call, and the run's calls share that
//! connection concurrently. A server of revision 2026-07-28 is used without a session: each call is one HTTP exchange. If
//! the server allows it, a [`DiscoveryCache`] keeps its revision for later runs. Any other server receives `initialize`, and
//! has a session of 2025-11-25 or of a revision that it supports. The session ends with the run.
//!
//! A rejected call is sent again at most once, if the server has not run it:
//!
//! - The server no longer has the session (404). Another session is opened.
//! - The revision came from the cache, and the server now has an older revision.
//!
//! Dropping a call cancels it at the server (`notifications/cancelled`, or the end of its connection). Dropping the registry
//! ends the session. A separate task sends these messages.
//!
//! [`ToolServerSession`] is the connection to a server that a role names. It also lists the server's tools.
//!
//! An error of the server becomes the result of the call, which the model reads, and never ends the run. The URL is a
//! secret, because it contains the run token: only the [`ToolServerTransport`] knows it.

mod connection;
mod discovery;
mod errors;
mod events;
mod exchange;
mod http_client;
mod limits;
mod message;
mod param_headers;
mod session;
mod stateless;
mod tool_server;
mod transport;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use agent_platform::exact_json::exact_arguments;
use agent_platform::own_tools::CallMeta;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use tokio::time;

use self::connection::Connection;
use self::param_headers::{PARAM_HEADER_KEYWORD, ParamHeaders};

pub use self::discovery::{DiscoveryCache, DiscoveryEntry};
pub use self::errors::MAX_RESULT_BYTES;
pub use self::limits::McpClientLimits;
pub use self::tool_server::ToolServerSession;
pub use self::transport::{ResponseStream, ToolServerTransport, TransportResponse};

/// Time limit of all pages of a server's list of tools together, and of connecting before.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Tool registry of one run, backed by the MCP server that its request names.
pub struct McpTools {
    tools: Vec<Arc<ToolSpec>>,
    transport: Arc<dyn ToolServerTransport>,
    limits: McpClientLimits,
    discovery: DiscoveryEntry,
    /// Arguments that calls repeat in headers.
    param_headers: ParamHeaders,
    /// Number of notifications that the server's list of tools has changed.
    list_changes: Arc<AtomicU64>,
    /// The connection, or a pending attempt to connect that concurrent calls share.
    connection: Mutex<Option<Connecting>>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<str>>>>;

impl McpTools {
    /// Creates the registry of `tools`, which [`ToolRegistry::list`] returns, at the server behind `transport`. Nothing
    /// is sent before the first call. `discovery` is the server's entry in the process's cache.
    pub fn new(
        transport: Arc<dyn ToolServerTransport>,
        tools: Vec<Arc<ToolSpec>>,
        limits: McpClientLimits,
        discovery: DiscoveryEntry,
    ) -> Self {
        let param_headers = ParamHeaders::default();
        param_headers.set(tools.iter().filter_map(|tool| {
            let schema = tool.input_schema.get();
            let is_annotated = schema.contains(PARAM_HEADER_KEYWORD);
            let schema = is_annotated.then(|| serde_json::from_str::<JsonObject>(schema).ok()).flatten()?;
            Some((tool.name.clone(), schema))
        }));
        let list_changes = Arc::default();
        Self {
            tools,
            transport,
            limits,
            discovery,
            param_headers,
            list_changes,
            connection: Mutex::default(),
        }
    }

    /// Returns the run's connection. Concurrent calls share one attempt to connect and its outcome; a call after a
    /// failed attempt tries again.
    async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let connection = {
            let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            match slot.as_ref().filter(|connection| is_usable(connection)) {
                Some(connection) => connection.clone(),
                None => {
                    let attempt = Connection::open(
                        self.transport.clone(),
                        self.limits,
                        self.discovery.clone(),
                        self.list_changes.clone(),
                    );
                    slot.insert(attempt.boxed().shared()).clone()
                }
            }
        };
        connection.await.map_err(|message| ToolError::Unavailable(message.to_string()))
    }

    /// Negotiates the revision again, if no other call has done so since `rejected` was opened.
    async fn reconnect(&self, rejected: &Arc<Connection>) -> Result<Arc<Connection>, ToolError> {
        {
            let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let current = slot.as_ref().and_then(|connecting| connecting.peek());
            if current.is_some_and(|connection| {
                connection.as_ref().is_ok_and(|connection| Arc::ptr_eq(connection, rejected))
            }) {
                self.discovery.remove();
                *slot = None;
            }
        }
        self.connection().await
    }

    /// Returns the server's own list of tools.
    async fn list_at_server(&self) -> Result<Vec<Tool>, ToolError> {
        let list = time::timeout(LIST_TIMEOUT, self.request_list()).await;
        let tools = list.map_err(|_| errors::unavailable(errors::SLOW_LIST))??;
        self.param_headers.set(tools.iter().map(|tool| (tool.name.to_string(), &*tool.input_schema)));
        Ok(tools)
    }

    async fn request_list(&self) -> Result<Vec<Tool>, ToolError> {
        let connection = self.connection().await?;
        let (client, is_cached) = match &*connection {
            Connection::Session(session) => return session.list_tools().await,
            Connection::Stateless { client, is_cached } => (client, *is_cached),
        };
        let error = match client.list_tools().await {
            Ok(tools) => return tools,
            Err(error) => error,
        };
        if is_cached
            && error.may_reject_revision()
            && let Connection::Session(session) = &*self.reconnect(&connection).await?
        {
            return session.list_tools().await;
        }
        Err(ToolError::Unavailable(error.message()))
    }

    /// Returns the number of notifications that the server's list of tools has changed.
    fn list_changes(&self) -> u64 {
        self.list_changes.load(Ordering::SeqCst)
    }

    /// Closes the connection; the next request opens another one.
    fn close(&self) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn call_at_server(
        &self,
        name: &str,
        arguments: JsonObject,
        meta: CallMeta<'_>,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let connection = self.connection().await?;
        let (client, is_cached) = match &*connection {
            Connection::Session(session) => {
                return session.clone().call(name, arguments, meta, progress).await;
            }
            Connection::Stateless { client, is_cached } => (client, *is_cached),
        };
        let headers = self.param_headers.of_call(name, &arguments);
        let error = match client.call((name, headers), &arguments, meta, progress).await {
            Ok(result) => return result,
            Err(error) => error,
        };
        if is_cached
            && error.may_reject_revision()
            && let Connection::Session(session) = &*self.reconnect(&connection).await?
        {
            return session.clone().call(name, arguments, meta, progress).await;
        }
        Err(error.into_tool_error())
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
        context: &ExecutionContext,
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
        let arguments = exact_arguments(arguments, context);
        let meta =
            CallMeta { idempotency_key: context.idempotency_key.as_deref(), trace: context.trace.as_ref() };
        self.call_at_server(name, arguments, meta, progress).await
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}
