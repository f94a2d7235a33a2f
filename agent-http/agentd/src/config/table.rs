//! Table of settings, from which parsing, `config print` and the check of the documentation are derived.

mod anthropic;
mod coding;
mod console;
mod conversations;
mod documents;
mod embedding;
mod entry;
mod extraction;
mod fallback;
mod limits;
mod logging;
mod rag;
mod usage;

use super::setting::{Setting, SettingKind};
use entry::{
    ALL_SERVICES, APP, APP_AND_RUNTIME, APP_AND_SCHEDULER, DAY_MS, OPERATOR_SECRET, RUNTIME, SCHEDULER,
    setting,
};

/// Returns all settings, in the order of the documentation.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS
        .iter()
        .chain(logging::SETTINGS)
        .chain(rag::SETTINGS)
        .chain(embedding::SETTINGS)
        .chain(extraction::SETTINGS)
        .chain(coding::SETTINGS)
        .chain(documents::SETTINGS)
        .chain(conversations::SETTINGS)
        .chain(console::SETTINGS)
        .chain(limits::SETTINGS)
        .chain(usage::SETTINGS)
        .chain(anthropic::SETTINGS)
        .chain(fallback::SETTINGS)
}

/// All settings that are not in one of the modules.
const SETTINGS: &[Setting] = &[
    setting("HOST", ALL_SERVICES, SettingKind::Host, &["127.0.0.1"], "The address to listen on."),
    setting(
        "PORT",
        ALL_SERVICES,
        SettingKind::Number { min: 0, max: 65535 },
        &["3000", "3001", "3002"],
        "The port to listen on; 0 selects any free port.",
    ),
    setting(
        "DATABASE_URL",
        APP_AND_SCHEDULER,
        SettingKind::Database,
        &["sqlite://data/app.db", "sqlite://data/scheduler.db"],
        "The database: `sqlite://` and a path, which is absolute if it starts with a third slash; a missing file and its directory are created. Or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, for several processes and machines.",
    ),
    setting(
        "DATABASE_CONNECTIONS",
        APP_AND_SCHEDULER,
        SettingKind::Number { min: 1, max: 1000 },
        &["8", "8"],
        "The maximum number of pooled connections of a process to a PostgreSQL server. Each process opens up to three more.",
    ),
    setting(
        "PUBLIC_URL",
        APP,
        SettingKind::Url,
        &[],
        "The URL under which clients and tool callers reach the application; `http://HOST:PORT` if not set.",
    ),
    setting(
        "RUNTIME_URL",
        APP,
        SettingKind::Url,
        &[],
        "The URL of the operator's own agent runtime, which receives messenger calls, sign-ins to subscriptions and `RUNTIME_SECRET`. Without it, `/api/coding` answers 503.",
    ),
    setting(
        "SESSION_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "The key that signs session tokens (HS256). Without it, requests with a session are answered 503.",
    ),
    setting(
        "INTERNAL_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "The bearer token of proactive calls. Without it, they are answered 503.",
    ),
    setting(
        "DATA_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "The secret under which agents' API keys and webhook credentials, the keys of companies' providers, and the tokens of users' subscriptions are sealed at rest. Without it, saving one is answered 503, and so is `/api/coding`.",
    ),
    setting(
        "DATA_SECRET_PREVIOUS",
        APP,
        OPERATOR_SECRET,
        &[],
        "The previous `DATA_SECRET`, with which sealed values can still be opened; `agentd secrets rotate` seals them again under `DATA_SECRET`.",
    ),
    setting(
        "RUNTIME_SECRET",
        APP_AND_RUNTIME,
        OPERATOR_SECRET,
        &[],
        "The bearer token that the runtime requires and that the application sends to `RUNTIME_URL` and URLs below it. A runtime whose `HOST` is not loopback does not start without it.",
    ),
    setting(
        "CORS_ORIGIN",
        ALL_SERVICES,
        SettingKind::Origins,
        &[""],
        "The exact origins that may call from a browser with credentials, separated by commas; `*` is rejected.",
    ),
    setting(
        "OPENAI_BASE_URL",
        APP_AND_RUNTIME,
        SettingKind::Url,
        &["https://api.openai.com/v1"],
        "The base URL of the hosted vendor: any server of the Chat Completions API.",
    ),
    setting(
        "OPENAI_API_KEY",
        APP_AND_RUNTIME,
        SettingKind::Secret { min_bytes: 1 },
        &[],
        "The API key for agents that have none of their own. It is sent to `OPENAI_BASE_URL` and URLs below it only.",
    ),
    setting(
        "OPENAI_MODEL",
        APP_AND_RUNTIME,
        SettingKind::Text,
        &["gpt-5-mini"],
        "The hosted model for agents whose role names none.",
    ),
    setting(
        "OLLAMA_BASE_URL",
        APP,
        SettingKind::Url,
        &[],
        "The Ollama server for agents whose role names none, such as `http://127.0.0.1:11434`; if not set, `dev` probes that address.",
    ),
    setting(
        "OLLAMA_MODEL",
        APP,
        SettingKind::Text,
        &[],
        "The Ollama model for agents whose role names none; if not set, `dev` uses the first model that supports chat.",
    ),
    setting(
        "OLLAMA_NUM_CTX",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 512, max: 1024 * 1024 },
        &["8192"],
        "The context window of Ollama models in tokens, prompt and answer together. It costs memory on that server, and should not exceed the window for which the models were trained.",
    ),
    setting(
        "CONTEXT_WINDOW",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 512, max: 16 * 1024 * 1024 },
        &[],
        "The context window of hosted models in tokens, prompt and answer together, for agents whose role sets none. If not set, it is that of the catalogue (`MODEL_CATALOG`), else 128000. A smaller one that a server reports takes precedence.",
    ),
    setting(
        "MAX_OUTPUT_TOKENS",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 1, max: 1024 * 1024 },
        &["16384"],
        "The limit on an answer of a hosted or Ollama model in tokens, for agents whose role sets none. Every such limit, also a role's, is at most a quarter of the context window; this one is also at most the limit of the catalogue.",
    ),
    setting(
        "MESSENGER_API_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The base URL of the messenger's bot API, to which `/bot<token>/<method>` is appended, such as `https://api.telegram.org`. Without it, messenger calls are answered 503.",
    ),
    setting(
        "EMBEDDED_MODEL_PATH",
        APP,
        SettingKind::Path,
        &[],
        "The file with the weights of the embedded model (GGUF); by default a model in `MODEL_DIR`.",
    ),
    setting(
        "MODEL_DIR",
        APP,
        SettingKind::Path,
        &["data/models"],
        "The directory in which `agentd model pull` stores weights.",
    ),
    setting(
        "OUTBOUND_ALLOW",
        APP_AND_RUNTIME,
        SettingKind::Allow,
        &[""],
        "Non-public hosts, `host:port` pairs, addresses and CIDRs, separated by commas, that URLs in roles and requests may reach. URLs in these settings need no entry.",
    ),
    setting(
        "BODY_LIMIT_BYTES",
        ALL_SERVICES,
        SettingKind::Number { min: 1024, max: 64 * 1024 * 1024 },
        &["1048576"],
        "The maximum size of a request body; a larger one is answered 413.",
    ),
    setting(
        "HEAD_LIMIT_BYTES",
        ALL_SERVICES,
        SettingKind::Number { min: 8192, max: 1024 * 1024 },
        &["65536"],
        "The maximum size of a request head; a larger one is answered 431.",
    ),
    setting(
        "JSON_DEPTH",
        ALL_SERVICES,
        SettingKind::Number { min: 8, max: 100 },
        &["64"],
        "The maximum nesting depth of a request's JSON.",
    ),
    setting(
        "HEADER_TIMEOUT_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["10000"],
        "The timeout for a request's whole head, and the idle timeout of kept-alive connections.",
    ),
    setting(
        "BODY_IDLE_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["10000"],
        "The maximum pause within a request body; a longer one is answered 408.",
    ),
    setting(
        "BODY_TOTAL_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["120000"],
        "The timeout for a request's whole body, after which it is answered 408.",
    ),
    setting(
        "WRITE_STALL_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["30000"],
        "The time after which a connection is closed if the client reads nothing of the response.",
    ),
    setting(
        "STREAM_IDLE_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["120000"],
        "The maximum time between two events of a run's backend, including those that a visitor does not see; after it, the run fails. If the answer is [delivered whole](http-api.md#answers-that-are-delivered-whole), it is the maximum time between two pieces of a model's content; after it, the call fails.",
    ),
    setting(
        "RUN_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["1800000"],
        "The maximum duration of a run.",
    ),
    setting(
        "CONNECT_TIMEOUT_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["5000"],
        "The timeout for name resolution, connect and TLS handshake of an outbound request together.",
    ),
    setting(
        "RESPONSE_HEADER_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["60000"],
        "The timeout from an outbound request to the head of its response; the body of a messenger's response has the same timeout again.",
    ),
    setting(
        "TOOL_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["60000"],
        "The timeout of one tool call; the model receives the timeout as the call's error.",
    ),
    setting(
        "TOOL_ROUNDS",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 1, max: 1000 },
        &["16"],
        "The maximum number of model calls in one run.",
    ),
    setting(
        "OUTPUT_LIMIT_BYTES",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 1024, max: 1024 * 1024 * 1024 },
        &["4194304"],
        "The limit on text, reasoning and tool arguments of one answer of a model; a longer one ends the run with `OUTPUT_TOO_LARGE`.",
    ),
    setting(
        "RUN_OUTPUT_LIMIT_BYTES",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 1024, max: 1024 * 1024 * 1024 },
        &["16777216"],
        "The limit on all answers and tool results of one run; beyond it, the run ends with `OUTPUT_TOO_LARGE`.",
    ),
    setting(
        "MCP_LEGACY_QUERY",
        APP,
        SettingKind::Word(&["on", "off"]),
        &["off"],
        "With `on`, the tool server accepts `userId`, `agentId` and `todoListId` in the query instead of a token, so that any client that reaches it can act as any user; `dev` turns it on.",
    ),
    setting(
        "MCP_WORKFLOW_TTL",
        APP,
        SettingKind::Duration { min: 1, max: DAY_MS / 1000 },
        &["1h"],
        "The lifetime of a workflow's run token, such as `30m`. It outlives the run, because a workflow may continue after its answer. Beyond 12,500 run tokens, a company loses the oldest of those first.",
    ),
    setting(
        "MCP_CONCURRENCY",
        APP,
        SettingKind::Number { min: 1, max: 10_000 },
        &["16"],
        "The maximum number of concurrent tool server requests per agent; further ones wait.",
    ),
    setting(
        "MCP_REQUESTS_PER_MINUTE",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["6000"],
        "The maximum number of tool server requests per agent and minute; further ones are answered 429.",
    ),
    setting(
        "MAX_AGENTS",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["1000"],
        "The maximum number of agents per company that sessions can create; further ones are answered 409. Imports are not limited.",
    ),
    setting(
        "MAX_DOCUMENTS",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["10000"],
        "The maximum number of documents per company that sessions can create; further ones are answered 409. Imports are not limited.",
    ),
    setting(
        "PULSE_URL",
        APP,
        SettingKind::Url,
        &[],
        "The URL of the scheduler. Without it, or without `PULSE_SECRET`, nothing can be scheduled, and `/api/pulse` answers 503.",
    ),
    setting(
        "PULSE_SECRET",
        APP_AND_SCHEDULER,
        OPERATOR_SECRET,
        &[],
        "The bearer token of calls to the scheduler and of its callbacks, and the key of the callbacks' signature. Without it, the scheduler does not start.",
    ),
    setting(
        "PULSE_SECRET_PREVIOUS",
        APP_AND_SCHEDULER,
        OPERATOR_SECRET,
        &[],
        "The previous `PULSE_SECRET`, accepted in addition during a rotation.",
    ),
    setting(
        "CRON_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "The bearer token of requests to `/api/cron`. Without it, they are answered 503.",
    ),
    setting(
        "PROACTIVE_TIMEOUT_MS",
        APP,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["300000"],
        "The timeout of a run that a job has started, after which it fails and is retried. It should be less than the scheduler's `CALLBACK_TIMEOUT_MS`.",
    ),
    setting(
        "CODING_UNATTENDED",
        APP,
        SettingKind::Word(&["off", "on"]),
        &["off"],
        "With `on`, jobs and proactive calls may use the subscription of the user for whom they run; with `off`, agents that answer by a subscription refuse them with `SIGN_IN_REQUIRED`.",
    ),
    setting(
        "CALLBACK_URL",
        SCHEDULER,
        SettingKind::Url,
        &[],
        "The URL to which the scheduler delivers jobs: the application's `/api/pulse/callback`. Without it, the scheduler does not start.",
    ),
    setting(
        "CALLBACK_TIMEOUT_MS",
        SCHEDULER,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["600000"],
        "The timeout of one delivery, after which it fails and is retried.",
    ),
    setting(
        "SCHEDULER_CONCURRENCY",
        SCHEDULER,
        SettingKind::Number { min: 1, max: 10_000 },
        &["256"],
        "The maximum number of concurrent deliveries of one process.",
    ),
    setting(
        "SCHEDULER_COMPANY_CONCURRENCY",
        SCHEDULER,
        SettingKind::Number { min: 1, max: 10_000 },
        &["64"],
        "The maximum number of concurrent deliveries per company.",
    ),
    setting(
        "SCHEDULER_LEASE_MS",
        SCHEDULER,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["30000"],
        "The lease of a claim without a heartbeat: jobs claimed by a crashed process are retried after it.",
    ),
    setting(
        "SCHEDULER_RETENTION",
        SCHEDULER,
        SettingKind::Duration { min: 60, max: 10 * 365 * DAY_MS / 1000 },
        &["7d"],
        "The retention of jobs that are completed, discarded or cancelled, such as `30d`.",
    ),
    setting(
        "MAX_CONNECTIONS",
        ALL_SERVICES,
        SettingKind::Number { min: 16, max: 1_000_000 },
        &["10000"],
        "The maximum number of open connections, 16 or more; further ones wait, or replace [idle ones](security.md#connections-at-the-limit). A sixteenth of them, at most 64, is reserved for addresses with few connections; health probes are answered beyond the limit. In the application, one company uses [five eighths](security.md#shared-pools) of them at most. Each connection needs two file descriptors in the application and the runtime and one in the scheduler, and each process needs 400 more. At start, the process raises its limit on file descriptors as far as the system allows. If they do not suffice, it lowers `MAX_CONNECTIONS`, with a warning. In `dev` the default is 1000.",
    ),
    setting(
        "DRAIN_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 0, max: DAY_MS },
        &["10000"],
        "The time for which running requests may continue after the signal to stop and `LAME_DUCK_MS`. Runs that take longer end with `SERVER_SHUTTING_DOWN` up to 2 s earlier.",
    ),
    setting(
        "LAME_DUCK_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 0, max: DAY_MS },
        &["0"],
        "The time after the signal to stop in which requests are still accepted and `/readyz` is answered 503, so that load balancers take the process out before its port closes.",
    ),
];

/// Finds a setting by name, ignoring case.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.name.eq_ignore_ascii_case(name))
}
