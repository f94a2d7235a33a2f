//! Composition of the compaction of conversations.

use std::sync::Arc;

use agent_client::clock::TokioClock;
use agent_client::models::TenantModels;
use agent_client::outbound::OutboundClient;
use agent_platform::compaction::{Compaction, Summaries};
use agent_platform::fallback::FirstContentModels;
use agent_platform::local_models::SharedLocalModels;
use agent_platform::model_cache::ModelCache;
use agent_platform::providers::{ProviderModels, Providers};
use agent_platform::usage::{MeteredModels, UsageOperation, UsageRecorder};

use super::background::background_spawner;
use super::models::{LocalModel, embedded_models, model_limits};
use crate::config::AppConfig;
use crate::stores::Stores;

/// Creates the compaction, whose calls are booked separately from calls for answers and are not repeated by fallbacks.
pub(super) fn compaction(
    config: &AppConfig,
    outbound: &OutboundClient,
    stores: &Stores,
    local: &LocalModel,
    (usage, providers): (&UsageRecorder, &Arc<Providers>),
) -> Compaction {
    let clock = Arc::new(TokioClock);
    let models = embedded_models(config, outbound, local.model.clone(), &model_limits(&config.server));
    let operator = models.operator_addresses();
    let models = FirstContentModels::new(models, config.fallback.first_content, clock.clone());
    let models = ProviderModels::new(ModelCache::new(models), providers.clone());
    let models = SharedLocalModels::new(models, local.permits.clone());
    let models = MeteredModels::new(TenantModels::new(models), usage.clone());
    let models = models.with_operator_addresses(operator).for_operation(UsageOperation::Compact);
    let conversations = config.conversations.then(|| stores.conversations.clone());
    let summaries = Summaries::new(stores.records.clone(), conversations, clock.clone());
    Compaction::new(summaries, Arc::new(models), Some(providers.clone()), clock, background_spawner())
}
