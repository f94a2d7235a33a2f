//! Notifications of tokens that end in this process.

use std::sync::{Arc, PoisonError, RwLock};

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Callback that receives the id of a token that has ended. It must not block.
pub type TokenEndListener = Arc<dyn Fn(&str) + Send + Sync>;

/// The listeners of a token service.
#[derive(Default)]
pub(super) struct TokenEndListeners(RwLock<Vec<TokenEndListener>>);

impl TokenEndListeners {
    pub(super) fn add(&self, listener: TokenEndListener) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Calls the listeners. The caller holds no lock that they could need.
    pub(super) fn notify(&self, id: Uuid) {
        let listeners = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if listeners.is_empty() {
            return;
        }
        let mut text = [0; Hyphenated::LENGTH];
        let id: &str = id.hyphenated().encode_lower(&mut text);
        listeners.iter().for_each(|listener| listener(id));
    }
}
