//! The log of this process in memory.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// An in-memory log of every event in this process, of all its tests.
#[derive(Clone, Default)]
pub struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    /// Installs the global subscriber, which is possible once in a process: all tests share it.
    pub fn install() -> Self {
        static SHARED: OnceLock<LogBuffer> = OnceLock::new();
        let install = || {
            let log = Self::default();
            let filter: Targets = "trace".parse().expect("a filter");
            let lines = tracing_subscriber::fmt::layer()
                .with_span_events(FmtSpan::FULL)
                .with_ansi(false)
                .with_writer(log.clone());
            tracing_subscriber::registry()
                .with(lines)
                .with(filter)
                .try_init()
                .expect("no other subscriber collects events");
            log
        };
        SHARED.get_or_init(install).clone()
    }

    /// Returns all lines so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("unpoisoned")).into_owned()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for LogBuffer {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}
