//! The companies' providers of models.

use std::sync::Arc;

use agent_client::models::EmbeddedModels;
use agent_platform::providers::Providers;

/// The companies' providers, and the check of their addresses.
pub struct ProviderService {
    providers: Arc<Providers>,
    pub(in crate::app) models: Arc<EmbeddedModels>,
}

impl ProviderService {
    /// Creates the service. `models` decide about addresses as they do when they are called.
    pub fn new(providers: Arc<Providers>, models: Arc<EmbeddedModels>) -> Self {
        Self { providers, models }
    }

    /// Returns the providers.
    pub(in crate::app) fn store(&self) -> &Arc<Providers> {
        &self.providers
    }
}
