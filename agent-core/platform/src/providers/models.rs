//! [`ProviderModels`]: models whose provider is read again before each call.

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::CompanyId;
use agent_core::model::{Model, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;

use super::Providers;
use crate::forward_model::forward_model;
use crate::records::StoreError;

/// A [`ModelSource`] that reads the key and the address of a company's provider at the beginning of each call, so that a changed
/// key takes effect within a run.
pub struct ProviderModels<S> {
    source: Arc<S>,
    providers: Arc<Providers>,
}

impl<S> std::fmt::Debug for ProviderModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderModels").finish_non_exhaustive()
    }
}

impl<S> ProviderModels<S> {
    /// Wraps a source.
    pub fn new(source: S, providers: Arc<Providers>) -> Self {
        Self { source: Arc::new(source), providers }
    }
}

impl<S: ModelSource> ModelSource for ProviderModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        let Some(id) = settings.company_model.as_ref().and_then(|entry| entry.get("provider")?.as_str())
        else {
            return Ok(model);
        };
        Ok(Arc::new(ProviderModel {
            model,
            source: self.source.clone(),
            providers: self.providers.clone(),
            company: context.company_id.clone(),
            id: id.to_owned(),
            settings: settings.clone(),
        }))
    }
}

/// A model of a company's provider in one run.
struct ProviderModel<S> {
    /// The model as of the beginning of the run, which builds the requests.
    model: Arc<dyn Model>,
    source: Arc<S>,
    providers: Arc<Providers>,
    company: CompanyId,
    id: String,
    settings: EmbeddedAi,
}

impl<S: ModelSource> ProviderModel<S> {
    /// Returns the model with the key and the address that the provider has now.
    async fn current(&self) -> Result<Arc<dyn Model>, AgentError> {
        let opened = self.providers.open(&self.company, &self.id).await;
        let Some(provider) = opened.map_err(|error| store_error(&self.id, error))? else {
            let message = format!("the company has no provider {:?}", self.id);
            return Err(AgentError::new(AgentErrorKind::UnknownProvider, message));
        };
        let mut settings = self.settings.clone();
        provider.complete(&mut settings);
        if settings.provider != self.settings.provider {
            let message = format!("the type of the provider {:?} was changed during the run", self.id);
            return Err(AgentError::new(AgentErrorKind::InvalidRequest, message));
        }
        let is_same =
            (&settings.base_url, &settings.api_key) == (&self.settings.base_url, &self.settings.api_key);
        if is_same { Ok(self.model.clone()) } else { self.source.model(&settings) }
    }
}

fn store_error(id: &str, error: StoreError) -> AgentError {
    let (kind, message) = match error {
        StoreError::NotConfigured(_) | StoreError::UnreadableSecret { .. } => {
            (AgentErrorKind::NotConfigured, format!("the key of the provider {id:?} cannot be read"))
        }
        _ => (AgentErrorKind::StoreUnavailable, format!("the provider {id:?} cannot be read now")),
    };
    AgentError::new(kind, message).with_source(error)
}

#[async_trait]
impl<S: ModelSource> Model for ProviderModel<S> {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.current().await?.start(payload).await
    }
}
