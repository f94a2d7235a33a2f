//! The outcome loop: stores delivery outcomes in batches.

use std::time::Duration;

use agent_jobs::job::{Step, StepError, StepOutcome};
use agent_platform::backoff::Backoff;
use tokio::sync::mpsc;

use super::{DeliveryOutcome, Worker};

/// Maximum number of outcomes stored in one call.
const MAX_OUTCOMES_PER_CALL: usize = 500;
/// Pauses between attempts to store outcomes.
const OUTCOME_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

impl Worker {
    /// Stores outcomes as they arrive; does not return.
    ///
    /// Outcomes that cannot be stored are retried and keep their delivery slots, which bounds their number; those of jobs
    /// that another transaction has locked are retried with the next ones. If a lease has expired meanwhile and another worker
    /// has claimed the job, the store rejects the outcome as stale.
    pub(super) async fn run_outcome_loop(&self, mut outcomes: mpsc::Receiver<DeliveryOutcome>) {
        let (mut batch, mut is_closed, mut backoff) = (Vec::new(), false, OUTCOME_BACKOFF);
        loop {
            let has_locked = !batch.is_empty();
            tokio::select! {
                count = outcomes.recv_many(&mut batch, MAX_OUTCOMES_PER_CALL), if !is_closed => {
                    is_closed = count == 0;
                }
                () = backoff.sleep(&*self.clock), if has_locked => {}
                else => break,
            }
            if batch.is_empty() {
                continue;
            }
            let mut is_locked = self.record_outcomes(&batch).await.into_iter();
            let (locked, stored): (Vec<_>, Vec<_>) =
                batch.drain(..).partition(|_| is_locked.next().unwrap_or_default());
            self.claimed_jobs.finish_deliveries(stored.iter().map(|delivery| &delivery.key));
            batch = locked;
            if batch.is_empty() {
                backoff = OUTCOME_BACKOFF;
            }
        }
        // All senders are gone. Stays pending, like the heartbeat loop that `run` joins with this one.
        std::future::pending::<()>().await;
    }

    /// Stores outcomes. Returns true for each whose job another transaction has locked.
    async fn record_outcomes(&self, batch: &[DeliveryOutcome]) -> Vec<bool> {
        let mut backoff = OUTCOME_BACKOFF;
        loop {
            let steps = batch.iter().map(|delivery| (delivery.key.id.clone(), step(delivery))).collect();
            match self.jobs.apply_steps_unlocked(steps, self.now()).await {
                Ok(results) => {
                    for (delivery, result) in batch.iter().zip(&results) {
                        let outcome = match result {
                            Some(StepOutcome::Rejected(StepError::Stale) | StepOutcome::NotFound) => "stale",
                            Some(StepOutcome::Unreadable) => "unreadable",
                            Some(StepOutcome::Applied(_) | StepOutcome::Rejected(_)) | None => continue,
                        };
                        tracing::debug!(job = %delivery.key.id, outcome, "an outcome was not stored");
                        self.metrics.record_outcome(outcome);
                    }
                    return results.iter().map(Option::is_none).collect();
                }
                Err(error) => {
                    self.metrics.record_store_error();
                    tracing::warn!(%error, outcomes = batch.len(), "failed to store outcomes; retrying");
                }
            }
            backoff.sleep(&*self.clock).await;
        }
    }
}

fn step(delivery: &DeliveryOutcome) -> Step {
    Step::End {
        fence: delivery.key.fence,
        outcome: delivery.outcome.clone(),
        duration: delivery.duration,
        status: delivery.status,
        // The lowest bits of a version 4 UUID are random.
        jitter: uuid::Uuid::new_v4().as_u128() as u32,
    }
}
