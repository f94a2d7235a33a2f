//! The log goes to standard error; standard output is for what commands print.

use agent_http::config::LogConfig;
use tracing_subscriber::EnvFilter;

use crate::StartError;

/// Sets up the log of this process.
///
/// # Errors
/// A filter that cannot be read, or a log that is set up already.
pub fn init(config: &LogConfig) -> Result<(), StartError> {
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|error| StartError::Other(format!("LOG is not a filter: {error}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = if config.json { log.json().try_init() } else { log.try_init() };
    set.map_err(|error| StartError::Other(format!("the log cannot be set up: {error}")))
}
