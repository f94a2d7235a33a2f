//! The outcome loop: stores delivery outcomes in batches.

use std::time::Duration;

use agent_core::job::{Refusal, Step};
use tokio::sync::mpsc;

use super::{Settlement, Worker};

/// Maximum number of outcomes stored in one call.
const MAX_BATCH: usize = 500;
/// Initial backoff after a store error; it doubles up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Worker {
    /// Stores outcomes as they arrive; does not return.
    ///
    /// Outcomes that cannot be stored are retried and keep their delivery slots, which bounds their number. If a
    /// lease has expired meanwhile and another worker has claimed the job, the store rejects the outcome as stale.
    pub(super) async fn settle_outcomes(&self, mut outcomes: mpsc::Receiver<Settlement>) {
        let mut batch = Vec::new();
        while outcomes.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.settle(&batch).await;
            self.held.end(batch.iter().map(|settlement| &settlement.key));
            batch.clear();
        }
        // All senders are gone. Stays pending, like the heartbeat loop that `run` joins with this one.
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
        // The lowest bits of a version 4 UUID are random.
        jitter: uuid::Uuid::new_v4().as_u128() as u32,
    }
}
