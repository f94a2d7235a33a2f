//! Puts services together: the only place that chooses stores, models, layers and backends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use agent_core::backend::EmbeddedBackend;
use agent_core::budget::BpeCounter;
use agent_core::clock::SystemClock;
use agent_core::context::{
    CallerLayer, CouncilLayer, DocumentsLayer, ExecutionLayer, MemoryLayer, PageLayer, RoleLayer,
};
use agent_core::memory::{MemoryRecords, MemoryRoles};
use agent_core::model::Model;
use agent_core::prompt::PartCache;
use agent_core::records::Records;
use agent_core::role::RoleStore;
use agent_core::select::BackendKind;
use agent_core::tools;
use agent_core::turn::Platform;
use agent_core::workspace::WorkspaceFile;
use agent_http::app::{App, RunRegistry};
use agent_http::auth::{Authenticator, BearerGate};
use agent_http::backend::agent_server::AgentServerBackend;
use agent_http::config::{AppConfig, HostedConfig, OllamaConfig, RuntimeConfig, ServerConfig};
use agent_http::model::{EmbeddedModels, HostedVendor, OllamaServer};
use agent_http::outbound::Outbound;
use agent_http::probe::Probe;
use agent_http::runtime::{PROVIDERS, Runtime};
use agent_http::secret::BoundSecret;
use agent_http::stream::StreamLimits;
use serde_json::json;

use crate::StartError;

/// Where the application's data is.
#[derive(Clone)]
pub struct Stores {
    /// The agents.
    pub roles: Arc<dyn RoleStore>,
    /// Everything else.
    pub records: Arc<dyn Records>,
}

impl Stores {
    /// Stores in memory, filled from a workspace file's text. `origin` names the file in errors.
    ///
    /// # Errors
    /// What is wrong with the workspace, by line and field.
    pub async fn in_memory(origin: &str, workspace: &str) -> Result<Self, StartError> {
        let stores =
            Self { roles: Arc::new(MemoryRoles::new()), records: Arc::new(MemoryRecords::default()) };
        let file = WorkspaceFile::parse(workspace)
            .map_err(|source| StartError::Workspace { origin: origin.to_owned(), source })?;
        file.apply(&*stores.roles, &*stores.records).await?;
        Ok(stores)
    }

    /// Stores in memory, filled from a workspace file, or empty.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong with it.
    pub async fn from_file(path: Option<&Path>) -> Result<Self, StartError> {
        let Some(path) = path else { return Self::in_memory("nothing", "{}").await };
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| StartError::Unreadable { path: origin.clone(), source })?;
        Self::in_memory(&origin, &text).await
    }
}

/// The application, which will be reached at `bound`.
///
/// # Errors
/// The outbound client cannot be made.
pub fn application(
    config: &AppConfig,
    bound: SocketAddr,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
) -> Result<App, StartError> {
    let server = &config.server;
    let outbound = Outbound::new(server.outbound.clone())?;
    let public_url = config.public_url(bound);
    Ok(App {
        platform: platform(config, &outbound, &public_url, stores, local),
        auth: Authenticator::new(
            config.session_secret.as_ref(),
            config.internal_secret.clone(),
            config.public_url.as_ref(),
        ),
        runs: RunRegistry::default(),
        body: server.body.clone(),
        json_depth: server.json_depth,
        stream: stream_limits(server),
        probe: Probe::new(json!({"service": "app"})),
        origins: server.origins.clone(),
    })
}

fn platform(
    config: &AppConfig,
    outbound: &Outbound,
    public_url: &url::Url,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
) -> Platform {
    let parts = Arc::new(PartCache::default());
    let tools = Arc::new(tools::builtin_tools(stores.records.clone()));
    let models = EmbeddedModels {
        hosted: hosted(&config.server.hosted, outbound),
        ollama: ollama(&config.server.ollama, outbound),
        prefer_ollama: config.server.ollama.preferred,
        local,
    };
    let embedded =
        EmbeddedBackend::new(models).with_tools(tools.clone()).with_limits(config.server.tool_loop);
    let own_runtime = config.runtime_url.clone().map(|url| (url, config.runtime_secret.clone()));
    let agent_server =
        AgentServerBackend { outbound: outbound.clone(), own_runtime, public_url: public_url.clone() };
    Platform::new(stores.roles)
        .with_records(stores.records.clone())
        .with_layer(RoleLayer::new(parts.clone()))
        .with_layer(CouncilLayer::new(parts.clone()))
        .with_layer(DocumentsLayer::new(stores.records.clone(), parts.clone()))
        .with_layer(MemoryLayer::new(stores.records.clone(), parts.clone()))
        .with_layer(ExecutionLayer::new(parts.clone()))
        .with_layer(CallerLayer::new(parts.clone()))
        .with_layer(PageLayer::new(parts.clone()))
        .with_parts(parts)
        .with_tools(tools)
        .with_counter(Arc::new(BpeCounter))
        .with_backend(BackendKind::Embedded, embedded)
        .with_backend(BackendKind::AgentServer, agent_server)
}

/// The agent runtime.
///
/// # Errors
/// The outbound client cannot be made.
pub fn runtime(config: &RuntimeConfig) -> Result<Runtime, StartError> {
    let server = &config.server;
    let outbound = Outbound::new(server.outbound.clone())?;
    Ok(Runtime {
        hosted: hosted(&server.hosted, &outbound),
        ollama: ollama(&server.ollama, &outbound),
        gate: BearerGate::new(config.runtime_secret.clone()),
        limits: server.tool_loop,
        clock: Arc::new(SystemClock),
        body: server.body.clone(),
        json_depth: server.json_depth,
        stream: stream_limits(server),
        probe: Probe::new(json!({"service": "runtime", "providers": PROVIDERS})),
        origins: server.origins.clone(),
    })
}

fn hosted(config: &HostedConfig, outbound: &Outbound) -> HostedVendor {
    HostedVendor {
        outbound: outbound.clone(),
        base_url: config.base_url.clone(),
        key: config.api_key.clone().map(|key| BoundSecret::new(&config.base_url, key)),
        default_model: config.model.clone(),
        needs_key: config.needs_key,
    }
}

fn ollama(config: &OllamaConfig, outbound: &Outbound) -> OllamaServer {
    OllamaServer {
        outbound: outbound.clone(),
        base_url: config.base_url.clone(),
        default_model: config.model.clone(),
        num_ctx: config.num_ctx,
    }
}

fn stream_limits(server: &ServerConfig) -> StreamLimits {
    StreamLimits {
        idle_timeout: server.stream_idle,
        run_timeout: server.run_timeout,
        ..StreamLimits::default()
    }
}
