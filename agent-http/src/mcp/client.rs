//! Tools that another server runs, called over the Model Context Protocol.
//!
//! [`McpTools`] is the registry of one run. It connects at the first call, and the run's calls share that
//! connection, side by side. A server of the revision 2026-07-28 is asked without a session; any other is
//! greeted by `initialize` and gets a session of 2025-11-25 or of what it speaks, which is ended with the
//! run. A session that the server has forgotten is opened anew and the call repeated, since a server that
//! does not know the session (404) has not run it; nothing else is ever sent twice.
//!
//! Dropping a call cancels it at the server (`notifications/cancelled`, or the end of its connection), and
//! dropping the registry ends the session; what has to be sent for that is sent by a task of its own.
//!
//! Whatever the server does wrong is the one call's result, for the model to read, and never the run's end.
//! The address is a secret, for it carries the run's token: no error and no log line holds it.

mod connection;
mod events;
mod fault;
mod http_client;
pub(super) mod output;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::error::Failure;
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde_json::Value;

use self::connection::Connection;
use self::http_client::Server;
use crate::backend::supplied_url;
use crate::outbound::{Outbound, Trust};

pub use self::http_client::MAX_RESULT_BYTES;

/// The bounds of a run's calls.
#[derive(Debug, Clone, Copy)]
pub struct McpLimits {
    /// How long connecting, and then a call, may take. Whoever calls may give up earlier.
    pub call_timeout: Duration,
    /// How many calls may be under way at once; more wait.
    pub max_calls: usize,
}

/// One run's tools, at the server that its request names.
pub struct McpTools {
    tools: Vec<Arc<ToolSpec>>,
    server: Server,
    max_calls: usize,
    /// The connection, or the attempt to make it that the calls wait for together.
    connection: Mutex<Option<Connecting>>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<str>>>>;

impl McpTools {
    /// The registry of `tools`, which are what it lists, at `url`. Nothing is sent before the first call.
    ///
    /// # Errors
    /// `InvalidRequest` for a `url` that is none, which names the field `mcpServerUrl`; `Blocked` where the
    /// address policy can tell without resolving a name.
    pub fn new(
        outbound: Outbound,
        url: &Secret,
        tools: Vec<Arc<ToolSpec>>,
        limits: McpLimits,
    ) -> Result<Self, Failure> {
        let url = supplied_url("mcpServerUrl", url.expose())?;
        outbound.post(&url, Trust::Supplied)?;
        let server = Server { outbound, url, timeout: limits.call_timeout };
        Ok(Self { tools, server, max_calls: limits.max_calls, connection: Mutex::default() })
    }

    /// The run's connection. Calls that need one at the same time make one together, and share what comes
    /// of it; a call that comes after a failure tries anew.
    async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let connecting = {
            let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            match slot.as_ref().filter(|connecting| is_usable(connecting)) {
                Some(connecting) => connecting.clone(),
                None => {
                    let connect = Connection::open(self.server.clone(), self.max_calls);
                    slot.insert(connect.boxed().shared()).clone()
                }
            }
        };
        connecting.await.map_err(|fault| ToolError::Unavailable(fault.to_string()))
    }
}

/// Whether a connection is open or still to be made.
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
