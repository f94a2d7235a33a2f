//! The log goes to standard error; standard output is for what commands print.

use agent_http::config::LogConfig;
use tracing::Level;
use tracing::level_filters::LevelFilter;
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
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let set = if config.json {
        tracing_subscriber::registry().with(lines.json()).with(filter).try_init()
    } else {
        tracing_subscriber::registry().with(lines).with(filter).try_init()
    };
    set.map_err(|error| StartError::Other(format!("the log cannot be set up: {error}")))
}

/// What is logged by these directives.
///
/// # Errors
/// Directives that cannot be read.
pub fn filter(directives: &str) -> Result<Targets, StartError> {
    let filter =
        directives.parse().map_err(|error| StartError::Other(format!("LOG is not a filter: {error}")))?;
    Ok(without_conversations(filter))
}

/// Leaves out what the protocol library says of ordinary messages, unless the filter asks for it by name: it
/// writes down what tools and people have said, at a level that is for what the program does.
fn without_conversations(filter: Targets) -> Targets {
    const LIBRARY: &str = "rmcp";
    let named = filter.iter().any(|(target, _)| target.starts_with(LIBRARY));
    if named || !filter.would_enable(LIBRARY, &Level::INFO) {
        return filter;
    }
    filter.with_target(LIBRARY, LevelFilter::WARN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_logged_for_who_asks_by_name() {
        for (filter, logs) in [
            ("info", [true, false]),
            ("trace", [true, false]),
            ("warn", [true, false]),
            ("error", [false, false]),
            ("info,rmcp=debug", [true, true]),
            ("warn,rmcp::service=info", [true, true]),
        ] {
            let filter = without_conversations(filter.parse().unwrap());
            let logged = [Level::WARN, Level::INFO].map(|level| filter.would_enable("rmcp::service", &level));
            assert_eq!(logged, logs, "{filter}");
        }
    }
}
