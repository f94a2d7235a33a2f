//! `agentd model`: the weights of the model in the process.

use std::io::Write;
use std::path::PathBuf;

use agent_http::config::{AppConfig, Env, Flags};
use agentd::weights;

use crate::failure::CommandError;

/// Lists the known models, and which of them are there.
pub(crate) fn list(config: Option<PathBuf>, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let config = load(config, env)?;
    for line in weights::list(&config) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Brings a model's weights.
pub(crate) async fn pull(
    name: Option<&str>,
    config: Option<PathBuf>,
    env: &dyn Env,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let config = load(config, env)?;
    let path = weights::pull(&config, name).await?;
    writeln!(out, "{}", path.display())?;
    Ok(())
}

fn load(config: Option<PathBuf>, env: &dyn Env) -> Result<AppConfig, CommandError> {
    Ok(AppConfig::load(&Flags { config, ..Flags::default() }, env)?)
}
