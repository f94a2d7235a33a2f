//! The heartbeat loop: extends the leases of claimed jobs so that no other worker claims them.

use std::time::Duration;

use agent_core::job::Step;
use agent_platform::records::StoreError;

use super::Worker;
use super::held::ClaimKey;
use super::later;

/// Maximum number of leases that are extended in one call.
const MAX_BATCH: usize = 500;
/// Minimum pause between two heartbeats.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

impl Worker {
    /// Extends leases forever. Losing a lease aborts its delivery.
    pub(super) async fn extend_leases(&self) {
        let pause = (self.limits.lease / 6).max(LEAST_PAUSE);
        loop {
            self.clock.sleep(pause).await;
            // A recent claim needs no extension yet, and most deliveries finish before they need one.
            let soon = later(self.now(), self.limits.lease * 2 / 3);
            for keys in self.held.expiring(soon).chunks(MAX_BATCH) {
                if let Err(error) = self.extend(keys).await {
                    self.meters.store_failed();
                    tracing::warn!(%error, leases = keys.len(), "leases cannot be extended");
                    break;
                }
            }
            // Another worker may have claimed jobs whose leases expired before the store extended them.
            for key in self.held.expiring(self.now()) {
                self.held.lose(&key);
            }
        }
    }

    async fn extend(&self, keys: &[ClaimKey]) -> Result<(), StoreError> {
        let now = self.now();
        let lease = later(now, self.limits.lease);
        let step = |key: &ClaimKey| (key.id.clone(), Step::Extend { fence: key.fence, lease });
        let stepped = self.jobs.steps(keys.iter().map(step).collect(), now).await?;
        for (key, stepped) in keys.iter().zip(stepped) {
            match stepped {
                Some(Ok(_)) => self.held.extended(key, lease),
                Some(Err(_)) | None => self.held.lose(key),
            }
        }
        Ok(())
    }
}
