//! Settings of an embedding model on a server.

use std::time::Duration;

use url::Url;

use crate::outbound::OutboundClient;
use crate::secret::BoundSecret;

/// Default timeout of a call.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// An embedding model on a server that the operator has configured.
#[derive(Clone)]
pub struct EmbeddingServer {
    /// HTTP client for the calls.
    pub outbound: OutboundClient,
    /// The server's base URL, such as `https://api.openai.com/v1` or `http://127.0.0.1:11434`.
    pub base_url: Url,
    /// The key, sent only to the base URL and below it.
    pub key: Option<BoundSecret>,
    /// Name of the model at the server.
    pub model: String,
    /// Number of components to ask for, if it is not the model's own.
    pub dimensions: Option<usize>,
    /// Time that a call may take, all of its requests together. Default: [`EmbeddingServer::new`].
    pub timeout: Duration,
}

impl std::fmt::Debug for EmbeddingServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingServer").finish_non_exhaustive()
    }
}

impl EmbeddingServer {
    /// Creates the settings of a model without a key, with its own number of components and a timeout of 60 s.
    pub fn new(outbound: OutboundClient, base_url: Url, model: impl Into<String>) -> Self {
        Self {
            outbound,
            base_url,
            key: None,
            model: model.into(),
            dimensions: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}
