//! The log goes to standard error; standard output is for what commands print.

use std::io::{self, IsTerminal};

use agent_http::config::LogConfig;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::StartError;

/// Sets up the log of this process.
///
/// # Errors
/// A filter that cannot be read, or a log that is set up already.
pub fn init(config: &LogConfig) -> Result<(), StartError> {
    // Not by an environment filter: it looks at every span that is entered, and a stream is polled
    // within its span for each chunk.
    let filter = filter(&config.filter)?;
    let mut lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    if !io::stderr().is_terminal() {
        // Files and collectors show the codes of colours as they are.
        lines.set_ansi(false);
    }
    let set = if config.json {
        tracing_subscriber::registry().with(lines.json()).with(filter).try_init()
    } else {
        tracing_subscriber::registry().with(lines).with(filter).try_init()
    };
    set.map_err(|error| StartError::Other(format!("the log cannot be set up: {error}")))
}

/// What is logged by these directives. The library of the tools' protocol tells of every message, and so of what
/// tools and people have said: only who asks for it by name is told more than its errors.
///
/// # Errors
/// Directives that cannot be read.
pub fn filter(directives: &str) -> Result<Targets, StartError> {
    let parsed = format!("rmcp=error,{directives}").parse();
    parsed.map_err(|error| StartError::Other(format!("LOG is not a filter: {error}")))
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
