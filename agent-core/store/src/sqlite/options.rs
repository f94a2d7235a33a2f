//! Options of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock, SystemClock};
use agent_platform::records::MAX_VALUE_BYTES;

use super::SpinOptions;

/// Configuration of [`SqliteStore`](super::SqliteStore).
#[derive(Clone)]
pub struct SqliteOptions {
    /// Approximate size of the read cache in bytes; 0 disables it. Default: 32 MiB.
    pub cache_bytes: usize,
    /// Number of reader threads, at least one. One company's reads use three quarters of them at most. Default: 4.
    pub readers: usize,
    /// Timeout of waiting for another process's lock. Default: 5 seconds.
    pub busy_timeout: Duration,
    /// Maximum size of one value as JSON text, in bytes. Default: [`MAX_VALUE_BYTES`].
    pub max_value_bytes: usize,
    /// Maximum size of the file in bytes, rounded down to pages of 4 KiB. Writes beyond it fail as on a full
    /// disk. Default: no limit.
    pub max_file_bytes: Option<u64>,
    /// Polling of queues before a thread or a task sleeps. Default: all.
    pub spin: SpinOptions,
    /// Clock for record timestamps and for the age of cache entries.
    pub clock: Arc<dyn Clock>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            max_value_bytes: MAX_VALUE_BYTES,
            max_file_bytes: None,
            spin: SpinOptions::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("cache_bytes", &self.cache_bytes)
            .field("readers", &self.readers)
            .field("busy_timeout", &self.busy_timeout)
            .field("max_value_bytes", &self.max_value_bytes)
            .field("max_file_bytes", &self.max_file_bytes)
            .field("spin", &self.spin)
            .finish_non_exhaustive()
    }
}
