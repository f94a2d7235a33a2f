//! Builds each service's configuration from parsed values, and checks the rules that involve several settings.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use agent_core::tool_loop::LoopLimits;

use super::parse::Values;
use super::resolve::{Resolved, Source};
use super::{
    AppConfig, Database, Fault, Faults, HostedConfig, LogConfig, McpConfig, OllamaConfig, PulseConfig,
    RuntimeConfig, SchedulerConfig, ServerConfig,
};
use crate::outbound::OutboundConfig;
use crate::request::BodyLimits;
use crate::scheduler::WorkerLimits;
use crate::serve::ServeLimits;

pub(super) fn app(resolved: &Resolved) -> Result<AppConfig, Faults> {
    let (values, mut faults) = Values::parse(resolved);
    if let Some(Database::Postgres(_)) = values.database("DATABASE_URL") {
        faults.push(Fault {
            name: "DATABASE_URL".to_owned(),
            source: resolved.get("DATABASE_URL").map(|(_, source)| source.clone()),
            problem: "must be sqlite:// and a path: only the scheduler keeps its data in PostgreSQL"
                .to_owned(),
        });
    }
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
        pulse: PulseConfig {
            url: values.url("PULSE_URL"),
            secret: values.secret("PULSE_SECRET"),
            secret_previous: values.secret("PULSE_SECRET_PREVIOUS"),
            cron_secret: values.secret("CRON_SECRET"),
            deadline: set(values.millis("PROACTIVE_TIMEOUT_MS")),
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

pub(super) fn scheduler(resolved: &Resolved) -> Result<SchedulerConfig, Faults> {
    let (values, mut faults) = Values::parse(resolved);
    for (name, what) in [
        ("PULSE_SECRET", "callers and the receiver know the scheduler by it"),
        ("CALLBACK_URL", "jobs are delivered there"),
    ] {
        let said = faults.iter().any(|fault| fault.name == name || fault.name == format!("{name}_FILE"));
        if resolved.get(name).is_none() && !said {
            faults.push(Fault {
                name: name.to_owned(),
                source: None,
                problem: format!("is missing: {what}"),
            });
        }
    }
    none(faults)?;
    let serve = serve(&values);
    Ok(SchedulerConfig {
        listen: listen(&values),
        origins: set(values.origins("CORS_ORIGIN")),
        body: body(&values),
        json_depth: count(values.number("JSON_DEPTH")),
        outbound: OutboundConfig {
            connect_timeout: set(values.millis("CONNECT_TIMEOUT_MS")),
            ..OutboundConfig::default()
        },
        log: log(&values),
        database: set(values.database("DATABASE_URL")),
        secret: set(values.secret("PULSE_SECRET")),
        secret_previous: values.secret("PULSE_SECRET_PREVIOUS"),
        callback_url: set(values.url("CALLBACK_URL")),
        callback_timeout: set(values.millis("CALLBACK_TIMEOUT_MS")),
        worker: WorkerLimits {
            concurrency: count(values.number("SCHEDULER_CONCURRENCY")),
            per_company: count(values.number("SCHEDULER_COMPANY_CONCURRENCY")),
            lease: set(values.millis("SCHEDULER_LEASE_MS")),
            drain: serve.drain,
            retention: set(values.millis("SCHEDULER_RETENTION")),
            ..WorkerLimits::default()
        },
        serve,
    })
}

fn none(faults: Vec<Fault>) -> Result<(), Faults> {
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

/// Unwraps the value of a setting that is required or has a default.
fn set<T>(value: Option<T>) -> T {
    value.expect("the setting has a default in the table, or was refused")
}

fn count(value: Option<u64>) -> usize {
    usize::try_from(set(value)).expect("the table's bounds are below the least usize")
}

fn server(resolved: &Resolved, values: &Values) -> ServerConfig {
    ServerConfig {
        listen: listen(values),
        origins: set(values.origins("CORS_ORIGIN")),
        serve: serve(values),
        body: body(values),
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
        log: log(values),
    }
}

fn listen(values: &Values) -> SocketAddr {
    let port = u16::try_from(set(values.number("PORT"))).expect("the table's bounds are a port's");
    SocketAddr::new(set(values.host("HOST")), port)
}

fn serve(values: &Values) -> ServeLimits {
    ServeLimits {
        connections: u32::try_from(set(values.number("MAX_CONNECTIONS"))).expect("the bounds are below"),
        head_read: set(values.millis("HEADER_TIMEOUT_MS")),
        head_bytes: count(values.number("HEAD_LIMIT_BYTES")),
        write_stall: set(values.millis("WRITE_STALL_MS")),
        drain: set(values.millis("DRAIN_MS")),
    }
}

fn body(values: &Values) -> BodyLimits {
    BodyLimits {
        bytes: count(values.number("BODY_LIMIT_BYTES")),
        idle: set(values.millis("BODY_IDLE_MS")),
        total: set(values.millis("BODY_TOTAL_MS")),
    }
}

fn log(values: &Values) -> LogConfig {
    LogConfig {
        filter: set(values.text("LOG")),
        json: values.text("LOG_FORMAT").is_some_and(|format| format == "json"),
    }
}

fn ollama(values: &Values) -> OllamaConfig {
    let (base_url, model) = (values.url("OLLAMA_BASE_URL"), values.text("OLLAMA_MODEL"));
    let preferred = base_url.is_some() && model.is_some();
    OllamaConfig { base_url, model, num_ctx: count(values.number("OLLAMA_NUM_CTX")), preferred }
}
