//! The retention loop: removes jobs that have been final for longer than the retention period.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Worker;

/// Time between two purges.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of jobs removed in one call, so that the store is not blocked for long.
const MAX_PURGED_PER_CALL: usize = 500;
/// Pause between two batches of one purge.
const PURGE_BATCH_PAUSE: Duration = Duration::from_millis(50);

impl Worker {
    /// Removes expired jobs until the worker stops.
    pub(super) async fn run_retention_loop(&self) {
        while !self.stopping.is_cancelled() {
            let pause = if self.purge().await == MAX_PURGED_PER_CALL as u64 {
                PURGE_BATCH_PAUSE
            } else {
                PURGE_INTERVAL
            };
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    async fn purge(&self) -> u64 {
        let retention = SignedDuration::try_from(self.limits.retention).unwrap_or(SignedDuration::MAX);
        let before = self.now().checked_sub(retention).unwrap_or(Timestamp::MIN);
        self.jobs.purge(before, MAX_PURGED_PER_CALL).await.unwrap_or_else(|error| {
            self.metrics.record_store_error();
            tracing::warn!(%error, "failed to delete expired jobs; trying again later");
            0
        })
    }
}
