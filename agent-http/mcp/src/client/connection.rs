//! A run's connection to its tool server: negotiates the protocol revision.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::McpClientLimits;
use super::discovery::DiscoveryEntry;
use super::exchange::Exchange;
use super::session::SessionConnection;
use super::stateless::StatelessClient;
use super::transport::ToolServerTransport;

/// A connection, by the server's revision of the protocol.
pub(super) enum Connection {
    /// Revision 2026-07-28.
    Stateless {
        client: StatelessClient,
        /// True if the revision is known from an earlier run only, so that the server may have changed meanwhile.
        is_cached: bool,
    },
    /// An older revision.
    Session(Arc<SessionConnection>),
}

impl Connection {
    /// Connects: negotiates the protocol revision, unless `discovery` has it, and initializes a session if the revision
    /// has sessions. `list_changes` counts the notifications that the server's list of tools has changed.
    ///
    /// The error is a message for the model.
    pub(super) async fn open(
        transport: Arc<dyn ToolServerTransport>,
        limits: McpClientLimits,
        discovery: DiscoveryEntry,
        list_changes: Arc<AtomicU64>,
    ) -> Result<Arc<Self>, Arc<str>> {
        let exchange = Exchange::new(transport, limits.call_timeout);
        let client = StatelessClient::new(exchange.clone(), limits.max_calls);
        if discovery.is_stateless() {
            return Ok(Arc::new(Self::Stateless { client, is_cached: true }));
        }
        let discovery_result = client.discover().await.map_err(|error| error.message())?;
        Ok(Arc::new(match discovery_result {
            Some(result) => {
                discovery.insert(&result);
                Self::Stateless { client, is_cached: false }
            }
            None => Self::Session(SessionConnection::open(exchange, limits.max_calls, list_changes).await?),
        }))
    }

    /// Returns true if another call can be sent.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Stateless { .. } => true,
            Self::Session(session) => session.is_open(),
        }
    }
}
