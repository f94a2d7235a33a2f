//! The embedding model that the settings select.

use std::sync::Arc;

use agent_client::embeddings::EmbeddingServer;
use agent_client::outbound::OutboundClient;
use agent_client::secret::BoundSecret;
use agent_retrieval::embed::Embedder;

use crate::StartError;
use crate::config::{AppConfig, EmbeddingConfig, EmbeddingServerConfig};
use crate::weights;

/// Builds the embedding model of the settings; `None` if documents are found by their words alone. Nothing is connected or
/// loaded yet.
///
/// # Errors
/// The base URL cannot have paths, or the files of a local model are missing.
pub fn embedder(
    config: &AppConfig,
    outbound: &OutboundClient,
) -> Result<Option<Arc<dyn Embedder>>, StartError> {
    let invalid = |error| StartError::Other(format!("EMBEDDING_BASE_URL cannot be used: {error}"));
    match &config.embedding {
        EmbeddingConfig::Lexical => Ok(None),
        EmbeddingConfig::OpenAi(settings) => {
            Ok(Some(Arc::new(server(settings, outbound).openai().map_err(invalid)?)))
        }
        EmbeddingConfig::Ollama(settings) => {
            Ok(Some(Arc::new(server(settings, outbound).ollama().map_err(invalid)?)))
        }
        EmbeddingConfig::Local(model) => Ok(Some(weights::open_embedder(config, model)?)),
    }
}

fn server(config: &EmbeddingServerConfig, outbound: &OutboundClient) -> EmbeddingServer {
    let EmbeddingServerConfig { base_url, api_key, model, dimensions } = config;
    let key = api_key.clone().map(|key| BoundSecret::new(base_url, key));
    EmbeddingServer {
        key,
        dimensions: *dimensions,
        ..EmbeddingServer::new(outbound.clone(), base_url.clone(), model)
    }
}

#[cfg(test)]
mod tests;
