//! The application's stores, for commands that work on them without a server.

use std::path::PathBuf;

use agent_http::config::{AppConfig, Env, Flags};
use agentd::compose::Stores;

use crate::failure::CommandError;

/// Opens the stores that the application would work with.
///
/// # Errors
/// The configuration is refused, or names no store that outlives a process.
pub(crate) async fn open(config: Option<PathBuf>, env: &dyn Env) -> Result<Stores, CommandError> {
    AppConfig::load(&Flags { config, ..Flags::default() }, env)?;
    Err(CommandError::Missing("DATABASE_URL"))
}
