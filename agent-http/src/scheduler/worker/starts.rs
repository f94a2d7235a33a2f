//! The start loop: starts each claimed job's delivery at its due time.

use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::{AttemptOutcome, Job};
use tokio::sync::mpsc;

use super::claimed::{ClaimKey, DeliveryStart, DueDeliveries};
use super::{DeliveryOutcome, MAX_POLL_INTERVAL, Worker, duration_until};
use crate::scheduler::delivery::DeliveryResult;

/// Maximum time that a due job waits for a slot. After it, its claim is released to other processes.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Starts deliveries at their due times until the worker stops.
    pub(super) async fn run_start_loop(self: Arc<Self>, outcomes: mpsc::Sender<DeliveryOutcome>) {
        // Claims to release of jobs that other transactions have locked.
        let (mut locked, mut retry_at) = (Vec::new(), self.clock.monotonic());
        while !self.stopping.is_cancelled() {
            let now = self.now();
            let DueDeliveries { starts, next_due } = self.claimed_jobs.start_due(now);
            for start in starts {
                self.metrics.record_lateness(duration_until(now, start.job.due).as_secs_f64());
                tokio::spawn(self.clone().run_delivery(start, outcomes.clone()));
            }
            let overdue_since =
                now.checked_sub(jiff::SignedDuration::from_secs(MAX_SLOT_WAIT.as_secs().cast_signed()));
            let mut overdue = overdue_since
                .map(|overdue_since| self.claimed_jobs.take_overdue(overdue_since))
                .unwrap_or_default();
            if self.clock.monotonic() >= retry_at {
                overdue.append(&mut locked);
                retry_at = self.clock.monotonic() + MAX_POLL_INTERVAL;
            }
            locked.extend(self.release(overdue).await);
            // The due time may have passed by now.
            let wait = next_due.map_or(MAX_POLL_INTERVAL, |due| duration_until(due, self.now()));
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = self.claimed_jobs.wait_startable() => {}
                () = self.clock.sleep(wait.min(MAX_POLL_INTERVAL)) => {}
            }
        }
        // Released with the other claims that have not started.
        self.claimed_jobs.add(locked);
    }

    async fn run_delivery(self: Arc<Self>, start: DeliveryStart, outcomes: mpsc::Sender<DeliveryOutcome>) {
        let DeliveryStart { job, claim_lost } = start;
        // Frees the slot on every path, including a panic.
        let slot = SlotGuard { worker: self.clone(), key: Some(ClaimKey::of(&job)) };
        let began = self.clock.monotonic();
        let response = tokio::select! {
            biased;
            () = claim_lost.cancelled() => {
                tracing::info!(job = %job.id, "a claim was lost; its delivery is aborted");
                self.metrics.record_outcome("lost");
                return;
            }
            () = self.aborting.cancelled() => {
                tracing::info!(job = %job.id, "the worker stops; a delivery that takes longer is made again");
                Err(aborted_result())
            }
            response = self.callback.deliver(&job, self.clock.now()) => response,
        };
        // From here on nothing overturns the outcome, which the response's head has decided.
        let delivered = match response {
            Ok(response) => self.callback.read_result(response, self.clock.now()).await,
            Err(result) => result,
        };
        let duration = self.clock.monotonic().saturating_duration_since(began);
        self.record_delivery(&job, &delivered, duration);
        let DeliveryResult { outcome, status } = delivered;
        let outcome_report = DeliveryOutcome { key: ClaimKey::of(&job), outcome, duration, status };
        if outcomes.send(outcome_report).await.is_ok() {
            slot.hand_over();
        }
    }

    fn record_delivery(&self, job: &Job, delivered: &DeliveryResult, duration: Duration) {
        let outcome = crate::scheduler::metrics::outcome_label(&delivered.outcome);
        self.metrics.record_outcome(outcome);
        let took_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (occurrence, attempt, status) = (job.position.occurrence, job.attempt, delivered.status);
        match &delivered.outcome {
            AttemptOutcome::Succeeded | AttemptOutcome::Gone | AttemptOutcome::Deferred { .. } => {
                tracing::debug!(job = %job.id, occurrence, attempt, status, took_ms, outcome, "delivered");
            }
            AttemptOutcome::Failed { error, .. }
            | AttemptOutcome::Abandoned { error }
            | AttemptOutcome::Postponed { error, .. }
            | AttemptOutcome::Rejected { error } => {
                tracing::info!(
                    job = %job.id,
                    occurrence,
                    attempt,
                    status,
                    took_ms,
                    outcome,
                    error,
                    "delivery failed"
                );
            }
        }
    }
}

/// Returns the result of a delivery that this process aborts because it stops. The receiver may still be busy with it, so it
/// is delivered again without using up an attempt, as after an answer that says so.
fn aborted_result() -> DeliveryResult {
    let error = "the scheduler stopped before the receiver responded".to_owned();
    DeliveryResult { outcome: AttemptOutcome::Deferred { error, retry_after: None }, status: None }
}

/// Guard that frees a delivery slot when dropped, unless the outcome was queued for the store.
struct SlotGuard {
    worker: Arc<Worker>,
    key: Option<ClaimKey>,
}

impl SlotGuard {
    fn hand_over(mut self) {
        self.key = None;
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.worker.claimed_jobs.finish_deliveries([key]);
        }
    }
}
