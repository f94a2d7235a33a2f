//! Configurations of the services as plain data.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client::outbound::OutboundConfig;
use agent_core::event::OutputLimits;
use agent_core::secret::Secret;
use agent_core::tool_loop::LoopLimits;
use agent_http::app::{ResourceQuotas, RunSettings};
use agent_http::cors::Origins;
use agent_http::request::BodyLimits;
use agent_http::scheduler::WorkerLimits;
use agent_http::serve::ServeLimits;
use agent_platform::catalog::Catalog;
use agent_platform::usage::DefaultLimits;
use agent_platform::user_rates::SessionLimits;
use jiff::SignedDuration;
use url::Url;

use super::{CodingConfig, Database, EmbeddingConfig, ExtractionConfig, FallbackConfig};

/// Configuration that the application server and the agent runtime have in common.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 selects any free port.
    pub listen: SocketAddr,
    /// Exact origins whose pages may send requests (CORS).
    pub origins: Origins,
    /// Limits on connections.
    pub serve: ServeLimits,
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// Maximum time of a stream without an event.
    pub stream_idle: Duration,
    /// Maximum duration of a run.
    pub run_timeout: Duration,
    /// Limits of the tool loop.
    pub tool_loop: LoopLimits,
    /// Limits on a run's output.
    pub output: OutputLimits,
    /// Models with their limits and prices.
    pub catalog: Arc<Catalog>,
    /// Context window of hosted models, in tokens; `None` for the catalogue's.
    pub context_window: Option<usize>,
    /// Limit on an answer of a model, in tokens.
    pub max_output_tokens: usize,
    /// Address policy and timeouts of outbound requests.
    pub outbound: OutboundConfig,
    /// Hosted model vendor.
    pub hosted: HostedConfig,
    /// Ollama server.
    pub ollama: OllamaConfig,
    /// Logging.
    pub log: LogConfig,
}

/// A hosted model vendor, for agents that set no base URL.
#[derive(Debug, Clone)]
pub struct HostedConfig {
    /// Base URL, such as `https://api.openai.com/v1`.
    pub base_url: Url,
    /// The operator's API key; it is sent to the base URL and below it only.
    pub api_key: Option<Secret>,
    /// Setting that contains the key.
    pub key_setting: &'static str,
    /// Default model.
    pub model: String,
    /// True if the base URL is the vendor's public default, which requires a key.
    pub needs_key: bool,
}

/// Ollama server, the default for agents that set no base URL; the runtime has no default server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OllamaConfig {
    /// Base URL, such as `http://127.0.0.1:11434`.
    pub base_url: Option<Url>,
    /// Default model.
    pub model: Option<String>,
    /// Context size: maximum number of tokens of prompt and output together.
    pub num_ctx: usize,
    /// True if Ollama is selected for agents without a provider when there is no hosted API key: both the base URL
    /// and the model are set, or `dev` has detected them.
    pub preferred: bool,
}

/// Logging configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Filter directives in the syntax of `tracing`'s `EnvFilter`, without spans and fields, such as `info,agent_http=debug`.
    pub filter: String,
    /// True for one JSON object per line, false for text.
    pub json: bool,
}

/// Retrieval of fragments of documents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RagConfig {
    /// Maximum number of tokens of a turn's fragments.
    pub max_tokens: usize,
    /// Relevance that a fragment must reach, between 0 and 1.
    pub min_relevance: f32,
    /// Similarity by vectors from which a fragment is relevant regardless of its words, between 0 and 1.
    pub min_similarity: f32,
    /// Limit on the indexes in memory, in bytes.
    pub cache_bytes: usize,
}

/// Configuration of the MCP tool server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpConfig {
    /// Enables user and agent ids in the query, without authentication.
    pub legacy_query: bool,
    /// Time after its start in which a workflow may call tools.
    pub workflow_ttl: Duration,
    /// Maximum number of concurrent requests per agent.
    pub concurrency: usize,
    /// Rate limit: requests per minute per agent.
    pub per_minute: NonZeroU32,
}

/// Configuration of the application's access to the scheduler.
#[derive(Debug, Clone)]
pub struct PulseConfig {
    /// Base URL of the scheduler. Without it, scheduling is disabled.
    pub url: Option<Url>,
    /// Shared secret of requests to the scheduler and of its callbacks. Without it, scheduling is disabled.
    pub secret: Option<Secret>,
    /// Previous secret, still accepted in callbacks during a rotation.
    pub secret_previous: Option<Secret>,
    /// Secret of the cron endpoint, which runs due jobs in place of the scheduler. Without it, the endpoint is
    /// disabled.
    pub cron_secret: Option<Secret>,
    /// Maximum duration of a run that a job has started.
    pub deadline: Duration,
}

/// Configuration of the application server.
#[derive(Debug, Clone)]
pub struct AppConfig {
    /// Common server configuration.
    pub server: ServerConfig,
    /// Database.
    pub database: Database,
    /// Maximum number of pooled connections to a PostgreSQL server.
    pub database_connections: usize,
    /// Secret that encrypts agents' secrets at rest. Without it, agents' secrets cannot be saved.
    pub data_secret: Option<Secret>,
    /// Previous data secret, still accepted for decryption.
    pub data_secret_previous: Option<Secret>,
    /// Public base URL, if set; see [`Self::public_url`].
    pub public_url: Option<Url>,
    /// Base URL of the operator's own agent runtime.
    pub runtime_url: Option<Url>,
    /// Secret that signs session tokens. Without it, sessions are disabled.
    pub session_secret: Option<Secret>,
    /// Shared secret of proactive calls. Without it, they are disabled.
    pub internal_secret: Option<Secret>,
    /// Shared secret of the runtime at `runtime_url`.
    pub runtime_secret: Option<Secret>,
    /// Rate limits of sessions.
    pub session_limits: SessionLimits,
    /// Limits of companies and runs whose budgets set none.
    pub default_limits: DefaultLimits,
    /// Maximum numbers of a company's resources.
    pub quotas: ResourceQuotas,
    /// MCP tool server.
    pub mcp: McpConfig,
    /// Retrieval of fragments of documents.
    pub rag: RagConfig,
    /// Access to the scheduler.
    pub pulse: PulseConfig,
    /// Vendor of the provider `anthropic`.
    pub anthropic: HostedConfig,
    /// Allows jobs and proactive calls to use the subscription of the user for whom they run.
    pub coding_unattended: bool,
    /// Path of the embedded model's weights, if they are not in `model_dir`.
    pub embedded_model_path: Option<PathBuf>,
    /// Directory of downloaded model weights.
    pub model_dir: PathBuf,
    /// Processes that extract the text of documents.
    pub extraction: ExtractionConfig,
    /// Embedding model of the documents.
    pub embedding: EmbeddingConfig,
    /// True if conversations are stored.
    pub conversations: bool,
    /// Times of the runs that are stored.
    pub run_settings: RunSettings,
    /// Repetition of models' calls.
    pub fallback: FallbackConfig,
    /// Time after which calls are deleted from the ledger of usage.
    pub usage_retention: SignedDuration,
    /// Serves the console.
    pub console: bool,
    /// Serves the chat widget.
    pub widget: bool,
    /// Host names under which the console is served besides loopback and the public one.
    pub allowed_hosts: Vec<String>,
}

/// Configuration of the agent runtime.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Common server configuration.
    pub server: ServerConfig,
    /// Shared secret that callers must present. Without it the runtime listens on loopback only.
    pub runtime_secret: Option<Secret>,
    /// Base URL of the messenger's bot API.
    pub messenger_api_url: Option<Url>,
    /// Proxies of a coding subscription.
    pub coding: CodingConfig,
}

/// Configuration of the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// Address to listen on; port 0 selects any free port.
    pub listen: SocketAddr,
    /// Exact origins whose pages may send requests (CORS).
    pub origins: Origins,
    /// Limits on connections.
    pub serve: ServeLimits,
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// Timeouts of requests to the callback receiver.
    pub outbound: OutboundConfig,
    /// Logging.
    pub log: LogConfig,
    /// Database of the jobs.
    pub database: Database,
    /// Maximum number of pooled connections to a PostgreSQL server.
    pub database_connections: usize,
    /// Shared secret of the scheduler's callers and of its callbacks.
    pub secret: Secret,
    /// Previous secret, still accepted from callers during a rotation.
    pub secret_previous: Option<Secret>,
    /// Callback URL, to which jobs are delivered.
    pub callback_url: Url,
    /// Timeout of one delivery.
    pub callback_timeout: Duration,
    /// Limits of the worker.
    pub worker: WorkerLimits,
}
