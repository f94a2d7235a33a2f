//! Removing jobs that have been final for long.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Worker;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(60);
/// How many are removed at once, so that nobody waits long for the store.
const BATCH: usize = 500;
/// The pause between two batches.
const PAUSE: Duration = Duration::from_millis(50);

impl Worker {
    /// Removes old jobs until the worker stops.
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
