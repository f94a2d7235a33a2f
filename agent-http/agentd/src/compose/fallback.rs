//! Composition of the repetition of calls of models and agent servers.

use std::sync::Arc;

use agent_client::backends::agent_server::AgentServerBackend;
use agent_client::clock::TokioClock;
use agent_client::models::{EmbeddedModels, TenantModels};
use agent_http::metrics::Metrics;
use agent_http::usage_metrics::register_circuits;
use agent_platform::company_permits::CompanyPermits;
use agent_platform::fallback::{
    Circuits, FallbackModels, FallbackServers, FirstContentModels, FirstContentServers, SilenceLimitedModels,
};
use agent_platform::local_models::SharedLocalModels;
use agent_platform::model_cache::ModelCache;
use agent_platform::parameter_notices::ParameterNotices;
use agent_platform::providers::{ProviderModels, Providers};
use agent_platform::response_format::FormattedModels;
use agent_platform::usage::{MeteredModels, MeteredServers, OperatorAddresses, UsageRecorder};

use crate::config::AppConfig;

/// Models of containers, from the innermost wrapper: cached by their settings; called with the key and the address of the
/// company's provider; limited to the company's share of the in-process model; called on behalf of the company; limited in
/// the silence of answers that are delivered whole; and with notices of the parameters that are not sent.
type ProvidedModels =
    ParameterNotices<SilenceLimitedModels<TenantModels<SharedLocalModels<ProviderModels<CachedModels>>>>>;

/// Models of containers, cached by their settings.
type CachedModels = ModelCache<FirstContentModels<FormattedModels<EmbeddedModels>>>;

/// Creates the circuits of a process; the number of open circuits is a metric.
pub(super) fn circuits(metrics: &Metrics) -> Arc<Circuits> {
    let circuits = Arc::default();
    register_circuits(metrics, Arc::clone(&circuits));
    circuits
}

/// Wraps the models so that failed calls are repeated, and then made with an agent's fallbacks.
pub(super) fn with_fallbacks(
    config: &AppConfig,
    models: EmbeddedModels,
    usage: &UsageRecorder,
    (providers, circuits, local_permits): (&Arc<Providers>, &Arc<Circuits>, &Arc<CompanyPermits>),
) -> FallbackModels<ProvidedModels> {
    let (clock, operator) = (Arc::new(TokioClock), models.operator_addresses());
    let models = FormattedModels::new(models, config.server.catalog.clone());
    let models = FirstContentModels::new(models, config.fallback.first_content, clock.clone());
    let models = ProviderModels::new(ModelCache::new(models), providers.clone());
    let models = SharedLocalModels::new(models, local_permits.clone());
    let models =
        SilenceLimitedModels::new(TenantModels::new(models), config.server.stream_idle, clock.clone());
    let models = MeteredModels::new(ParameterNotices::new(models), usage.clone());
    let models = models.with_operator_addresses(operator);
    FallbackModels::new(models, config.fallback.defaults.clone(), circuits.clone(), clock)
        .with_catalog(config.server.catalog.clone())
}

/// Wraps the runtimes so that failed calls are repeated, and then made with the fallbacks of an agent's server.
pub(super) fn with_server_fallbacks(
    config: &AppConfig,
    servers: AgentServerBackend,
    (usage, operator): (&UsageRecorder, OperatorAddresses),
    circuits: Arc<Circuits>,
) -> FallbackServers {
    let clock = Arc::new(TokioClock);
    let servers = FirstContentServers::new(servers, config.fallback.first_content, clock.clone());
    let servers = MeteredServers::new(servers, usage.clone()).with_operator_addresses(operator);
    FallbackServers::new(servers, config.fallback.defaults.clone(), circuits, clock)
        .with_catalog(config.server.catalog.clone())
}
