//! Attribution of models' calls, and of the limits learned from them, to tenants.

use std::sync::Arc;
use std::task::Context;

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use crate::outbound::{for_tenant, in_tenant};

/// A [`ModelSource`] whose models are called on behalf of the run's company; see [`for_tenant`].
pub struct TenantModels<S> {
    source: S,
}

impl<S> std::fmt::Debug for TenantModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantModels").finish_non_exhaustive()
    }
}

impl<S> TenantModels<S> {
    /// Wraps a source.
    pub fn new(source: S) -> Self {
        Self { source }
    }
}

impl<S: ModelSource> ModelSource for TenantModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        Ok(Arc::new(TenantModel::new(model, &context.company_id)))
    }
}

/// A model that is called on behalf of a tenant, see [`for_tenant`], with the limits that were learned from the tenant's calls.
pub struct TenantModel {
    model: Arc<dyn Model>,
    tenant: Arc<str>,
}

impl std::fmt::Debug for TenantModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantModel").finish_non_exhaustive()
    }
}

impl TenantModel {
    /// Wraps a model.
    pub fn new(model: Arc<dyn Model>, tenant: &str) -> Self {
        Self { model, tenant: tenant.into() }
    }
}

#[async_trait]
impl Model for TenantModel {
    fn info(&self) -> ModelInfo {
        in_tenant(self.tenant.clone(), || self.model.info())
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.model.counter()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        in_tenant(self.tenant.clone(), || self.model.prepare(request))
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let mut events = for_tenant(&self.tenant, self.model.start(payload)).await?;
        let tenant = self.tenant.clone();
        let poll_next = move |cx: &mut Context<'_>| in_tenant(tenant.clone(), || events.poll_next_unpin(cx));
        Ok(stream::poll_fn(poll_next).boxed())
    }
}
