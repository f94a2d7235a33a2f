//! Composition of the ledger of usage.

use std::sync::Arc;
use std::time::Duration;

use agent_client::backends::workflow::WorkflowBackend;
use agent_client::clock::TokioClock;
use agent_core::backend::{Backend, BuiltinSettings};
use agent_core::role::WorkflowConnector;
use agent_http::metrics::Metrics;
use agent_http::usage_metrics::UsageMetrics;
use agent_platform::spawner::Spawner;
use agent_platform::usage::{Booking, BudgetOptions, Budgets, MeteredBackend, UsageRecorder};
use agent_platform::user_rates::MinuteRateLimiter;

use crate::config::{AppConfig, EmbeddingConfig};
use crate::stores::Stores;

/// Time after the longest run until its reservations count as lost.
const LEASE_MARGIN: Duration = Duration::from_secs(60);

/// Creates the recorder of usage, and the budgets that limit it. `rates` count the runs of companies.
pub(super) fn recorder(
    config: &AppConfig,
    stores: &Stores,
    metrics: &Metrics,
    (rates, spawner): (&MinuteRateLimiter, Arc<dyn Spawner>),
) -> UsageRecorder {
    let catalog = config.server.catalog.clone();
    let observer = Arc::new(UsageMetrics::new(metrics, catalog, configured_models(config)));
    let (store, prices, clock) =
        (stores.usage.clone(), config.server.catalog.clone().into(), Arc::new(TokioClock));
    let options =
        BudgetOptions { lease: config.server.run_timeout + LEASE_MARGIN, ..BudgetOptions::default() };
    let budgets =
        Budgets::new(stores.records.clone(), store.clone(), clock.clone(), spawner.clone(), options)
            .with_default_limits(config.default_limits, rates.clone())
            .with_observer(observer.clone());
    UsageRecorder::new(store, prices, clock, spawner, Some(observer), Some(budgets))
}

/// Returns the providers and models that settings name.
fn configured_models(config: &AppConfig) -> Vec<(String, String)> {
    let named = |provider: &str, model: &str| (provider.to_owned(), model.to_owned());
    let mut models =
        vec![named("openai", &config.server.hosted.model), named("anthropic", &config.anthropic.model)];
    models.extend(config.server.ollama.model.iter().map(|model| named("ollama", model)));
    let fallbacks = config.fallback.defaults.fallbacks.iter();
    models.extend(fallbacks.filter_map(|entry| Some((entry.provider.clone()?, entry.model.clone()?))));
    models.extend(match &config.embedding {
        EmbeddingConfig::Lexical => None,
        EmbeddingConfig::OpenAi(server) => Some(named("openai", &server.model)),
        EmbeddingConfig::Ollama(server) => Some(named("ollama", &server.model)),
        EmbeddingConfig::Local(model) => Some(named("local", model)),
    });
    models
}

/// Wraps a backend whose models are [`MeteredModels`](agent_platform::usage::MeteredModels), or whose agent servers are
/// [`MeteredServers`](agent_platform::usage::MeteredServers).
pub(super) fn per_call<B>(backend: B, usage: &UsageRecorder) -> MeteredBackend<B>
where
    B: Backend<Settings: BuiltinSettings>,
{
    MeteredBackend::new(backend, B::Settings::KIND, Booking::PerCall, usage.clone())
}

/// Wraps the backend of workflows.
pub(super) fn workflow(backend: WorkflowBackend, usage: &UsageRecorder) -> MeteredBackend<WorkflowBackend> {
    let booking = Booking::PerRun(|_| ("workflow", ""));
    MeteredBackend::new(backend, WorkflowConnector::KIND, booking, usage.clone())
}
