//! Models that are kept from turn to turn.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::ModelSource;
use crate::error::Failure;
use crate::model::Model;
use crate::role::EmbeddedAi;

/// How much is kept, in bytes of settings and models: some thousands. The least used give way.
const MAX_BYTES: u64 = 4 << 20;
/// What a model takes besides the words of its settings, roughly.
const MODEL_BYTES: usize = 1024;

/// Gives for the same settings the model again that a source has made for them.
///
/// A turn asks for its model at each of its steps, and to make one may take more than the step: an address is read
/// and checked. Good for a source that goes by the settings alone, since what it has made is not made anew as long as
/// it is kept; what it refuses is asked again each time.
pub struct KeptModels<S> {
    source: S,
    kept: Cache<EmbeddedAi, Arc<dyn Model>, Bytes>,
}

impl<S: ModelSource> KeptModels<S> {
    /// Keeps what `source` makes.
    pub fn new(source: S) -> Self {
        let usual = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX) / MODEL_BYTES;
        Self { source, kept: Cache::with_weighter(usual, MAX_BYTES, Bytes) }
    }
}

impl<S: ModelSource> ModelSource for KeptModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        self.kept.get_or_insert_with(settings, || self.source.model(settings))
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<EmbeddedAi, Arc<dyn Model>> for Bytes {
    fn weight(&self, settings: &EmbeddedAi, _: &Arc<dyn Model>) -> u64 {
        let EmbeddedAi { provider, model, base_url, api_key } = settings;
        let words = [provider, model, base_url].into_iter().flatten().map(String::len).sum::<usize>();
        let key = api_key.as_ref().map_or(0, |key| key.expose().len());
        // The model has its own copies.
        (2 * (words + key) + MODEL_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::FailureKind;
    use crate::secret::Secret;
    use crate::testing::ScriptedModel;

    /// Makes a model each time it is asked, and counts.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl ModelSource for Arc<Counting> {
        fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match settings.provider.as_deref() {
                Some("unknown") => Err(Failure::new(FailureKind::UnknownProvider, "none such")),
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
    fn a_model_is_made_once_for_its_settings_and_anew_for_others() {
        let source = Arc::new(Counting::default());
        let models = KeptModels::new(source.clone());
        let get = |settings: &EmbeddedAi| models.model(settings).expect("a model");
        let first = get(&settings("openai", "k1"));
        assert!(Arc::ptr_eq(&first, &get(&settings("openai", "k1"))));
        assert!(!Arc::ptr_eq(&first, &get(&settings("openai", "k2"))), "another key is another model");
        assert!(!Arc::ptr_eq(&first, &get(&settings("ollama", "k1"))));
        assert_eq!(source.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_is_refused_is_asked_again() {
        let source = Arc::new(Counting::default());
        let models = KeptModels::new(source.clone());
        for asked in 1..=2 {
            assert!(models.model(&settings("unknown", "k")).is_err());
            assert_eq!(source.0.load(Ordering::Relaxed), asked);
        }
    }
}
