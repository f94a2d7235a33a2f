//! Configuration: one table of settings, three sources, every fault at once.
//!
//! A setting comes from a flag, else from the environment, else from a TOML file with the same names in
//! any case; for a secret `X`, `X_FILE` names a file that holds it. All settings of a service are read and
//! checked before anything starts, and a start that is refused says everything that is wrong, so that an
//! operator mends a configuration once and not once for each mistake. No value of a secret is ever shown.
//!
//! Nothing below this module reads the process's environment, which is why it is a trait here: tests and
//! embedding programs bring a map of their own.
//!
//! ```
//! use crate::config::{AppConfig, Flags};
//! use std::collections::BTreeMap;
//!
//! let env = BTreeMap::from([("PORT", "http"), ("SESSION_SECRET", "short")]);
//! let faults = AppConfig::load(&Flags::default(), &env).unwrap_err();
//! assert_eq!(
//!     faults.to_string(),
//!     "PORT (environment) must be a whole number from 0 to 65535\n\
//!      SESSION_SECRET (environment) must have at least 16 bytes"
//! );
//! ```

mod load;
mod parse;
mod resolve;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::secret::Secret;
use agent_core::tool_loop::LoopLimits;
use url::Url;

use crate::cors::Origins;
use crate::outbound::OutboundConfig;
use crate::request::BodyLimits;
use crate::scheduler::WorkerLimits;
use crate::serve::ServeLimits;

pub use resolve::{Flags, Resolved, Source};
pub use table::{Kind, SETTINGS, Setting};

/// The most bytes of a configuration file, and of a file that holds a secret.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Where settings are looked up, so that nothing but a program's `main` depends on the process.
pub trait Env {
    /// The variable's value, if it is set.
    ///
    /// # Errors
    ///
    /// [`NotUnicode`], for a value that is no text.
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicode>;
}

/// A variable is set to something that is not Unicode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value is not Unicode")]
pub struct NotUnicode;

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(NotUnicode),
        }
    }
}

impl Env for BTreeMap<&str, &str> {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        Ok(self.get(name).map(|value| (*value).to_owned()))
    }
}

/// The services that settings belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// The application server.
    App,
    /// The agent runtime.
    Runtime,
    /// The scheduler.
    Scheduler,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::App => "app",
            Self::Runtime => "runtime",
            Self::Scheduler => "scheduler",
        })
    }
}

/// One setting that is wrong. The problem is worded to follow the setting's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The setting, or the file that could not be read.
    pub name: String,
    /// Where the value came from, if there is one.
    pub source: Option<Source>,
    /// What is wrong. It never holds the value of a secret.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} ({source}) {}", self.name, self.problem),
            None => write!(f, "{} {}", self.name, self.problem),
        }
    }
}

/// Everything that is wrong with a configuration, a line each; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let line_break = if index > 0 { "\n" } else { "" };
            write!(f, "{line_break}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// What every service is configured with.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// The exact origins that may call from a browser.
    pub origins: Origins,
    /// Bounds of connections.
    pub serve: ServeLimits,
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// How deep a request's JSON may nest.
    pub json_depth: usize,
    /// How long a stream may go without an event.
    pub stream_idle: Duration,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// Bounds of the tool loop.
    pub tool_loop: LoopLimits,
    /// Where requests may go, and how long they may take.
    pub outbound: OutboundConfig,
    /// The hosted vendor.
    pub hosted: HostedConfig,
    /// Ollama.
    pub ollama: OllamaConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// The hosted vendor that agents without an address of their own use.
#[derive(Debug, Clone)]
pub struct HostedConfig {
    /// The base address, such as `https://api.openai.com/v1`.
    pub base_url: Url,
    /// The operator's key; it may go to the base address's origin alone.
    pub api_key: Option<Secret>,
    /// The model of those who name none.
    pub model: String,
    /// Whether the base address is the vendor's public one, which serves nobody without a key.
    pub needs_key: bool,
}

/// The Ollama server that agents without an address of their own use; a runtime has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OllamaConfig {
    /// The base address, such as `http://127.0.0.1:11434`.
    pub base_url: Option<Url>,
    /// The model of those who name none.
    pub model: Option<String>,
    /// How many tokens prompt and answer may have together.
    pub num_ctx: usize,
    /// Whether it answers agents that leave the provider open, where there is no hosted key: both the
    /// address and the model are set, or `dev` has found them.
    pub preferred: bool,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Directives in the syntax of `tracing`'s environment filter, such as `info,agent_http=debug`.
    pub filter: String,
    /// Whether a line is a JSON object rather than text for people.
    pub json: bool,
}

/// Where a service keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Database {
    /// A file of SQLite's.
    Sqlite(PathBuf),
    /// A database of PostgreSQL's, by its address, which may hold a password.
    Postgres(Secret),
}

/// What the tool server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpConfig {
    /// Whether a query may name people and agents without any proof.
    pub legacy_query: bool,
    /// How long a workflow may call tools after it was started.
    pub workflow_ttl: Duration,
    /// How many requests are worked on at once for an agent.
    pub concurrency: usize,
    /// How many requests a minute are taken for an agent.
    pub per_minute: NonZeroU32,
}

/// The scheduler, as the application knows it.
#[derive(Debug, Clone)]
pub struct PulseConfig {
    /// Its address. Without it, nothing can be scheduled.
    pub url: Option<Url>,
    /// It asks for this, and calls back with it. Without it, nothing can be scheduled.
    pub secret: Option<Secret>,
    /// It may still call back with this.
    pub secret_previous: Option<Secret>,
    /// Whoever runs what is due in its stead presents this. Without it, nobody may.
    pub cron_secret: Option<Secret>,
    /// How long a run that a job has started may take.
    pub deadline: Duration,
}

/// The application server's configuration.
#[derive(Debug, Clone)]
pub struct AppConfig {
    /// What every service has.
    pub server: ServerConfig,
    /// Where the data is.
    pub database: Database,
    /// Agents' secrets are sealed under it. Without it, none is saved.
    pub data_secret: Option<Secret>,
    /// What was sealed under it can still be opened.
    pub data_secret_previous: Option<Secret>,
    /// The address that clients know the application by, where it is set; see [`Self::public_url`].
    pub public_url: Option<Url>,
    /// The operator's own agent runtime.
    pub runtime_url: Option<Url>,
    /// Sessions are signed with it. Without it there are none.
    pub session_secret: Option<Secret>,
    /// Proactive calls carry it. Without it there are none.
    pub internal_secret: Option<Secret>,
    /// The runtime at `runtime_url` asks for it.
    pub runtime_secret: Option<Secret>,
    /// The tool server.
    pub mcp: McpConfig,
    /// The scheduler.
    pub pulse: PulseConfig,
    /// The weights of the embedded model, where they are not in `model_dir`.
    pub embedded_model_path: Option<PathBuf>,
    /// Where pulled weights are kept.
    pub model_dir: PathBuf,
}

impl AppConfig {
    /// Reads and checks the application's settings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, Faults> {
        load::app(&Resolved::new(Service::App, flags, env)?)
    }

    /// The base address that clients reach the application by: as set, or else where it listens.
    pub fn public_url(&self, bound: SocketAddr) -> Url {
        self.public_url.clone().unwrap_or_else(|| {
            // Nobody can connect to "any address", but whoever is on this machine to the loopback one.
            let mut bound = bound;
            if bound.ip().is_unspecified() {
                bound.set_ip(match bound.ip() {
                    IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
                });
            }
            Url::parse(&format!("http://{bound}/")).expect("a socket address is a URL's host and port")
        })
    }
}

/// The agent runtime's configuration.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// What every service has.
    pub server: ServerConfig,
    /// Callers must present it. Without it the runtime listens on loopback alone.
    pub runtime_secret: Option<Secret>,
    /// The base address of the messenger's bot API.
    pub messenger_api_url: Option<Url>,
}

impl RuntimeConfig {
    /// Reads and checks the runtime's settings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, Faults> {
        load::runtime(&Resolved::new(Service::Runtime, flags, env)?)
    }
}

/// The scheduler's configuration.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// Where to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// The exact origins that may call from a browser.
    pub origins: Origins,
    /// Bounds of connections.
    pub serve: ServeLimits,
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// How deep a request's JSON may nest.
    pub json_depth: usize,
    /// How requests to the receiver are made.
    pub outbound: OutboundConfig,
    /// What is logged.
    pub log: LogConfig,
    /// Where the jobs are.
    pub database: Database,
    /// Callers present it, and so does the scheduler to the receiver.
    pub secret: Secret,
    /// Callers may still present it.
    pub secret_previous: Option<Secret>,
    /// Where jobs are delivered.
    pub callback_url: Url,
    /// How long one delivery may take.
    pub callback_timeout: Duration,
    /// Bounds of the worker.
    pub worker: WorkerLimits,
}

impl SchedulerConfig {
    /// Reads and checks the scheduler's settings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, Faults> {
        load::scheduler(&Resolved::new(Service::Scheduler, flags, env)?)
    }
}

/// Reads a file that an operator wrote.
fn read_file(path: &Path) -> Result<String, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}
