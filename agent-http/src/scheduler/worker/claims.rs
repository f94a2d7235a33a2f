//! The claim loop: claims jobs that are due or will be soon.

use std::future::pending;
use std::time::Duration;

use agent_core::job::{Claim, Job, MAX_CLAIM, Quota};
use agent_platform::records::StoreError;
use futures_util::StreamExt;
use jiff::Timestamp;

use super::{LONGEST_WAIT, Worker, later, until};

/// Initial backoff after a poll that found due jobs and could claim none: other workers hold them, or their companies
/// have no delivery slot left. It doubles, up to half of [`WorkerLimits::ahead`](super::WorkerLimits::ahead), so that
/// jobs behind them are not late.
const PAUSE: Duration = Duration::from_millis(10);

/// The outcome of one poll of the store.
enum Look {
    /// Jobs were claimed, so there may be more.
    Claimed,
    /// No job is due for this long.
    Wait(Duration),
    /// Jobs are due, and none could be claimed.
    Refused,
    /// All delivery slots are taken.
    Full,
    /// The store failed.
    Failed,
}

impl Worker {
    /// Claims jobs until the worker stops.
    pub(super) async fn claim_jobs(&self) {
        let mut wakes = self.jobs.wakes().fuse();
        let mut pause = PAUSE;
        let mut share = self.limits.per_company;
        while !self.stopping.is_cancelled() {
            let look = self.look(&mut share).await.unwrap_or_else(|error| {
                self.meters.store_failed();
                tracing::warn!(%error, "jobs cannot be claimed");
                Look::Failed
            });
            let wait = match look {
                Look::Claimed => {
                    pause = PAUSE;
                    continue;
                }
                Look::Wait(wait) => {
                    pause = PAUSE;
                    wait
                }
                Look::Refused => {
                    pause = (pause * 2).min(self.limits.ahead / 2).max(PAUSE);
                    pause
                }
                Look::Failed => {
                    pause = (pause * 2).min(LONGEST_WAIT);
                    pause
                }
                Look::Full => LONGEST_WAIT,
            };
            let woken = async {
                // A new job cannot be claimed while all slots are taken.
                let wake = if matches!(look, Look::Full | Look::Failed) { None } else { wakes.next().await };
                if wake.is_none() {
                    pending::<()>().await;
                }
            };
            let freed = async {
                match look {
                    Look::Full | Look::Refused => self.held.until_freed().await,
                    Look::Claimed | Look::Wait(_) | Look::Failed => pending().await,
                }
            };
            let inserted = async {
                match look {
                    // The store notifies only of a job that is due before all others, and those cannot be claimed.
                    Look::Refused => self.inserted.notified().await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = woken => {}
                () = freed => {}
                () = inserted => {}
                () = self.clock.sleep(wait.min(LONGEST_WAIT)) => {}
            }
        }
    }

    /// Polls the store once and claims the jobs that there is capacity for.
    ///
    /// `share` is the current limit of deliveries per company. It is below the configured one while more companies
    /// have due jobs than there are slots, since the companies that the store returns first would take all of them.
    async fn look(&self, share: &mut usize) -> Result<Look, StoreError> {
        let Some(earliest) = self.jobs.earliest().await? else { return Ok(Look::Wait(LONGEST_WAIT)) };
        let now = self.now();
        // Polls half of the claim-ahead time before the due time, so that one claim covers all jobs due in the other
        // half.
        let soon = until(earliest, now).saturating_sub(self.limits.ahead / 2);
        if !soon.is_zero() {
            return Ok(Look::Wait(soon));
        }
        let room = self.held.room(now);
        if room.due == 0 {
            return Ok(Look::Full);
        }
        let _nobody_acts = self.claiming.write().await;
        let mut claimed = 0;
        if earliest <= now {
            claimed += self.claim(now, room.due, room.due_quota.of_each(*share)).await?;
            if claimed == room.due {
                *share = (*share / 2).max(1);
                return Ok(Look::Claimed);
            }
            if *share < self.limits.per_company {
                *share = (*share * 2).min(self.limits.per_company);
                return Ok(Look::Claimed);
            }
        }
        let room = self.held.room(self.now());
        if room.ahead > 0 {
            let ahead = later(self.now(), self.limits.ahead);
            claimed += self.claim(ahead, room.ahead, room.ahead_quota).await?;
        }
        let now = self.now();
        Ok(match claimed {
            0 if earliest > now => Look::Wait(until(earliest, now)),
            0 => Look::Refused,
            _ => Look::Claimed,
        })
    }

    async fn claim(&self, up_to: Timestamp, limit: usize, quota: Quota) -> Result<usize, StoreError> {
        let now = self.now();
        let (limit, lease) = (limit.min(MAX_CLAIM), later(now, self.limits.lease));
        let jobs: Vec<Job> = self.jobs.claim(Claim { now, until: up_to, lease, limit, quota }).await?;
        let claimed = jobs.len();
        self.held.add(jobs);
        Ok(claimed)
    }
}
