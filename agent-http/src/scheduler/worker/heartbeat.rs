//! Extending leases, so that nobody else takes what is in hand.

use std::time::Duration;

use agent_core::job::Step;
use agent_platform::records::StoreError;

use super::Worker;
use super::held::ClaimKey;
use super::later;

/// How many leases are extended together at most.
const MAX_BATCH: usize = 500;
/// The least pause between two looks.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

impl Worker {
    /// Extends leases for ever. A lease that is lost ends its delivery.
    pub(super) async fn extend_leases(&self) {
        let pause = (self.limits.lease / 6).max(LEAST_PAUSE);
        loop {
            self.clock.sleep(pause).await;
            // What was claimed a moment ago, and most deliveries end in one, needs no extension yet.
            let soon = later(self.now(), self.limits.lease * 2 / 3);
            for keys in self.held.expiring(soon).chunks(MAX_BATCH) {
                if let Err(error) = self.extend(keys).await {
                    self.meters.store_failed();
                    tracing::warn!(%error, leases = keys.len(), "leases cannot be extended");
                    break;
                }
            }
            // Those that the store did not extend in time may be somebody else's by now.
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
