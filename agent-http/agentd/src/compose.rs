//! Composition root: the only module that chooses stores, models, layers and backends.

mod application;
mod background;
mod compaction;
mod fallback;
mod jobs;
mod models;
mod platform;
mod replay;
mod retrieval;
mod tools;
mod usage;

use std::net::SocketAddr;
use std::sync::Arc;

use agent_client::clock::TokioClock;
use agent_client::coding::RuntimeCodingAuthority;
use agent_client::device_auth::DeviceAuthClient;
use agent_client::messenger::RuntimeMessenger;
use agent_client::outbound::OutboundClient;
use agent_http::app::{ConsoleService, ConversationService, SubscriptionService, SubscriptionServiceConfig};
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
use agent_platform::coding::CodingAuthority;
use agent_platform::console::ConsoleSessions;
use agent_platform::ingestion::{Ingestion, IngestionLimits, IngestionServices};
use agent_platform::journal::Journals;
use agent_platform::messenger::Messenger;
use agent_platform::retrieval::Retriever;
use agent_platform::token::Tokens;
use agent_platform::tools::ToolServices;
use agent_platform::user_rates::MinuteRateLimiter;
use agent_retrieval::extract::Extractor;
use serde_json::{Value, json};

use crate::StartError;
use crate::config::{AppConfig, CodingIssuerConfig, RuntimeConfig, SchedulerConfig, ServerConfig};
use crate::extract::{DocumentExtractor, ProcessExtractor};
use crate::stores::Stores;

pub use application::application;
use background::background_spawner;
use jobs::JobServices;
pub(crate) use models::model_source;
use models::{hosted_vendor, model_limits, ollama};
pub use replay::replay;

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
