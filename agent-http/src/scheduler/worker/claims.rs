//! The claim loop: claims jobs that are due or will be soon.

use std::future::pending;
use std::time::Duration;

use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, MAX_JOBS_PER_CLAIM};
use agent_platform::records::StoreError;
use futures_util::StreamExt;
use futures_util::stream::FusedStream;
use jiff::Timestamp;

use super::{MAX_POLL_INTERVAL, Worker, duration_until};
use crate::timestamps::add_saturating;

/// Initial backoff after a poll that found due jobs and could claim none: other workers hold them, or their companies
/// have no delivery slot left. It doubles, up to half of [`WorkerLimits::claim_ahead`](super::WorkerLimits::claim_ahead), so that
/// jobs behind them are not late.
const MIN_CLAIM_BACKOFF: Duration = Duration::from_millis(10);

/// The outcome of one poll of the store.
#[derive(Clone, Copy)]
enum PollOutcome {
    /// Jobs were claimed, so there may be more.
    Claimed,
    /// No job is due for this long.
    Wait(Duration),
    /// Jobs are due, but no job could be claimed.
    Contended,
    /// All delivery slots are taken.
    NoFreeSlot,
    /// The store failed.
    StoreFailed,
}

impl Worker {
    /// Claims jobs until the worker stops.
    pub(super) async fn run_claim_loop(&self) {
        let mut notifications = self.jobs.notifications().fuse();
        let mut backoff = MIN_CLAIM_BACKOFF;
        let mut company_limit = self.limits.max_deliveries_per_company;
        while !self.stopping.is_cancelled() {
            let poll = self.poll_store(&mut company_limit).await.unwrap_or_else(|error| {
                self.metrics.record_store_error();
                tracing::warn!(%error, "failed to claim due jobs; trying again after a pause");
                PollOutcome::StoreFailed
            });
            let wait = match poll {
                PollOutcome::Claimed => {
                    backoff = MIN_CLAIM_BACKOFF;
                    continue;
                }
                PollOutcome::Wait(wait) => {
                    backoff = MIN_CLAIM_BACKOFF;
                    wait
                }
                PollOutcome::Contended => {
                    backoff = (backoff * 2).min(self.limits.claim_ahead / 2).max(MIN_CLAIM_BACKOFF);
                    backoff
                }
                PollOutcome::StoreFailed => {
                    backoff = (backoff * 2).min(MAX_POLL_INTERVAL);
                    backoff
                }
                PollOutcome::NoFreeSlot => MAX_POLL_INTERVAL,
            };
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = self.wait_for_change(poll, &mut notifications) => {}
                () = self.clock.sleep(wait.min(MAX_POLL_INTERVAL)) => {}
            }
        }
    }

    /// Waits for a change after which another poll of the store may claim jobs: a new job, or a free slot.
    async fn wait_for_change(
        &self,
        poll: PollOutcome,
        notifications: &mut (impl FusedStream<Item = ()> + Unpin),
    ) {
        let notified = async {
            // A new job cannot be claimed while all slots are taken.
            let notification = match poll {
                PollOutcome::NoFreeSlot | PollOutcome::StoreFailed => None,
                _ => notifications.next().await,
            };
            if notification.is_none() {
                pending::<()>().await;
            }
        };
        let freed = async {
            match poll {
                PollOutcome::NoFreeSlot | PollOutcome::Contended => self.claimed_jobs.wait_slot_freed().await,
                PollOutcome::Claimed | PollOutcome::Wait(_) | PollOutcome::StoreFailed => pending().await,
            }
        };
        let inserted = async {
            match poll {
                // The store notifies only of a job that is due before all others, and those cannot be claimed.
                PollOutcome::Contended => self.inserted.notified().await,
                _ => pending().await,
            }
        };
        tokio::select! {
            () = notified => {}
            () = freed => {}
            () = inserted => {}
        }
    }

    /// Polls the store once and claims the jobs that there is capacity for.
    ///
    /// `company_limit` is the current limit of deliveries per company. It is below the configured one while more companies
    /// have due jobs than there are slots, since the companies that the store returns first would take all of them.
    async fn poll_store(&self, company_limit: &mut usize) -> Result<PollOutcome, StoreError> {
        let Some(earliest) = self.jobs.next_run_at().await? else {
            return Ok(PollOutcome::Wait(MAX_POLL_INTERVAL));
        };
        let now = self.now();
        // Polls half of the claim-ahead time before the due time, so that one claim covers all jobs due in the other
        // half.
        let delay = duration_until(earliest, now).saturating_sub(self.limits.claim_ahead / 2);
        if !delay.is_zero() {
            return Ok(PollOutcome::Wait(delay));
        }
        let capacity = self.claimed_jobs.capacity(now);
        if capacity.due == 0 {
            return Ok(PollOutcome::NoFreeSlot);
        }
        let _claim_guard = self.claim_lock.write().await;
        let mut claimed = 0;
        if earliest <= now {
            claimed += self.claim(now, capacity.due, capacity.due_quota.with_limit(*company_limit)).await?;
            if claimed == capacity.due {
                *company_limit = (*company_limit / 2).max(1);
                return Ok(PollOutcome::Claimed);
            }
            if *company_limit < self.limits.max_deliveries_per_company {
                *company_limit = (*company_limit * 2).min(self.limits.max_deliveries_per_company);
                return Ok(PollOutcome::Claimed);
            }
        }
        let capacity = self.claimed_jobs.capacity(self.now());
        if capacity.ahead > 0 {
            let ahead_until = add_saturating(self.now(), self.limits.claim_ahead);
            claimed += self.claim(ahead_until, capacity.ahead, capacity.ahead_quota).await?;
        }
        let now = self.now();
        Ok(match claimed {
            0 if earliest > now => PollOutcome::Wait(duration_until(earliest, now)),
            0 => PollOutcome::Contended,
            _ => PollOutcome::Claimed,
        })
    }

    async fn claim(&self, up_to: Timestamp, limit: usize, quota: CompanyQuota) -> Result<usize, StoreError> {
        let now = self.now();
        let (limit, lease) = (limit.min(MAX_JOBS_PER_CLAIM), add_saturating(now, self.limits.lease));
        let jobs: Vec<Job> = self
            .jobs
            .claim_due(ClaimRequest { now, due_until: up_to, lease_until: lease, limit, quota })
            .await?;
        let claimed = jobs.len();
        self.claimed_jobs.add(jobs);
        Ok(claimed)
    }
}
