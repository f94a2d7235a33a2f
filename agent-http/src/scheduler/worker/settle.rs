//! Storing what came of deliveries, many at once.

use std::time::Duration;

use agent_core::job::{Refusal, Step};
use tokio::sync::mpsc;

use super::{Settlement, Worker};

/// How many outcomes are stored together at most.
const MAX_BATCH: usize = 500;
/// The pause after the store has failed; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Worker {
    /// Stores outcomes as they come, until nobody is left to send one.
    ///
    /// One that cannot be stored is kept, and its slot with it, so that their number is bounded. Where the lease
    /// has run out meanwhile and somebody else has tried again, the store refuses it, which is right.
    pub(super) async fn settle_outcomes(&self, mut outcomes: mpsc::Receiver<Settlement>) {
        let mut batch = Vec::new();
        while outcomes.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.settle(&batch).await;
            self.held.end(batch.iter().map(|settlement| &settlement.key));
            batch.clear();
        }
        // The loops that would send more have ended, and the leases are still to be looked after.
        std::future::pending::<()>().await;
    }

    async fn settle(&self, batch: &[Settlement]) {
        let mut pause = PAUSE;
        loop {
            let steps =
                batch.iter().map(|settlement| (settlement.key.id.clone(), step(settlement))).collect();
            match self.jobs.steps(steps, self.now()).await {
                Ok(stepped) => {
                    for (settlement, stepped) in batch.iter().zip(stepped) {
                        if let Some(Err(Refusal::Stale)) | None = stepped {
                            tracing::debug!(job = settlement.key.id, "an outcome came too late to count");
                            self.meters.ended("stale");
                        }
                    }
                    return;
                }
                Err(error) => {
                    self.meters.store_failed();
                    tracing::warn!(%error, outcomes = batch.len(), "outcomes cannot be stored; trying again");
                }
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn step(settlement: &Settlement) -> Step {
    Step::End {
        fence: settlement.key.fence,
        outcome: settlement.outcome.clone(),
        took: settlement.took,
        status: settlement.status,
        // The lowest bits of a UUID of version 4 are random.
        jitter: uuid::Uuid::new_v4().as_u128() as u32,
    }
}
