//! Claims and completes jobs of a store in batches.

use std::time::{Duration, Instant};

use agent_jobs::job::{AttemptOutcome, ClaimRequest, CompanyQuota, Job, JobStore, NewJob, Step, StepOutcome};
use agent_jobs::schedule::Schedule;
use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};

use crate::delivery::payload;

/// Number of jobs that are claimed, and that are completed, in one call.
pub const BATCH: usize = 100;
/// Number of companies that the jobs belong to.
pub const COMPANIES: usize = 100;

/// Returns the `n`th job, typical of an application, due within the minute before `until`.
pub fn job(n: usize, until: Timestamp) -> Job {
    let ms = 60_000 - i64::try_from(n % 30_000).unwrap_or_default();
    let due = until - SignedDuration::from_millis(ms);
    Job::new(NewJob::new(payload(n, COMPANIES), Schedule::At(due)), due)
}

/// Claims up to `limit` jobs that are due at `now`.
///
/// # Errors
/// Returns the store's error.
pub async fn claim(store: &impl JobStore, now: Timestamp, limit: usize) -> Result<Vec<Job>> {
    let lease = now + SignedDuration::from_secs(30);
    Ok(store
        .claim_due(ClaimRequest {
            now,
            due_until: now,
            lease_until: lease,
            limit,
            quota: CompanyQuota::new(limit),
        })
        .await?)
}

/// Completes claimed jobs.
///
/// # Errors
/// Returns the store's error.
pub async fn complete(store: &impl JobStore, claimed: Vec<Job>, now: Timestamp) -> Result<Vec<StepOutcome>> {
    let steps = claimed.into_iter().map(|job| {
        let (outcome, duration) = (AttemptOutcome::Succeeded, Duration::from_millis(12));
        (job.id, Step::End { fence: job.fence, outcome, duration, status: Some(200), jitter: 0 })
    });
    Ok(store.apply_steps(steps.collect(), now).await?)
}

/// Claims and completes a batch, and returns the time taken.
///
/// # Errors
/// Returns the store's error, or an error if the batch is not full.
pub async fn claim_and_complete(store: &impl JobStore, now: Timestamp) -> Result<Duration> {
    let begin = Instant::now();
    let claimed = claim(store, now, BATCH).await?;
    let ended = complete(store, claimed, now).await?;
    let elapsed = begin.elapsed();
    let done = ended.iter().filter(|ended| ended.is_applied()).count();
    ensure!(done == BATCH, "{done} of {BATCH} jobs were claimed and completed");
    Ok(elapsed)
}
