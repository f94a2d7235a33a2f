//! Configuration: one table of settings, three sources, all errors at once.
//!
//! A setting comes from a flag, else from the environment, else from a TOML file with the same names in any case; for a
//! secret `X`, `X_FILE` names a file that holds it. All settings of a service are read and checked before anything
//! starts. A refused start reports all errors at once, so that an operator can correct the configuration in one step.
//! No value of a secret is ever shown.
//!
//! Nothing below this module reads the process's environment, which is why it is a trait here: tests and
//! embedding programs bring a separate map.
//!
//! ```
//! use agentd::config::{AppConfig, Flags};
//! use std::collections::BTreeMap;
//!
//! let env = BTreeMap::from([("PORT", "http"), ("SESSION_SECRET", "short")]);
//! let errors = AppConfig::load(&Flags::default(), &env).unwrap_err();
//! assert_eq!(
//!     errors.to_string(),
//!     "PORT (environment) must be a whole number from 0 to 65535\n\
//!      SESSION_SECRET (environment) must have at least 16 bytes"
//! );
//! ```

mod catalog;
mod coding;
mod embedding;
mod env;
mod error;
mod extraction;
mod fallback;
mod file;
mod load;
mod parse;
mod resolve;
mod service;
mod services;
mod setting;
mod source;
mod suggestion;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::net::{IpAddr, SocketAddr};

use url::Url;

pub use coding::{CodingConfig, CodingIssuerConfig};
pub use embedding::{EmbeddingConfig, EmbeddingServerConfig};
pub use env::{Env, NotUnicodeError, ProcessEnv};
pub use error::{ConfigError, SettingError};
pub use extraction::ExtractionConfig;
pub use fallback::FallbackConfig;
pub use parse::Database;
pub(crate) use parse::parse_database;
pub use resolve::Flags;
pub use service::Service;
pub use services::{
    AppConfig, HostedConfig, LogConfig, McpConfig, OllamaConfig, PulseConfig, RagConfig, RuntimeConfig,
    SchedulerConfig, ServerConfig,
};
pub use source::SettingSource;

pub(crate) use resolve::ResolvedSettings;
pub(crate) use setting::SettingKind;
pub(crate) use suggestion::misspelt_variables;

impl AppConfig {
    /// Reads and validates the settings of the application server.
    ///
    /// # Errors
    ///
    /// Returns every error in the settings.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, ConfigError> {
        load::app(&ResolvedSettings::new(Service::App, flags, env)?)
    }

    /// Returns the public base URL: the configured one, otherwise one with the bound address.
    pub fn public_url(&self, bound: SocketAddr) -> Url {
        self.public_url.clone().unwrap_or_else(|| {
            // Clients cannot connect to the unspecified address, but local ones can connect to loopback.
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

impl RuntimeConfig {
    /// Reads and validates the settings of the agent runtime.
    ///
    /// # Errors
    ///
    /// Returns every error in the settings.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, ConfigError> {
        load::runtime(&ResolvedSettings::new(Service::Runtime, flags, env)?)
    }
}

impl SchedulerConfig {
    /// Reads and validates the settings of the scheduler.
    ///
    /// # Errors
    ///
    /// Returns every error in the settings.
    pub fn load(flags: &Flags, env: &dyn Env) -> Result<Self, ConfigError> {
        load::scheduler(&ResolvedSettings::new(Service::Scheduler, flags, env)?)
    }
}
