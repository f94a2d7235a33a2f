//! Configuration of the processes that extract the text of documents.

use std::time::Duration;

use super::values::{SettingValues, required, required_usize};

/// Configuration of the processes that extract the text of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractionConfig {
    /// Maximum duration of one extraction, and of its processor time.
    pub timeout: Duration,
    /// Maximum address space of one process in bytes.
    pub memory_bytes: u64,
    /// Maximum number of processes at once.
    pub processes: usize,
}

impl Default for ExtractionConfig {
    /// Returns the defaults of the settings: 60 s, 1 GiB, two processes.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), memory_bytes: 1024 * 1024 * 1024, processes: 2 }
    }
}

pub(super) fn load(values: &SettingValues) -> ExtractionConfig {
    ExtractionConfig {
        timeout: required(values.millis("EXTRACT_TIMEOUT")),
        memory_bytes: required(values.number("EXTRACT_MEMORY")),
        processes: required_usize(values.number("EXTRACT_PROCESSES")),
    }
}
