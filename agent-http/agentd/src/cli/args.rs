//! Arguments that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId};
use clap::Args;

use crate::config::{AppConfig, ConfigError, Env, Flags};

/// Configuration source of a command, besides the environment.
#[derive(Debug, Default, Args)]
pub(crate) struct ConfigFileArg {
    /// TOML file with settings.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl ConfigFileArg {
    /// Loads the application's configuration.
    pub(crate) fn load(self, env: &dyn Env) -> Result<AppConfig, ConfigError> {
        AppConfig::load(&Flags { config: self.config, ..Flags::default() }, env)
    }
}

/// Arguments that select an agent.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Identifier of the agent.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: AgentId,
    /// Company of the agent; may be left out if only one company has an agent of this id.
    #[arg(long, value_name = "ID")]
    pub(crate) company: Option<CompanyId>,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Parses a duration of at least one second. Token claims have a resolution of one second, so a shorter
/// lifetime would be zero.
pub(super) fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.as_secs() == 0 { Err("must be a second or more".to_owned()) } else { Ok(duration) }
}
