//! Composition root: the only module that chooses stores, models, layers and backends.

mod background;
mod compaction;
mod fallback;
mod jobs;
mod models;
mod replay;
mod retrieval;
mod tools;
mod usage;

use std::net::SocketAddr;
use std::sync::Arc;

use agent_client::backends::agent_server::AgentServerBackend;
use agent_client::backends::subscription::{SubscriptionAccess, SubscriptionModels};
use agent_client::backends::workflow::WorkflowBackend;
use agent_client::clock::TokioClock;
use agent_client::coding::RuntimeCodingAuthority;
use agent_client::device_auth::DeviceAuthClient;
use agent_client::messenger::RuntimeMessenger;
use agent_client::models::ModelLimits;
use agent_client::outbound::OutboundClient;
use agent_core::backend::{BackendSettings, EmbeddedBackend, ModelSource};
use agent_core::context::RoleLayer;
use agent_core::model::Model;
use agent_core::prompt::PartCache;
use agent_core::tool::ToolRegistry;
use agent_core::turn::Platform;
use agent_http::app::{
    App, ConsoleService, ConversationService, DocumentUploads, ProviderService, RateLimiter, RequestBounds,
    SubscriptionService, SubscriptionServiceConfig, UsageService,
};
use agent_http::auth::{Authenticator, BearerAuth};
use agent_http::health::HealthState;
use agent_http::runtime::{BotApi, CodingApi, CodingAuth, CodingIssuer, PROVIDERS, RuntimeState};
use agent_http::scheduler::{CallbackClient, JobCountCache, Scheduler, SchedulerMetrics, Worker};
use agent_http::shutdown::Shutdown;
use agent_http::state::ServiceBase;
use agent_http::stream::StreamLimits;
use agent_jobs::job::JobStore;
use agent_mcp::client::DiscoveryCache;
use agent_mcp::server::{Change, HostGuard, McpServer};
use agent_platform::bpe::BpeCounter;
use agent_platform::coding::CodingAuthority;
use agent_platform::compaction::Compaction;
use agent_platform::console::ConsoleSessions;
use agent_platform::fallback::{Circuits, FallbackBudget};
use agent_platform::ingestion::{Ingestion, IngestionLimits, IngestionServices};
use agent_platform::journal::{JournaledModels, Journals};
use agent_platform::layers::{
    CallerLayer, CouncilLayer, DocumentsLayer, ExecutionLayer, MemoryLayer, PageLayer,
};
use agent_platform::messenger::Messenger;
use agent_platform::own_tools::{OwnToolRegistry, ReportedToolChanges};
use agent_platform::preview::LatestPrompts;
use agent_platform::providers::{ProviderRoles, Providers};
use agent_platform::response_format::{FormattedModels, ValidatedModels};
use agent_platform::retrieval::Retriever;
use agent_platform::run_observer::{ObservedModels, RunObservers};
use agent_platform::run_registry::RunRegistry;
use agent_platform::token::Tokens;
use agent_platform::tools::ToolServices;
use agent_platform::usage::{MeteredModels, UsageRecorder};
use agent_platform::user_rates::MinuteRateLimiter;
use agent_platform::users::RecordUsers;
use agent_retrieval::extract::Extractor;
use serde_json::{Value, json};

use crate::StartError;
use crate::config::{AppConfig, CodingIssuerConfig, RuntimeConfig, SchedulerConfig, ServerConfig};
use crate::extract::{DocumentExtractor, ProcessExtractor};
use crate::stores::Stores;

use background::background_spawner;
use compaction::compaction;
use fallback::{circuits, with_fallbacks, with_server_fallbacks};
use jobs::{JobServices, job_services, scheduler_connection};
pub(crate) use models::model_source;
use models::{LocalModel, embedded_models, hosted_vendor, model_limits, ollama};
pub use replay::replay;
use retrieval::{documents_layer, retriever};
use tools::{AgentTools, agent_tools, builtin_tools};

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
    let AgentTools { endpoint: agent_tools, guarded: tools, approved } =
        agent_tools(config, bound, &stores, tokens.clone(), (tools, &conversations));
    let (coding, circuits) = (coding(config, &outbound, &stores), circuits(base.health.metrics()));
    let (documents, parts) = documents_layer(config, &stores, retriever.clone());
    let compaction = compaction(config, &outbound, &stores, &local, (&usage, &providers));
    let services =
        BackendServices { local, usage, circuits, conversations, providers, compaction, own_tools };
    Ok(App {
        uploads: DocumentUploads::new(ingestion(config, &stores, &agent_tools.server, retriever)),
        runs: RunRegistry::new(stores.records.clone(), Arc::new(TokioClock)),
        tools: agent_tools,
        pulse: scheduler_connection(config, jobs, (&public_url, &tools), (&stores, &journals)),
        roles: stores.roles.clone(),
        records: stores.records.clone(),
        documents: documents.clone(),
        tokens: tokens.clone(),
        platform: platform(
            config,
            (&outbound, &public_url),
            stores,
            (tools, journals, tokens.clone()),
            (parts, documents, &coding),
            &services,
        ),
        conversations: services.conversations,
        coding,
        auth: authenticator(config, tokens.clone(), console.as_ref()),
        console,
        has_widget: config.widget,
        approved_calls: approved,
        rate_limiter: RateLimiter::new(tokens, rates),
        usage: UsageService::new(services.usage, config.usage_retention),
        compaction: services.compaction,
        own_tool_registry: services.own_tools,
        own_tools: Vec::new(),
        providers: ProviderService::new(services.providers, Arc::new(model_source(config)?)),
        quotas: config.quotas,
        catalog: server.catalog.clone(),
        bounds: RequestBounds::new(server.serve.connections),
        stream: stream_limits(server, shutdown),
        base,
    })
}

/// Creates the journals of the occurrences of jobs.
fn journals(stores: &Stores) -> Arc<Journals> {
    Arc::new(Journals::new(stores.records.clone(), Arc::new(TokioClock)))
}

/// Returns the services of the built-in tools.
fn tool_services(
    messenger: Option<Arc<dyn Messenger>>,
    retriever: &Arc<dyn Retriever>,
    jobs: &JobServices,
    journals: &Arc<Journals>,
) -> ToolServices {
    ToolServices {
        retriever: Some(retriever.clone()),
        messenger,
        pulse: jobs.for_tools.clone(),
        journals: Some(journals.clone()),
    }
}

/// Creates the console, unless it is switched off.
fn console(config: &AppConfig, public_url: &url::Url, stores: &Stores) -> Option<ConsoleService> {
    let sessions = ConsoleSessions::new(stores.records.clone(), Arc::new(TokioClock));
    let hosts = config.allowed_hosts.iter().cloned();
    config.console.then(|| ConsoleService::new(Arc::new(sessions), public_url.clone(), hosts))
}

/// Creates the service of conversations, which are kept unless they are switched off.
fn conversations(config: &AppConfig, stores: &Stores, shutdown: &Shutdown) -> Arc<ConversationService> {
    let store = config.conversations.then(|| stores.conversations.clone());
    let (clock, spawner) = (Arc::new(TokioClock), background_spawner());
    ConversationService::with_settings(store, clock, spawner, shutdown.clone(), config.run_settings)
}

/// Creates the extraction of uploaded documents' texts.
fn ingestion(
    config: &AppConfig,
    stores: &Stores,
    server: &McpServer,
    retriever: Arc<dyn Retriever>,
) -> Ingestion {
    let announce = server.announcer();
    let services = IngestionServices {
        records: stores.records.clone(),
        extractor: extractor(config),
        clock: Arc::new(TokioClock),
        spawner: background_spawner(),
        on_end: Arc::new(move |company_id, id| {
            retriever.announce(company_id, id);
            announce(&Change::document(company_id, id));
        }),
    };
    Ingestion::new(services, IngestionLimits::default())
}

/// Creates the verification of sessions, tokens and the internal secret.
fn authenticator(config: &AppConfig, tokens: Arc<Tokens>, console: Option<&ConsoleService>) -> Authenticator {
    let AppConfig { session_secret, internal_secret, public_url, .. } = config;
    let auth = Authenticator::new(session_secret.as_ref(), internal_secret.clone(), public_url.as_ref());
    match console {
        Some(console) => auth.with_tokens(tokens).with_console(console.auth().clone()),
        None => auth.with_tokens(tokens),
    }
}

/// Creates the messenger that sends through agents' bots; it calls the operator's own runtime. `None` without
/// a runtime URL.
fn messenger(config: &AppConfig, outbound: &OutboundClient) -> Option<Arc<dyn Messenger>> {
    let (outbound, secret) = (outbound.clone(), config.runtime_secret.clone());
    let runtime = config.runtime_url.clone()?;
    Some(Arc::new(RuntimeMessenger { outbound, runtime, secret }))
}

/// Creates the extractor of documents' text.
pub fn extractor(config: &AppConfig) -> Arc<dyn Extractor> {
    Arc::new(DocumentExtractor::new(ProcessExtractor::new(config.extraction)))
}

/// Creates the tokens. With `DATA_SECRET`, every process that has it accepts the run tokens of this one.
fn tokens(config: &AppConfig, stores: &Stores) -> Tokens {
    let tokens = Tokens::new(stores.records.clone(), Arc::new(TokioClock));
    match &config.data_secret {
        Some(_) => tokens.with_shared_run_tokens(stores.roles.sealer().clone(), background_spawner()),
        // No other process has the key of a store in memory.
        None => tokens,
    }
}

/// Creates the limits of users' requests, which are counted in the store.
fn user_rates(config: &AppConfig, stores: &Stores) -> MinuteRateLimiter {
    let clock = Arc::new(TokioClock);
    MinuteRateLimiter::new(stores.records.clone(), config.session_limits, clock, background_spawner())
}

/// Creates the users' subscriptions, whose issuer is reached through the operator's own runtime.
fn coding(config: &AppConfig, outbound: &OutboundClient, stores: &Stores) -> SubscriptionService {
    let authority = config.runtime_url.clone().map(|runtime| {
        let (outbound, secret) = (outbound.clone(), config.runtime_secret.clone());
        Arc::new(RuntimeCodingAuthority { outbound, runtime, secret }) as Arc<dyn CodingAuthority>
    });
    SubscriptionService::new(SubscriptionServiceConfig {
        authority,
        records: stores.records.clone(),
        sealer: stores.roles.sealer().clone(),
        clock: Arc::new(TokioClock),
        spawner: background_spawner(),
        is_allowed_unattended: config.coding_unattended,
    })
}

/// Creates the source of the subscriptions' models, which are called through the operator's own runtime.
fn subscriptions(
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

/// Services of the backends of the platform.
struct BackendServices {
    local: LocalModel,
    usage: UsageRecorder,
    circuits: Arc<Circuits>,
    conversations: Arc<ConversationService>,
    providers: Arc<Providers>,
    compaction: Compaction,
    own_tools: Arc<OwnToolRegistry>,
}

fn platform(
    config: &AppConfig,
    (outbound, public_url): (&OutboundClient, &url::Url),
    stores: Stores,
    (tools, journals, run_tokens): (Arc<dyn ToolRegistry>, Arc<Journals>, Arc<Tokens>),
    (parts, documents, coding): (Arc<PartCache>, DocumentsLayer, &SubscriptionService),
    services: &BackendServices,
) -> Platform {
    let BackendServices { local, usage, circuits, conversations, providers, .. } = services;
    let BackendServices { compaction, own_tools, .. } = services;
    let (observers, changes) = (conversations.observers(), own_tools.tool_changes());
    let limits = model_limits(&config.server);
    let models = embedded_models(config, outbound, local.model.clone(), &limits);
    let operator = models.operator_addresses();
    let models = with_fallbacks(config, models, usage, (providers, circuits, &local.permits));
    let model_fallbacks = models.limits();
    let embedded = model_backend(config, models, (&tools, &journals), observers);
    let subscriptions = subscriptions(config, outbound, coding, &limits);
    let subscriptions = FormattedModels::new(subscriptions, config.server.catalog.clone());
    let subscriptions = MeteredModels::new(subscriptions, usage.clone());
    let subscriptions = model_backend(config, subscriptions, (&tools, &journals), observers);
    let agent_server = agent_server_backend(config, outbound, public_url, limits);
    let agent_server = with_server_fallbacks(config, agent_server, (usage, operator), circuits.clone());
    let history = FallbackBudget::new(compaction.clone(), [model_fallbacks, agent_server.limits()]);
    let workflow = WorkflowBackend {
        outbound: outbound.clone(),
        public_url: public_url.clone(),
        run_token_ttl: config.mcp.workflow_ttl,
    };
    Platform::new(Arc::new(ProviderRoles::new(stores.roles, providers.clone())))
        .with_users(Arc::new(RecordUsers::new(stores.records.clone())))
        .with_layer(RoleLayer::new(parts.clone()))
        .with_layer(CouncilLayer::new(parts.clone()))
        .with_layer(documents)
        .with_layer(MemoryLayer::new(stores.records.clone(), parts.clone()))
        .with_layer(ExecutionLayer::new(parts.clone()))
        .with_layer(CallerLayer::new(parts.clone()))
        .with_layer(PageLayer::new(parts.clone()))
        .with_part_cache(parts)
        .with_output_limits(config.server.output)
        .with_clock(Arc::new(TokioClock))
        .with_tools(tools)
        .with_token_counter(Arc::new(BpeCounter))
        .with_sent_prompts(Arc::new(LatestPrompts::default()))
        .with_history_step(history)
        .with_run_tokens(run_tokens)
        .with_backend(ReportedToolChanges::new(usage::per_call(embedded, usage), changes.clone()))
        .with_backend(ReportedToolChanges::new(usage::per_call(subscriptions, usage), changes.clone()))
        .with_backend(ReportedToolChanges::new(usage::per_call(agent_server, usage), changes.clone()))
        .with_backend(ReportedToolChanges::new(usage::workflow(workflow, usage), changes))
}

/// Returns the backend of models, whose answers are journaled, validated and recorded.
fn model_backend<S: BackendSettings>(
    config: &AppConfig,
    models: impl ModelSource<S>,
    (tools, journals): (&Arc<dyn ToolRegistry>, &Arc<Journals>),
    observers: &Arc<RunObservers>,
) -> EmbeddedBackend<S> {
    let models = ValidatedModels::new(JournaledModels::new(models, journals.clone()));
    EmbeddedBackend::new(ObservedModels::new(models, observers.clone()))
        .with_tools(tools.clone())
        .with_clock(Arc::new(TokioClock))
        .with_limits(config.server.tool_loop)
}

/// Returns the backend of agent servers; one of them may be the operator's own runtime.
fn agent_server_backend(
    config: &AppConfig,
    outbound: &OutboundClient,
    public_url: &url::Url,
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

/// Builds the agent runtime.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub(crate) fn runtime(
    config: &RuntimeConfig,
    bound: SocketAddr,
    shutdown: &Shutdown,
) -> Result<RuntimeState, StartError> {
    let server = &config.server;
    let outbound = OutboundClient::new(server.outbound.clone())?;
    let limits = model_limits(server);
    Ok(RuntimeState {
        hosted: hosted_vendor(&server.hosted, &outbound, &limits),
        ollama: ollama(&server.ollama, &outbound, &limits),
        bot_api: config.messenger_api_url.clone().map(|base_url| BotApi {
            outbound: outbound.clone(),
            base_url,
            answer_timeout: server.outbound.header_timeout,
        }),
        coding_api: coding_api(config, &outbound, shutdown),
        coding_issuer: coding_issuer(config, &outbound),
        bearer_auth: BearerAuth::new(config.runtime_secret.clone()),
        host_guard: config.runtime_secret.is_none().then(|| HostGuard::local(bound, server.origins.clone())),
        discoveries: DiscoveryCache::default(),
        limits: server.tool_loop,
        output: server.output,
        clock: Arc::new(TokioClock),
        stream: stream_limits(server, shutdown),
        base: service_base(server, json!({"service": "runtime", "providers": PROVIDERS}), shutdown),
    })
}

/// Creates the proxy of the coding subscription's model API, if its address is configured.
fn coding_api(config: &RuntimeConfig, outbound: &OutboundClient, shutdown: &Shutdown) -> Option<CodingApi> {
    let (server, coding) = (&config.server, &config.coding);
    Some(CodingApi {
        outbound: outbound.clone(),
        url: coding.api_url.clone()?,
        originator: coding.originator.clone(),
        max_body_bytes: coding.body_limit_bytes,
        stream: StreamLimits { idle_timeout: coding.stream_idle, ..stream_limits(server, shutdown) },
        answer_timeout: server.outbound.header_timeout,
    })
}

/// Creates the client of the issuer of the coding subscription's tokens, if it is configured.
fn coding_issuer(config: &RuntimeConfig, outbound: &OutboundClient) -> CodingIssuer {
    match &config.coding.issuer {
        CodingIssuerConfig::Configured(issuer) => {
            let client = DeviceAuthClient::new(outbound.clone(), Arc::new(TokioClock), (**issuer).clone());
            CodingIssuer::Configured(Box::new(CodingAuth::new(client, config.runtime_secret.as_ref())))
        }
        CodingIssuerConfig::MissingSetting(name) => CodingIssuer::MissingSetting(name),
    }
}

/// Builds the scheduler over a job store. `store_kind` is the name of the store's kind.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub(crate) fn scheduler(
    config: &SchedulerConfig,
    jobs: Arc<dyn JobStore>,
    store_kind: &'static str,
    shutdown: &Shutdown,
) -> Result<Scheduler, StartError> {
    let outbound = OutboundClient::new(config.outbound.clone())?;
    let health = HealthState::new(json!({"service": "scheduler"}), shutdown.clone());
    let callback = CallbackClient {
        outbound,
        url: config.callback_url.clone(),
        secret: config.secret.clone(),
        previous_secret: config.secret_previous.clone(),
        timeout: config.callback_timeout,
    };
    let clock = Arc::new(TokioClock);
    let meters = SchedulerMetrics::new(health.metrics());
    Ok(Scheduler {
        worker: Arc::new(Worker::new(jobs.clone(), callback, clock.clone(), config.worker.clone(), meters)),
        counts: JobCountCache::new(jobs, clock),
        store_kind,
        auth: BearerAuth::with_previous(config.secret.clone(), config.secret_previous.clone()),
        base: ServiceBase {
            body: config.body.clone(),
            json_depth: config.json_depth,
            health,
            origins: config.origins.clone(),
        },
    })
}

/// Builds the state that every service of a server has. `extra` is added to `/health`.
fn service_base(server: &ServerConfig, extra: Value, shutdown: &Shutdown) -> ServiceBase {
    ServiceBase {
        body: server.body.clone(),
        json_depth: server.json_depth,
        health: HealthState::new(extra, shutdown.clone()),
        origins: server.origins.clone(),
    }
}

fn stream_limits(server: &ServerConfig, shutdown: &Shutdown) -> StreamLimits {
    StreamLimits {
        idle_timeout: server.stream_idle,
        run_timeout: server.run_timeout,
        relay: server.serve.relay,
        shutdown: shutdown.clone(),
        ..StreamLimits::default()
    }
}
