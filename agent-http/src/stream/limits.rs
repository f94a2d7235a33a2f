//! Limits of a streamed response.

use std::time::Duration;

use agent_client::relay::RelayOptions;

use crate::shutdown::Shutdown;

/// Limits and optimizations of a streamed response, and what ends it early.
#[derive(Debug, Clone)]
pub struct StreamLimits {
    /// Maximum time without an event of the backend, whether the client sees it or not; 120 s.
    pub idle_timeout: Duration,
    /// Maximum duration of a run; 30 min.
    pub run_timeout: Duration,
    /// Maximum bytes of text, arguments and results that [`Framing::Json`](super::Framing::Json) collects; 8 MiB.
    pub max_collected_bytes: usize,
    /// Optimizations of encoding and writing. Default: the build's optimizations.
    pub relay: RelayOptions,
    /// Shutdown of the service, at whose end a run fails; by default one that never begins.
    pub shutdown: Shutdown,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(120),
            run_timeout: Duration::from_secs(30 * 60),
            max_collected_bytes: 8 * 1024 * 1024,
            relay: RelayOptions::default(),
            shutdown: Shutdown::default(),
        }
    }
}
