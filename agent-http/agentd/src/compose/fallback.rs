//! Composition of the repetition of models' calls.

use std::sync::Arc;

use agent_client::models::EmbeddedModels;
use agent_core::clock::SystemClock;
use agent_platform::fallback::{FallbackModels, FirstContentModels};
use agent_platform::model_cache::ModelCache;
use agent_platform::response_format::FormattedModels;
use agent_platform::usage::{MeteredModels, UsageRecorder};

use crate::config::AppConfig;

/// Has failed calls repeated, and made with an agent's fallbacks.
pub(super) fn with_fallbacks(
    config: &AppConfig,
    models: EmbeddedModels,
    usage: &UsageRecorder,
) -> FallbackModels<ModelCache<FirstContentModels<FormattedModels<EmbeddedModels>>>> {
    let clock = Arc::new(SystemClock);
    let models = FormattedModels::new(models, config.server.catalog.clone());
    let models = FirstContentModels::new(models, config.fallback.first_content, clock.clone());
    let models = MeteredModels::new(ModelCache::new(models), usage.clone());
    FallbackModels::new(models, config.fallback.defaults.clone(), Arc::default(), clock)
        .with_catalog(config.server.catalog.clone())
}
