//! Limits of a run's calls.

use std::time::Duration;

/// Limits of a run's calls.
#[derive(Debug, Clone, Copy)]
pub struct McpClientLimits {
    /// Timeout for connecting, and for each call. Callers may use a shorter one.
    pub call_timeout: Duration,
    /// Maximum number of concurrent calls; further calls wait.
    pub max_calls: usize,
}
