//! From values to a service's configuration, and the rules that bind several settings.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use agent_core::tool_loop::LoopLimits;

use super::parse::Values;
use super::resolve::{Resolved, Source};
use super::{
    AppConfig, Fault, Faults, HostedConfig, LogConfig, McpConfig, OllamaConfig, RuntimeConfig, ServerConfig,
};
use crate::outbound::OutboundConfig;
use crate::request::BodyLimits;
use crate::serve::ServeLimits;

pub(super) fn app(resolved: &Resolved) -> Result<AppConfig, Faults> {
    let (values, faults) = Values::parse(resolved);
    none(faults)?;
    Ok(AppConfig {
        server: server(resolved, &values),
        database: set(values.database("DATABASE_URL")),
        data_secret: values.secret("DATA_SECRET"),
        data_secret_previous: values.secret("DATA_SECRET_PREVIOUS"),
        public_url: values.url("PUBLIC_URL"),
        runtime_url: values.url("RUNTIME_URL"),
        session_secret: values.secret("SESSION_SECRET"),
        internal_secret: values.secret("INTERNAL_SECRET"),
        runtime_secret: values.secret("RUNTIME_SECRET"),
        mcp: McpConfig {
            legacy_query: values.text("MCP_LEGACY_QUERY").is_some_and(|word| word == "on"),
            workflow_ttl: set(values.millis("MCP_WORKFLOW_TTL")),
            concurrency: count(values.number("MCP_CONCURRENCY")),
            per_minute: u32::try_from(set(values.number("MCP_REQUESTS_PER_MINUTE")))
                .ok()
                .and_then(NonZeroU32::new)
                .expect("the table's bounds are within"),
        },
        embedded_model_path: values.path("EMBEDDED_MODEL_PATH"),
        model_dir: set(values.path("MODEL_DIR")),
    })
}

pub(super) fn runtime(resolved: &Resolved) -> Result<RuntimeConfig, Faults> {
    let (values, mut faults) = Values::parse(resolved);
    let named = |fault: &Fault| fault.name.starts_with("RUNTIME_SECRET");
    let exposed = values.host("HOST").is_some_and(|host| !host.is_loopback());
    if exposed && values.secret("RUNTIME_SECRET").is_none() && !faults.iter().any(named) {
        faults.push(Fault {
            name: "RUNTIME_SECRET".to_owned(),
            source: None,
            problem: "is missing, and HOST is not loopback: anybody could use the runtime".to_owned(),
        });
    }
    none(faults)?;
    Ok(RuntimeConfig {
        server: server(resolved, &values),
        runtime_secret: values.secret("RUNTIME_SECRET"),
        messenger_api_url: values.url("MESSENGER_API_URL"),
    })
}

fn none(faults: Vec<Fault>) -> Result<(), Faults> {
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

/// The value of a setting that has a default.
fn set<T>(value: Option<T>) -> T {
    value.expect("the setting has a default in the table, or was refused")
}

fn count(value: Option<u64>) -> usize {
    usize::try_from(set(value)).expect("the table's bounds are below the least usize")
}

fn server(resolved: &Resolved, values: &Values) -> ServerConfig {
    let port = u16::try_from(set(values.number("PORT"))).expect("the table's bounds are a port's");
    ServerConfig {
        listen: SocketAddr::new(set(values.host("HOST")), port),
        origins: set(values.origins("CORS_ORIGIN")),
        serve: ServeLimits {
            connections: u32::try_from(set(values.number("MAX_CONNECTIONS"))).expect("the bounds are below"),
            head_read: set(values.millis("HEADER_TIMEOUT_MS")),
            head_bytes: count(values.number("HEAD_LIMIT_BYTES")),
            write_stall: set(values.millis("WRITE_STALL_MS")),
            drain: set(values.millis("DRAIN_MS")),
        },
        body: BodyLimits {
            bytes: count(values.number("BODY_LIMIT_BYTES")),
            idle: set(values.millis("BODY_IDLE_MS")),
            total: set(values.millis("BODY_TOTAL_MS")),
        },
        json_depth: count(values.number("JSON_DEPTH")),
        stream_idle: set(values.millis("STREAM_IDLE_MS")),
        run_timeout: set(values.millis("RUN_TIMEOUT_MS")),
        tool_loop: LoopLimits {
            max_rounds: count(values.number("TOOL_ROUNDS")),
            tool_timeout: set(values.millis("TOOL_TIMEOUT_MS")),
            ..LoopLimits::default()
        },
        outbound: OutboundConfig {
            allow: set(values.allow("OUTBOUND_ALLOW")),
            connect_timeout: set(values.millis("CONNECT_TIMEOUT_MS")),
            header_timeout: set(values.millis("RESPONSE_HEADER_TIMEOUT_MS")),
            ..OutboundConfig::default()
        },
        hosted: HostedConfig {
            base_url: set(values.url("OPENAI_BASE_URL")),
            api_key: values.secret("OPENAI_API_KEY"),
            model: set(values.text("OPENAI_MODEL")),
            needs_key: matches!(resolved.get("OPENAI_BASE_URL"), Some((_, Source::Default))),
        },
        ollama: ollama(values),
        log: LogConfig {
            filter: set(values.text("LOG")),
            json: values.text("LOG_FORMAT").is_some_and(|format| format == "json"),
        },
    }
}

fn ollama(values: &Values) -> OllamaConfig {
    let (base_url, model) = (values.url("OLLAMA_BASE_URL"), values.text("OLLAMA_MODEL"));
    let preferred = base_url.is_some() && model.is_some();
    OllamaConfig { base_url, model, num_ctx: count(values.number("OLLAMA_NUM_CTX")), preferred }
}
