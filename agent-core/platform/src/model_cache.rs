//! Cache of models, keyed by their settings.

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::AgentError;
use agent_core::model::Model;
use agent_core::role::EmbeddedAi;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Maximum size of the cache, in bytes of settings and models: some thousands of models. The least used are evicted first.
const MAX_CACHE_BYTES: u64 = 4 << 20;
/// Approximate size of a model in bytes, without the strings of its settings.
const ESTIMATED_MODEL_BYTES: usize = 1024;

/// Caches the models that a source has created, by their settings.
///
/// A turn looks its model up at each of its steps, and creating a model, which parses and checks an address, may take
/// longer than the step. Use it only with a source whose models depend on the settings alone, since a cached model is
/// not recreated. Errors are not cached.
pub struct ModelCache<S> {
    source: S,
    cache: Cache<EmbeddedAi, Arc<dyn Model>, ModelWeighter>,
}

impl<S> std::fmt::Debug for ModelCache<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelCache").finish_non_exhaustive()
    }
}

impl<S: ModelSource> ModelCache<S> {
    /// Creates a cache over `source`.
    pub fn new(source: S) -> Self {
        let usual = usize::try_from(MAX_CACHE_BYTES).unwrap_or(usize::MAX) / ESTIMATED_MODEL_BYTES;
        Self { source, cache: Cache::with_weighter(usual, MAX_CACHE_BYTES, ModelWeighter) }
    }
}

impl<S: ModelSource> ModelSource for ModelCache<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.cache.get_or_insert_with(settings, || self.source.model(settings))
    }
}

#[derive(Clone)]
struct ModelWeighter;

impl Weighter<EmbeddedAi, Arc<dyn Model>> for ModelWeighter {
    fn weight(&self, settings: &EmbeddedAi, _: &Arc<dyn Model>) -> u64 {
        let EmbeddedAi {
            provider,
            model,
            base_url,
            api_key,
            reasoning_effort,
            parameters,
            prices: _,
            response_format,
            retry: _,
            fallbacks,
            company_model,
            enable_thinking: _,
            token_limits: _,
        } = settings;
        let own = [provider, model, base_url, reasoning_effort];
        let of_fallbacks = fallbacks
            .iter()
            .flat_map(|other| [&other.provider, &other.model, &other.base_url, &other.reasoning_effort]);
        let string_bytes = own.into_iter().chain(of_fallbacks).flatten().map(String::len).sum::<usize>();
        let parameters = fallbacks.iter().map(|other| &other.parameters).chain([parameters]);
        let entries = fallbacks.iter().map(|other| &other.company_model).chain([company_model]);
        let parameters = parameters.chain(entries.filter_map(Option::as_deref));
        let parameters =
            parameters.map(|all| serde_json::to_vec(all).map_or(0, |json| json.len())).sum::<usize>();
        let keys = fallbacks.iter().map(|other| &other.api_key).chain([api_key]).flatten();
        let key = keys.map(|key| key.expose().len()).sum::<usize>();
        let format = response_format
            .as_ref()
            .map_or(0, |format| serde_json::to_vec(format).map_or(0, |json| json.len()));
        // The model holds its own copies of the strings.
        (2 * (string_bytes + key + parameters + format) + ESTIMATED_MODEL_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agent_core::error::AgentErrorKind;
    use agent_core::secret::Secret;
    use agent_core::testing::ScriptedModel;

    use super::*;

    /// A model source that counts the models it creates. Clones share the count.
    #[derive(Clone, Default)]
    struct CountingModelSource(Arc<AtomicUsize>);

    impl ModelSource for CountingModelSource {
        fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match settings.provider.as_deref() {
                Some("unknown") => Err(AgentError::new(AgentErrorKind::UnknownProvider, "none such")),
                _ => Ok(Arc::new(ScriptedModel::new([]))),
            }
        }
    }

    fn settings(provider: &str, key: &str) -> EmbeddedAi {
        EmbeddedAi {
            provider: Some(provider.to_owned()),
            api_key: Some(Secret::new(key)),
            ..EmbeddedAi::default()
        }
    }

    #[test]
    fn a_model_is_made_once_for_each_set_of_settings() {
        let source = CountingModelSource::default();
        let models = ModelCache::new(source.clone());
        let get = |settings: &EmbeddedAi| models.model(settings).expect("a model");
        let first = get(&settings("openai", "k1"));
        assert!(Arc::ptr_eq(&first, &get(&settings("openai", "k1"))));
        assert!(!Arc::ptr_eq(&first, &get(&settings("openai", "k2"))), "another key is another model");
        assert!(!Arc::ptr_eq(&first, &get(&settings("ollama", "k1"))));
        assert_eq!(source.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn refused_models_are_not_cached() {
        let source = CountingModelSource::default();
        let models = ModelCache::new(source.clone());
        for asked in 1..=2 {
            assert!(models.model(&settings("unknown", "k")).is_err());
            assert_eq!(source.0.load(Ordering::Relaxed), asked);
        }
    }
}
