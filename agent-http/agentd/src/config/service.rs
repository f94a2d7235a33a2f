//! Services that read settings.

use std::fmt;

/// Service that reads a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// The application server.
    App,
    /// The agent runtime.
    Runtime,
    /// The scheduler.
    Scheduler,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::App => "app",
            Self::Runtime => "runtime",
            Self::Scheduler => "scheduler",
        })
    }
}
