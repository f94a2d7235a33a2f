//! Log setup. The log goes to standard error; standard output is for the output of commands.

use std::io::{self, IsTerminal, Write};

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
    let mut lines = tracing_subscriber::fmt::layer().with_writer(|| EventWriter(io::stderr()));
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

/// Writer of events that keeps each on one line. Texts of clients and of other services, such as names in a request's JSON, are in
/// fields and errors; a line break in one would begin a line that looks like another event.
struct EventWriter<W>(W);

impl<W: Write> Write for EventWriter<W> {
    /// Writes one event, which the subscriber passes as a whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        if !line.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let mut written = Vec::with_capacity(event.len());
        for &byte in line {
            match byte {
                b'\n' => written.extend_from_slice(b"\\n"),
                b'\r' => written.extend_from_slice(b"\\r"),
                byte => written.push(byte),
            }
        }
        written.extend_from_slice(&event[line.len()..]);
        self.0.write_all(&written)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    /// Bytes that are written to it.
    #[derive(Clone, Default)]
    struct WrittenLog(Arc<Mutex<Vec<u8>>>);

    impl Write for WrittenLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a lock").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_break_in_a_field_begins_no_line() {
        let log = WrittenLog::default();
        let target = log.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || EventWriter(target.clone()));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(detail = %"a\r\nERROR forged", "rejected");
            tracing::warn!("next");
        });
        let text = String::from_utf8(log.0.lock().expect("a lock").clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"detail=a\r\nERROR forged") && text.ends_with("next\n"), "{text}");
    }

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
