//! Error while establishing a connection.

use std::error::Error;

/// Error while establishing a connection: resolution, address policy, TCP, TLS or timeout.
#[derive(Debug, thiserror::Error)]
#[error("the connection failed")]
pub(super) struct ConnectError(#[source] pub(super) Box<dyn Error + Send + Sync>);
