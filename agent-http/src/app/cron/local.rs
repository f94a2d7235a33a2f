//! Due jobs of an application without a scheduler: claimed from its own store, run, and ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::ids::JobId;
use agent_jobs::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, Delivery, Job, JobFilter, JobOrder, JobStore, Step,
};
use agent_platform::records::StoreError;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;

use super::super::App;
use super::super::pulse::{Completion, run_occurrence};
use super::cron_run::{CronRun, MAX_CONCURRENT_RUNS, MAX_RUNS_PER_CALL};
use crate::error::{Code, HttpError};

/// Maximum number of jobs of one company in a round of claims, so that each call runs jobs of several companies.
const MAX_JOBS_PER_COMPANY: usize = 8;
/// Time added to the run's time limit to get the claim's lease, so that the outcome can be recorded.
const LEASE_MARGIN: Duration = Duration::from_secs(60);
/// Time for which finished jobs are kept.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum number of finished jobs that one call removes.
const MAX_PURGED_PER_CALL: usize = 500;
/// Number of jobs read at once to count those that are left.
const PAGE_SIZE: usize = 500;

/// Runs due jobs of the application's own store until none is due, or a limit of the call is reached.
pub(super) async fn run_local(app: &Arc<App>, until: Instant) -> Result<CronRun, HttpError> {
    let store = app.pulse.local.jobs();
    let mut result = CronRun { source: "local", ..CronRun::default() };
    let (mut seen, mut busy) = (HashSet::new(), Vec::new());
    while seen.len() < MAX_RUNS_PER_CALL && Instant::now() < until {
        let claimed = claim(app, store, MAX_RUNS_PER_CALL - seen.len()).await?;
        if claimed.is_empty() {
            break;
        }
        seen.extend(claimed.iter().map(|job| job.id.clone()));
        let mut runs =
            stream::iter(claimed).map(|job| run_job(app, job)).buffer_unordered(MAX_CONCURRENT_RUNS);
        while let Some((job, ended)) = runs.next().await {
            match &ended {
                Ok(Completion::Completed) => result.done += 1,
                Ok(Completion::AlreadyCompleted) => result.done_before += 1,
                Err(error) if is_busy(error) => result.busy += 1,
                Err(error) => {
                    tracing::warn!(%error, job = %job.id, "a due job failed");
                    result.failed += 1;
                }
            }
            match step(&job, &ended) {
                Step::Release { fence } => busy.push((job.id, Step::Release { fence })),
                step => drop(store.apply_steps(vec![(job.id, step)], app.pulse.now()).await?),
            }
        }
    }
    // Released at the end, so that this call does not claim them again.
    store.apply_steps(busy, app.pulse.now()).await?;
    let now = app.pulse.now();
    let kept_since = now.saturating_sub(RETENTION).unwrap_or(Timestamp::MIN);
    store.purge(kept_since, MAX_PURGED_PER_CALL).await?;
    result.left = count_due(&**store, now, &seen, until).await?;
    result.due = seen.len() + result.left;
    Ok(result)
}

async fn claim(app: &App, store: &Arc<dyn JobStore>, limit: usize) -> Result<Vec<Job>, StoreError> {
    let now = app.pulse.now();
    let lease_until = now.saturating_add(app.pulse.deadline + LEASE_MARGIN).unwrap_or(Timestamp::MAX);
    let quota = CompanyQuota::new(MAX_JOBS_PER_COMPANY);
    store.claim_due(ClaimRequest { now, due_until: now, lease_until, limit, quota }).await
}

async fn run_job(app: &Arc<App>, job: Job) -> (Job, Result<Completion, HttpError>) {
    let ended = run_occurrence(app, Delivery::from(&job), true).await;
    (job, ended)
}

fn is_busy(error: &HttpError) -> bool {
    matches!(error.code(), Code::Conflict | Code::RateLimited)
}

/// Returns the step that ends a run. The outcomes are those that a scheduler derives from the callback's status.
fn step(job: &Job, ended: &Result<Completion, HttpError>) -> Step {
    let (outcome, status) = match ended {
        Ok(_) => (AttemptOutcome::Succeeded, 200),
        Err(error) if is_busy(error) => return Step::Release { fence: job.fence },
        Err(error) => {
            let status = error.code().status().as_u16();
            (AttemptOutcome::from_status(status, error.to_string(), error.retry_after()), status)
        }
    };
    let jitter = uuid::Uuid::new_v4().as_u128() as u32;
    Step::End { fence: job.fence, outcome, duration: Duration::ZERO, status: Some(status), jitter }
}

/// Counts the jobs that are due and were not tried, within the time of the call.
async fn count_due(
    store: &dyn JobStore,
    now: Timestamp,
    seen: &HashSet<JobId>,
    until: Instant,
) -> Result<usize, StoreError> {
    let open = JobFilter { open: true, ..JobFilter::default() };
    let (mut count, mut after) = (0, None);
    while Instant::now() < until {
        let page = store.list(&open, JobOrder::OldestFirst, after.as_ref(), PAGE_SIZE).await?;
        let is_left =
            |job: &&Job| job.next_run_at().is_some_and(|time| time <= now) && !seen.contains(&job.id);
        count += page.jobs.iter().filter(is_left).count();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(count)
}
