//! Composition of the models that are called over HTTP.

use std::sync::Arc;

use agent_client::models::{EmbeddedModels, HostedVendor, ModelLimits, OllamaServer};
use agent_client::outbound::OutboundClient;
use agent_client::secret::BoundSecret;
use agent_core::model::Model;
use agent_platform::bpe::BpeCounter;
use agent_platform::company_permits::CompanyPermits;

use crate::StartError;
use crate::config::{AppConfig, HostedConfig, OllamaConfig, ServerConfig};

/// Maximum number of calls of the in-process model, with the running call, and of its calls of one company. The model's own
/// queue has room for all.
const MAX_LOCAL_CALLS: usize = 9;
const MAX_COMPANY_LOCAL_CALLS: usize = 5;

/// The in-process model, if there is one, and the permits of its calls.
pub(super) struct LocalModel {
    pub(super) model: Option<Arc<dyn Model>>,
    pub(super) permits: Arc<CompanyPermits>,
}

impl LocalModel {
    pub(super) fn new(model: Option<Arc<dyn Model>>) -> Self {
        Self { model, permits: CompanyPermits::new(MAX_LOCAL_CALLS, MAX_COMPANY_LOCAL_CALLS) }
    }
}

/// Creates the source of the application's models without the in-process model.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub(crate) fn model_source(config: &AppConfig) -> Result<EmbeddedModels, StartError> {
    let outbound = OutboundClient::new(config.server.outbound.clone())?;
    Ok(embedded_models(config, &outbound, None, &model_limits(&config.server)))
}

/// Creates the source of the models that the application calls itself.
pub(super) fn embedded_models(
    config: &AppConfig,
    outbound: &OutboundClient,
    local: Option<Arc<dyn Model>>,
    limits: &ModelLimits,
) -> EmbeddedModels {
    EmbeddedModels {
        hosted: hosted_vendor(&config.server.hosted, outbound, limits),
        anthropic: hosted_vendor(&config.anthropic, outbound, limits),
        ollama: ollama(&config.server.ollama, outbound, limits),
        prefers_ollama: config.server.ollama.preferred,
        local,
    }
}

/// Builds the limits that all models of a process share, with the windows that it learns.
pub(super) fn model_limits(server: &ServerConfig) -> ModelLimits {
    ModelLimits {
        context_window: server.context_window,
        max_output_tokens: server.max_output_tokens,
        catalog: server.catalog.clone(),
        counter: Some(Arc::new(BpeCounter)),
        ..ModelLimits::default()
    }
}

/// Creates a hosted vendor.
pub(super) fn hosted_vendor(
    config: &HostedConfig,
    outbound: &OutboundClient,
    limits: &ModelLimits,
) -> HostedVendor {
    HostedVendor {
        outbound: outbound.clone(),
        base_url: config.base_url.clone(),
        key: config.api_key.clone().map(|key| BoundSecret::new(&config.base_url, key)),
        default_model: config.model.clone(),
        key_setting: config.key_setting,
        needs_key: config.needs_key,
        limits: limits.clone(),
    }
}

/// Creates the Ollama server.
pub(super) fn ollama(config: &OllamaConfig, outbound: &OutboundClient, limits: &ModelLimits) -> OllamaServer {
    OllamaServer {
        outbound: outbound.clone(),
        base_url: config.base_url.clone(),
        default_model: config.model.clone(),
        num_ctx: config.num_ctx,
        limits: limits.clone(),
    }
}
