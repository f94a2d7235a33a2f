//! The heartbeat loop: extends the leases of claimed jobs so that no other worker claims them.

use std::time::Duration;

use agent_jobs::job::{Step, StepOutcome};
use agent_platform::records::StoreError;

use super::Worker;
use super::claimed::ClaimKey;
use crate::timestamps::add_saturating;

/// Maximum number of leases that are extended in one call.
const MAX_LEASES_PER_CALL: usize = 500;
/// Minimum pause between two heartbeats.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

impl Worker {
    /// Extends leases forever. Losing a lease aborts its delivery.
    pub(super) async fn run_heartbeat_loop(&self) {
        let interval = (self.limits.lease / 6).max(MIN_HEARTBEAT_INTERVAL);
        loop {
            self.clock.sleep(interval).await;
            // A recent claim needs no extension yet, and most deliveries finish before they need one.
            let extend_before = add_saturating(self.now(), self.limits.lease * 2 / 3);
            for keys in self.claimed_jobs.expiring_before(extend_before).chunks(MAX_LEASES_PER_CALL) {
                if let Err(error) = self.extend(keys).await {
                    self.metrics.record_store_error();
                    tracing::warn!(%error, leases = keys.len(), "failed to extend leases; trying again later");
                    break;
                }
            }
            // Another worker may have claimed jobs whose leases expired before the store extended them.
            for key in self.claimed_jobs.expiring_before(self.now()) {
                self.claimed_jobs.expire_lease(&key);
            }
        }
    }

    async fn extend(&self, keys: &[ClaimKey]) -> Result<(), StoreError> {
        let now = self.now();
        let lease = add_saturating(now, self.limits.lease);
        let step = |key: &ClaimKey| (key.id.clone(), Step::Extend { fence: key.fence, lease });
        let outcomes = self.jobs.apply_steps_unlocked(keys.iter().map(step).collect(), now).await?;
        for (key, outcome) in keys.iter().zip(outcomes) {
            match outcome {
                Some(StepOutcome::Applied(_)) => self.claimed_jobs.record_extension(key, lease),
                Some(StepOutcome::NotFound | StepOutcome::Rejected(_) | StepOutcome::Unreadable) => {
                    self.claimed_jobs.expire_lease(key);
                }
                // The job is locked; the next heartbeat tries again.
                None => {}
            }
        }
        Ok(())
    }
}
