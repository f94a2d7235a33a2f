//! The application, from its settings and stores.

use std::net::SocketAddr;
use std::sync::Arc;

use agent_client::clock::TokioClock;
use agent_client::outbound::OutboundClient;
use agent_core::model::Model;
use agent_core::prompt::PartCache;
use agent_http::app::{
    App, ConsoleService, ConversationService, DocumentUploads, ProviderService, RateLimiter, RequestBounds,
    SubscriptionService, UsageService,
};
use agent_http::shutdown::Shutdown;
use agent_http::state::ServiceBase;
use agent_platform::compaction::Compaction;
use agent_platform::fallback::Circuits;
use agent_platform::journal::Journals;
use agent_platform::layers::DocumentsLayer;
use agent_platform::own_tools::OwnToolRegistry;
use agent_platform::providers::Providers;
use agent_platform::retrieval::Retriever;
use agent_platform::run_registry::RunRegistry;
use agent_platform::token::Tokens;
use agent_platform::usage::UsageRecorder;
use agent_platform::user_rates::MinuteRateLimiter;
use serde_json::json;
use url::Url;

use super::background::background_spawner;
use super::compaction::compaction;
use super::fallback::circuits;
use super::jobs::{JobServices, job_services, scheduler_connection};
use super::models::{LocalModel, model_source};
use super::retrieval::{documents_layer, retriever};
use super::tools::{AgentTools, agent_tools, builtin_tools};
use super::{
    authenticator, coding, console, conversations, ingestion, journals, messenger, service_base,
    stream_limits, tokens, tool_services, usage, user_rates,
};
use crate::StartError;
use crate::config::AppConfig;
use crate::stores::Stores;

/// Builds the application, which will listen on `bound`.
///
/// # Errors
/// The outbound HTTP client cannot be created.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn application(
    config: &AppConfig,
    bound: SocketAddr,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
    shutdown: &Shutdown,
) -> Result<App, StartError> {
    ApplicationParts::new(config, bound, stores, local, shutdown)?.into_app(shutdown)
}

/// Parts of an application that others are made of.
pub(super) struct ApplicationParts<'a> {
    pub(super) config: &'a AppConfig,
    pub(super) stores: Stores,
    pub(super) outbound: OutboundClient,
    pub(super) public_url: Url,
    pub(super) tokens: Arc<Tokens>,
    pub(super) journals: Arc<Journals>,
    pub(super) tools: AgentTools,
    pub(super) own_tools: Arc<OwnToolRegistry>,
    pub(super) documents: DocumentsLayer,
    pub(super) part_cache: Arc<PartCache>,
    pub(super) coding: SubscriptionService,
    pub(super) local: LocalModel,
    pub(super) usage: UsageRecorder,
    pub(super) circuits: Arc<Circuits>,
    pub(super) conversations: Arc<ConversationService>,
    pub(super) providers: Arc<Providers>,
    pub(super) compaction: Compaction,
    base: ServiceBase,
    rates: MinuteRateLimiter,
    console: Option<ConsoleService>,
    jobs: JobServices,
    retriever: Arc<dyn Retriever>,
}

impl<'a> ApplicationParts<'a> {
    fn new(
        config: &'a AppConfig,
        bound: SocketAddr,
        stores: Stores,
        local: Option<Arc<dyn Model>>,
        shutdown: &Shutdown,
    ) -> Result<Self, StartError> {
        let (server, outbound) = (&config.server, OutboundClient::new(config.server.outbound.clone())?);
        let (public_url, tokens) = (config.public_url(bound), Arc::new(tokens(config, &stores)));
        let base = service_base(server, json!({"service": "app"}), shutdown);
        let (rates, console) = (user_rates(config, &stores), console(config, &public_url, &stores));
        let usage = usage::recorder(config, &stores, base.health.metrics(), (&rates, background_spawner()));
        let (journals, jobs) = (journals(&stores), job_services(config, &outbound, &stores));
        let (retriever, local) = (retriever(config, &stores, &outbound)?, LocalModel::new(local));
        let for_tools = tool_services(messenger(config, &outbound), &retriever, &jobs, &journals);
        let (tools, own_tools) = builtin_tools(&stores, for_tools, (&outbound, &journals), &usage);
        let (conversations, providers) = (conversations(config, &stores, shutdown), stores.providers());
        let tools = agent_tools(config, bound, &stores, tokens.clone(), (tools, &conversations));
        let (documents, part_cache) = documents_layer(config, &stores, retriever.clone());
        Ok(Self {
            config,
            coding: coding(config, &outbound, &stores),
            circuits: circuits(base.health.metrics()),
            compaction: compaction(config, &outbound, &stores, &local, (&usage, &providers)),
            stores,
            outbound,
            public_url,
            tokens,
            journals,
            tools,
            own_tools,
            documents,
            part_cache,
            local,
            usage,
            conversations,
            providers,
            base,
            rates,
            console,
            jobs,
            retriever,
        })
    }

    fn into_app(self, shutdown: &Shutdown) -> Result<App, StartError> {
        let platform = self.platform();
        let Self { config, stores, tools, tokens, console, .. } = self;
        let pulse = scheduler_connection(
            config,
            self.jobs,
            (&self.public_url, &tools.guarded),
            (&stores, &self.journals),
        );
        Ok(App {
            platform,
            pulse,
            uploads: DocumentUploads::new(ingestion(config, &stores, &tools.endpoint.server, self.retriever)),
            runs: RunRegistry::new(stores.records.clone(), Arc::new(TokioClock)),
            tools: tools.endpoint,
            approved_calls: tools.approved,
            roles: stores.roles.clone(),
            records: stores.records.clone(),
            documents: self.documents,
            conversations: self.conversations,
            coding: self.coding,
            auth: authenticator(config, tokens.clone(), console.as_ref()),
            console,
            has_widget: config.widget,
            tokens: tokens.clone(),
            rate_limiter: RateLimiter::new(tokens, self.rates),
            usage: UsageService::new(self.usage, config.usage_retention),
            compaction: self.compaction,
            own_tool_registry: self.own_tools,
            own_tools: Vec::new(),
            providers: ProviderService::new(self.providers, Arc::new(model_source(config)?)),
            quotas: config.quotas,
            catalog: config.server.catalog.clone(),
            bounds: RequestBounds::new(config.server.serve.connections),
            stream: stream_limits(&config.server, shutdown),
            base: self.base,
        })
    }
}
