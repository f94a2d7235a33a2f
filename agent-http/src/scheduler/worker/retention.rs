//! The retention loop: removes jobs that have been final for longer than the retention period.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Worker;

/// Time between two purges.
const EVERY: Duration = Duration::from_secs(60);
/// Maximum number of jobs removed in one call, so that the store is not blocked for long.
const BATCH: usize = 500;
/// Pause between two batches of one purge.
const PAUSE: Duration = Duration::from_millis(50);

impl Worker {
    /// Removes expired jobs until the worker stops.
    pub(super) async fn purge_old_jobs(&self) {
        while !self.stopping.is_cancelled() {
            let pause = if self.purge().await == BATCH as u64 { PAUSE } else { EVERY };
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    async fn purge(&self) -> u64 {
        let kept = SignedDuration::try_from(self.limits.retention).unwrap_or(SignedDuration::MAX);
        let before = self.now().checked_sub(kept).unwrap_or(Timestamp::MIN);
        self.jobs.purge(before, BATCH).await.unwrap_or_else(|error| {
            self.meters.store_failed();
            tracing::warn!(%error, "old jobs cannot be removed");
            0
        })
    }
}
