//! Table of settings, from which parsing, `config print` and the check of the documentation are derived.

use super::Service;

/// Definition of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name, as in the environment.
    pub name: &'static str,
    /// Services that read it.
    pub services: &'static [Service],
    /// Type and bounds of its value.
    pub kind: SettingKind,
    /// Default values: none, one for all services, or one per service in the order of `services`.
    pub default: &'static [&'static str],
    /// Description in one sentence.
    pub doc: &'static str,
}

impl Setting {
    /// Returns the default for `service`.
    pub fn default_for(&self, service: Service) -> Option<&'static str> {
        let place = self.services.iter().position(|other| *other == service)?;
        self.default.get(place).or(self.default.first()).copied()
    }
}

/// Type of a setting's value, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingKind {
    /// IP address, or `localhost`.
    Host,
    /// Integer within inclusive bounds.
    Number {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Duration in milliseconds, within inclusive bounds.
    Millis {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Duration with a unit, such as `90s`, `30m` or `1h`, within inclusive bounds in seconds.
    Duration {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// `http` or `https` URL without user, query and fragment.
    Url,
    /// Database: `sqlite://` and a path, or a PostgreSQL connection URL.
    Database,
    /// Comma-separated list of exact origins.
    Origins,
    /// Comma-separated list of hosts, `host:port` pairs, addresses and CIDRs.
    Allow,
    /// Path of a file or directory.
    Path,
    /// One line of text.
    Text,
    /// One of the listed words.
    Word(&'static [&'static str]),
    /// Secret of a minimum length in bytes; never shown.
    Secret {
        /// Minimum length in bytes.
        min_bytes: usize,
    },
}

impl SettingKind {
    /// Returns true if values of this kind are secrets.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret { .. })
    }

    /// Returns true if `value` must be masked: a secret, or a PostgreSQL URL, which may contain a password.
    pub fn should_mask(self, value: &str) -> bool {
        self.is_secret() || matches!(self, Self::Database) && !value.trim_start().starts_with("sqlite:")
    }
}

const APP: &[Service] = &[Service::App];
const RUNTIME: &[Service] = &[Service::Runtime];
const SCHEDULER: &[Service] = &[Service::Scheduler];
/// Services that use models and tools.
const APP_AND_RUNTIME: &[Service] = &[Service::App, Service::Runtime];
/// Services with a database.
const APP_AND_SCHEDULER: &[Service] = &[Service::App, Service::Scheduler];
const ALL_SERVICES: &[Service] = &[Service::App, Service::Runtime, Service::Scheduler];

/// Kind of a secret that the operator chooses; the minimum length makes guessing infeasible.
const OPERATOR_SECRET: SettingKind = SettingKind::Secret { min_bytes: 16 };

/// Maximum of any duration in milliseconds: one day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const fn setting(
    name: &'static str,
    services: &'static [Service],
    kind: SettingKind,
    default: &'static [&'static str],
    doc: &'static str,
) -> Setting {
    Setting { name, services, kind, default, doc }
}

/// All settings, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    setting("HOST", ALL_SERVICES, SettingKind::Host, &["127.0.0.1"], "The address to listen on."),
    setting(
        "PORT",
        ALL_SERVICES,
        SettingKind::Number { min: 0, max: 65535 },
        &["3000", "3001", "3002"],
        "The port to listen on; 0 is any free one.",
    ),
    setting(
        "DATABASE_URL",
        APP_AND_SCHEDULER,
        SettingKind::Database,
        &["sqlite://data/app.db", "sqlite://data/scheduler.db"],
        "Where the data is: `sqlite://` and a path, absolute with a third slash. The file is made where it is missing, its folder too. For the scheduler also `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.",
    ),
    setting(
        "PUBLIC_URL",
        APP,
        SettingKind::Url,
        &[],
        "The address that clients and tool callers know the application by; `http://HOST:PORT` where it is not set.",
    ),
    setting(
        "RUNTIME_URL",
        APP,
        SettingKind::Url,
        &[],
        "The operator's own agent runtime: sign-in, subscription and messenger calls go there.",
    ),
    setting(
        "SESSION_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "Session tokens are signed with it (HS256). Without it, sessions are answered 503.",
    ),
    setting(
        "INTERNAL_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "Proactive calls carry it as a bearer. Without it, they are answered 503.",
    ),
    setting(
        "DATA_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "Agents' keys and webhook credentials are sealed under it at rest. Without it, saving one is answered 503.",
    ),
    setting(
        "DATA_SECRET_PREVIOUS",
        APP,
        OPERATOR_SECRET,
        &[],
        "What was sealed under it can still be read; `agentd secrets rotate` seals it anew under `DATA_SECRET`.",
    ),
    setting(
        "RUNTIME_SECRET",
        APP_AND_RUNTIME,
        OPERATOR_SECRET,
        &[],
        "The runtime asks for it as a bearer, and the application sends it to `RUNTIME_URL`'s origin. A runtime whose `HOST` is not loopback does not start without it.",
    ),
    setting(
        "CORS_ORIGIN",
        ALL_SERVICES,
        SettingKind::Origins,
        &[""],
        "The exact origins that may call from a browser, separated by commas; `*` is refused.",
    ),
    setting(
        "OPENAI_BASE_URL",
        APP_AND_RUNTIME,
        SettingKind::Url,
        &["https://api.openai.com/v1"],
        "The hosted vendor: any server of the Chat Completions API.",
    ),
    setting(
        "OPENAI_API_KEY",
        APP_AND_RUNTIME,
        SettingKind::Secret { min_bytes: 1 },
        &[],
        "The key for agents that bring none. It goes to `OPENAI_BASE_URL`'s origin alone.",
    ),
    setting(
        "OPENAI_MODEL",
        APP_AND_RUNTIME,
        SettingKind::Text,
        &["gpt-5-mini"],
        "The hosted model for agents that name none.",
    ),
    setting(
        "OLLAMA_BASE_URL",
        APP,
        SettingKind::Url,
        &[],
        "The Ollama server for agents that name none, such as `http://127.0.0.1:11434`; `dev` looks there if it is not set.",
    ),
    setting(
        "OLLAMA_MODEL",
        APP,
        SettingKind::Text,
        &[],
        "The model at Ollama for agents that name none; `dev` takes the first that can chat if it is not set.",
    ),
    setting(
        "OLLAMA_NUM_CTX",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 512, max: 1024 * 1024 },
        &["8192"],
        "How many tokens prompt and answer of a model at Ollama may have together; it costs memory there, and should not be more than the models were made for.",
    ),
    setting(
        "MESSENGER_API_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The messenger's bot API, below which `bot<token>/<method>` is called, such as `https://api.telegram.org`. Without it, messenger calls are answered 503.",
    ),
    setting(
        "EMBEDDED_MODEL_PATH",
        APP,
        SettingKind::Path,
        &[],
        "The weights of the embedded model (GGUF), where they are not the ones in `MODEL_DIR`.",
    ),
    setting(
        "MODEL_DIR",
        APP,
        SettingKind::Path,
        &["data/models"],
        "Where `agentd model pull` keeps weights.",
    ),
    setting(
        "OUTBOUND_ALLOW",
        APP_AND_RUNTIME,
        SettingKind::Allow,
        &[""],
        "Hosts, `host:port` pairs, addresses and CIDRs, separated by commas, that roles and requests may name although they are not public. Addresses that the operator sets here need no entry.",
    ),
    setting(
        "BODY_LIMIT_BYTES",
        ALL_SERVICES,
        SettingKind::Number { min: 1024, max: 64 * 1024 * 1024 },
        &["1048576"],
        "The largest request body; a larger one is 413.",
    ),
    setting(
        "HEAD_LIMIT_BYTES",
        ALL_SERVICES,
        SettingKind::Number { min: 8192, max: 1024 * 1024 },
        &["65536"],
        "The largest request head; a larger one is 431.",
    ),
    setting(
        "JSON_DEPTH",
        ALL_SERVICES,
        SettingKind::Number { min: 8, max: 100 },
        &["64"],
        "How deep a request's JSON may nest.",
    ),
    setting(
        "HEADER_TIMEOUT_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["10000"],
        "Time for a request's whole head; idle kept-alive connections are closed after it too.",
    ),
    setting(
        "BODY_IDLE_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["10000"],
        "The longest pause in a request's body; a longer one is 408.",
    ),
    setting(
        "BODY_TOTAL_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["120000"],
        "Time for a request's whole body; a slower one is 408.",
    ),
    setting(
        "WRITE_STALL_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["30000"],
        "How long a client may read nothing of its answer before it is cut off.",
    ),
    setting(
        "STREAM_IDLE_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["120000"],
        "How long a run may go without an event before it fails.",
    ),
    setting(
        "RUN_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["1800000"],
        "How long a run may take in all.",
    ),
    setting(
        "CONNECT_TIMEOUT_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["5000"],
        "Time to resolve, connect and shake hands with an upstream.",
    ),
    setting(
        "RESPONSE_HEADER_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["60000"],
        "Time from a request to an upstream to the head of its answer; a messenger's answer has as much again to its end.",
    ),
    setting(
        "TOOL_TIMEOUT_MS",
        APP_AND_RUNTIME,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["60000"],
        "Time for one tool call; a longer one has failed, and the model is told so.",
    ),
    setting(
        "TOOL_ROUNDS",
        APP_AND_RUNTIME,
        SettingKind::Number { min: 1, max: 1000 },
        &["16"],
        "How many times a model may answer in one run.",
    ),
    setting(
        "MCP_LEGACY_QUERY",
        APP,
        SettingKind::Word(&["on", "off"]),
        &["off"],
        "Whether the tool server takes `userId`, `agentId` and `todoListId` in the query in place of a token. Whoever reaches it is then believed to be whom they name; `dev` turns it on.",
    ),
    setting(
        "MCP_WORKFLOW_TTL",
        APP,
        SettingKind::Duration { min: 1, max: DAY_MS / 1000 },
        &["1h"],
        "How long a workflow may call tools after it was started, such as `30m`: it may go on when it has answered.",
    ),
    setting(
        "MCP_CONCURRENCY",
        APP,
        SettingKind::Number { min: 1, max: 10_000 },
        &["16"],
        "How many requests to the tool server are worked on at once for an agent; further ones wait.",
    ),
    setting(
        "MCP_REQUESTS_PER_MINUTE",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["6000"],
        "How many requests to the tool server are taken a minute for an agent; further ones are 429.",
    ),
    setting(
        "PULSE_URL",
        APP,
        SettingKind::Url,
        &[],
        "The scheduler's address. Without it, or without `PULSE_SECRET`, nothing can be scheduled, and `/api/pulse` answers 503.",
    ),
    setting(
        "PULSE_SECRET",
        APP_AND_SCHEDULER,
        OPERATOR_SECRET,
        &[],
        "The scheduler asks its callers for it as a bearer, and calls back with it as bearer and as key of the signature. Without it, the scheduler does not start.",
    ),
    setting(
        "PULSE_SECRET_PREVIOUS",
        APP_AND_SCHEDULER,
        OPERATOR_SECRET,
        &[],
        "Taken beside `PULSE_SECRET` while that is being replaced.",
    ),
    setting(
        "CRON_SECRET",
        APP,
        OPERATOR_SECRET,
        &[],
        "Whoever asks `/api/cron` presents it as a bearer. Without it, that is answered 503.",
    ),
    setting(
        "PROACTIVE_TIMEOUT_MS",
        APP,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["300000"],
        "How long a run that a job has started may take; a longer one has failed, and is tried again. It should be less than the scheduler's `CALLBACK_TIMEOUT_MS`.",
    ),
    setting(
        "CALLBACK_URL",
        SCHEDULER,
        SettingKind::Url,
        &[],
        "Where the scheduler delivers jobs: the application's `/api/pulse/callback`. Without it, the scheduler does not start.",
    ),
    setting(
        "CALLBACK_TIMEOUT_MS",
        SCHEDULER,
        SettingKind::Millis { min: 100, max: DAY_MS },
        &["600000"],
        "Time for one delivery; a longer one has failed, and is tried again.",
    ),
    setting(
        "SCHEDULER_CONCURRENCY",
        SCHEDULER,
        SettingKind::Number { min: 1, max: 10_000 },
        &["256"],
        "How many deliveries are under way at once in one process.",
    ),
    setting(
        "SCHEDULER_COMPANY_CONCURRENCY",
        SCHEDULER,
        SettingKind::Number { min: 1, max: 10_000 },
        &["64"],
        "How many of them are of one company.",
    ),
    setting(
        "SCHEDULER_LEASE_MS",
        SCHEDULER,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["30000"],
        "How long a claim holds without a sign of life: what a crashed process had in hand is tried again after that.",
    ),
    setting(
        "SCHEDULER_RETENTION",
        SCHEDULER,
        SettingKind::Duration { min: 60, max: 10 * 365 * DAY_MS / 1000 },
        &["7d"],
        "How long jobs that are completed, discarded or cancelled are kept, such as `30d`.",
    ),
    setting(
        "MAX_CONNECTIONS",
        ALL_SERVICES,
        SettingKind::Number { min: 1, max: 1_000_000 },
        &["10000"],
        "Connections open at once; further ones wait.",
    ),
    setting(
        "DRAIN_MS",
        ALL_SERVICES,
        SettingKind::Millis { min: 0, max: DAY_MS },
        &["10000"],
        "How long running requests may go on after the signal to stop.",
    ),
    setting(
        "LOG",
        ALL_SERVICES,
        SettingKind::Text,
        &["info"],
        "What is logged, as directives of `tracing`'s environment filter, such as `info,agent_http=debug`.",
    ),
    setting(
        "LOG_FORMAT",
        ALL_SERVICES,
        SettingKind::Word(&["text", "json"]),
        &["text"],
        "Text for people, or a JSON object a line.",
    ),
];

/// Finds a setting by name, ignoring case.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
}
