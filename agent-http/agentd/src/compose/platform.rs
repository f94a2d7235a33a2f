//! The platform of an application: its layers and backends.

use std::sync::Arc;

use agent_client::backends::agent_server::AgentServerBackend;
use agent_client::backends::subscription::{SubscriptionAccess, SubscriptionModels};
use agent_client::backends::workflow::WorkflowBackend;
use agent_client::clock::TokioClock;
use agent_client::models::ModelLimits;
use agent_client::outbound::OutboundClient;
use agent_core::backend::{BackendSettings, EmbeddedBackend, ModelSource};
use agent_core::context::RoleLayer;
use agent_core::turn::Platform;
use agent_http::app::SubscriptionService;
use agent_platform::bpe::BpeCounter;
use agent_platform::fallback::FallbackBudget;
use agent_platform::journal::JournaledModels;
use agent_platform::layers::{CallerLayer, CouncilLayer, ExecutionLayer, MemoryLayer, PageLayer};
use agent_platform::own_tools::ReportedToolChanges;
use agent_platform::preview::LatestPrompts;
use agent_platform::providers::ProviderRoles;
use agent_platform::response_format::{FormattedModels, ValidatedModels};
use agent_platform::run_observer::ObservedModels;
use agent_platform::usage::MeteredModels;
use agent_platform::users::RecordUsers;
use url::Url;

use super::application::ApplicationParts;
use super::fallback::{with_fallbacks, with_server_fallbacks};
use super::models::{embedded_models, model_limits};
use super::usage;
use crate::config::AppConfig;

impl ApplicationParts<'_> {
    /// Builds the platform, which runs turns.
    pub(super) fn platform(&self) -> Platform {
        let Self { stores, part_cache, usage, circuits, .. } = self;
        let (config, changes) = (self.config, self.own_tools.tool_changes());
        let limits = model_limits(&config.server);
        let models = embedded_models(config, &self.outbound, self.local.model.clone(), &limits);
        let operator = models.operator_addresses();
        let models = with_fallbacks(config, models, usage, (&self.providers, circuits, &self.local.permits));
        let model_fallbacks = models.limits();
        let embedded = self.model_backend(models);
        let subscriptions = subscriptions(config, &self.outbound, &self.coding, &limits);
        let subscriptions = FormattedModels::new(subscriptions, config.server.catalog.clone());
        let subscriptions = self.model_backend(MeteredModels::new(subscriptions, usage.clone()));
        let agent_server = agent_server_backend(config, &self.outbound, &self.public_url, limits);
        let agent_server = with_server_fallbacks(config, agent_server, (usage, operator), circuits.clone());
        let history = FallbackBudget::new(self.compaction.clone(), [model_fallbacks, agent_server.limits()]);
        let workflow = workflow_backend(config, &self.outbound, &self.public_url);
        Platform::new(Arc::new(ProviderRoles::new(stores.roles.clone(), self.providers.clone())))
            .with_users(Arc::new(RecordUsers::new(stores.records.clone())))
            .with_layer(RoleLayer::new(part_cache.clone()))
            .with_layer(CouncilLayer::new(part_cache.clone()))
            .with_layer(self.documents.clone())
            .with_layer(MemoryLayer::new(stores.records.clone(), part_cache.clone()))
            .with_layer(ExecutionLayer::new(part_cache.clone()))
            .with_layer(CallerLayer::new(part_cache.clone()))
            .with_layer(PageLayer::new(part_cache.clone()))
            .with_part_cache(part_cache.clone())
            .with_output_limits(config.server.output)
            .with_clock(Arc::new(TokioClock))
            .with_tools(self.tools.guarded.clone())
            .with_token_counter(Arc::new(BpeCounter))
            .with_sent_prompts(Arc::new(LatestPrompts::default()))
            .with_history_step(history)
            .with_run_tokens(self.tokens.clone())
            .with_backend(ReportedToolChanges::new(usage::per_call(embedded, usage), changes.clone()))
            .with_backend(ReportedToolChanges::new(usage::per_call(subscriptions, usage), changes.clone()))
            .with_backend(ReportedToolChanges::new(usage::per_call(agent_server, usage), changes.clone()))
            .with_backend(ReportedToolChanges::new(usage::workflow(workflow, usage), changes))
    }

    /// Returns the backend of models, whose answers are journaled, validated and recorded.
    fn model_backend<S: BackendSettings>(&self, models: impl ModelSource<S>) -> EmbeddedBackend<S> {
        let models = ValidatedModels::new(JournaledModels::new(models, self.journals.clone()));
        let models = ObservedModels::new(models, self.conversations.observers().clone());
        EmbeddedBackend::new(models)
            .with_tools(self.tools.guarded.clone())
            .with_clock(Arc::new(TokioClock))
            .with_limits(self.config.server.tool_loop)
    }
}

/// Creates the source of the subscriptions' models, which are called through the operator's own runtime.
pub(super) fn subscriptions(
    config: &AppConfig,
    outbound: &OutboundClient,
    coding: &SubscriptionService,
    limits: &ModelLimits,
) -> SubscriptionModels {
    let access = match (&config.runtime_url, coding.tokens()) {
        (Some(runtime), Ok(tokens)) => Ok(SubscriptionAccess {
            runtime: runtime.clone(),
            secret: config.runtime_secret.clone(),
            tokens: tokens.clone(),
        }),
        (None, _) => Err("RUNTIME_URL"),
        (_, Err(setting)) => Err(setting),
    };
    SubscriptionModels {
        outbound: outbound.clone(),
        access,
        limits: limits.clone(),
        allows_unattended: coding.is_allowed_unattended(),
    }
}

/// Returns the backend of agent servers; one of them may be the operator's own runtime.
pub(super) fn agent_server_backend(
    config: &AppConfig,
    outbound: &OutboundClient,
    public_url: &Url,
    limits: ModelLimits,
) -> AgentServerBackend {
    AgentServerBackend {
        outbound: outbound.clone(),
        own_runtime: config.runtime_url.clone().map(|url| (url, config.runtime_secret.clone())),
        public_url: public_url.clone(),
        run_token_ttl: config.server.run_timeout,
        limits,
    }
}

/// Returns the backend of workflows.
pub(super) fn workflow_backend(
    config: &AppConfig,
    outbound: &OutboundClient,
    public_url: &Url,
) -> WorkflowBackend {
    WorkflowBackend {
        outbound: outbound.clone(),
        public_url: public_url.clone(),
        run_token_ttl: config.mcp.workflow_ttl,
    }
}
