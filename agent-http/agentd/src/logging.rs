//! Log setup. The log goes to standard error; standard output is for the output of commands.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::StartError;
use crate::config::LogConfig;

/// Installs the global log subscriber of this process.
///
/// # Errors
/// The filter is invalid, or a subscriber is installed already.
pub fn init(config: &LogConfig) -> Result<(), StartError> {
    // `Targets` instead of `EnvFilter`: `EnvFilter` inspects every span that is entered, and a stream enters
    // its span for each chunk it polls.
    let filter = filter(&config.filter)?;
    let mut lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    if !io::stderr().is_terminal() {
        // Files and log collectors do not interpret ANSI colour codes.
        lines.set_ansi(false);
    }
    let installed = if config.json {
        tracing_subscriber::registry().with(lines.json()).with(filter).try_init()
    } else {
        tracing_subscriber::registry().with(lines).with(filter).try_init()
    };
    installed.map_err(|error| StartError::Other(format!("logging cannot be initialized: {error}")))
}

/// Parses log directives. `rmcp`, the MCP library, logs every message and thereby the content of
/// conversations, so only its errors are logged unless a directive names it.
///
/// # Errors
/// The directives are invalid.
pub fn filter(directives: &str) -> Result<Targets, StartError> {
    let parsed = format!("rmcp=error,{directives}").parse();
    parsed.map_err(|error| StartError::Other(format!("LOG is not a valid filter: {error}")))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn conversations_are_logged_for_who_asks_by_name() {
        for (directives, logs) in [
            ("info", [true, false]),
            ("trace", [true, false]),
            ("warn", [true, false]),
            ("info,rmcp=debug", [true, true]),
            ("warn,rmcp::service=info", [true, true]),
        ] {
            let filter = filter(directives).expect("directives");
            let logged =
                [Level::ERROR, Level::INFO].map(|level| filter.would_enable("rmcp::service", &level));
            assert_eq!(logged, logs, "{directives}");
        }
        assert!(filter("info,agentd=loud").is_err());
    }
}
