//! The start loop: starts each claimed job's delivery at its due time.

use std::sync::Arc;
use std::time::Duration;

use agent_core::job::{Job, Outcome};
use tokio::sync::mpsc;

use super::held::{ClaimKey, Start};
use super::{LONGEST_WAIT, Settlement, Worker, until};
use crate::scheduler::delivery::Delivered;

/// Time that a due job waits for a slot before its claim is released to other processes.
const PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    /// Starts deliveries at their due times until the worker stops.
    pub(super) async fn start_jobs(self: Arc<Self>, outcomes: mpsc::Sender<Settlement>) {
        while !self.stopping.is_cancelled() {
            let now = self.now();
            for start in self.held.start_due(now) {
                self.meters.begun(until(now, start.job.due).as_secs_f64());
                tokio::spawn(self.clone().attempt(start, outcomes.clone()));
            }
            let since = now.checked_sub(jiff::SignedDuration::from_secs(PATIENCE.as_secs().cast_signed()));
            let stranded = since.map(|since| self.held.take_stranded(since)).unwrap_or_default();
            self.release(stranded).await;
            let now = self.now();
            let wait = self.held.next_due(now).map_or(LONGEST_WAIT, |due| until(due, now));
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = self.held.until_startable() => {}
                () = self.clock.sleep(wait.min(LONGEST_WAIT)) => {}
            }
        }
    }

    async fn attempt(self: Arc<Self>, start: Start, outcomes: mpsc::Sender<Settlement>) {
        let Start { job, lost } = start;
        // Frees the slot on every path, including a panic.
        let slot = Slot { worker: self.clone(), key: Some(ClaimKey::of(&job)) };
        let began = self.clock.monotonic();
        let delivered = tokio::select! {
            biased;
            () = lost.cancelled() => {
                tracing::info!(job = job.id, "a claim is lost, and its delivery given up");
                self.meters.ended("lost");
                return;
            }
            () = self.giving_up.cancelled() => given_up(),
            delivered = self.callback.deliver(&job, self.clock.now()) => delivered,
        };
        let took = self.clock.monotonic().saturating_duration_since(began);
        self.note(&job, &delivered, took);
        let Delivered { outcome, status } = delivered;
        let settlement = Settlement { key: ClaimKey::of(&job), outcome, took, status };
        if outcomes.send(settlement).await.is_ok() {
            slot.settled();
        }
    }

    fn note(&self, job: &Job, delivered: &Delivered, took: Duration) {
        let outcome = crate::scheduler::meters::word(&delivered.outcome);
        self.meters.ended(outcome);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (occurrence, attempt, status) = (job.place.occurrence, job.attempt, delivered.status);
        match &delivered.outcome {
            Outcome::Succeeded | Outcome::Gone => {
                tracing::debug!(job = job.id, occurrence, attempt, status, took_ms, outcome, "delivered");
            }
            Outcome::Failed { error, .. } | Outcome::Rejected { error } => {
                tracing::info!(
                    job = job.id,
                    occurrence,
                    attempt,
                    status,
                    took_ms,
                    outcome,
                    error,
                    "not delivered"
                );
            }
        }
    }
}

fn given_up() -> Delivered {
    let error = "the scheduler stopped before the receiver had answered".to_owned();
    Delivered { outcome: Outcome::Failed { error, retry_after: None }, status: None }
}

/// Guard that frees a delivery slot when dropped, unless the outcome was queued for the store.
struct Slot {
    worker: Arc<Worker>,
    key: Option<ClaimKey>,
}

impl Slot {
    fn settled(mut self) {
        self.key = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.worker.held.end([key]);
        }
    }
}
