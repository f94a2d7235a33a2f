//! Builds each service's configuration from parsed values, and checks the rules that involve several settings.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use agent_client::outbound::OutboundConfig;
use agent_client::relay::RelayOptions;
use agent_core::event::OutputLimits;
use agent_core::tool_loop::LoopLimits;
use agent_http::app::{ResourceQuotas, RunSettings};
use agent_http::request::BodyLimits;
use agent_http::scheduler::WorkerLimits;
use agent_http::serve::ServeLimits;
use agent_platform::catalog::Catalog;
use agent_platform::conversation::ThreadRetention;
use agent_platform::usage::DefaultLimits;
use agent_platform::user_rates::SessionLimits;
use jiff::SignedDuration;

use super::resolve::ResolvedSettings;
use super::source::SettingSource;
use super::values::{SettingValues, required, required_usize};
use super::{
    AppConfig, ConfigError, HostedConfig, LogConfig, McpConfig, OllamaConfig, PulseConfig, RagConfig,
    RuntimeConfig, SchedulerConfig, ServerConfig, SettingError,
};
use super::{catalog, coding, embedding, extraction, fallback};

pub(super) fn app(resolved: &ResolvedSettings) -> Result<AppConfig, ConfigError> {
    let (values, mut errors) = SettingValues::parse(resolved);
    embedding::check(resolved, &values, &mut errors);
    let catalog = catalog::load(resolved, &values, &mut errors);
    let fallback = fallback::load(resolved, &values, &mut errors);
    into_result(errors)?;
    Ok(AppConfig {
        server: server(resolved, &values, catalog),
        database: required(values.database("DATABASE_URL")),
        database_connections: required_usize(values.number("DATABASE_CONNECTIONS")),
        data_secret: values.secret("DATA_SECRET"),
        data_secret_previous: values.secret("DATA_SECRET_PREVIOUS"),
        public_url: values.url("PUBLIC_URL"),
        runtime_url: values.url("RUNTIME_URL"),
        session_secret: values.secret("SESSION_SECRET"),
        internal_secret: values.secret("INTERNAL_SECRET"),
        runtime_secret: values.secret("RUNTIME_SECRET"),
        session_limits: SessionLimits {
            runs_per_minute: per_minute(&values, "RUNS_PER_MINUTE"),
            changes_per_minute: per_minute(&values, "CHANGES_PER_MINUTE"),
        },
        default_limits: default_limits(&values),
        quotas: ResourceQuotas {
            agents: required(values.number("MAX_AGENTS")),
            documents: required(values.number("MAX_DOCUMENTS")),
            upload_bytes: required_usize(values.number("RAG_MAX_UPLOAD")),
            uploaded_bytes: required(values.number("MAX_UPLOADED_BYTES")),
            file_bytes: required_usize(values.number("FILE_LIMIT_BYTES")),
            file_ttl: required(values.millis("FILE_TTL")).try_into().unwrap_or(SignedDuration::MAX),
        },
        mcp: mcp(&values),
        rag: RagConfig {
            max_tokens: required_usize(values.number("RAG_MAX_TOKENS")),
            min_relevance: required(values.number("RAG_MIN_RELEVANCE")) as f32 / 1_000.0,
            min_similarity: required(values.number("RAG_MIN_SIMILARITY")) as f32 / 1_000.0,
            cache_bytes: required_usize(values.number("RAG_CACHE_BYTES")),
        },
        pulse: PulseConfig {
            url: values.url("PULSE_URL"),
            secret: values.secret("PULSE_SECRET"),
            secret_previous: values.secret("PULSE_SECRET_PREVIOUS"),
            cron_secret: values.secret("CRON_SECRET"),
            deadline: required(values.millis("PROACTIVE_TIMEOUT_MS")),
        },
        anthropic: vendor(resolved, &values, ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"]),
        coding_unattended: values.text("CODING_UNATTENDED").is_some_and(|word| word == "on"),
        embedded_model_path: values.path("EMBEDDED_MODEL_PATH"),
        model_dir: required(values.path("MODEL_DIR")),
        extraction: extraction::load(&values),
        embedding: embedding::load(&values),
        conversations: values.text("CONVERSATIONS").is_some_and(|word| word == "on"),
        run_settings: run_settings(&values),
        fallback: required(fallback),
        usage_retention: required(values.millis("USAGE_RETENTION")).try_into().unwrap_or(SignedDuration::MAX),
        console: values.text("CONSOLE").is_some_and(|word| word == "on"),
        widget: values.text("WIDGET").is_some_and(|word| word == "on"),
        allowed_hosts: required(values.hosts("ALLOWED_HOSTS")),
    })
}

/// Returns the configuration of the tool server.
fn mcp(values: &SettingValues) -> McpConfig {
    McpConfig {
        legacy_query: values.text("MCP_LEGACY_QUERY").is_some_and(|word| word == "on"),
        workflow_ttl: required(values.millis("MCP_WORKFLOW_TTL")),
        concurrency: required_usize(values.number("MCP_CONCURRENCY")),
        per_minute: per_minute(values, "MCP_REQUESTS_PER_MINUTE"),
    }
}

/// Returns the times of conversations.
fn run_settings(values: &SettingValues) -> RunSettings {
    RunSettings {
        log_flush: required(values.millis("RUN_LOG_FLUSH_MS")),
        lease: required(values.millis("RUN_LEASE_MS")),
        keeps_inputs: values.text("RUN_PROMPTS").is_some_and(|word| word == "keep"),
        log_retention: required(values.millis("RUN_LOG_RETENTION_MS")),
        thread_retention: ThreadRetention {
            users: values.millis("THREAD_RETENTION"),
            visitors: values.millis("VISITOR_THREAD_RETENTION"),
        },
    }
}

/// Returns a rate limit, whose bounds in the table are within the type's.
fn per_minute(values: &SettingValues, name: &str) -> NonZeroU32 {
    let number = u32::try_from(required(values.number(name))).ok().and_then(NonZeroU32::new);
    number.expect("the table's bounds are within")
}

/// Returns the limits of companies and runs whose budgets set none.
fn default_limits(values: &SettingValues) -> DefaultLimits {
    DefaultLimits {
        company_runs_per_minute: limit(values, "RUNS_PER_MINUTE_COMPANY"),
        company_concurrent_runs: limit(values, "CONCURRENT_RUNS_COMPANY"),
        run_tool_calls: limit(values, "TOOL_CALLS_PER_RUN"),
    }
}

/// Returns a limit; 0 means no limit. Its bounds in the table are within the type's.
fn limit(values: &SettingValues, name: &str) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(required(values.number(name))).unwrap_or(u32::MAX))
}

pub(super) fn runtime(resolved: &ResolvedSettings) -> Result<RuntimeConfig, ConfigError> {
    let (values, mut errors) = SettingValues::parse(resolved);
    let is_secret_error = |error: &SettingError| error.name.starts_with("RUNTIME_SECRET");
    let is_exposed = values.host("HOST").is_some_and(|host| !host.is_loopback());
    if is_exposed && values.secret("RUNTIME_SECRET").is_none() && !errors.iter().any(is_secret_error) {
        errors.push(SettingError {
            name: "RUNTIME_SECRET".to_owned(),
            source: None,
            message: "is required when HOST is not loopback, since the runtime would be open to the network"
                .to_owned(),
        });
    }
    coding::check(resolved, &values, &mut errors);
    let catalog = catalog::load(resolved, &values, &mut errors);
    into_result(errors)?;
    Ok(RuntimeConfig {
        server: server(resolved, &values, catalog),
        runtime_secret: values.secret("RUNTIME_SECRET"),
        messenger_api_url: values.url("MESSENGER_API_URL"),
        coding: coding::load(&values),
    })
}

pub(super) fn scheduler(resolved: &ResolvedSettings) -> Result<SchedulerConfig, ConfigError> {
    let (values, mut errors) = SettingValues::parse(resolved);
    for (name, purpose) in [
        ("PULSE_SECRET", "it authenticates callers of the scheduler, and its callbacks"),
        ("CALLBACK_URL", "jobs are delivered to this URL"),
    ] {
        let is_reported =
            errors.iter().any(|error| error.name == name || error.name == format!("{name}_FILE"));
        if resolved.get(name).is_none() && !is_reported {
            errors.push(SettingError {
                name: name.to_owned(),
                source: None,
                message: format!("is missing: {purpose}"),
            });
        }
    }
    into_result(errors)?;
    let serve = serve(&values);
    Ok(SchedulerConfig {
        listen: listen(&values),
        origins: required(values.origins("CORS_ORIGIN")),
        body: body(&values),
        json_depth: required_usize(values.number("JSON_DEPTH")),
        outbound: OutboundConfig {
            connect_timeout: required(values.millis("CONNECT_TIMEOUT_MS")),
            ..OutboundConfig::default()
        },
        log: log(&values),
        database: required(values.database("DATABASE_URL")),
        database_connections: required_usize(values.number("DATABASE_CONNECTIONS")),
        secret: required(values.secret("PULSE_SECRET")),
        secret_previous: values.secret("PULSE_SECRET_PREVIOUS"),
        callback_url: required(values.url("CALLBACK_URL")),
        callback_timeout: required(values.millis("CALLBACK_TIMEOUT_MS")),
        worker: WorkerLimits {
            max_deliveries: required_usize(values.number("SCHEDULER_CONCURRENCY")),
            max_deliveries_per_company: required_usize(values.number("SCHEDULER_COMPANY_CONCURRENCY")),
            lease: required(values.millis("SCHEDULER_LEASE_MS")),
            drain_timeout: serve.drain,
            retention: required(values.millis("SCHEDULER_RETENTION")),
            ..WorkerLimits::default()
        },
        serve,
    })
}

fn into_result(errors: Vec<SettingError>) -> Result<(), ConfigError> {
    if errors.is_empty() { Ok(()) } else { Err(ConfigError(errors)) }
}

fn server(resolved: &ResolvedSettings, values: &SettingValues, catalog: Arc<Catalog>) -> ServerConfig {
    ServerConfig {
        catalog,
        listen: listen(values),
        origins: required(values.origins("CORS_ORIGIN")),
        serve: serve(values),
        body: body(values),
        json_depth: required_usize(values.number("JSON_DEPTH")),
        stream_idle: required(values.millis("STREAM_IDLE_MS")),
        run_timeout: required(values.millis("RUN_TIMEOUT_MS")),
        tool_loop: LoopLimits {
            max_rounds: required_usize(values.number("TOOL_ROUNDS")),
            tool_timeout: required(values.millis("TOOL_TIMEOUT_MS")),
            ..LoopLimits::default()
        },
        output: OutputLimits {
            max_answer_bytes: required_usize(values.number("OUTPUT_LIMIT_BYTES")),
            max_run_bytes: required_usize(values.number("RUN_OUTPUT_LIMIT_BYTES")),
        },
        context_window: values.number("CONTEXT_WINDOW").map(|tokens| required_usize(Some(tokens))),
        max_output_tokens: required_usize(values.number("MAX_OUTPUT_TOKENS")),
        outbound: OutboundConfig {
            allow: required(values.allow("OUTBOUND_ALLOW")),
            connect_timeout: required(values.millis("CONNECT_TIMEOUT_MS")),
            header_timeout: required(values.millis("RESPONSE_HEADER_TIMEOUT_MS")),
            ..OutboundConfig::default()
        },
        hosted: vendor(resolved, values, ["OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"]),
        ollama: ollama(values),
        log: log(values),
    }
}

/// Returns the vendor that is configured by these settings: base URL, key, model.
fn vendor(resolved: &ResolvedSettings, values: &SettingValues, names: [&'static str; 3]) -> HostedConfig {
    let [base_url, api_key, model] = names;
    HostedConfig {
        base_url: required(values.url(base_url)),
        api_key: values.secret(api_key),
        model: required(values.text(model)),
        key_setting: api_key,
        needs_key: matches!(resolved.get(base_url), Some((_, SettingSource::Default))),
    }
}

fn listen(values: &SettingValues) -> SocketAddr {
    let port = u16::try_from(required(values.number("PORT"))).expect("the table's bounds are a port's");
    SocketAddr::new(required(values.host("HOST")), port)
}

fn serve(values: &SettingValues) -> ServeLimits {
    ServeLimits {
        connections: u32::try_from(required(values.number("MAX_CONNECTIONS"))).expect("the bounds are below"),
        head_read: required(values.millis("HEADER_TIMEOUT_MS")),
        head_bytes: required_usize(values.number("HEAD_LIMIT_BYTES")),
        write_stall: required(values.millis("WRITE_STALL_MS")),
        lame_duck: required(values.millis("LAME_DUCK_MS")),
        drain: required(values.millis("DRAIN_MS")),
        relay: RelayOptions::default(),
    }
}

fn body(values: &SettingValues) -> BodyLimits {
    BodyLimits {
        bytes: required_usize(values.number("BODY_LIMIT_BYTES")),
        idle: required(values.millis("BODY_IDLE_MS")),
        total: required(values.millis("BODY_TOTAL_MS")),
    }
}

fn log(values: &SettingValues) -> LogConfig {
    LogConfig {
        filter: required(values.text("LOG")),
        json: values.text("LOG_FORMAT").is_some_and(|format| format == "json"),
    }
}

fn ollama(values: &SettingValues) -> OllamaConfig {
    let (base_url, model) = (values.url("OLLAMA_BASE_URL"), values.text("OLLAMA_MODEL"));
    let preferred = base_url.is_some() && model.is_some();
    OllamaConfig { base_url, model, num_ctx: required_usize(values.number("OLLAMA_NUM_CTX")), preferred }
}
