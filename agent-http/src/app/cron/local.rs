//! Due jobs of an application without a scheduler: claimed from its own store, run, and ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::ids::JobId;
use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, JobFilter, JobOrder, JobStore, Step};
use agent_platform::records::StoreError;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::super::App;
use super::super::pulse::{Completion, end_step, is_busy, lease_until, run_claimed_job};
use super::cron_run::{CronRun, MAX_CONCURRENT_RUNS, MAX_RUNS_PER_CALL};
use crate::error::HttpError;
use crate::shutdown::ShutdownStage;

/// Time for which finished jobs are kept.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum number of finished jobs that one call removes.
const MAX_PURGED_PER_CALL: usize = 500;
/// Minimum time for counting the jobs that are left, also when the time of the call is up.
const MIN_COUNT_TIME: Duration = Duration::from_secs(2);
/// Number of jobs read at once to count the remaining jobs.
const PAGE_SIZE: usize = 500;

/// Runs due jobs of the application's own store until none is due, or a limit of the call is reached. None begins after
/// `until`, or while the process shuts down.
///
/// The run continues if the caller drops the future, as when its client leaves: otherwise the outcomes of the claimed jobs
/// would be lost, and their occurrences delivered again. A process that stops waits for it.
pub(super) async fn run_local(app: &Arc<App>, until: Instant) -> Result<CronRun, HttpError> {
    let (guard, run) = (app.pulse.begin_local_run(), LocalRun::new(app.clone(), until).run());
    let (sender, receiver) = oneshot::channel();
    let task = async move {
        // Fails only if the client has left.
        let _ = sender.send(run.await);
        drop(guard);
    };
    // Not on the runtime of the connection, which ends with the server.
    app.conversations.spawner.spawn(task.in_current_span().boxed());
    receiver.await.map_err(HttpError::internal)?
}

/// Run of the due jobs by one call.
struct LocalRun {
    app: Arc<App>,
    until: Instant,
    result: CronRun,
    /// Number of occurrences that have started.
    started_count: usize,
    /// Jobs with an occurrence that has started.
    tried: HashSet<JobId>,
    /// Number of occurrences that a company may begin: companies alternate.
    turn: usize,
    /// Number of occurrences that each company has started.
    started_by_company: CompanyQuota,
    /// Releases of busy jobs. They are written at the end, so that this call does not claim the jobs again.
    releases: Vec<(JobId, Step)>,
}

impl LocalRun {
    fn new(app: Arc<App>, until: Instant) -> Self {
        Self {
            app,
            until,
            result: CronRun { source: "local", ..CronRun::default() },
            started_count: 0,
            tried: HashSet::new(),
            turn: 1,
            started_by_company: CompanyQuota::new(usize::MAX),
            releases: Vec::new(),
        }
    }

    async fn run(mut self) -> Result<CronRun, HttpError> {
        let mut runs = FuturesUnordered::new();
        // After an error of the store no further job is claimed; the outcomes of the others are recorded if possible.
        let mut failure = None;
        loop {
            if failure.is_none() {
                match self.claim(runs.len()).await {
                    Ok(claimed) => {
                        runs.extend(claimed.into_iter().map(|job| run_claimed_job(self.app.clone(), job)));
                    }
                    Err(error) => failure = Some(error),
                }
            }
            let Some((job, result)) = runs.next().await else { break };
            if let Err(error) = self.end(job, result).await {
                failure = failure.or(Some(error));
            }
        }
        let store = self.app.pulse.local.jobs();
        let now = self.app.pulse.now();
        let released = store.apply_steps(std::mem::take(&mut self.releases), now).await;
        if let Some(error) = failure {
            return Err(error.into());
        }
        released?;
        let kept_since = now.saturating_sub(RETENTION).unwrap_or(Timestamp::MIN);
        store.purge(kept_since, MAX_PURGED_PER_CALL).await?;
        // The count reads all open jobs, so it is left out where no job is due.
        if store.next_run_at().await?.is_some_and(|next| next <= now) {
            let count_until = self.until.max(Instant::now() + MIN_COUNT_TIME);
            self.result.left = count_due(&**store, now, &self.tried, count_until).await?;
        }
        self.result.due = self.started_count + self.result.left;
        Ok(self.result)
    }

    /// Claims only as many jobs as can begin at once beside the `running` ones. While a claimed job waited, its lease
    /// could expire or this process could end, which would count as an abandoned delivery without a run.
    async fn claim(&mut self, running: usize) -> Result<Vec<Job>, StoreError> {
        let limit = (MAX_CONCURRENT_RUNS - running).min(MAX_RUNS_PER_CALL - self.started_count);
        let (mut claimed, mut turn) = (Vec::new(), self.turn);
        while claimed.len() < limit && self.may_begin() {
            let quota = self.started_by_company.clone().with_limit(turn);
            let jobs = match claim_due(&self.app, limit - claimed.len(), quota).await {
                Ok(jobs) => jobs,
                // The jobs that are claimed begin first.
                Err(_) if !claimed.is_empty() => break,
                Err(error) => return Err(error),
            };
            if jobs.is_empty() {
                // Each company with due jobs has been served, or no job is due.
                if turn > self.turn {
                    break;
                }
                turn += 1;
                continue;
            }
            self.turn = turn;
            for job in &jobs {
                self.started_by_company.take(job.payload.company_id.as_str());
                self.tried.insert(job.id.clone());
            }
            self.started_count += jobs.len();
            claimed.extend(jobs);
        }
        Ok(claimed)
    }

    /// Returns true if further jobs may begin. While the process shuts down, no job may begin: its end would abandon them.
    fn may_begin(&self) -> bool {
        let is_stopping = self.app.conversations.shutdown.stage() > ShutdownStage::Running;
        !is_stopping && Instant::now() < self.until
    }

    /// Counts and records the end of a run.
    async fn end(&mut self, job: Job, result: Result<Completion, HttpError>) -> Result<(), StoreError> {
        match &result {
            Ok(Completion::Completed) => self.result.done += 1,
            Ok(Completion::AlreadyCompleted) => self.result.done_before += 1,
            Err(error) if is_busy(error) => self.result.busy += 1,
            Err(error) => {
                tracing::warn!(%error, job = %job.id, "a due job failed");
                self.result.failed += 1;
            }
        }
        let step = end_step(&job, &result);
        if let Step::Release { .. } = step {
            self.releases.push((job.id, step));
            return Ok(());
        }
        let pulse = &self.app.pulse;
        pulse.local.jobs().apply_steps(vec![(job.id, step)], pulse.now()).await.map(drop)
    }
}

async fn claim_due(app: &App, limit: usize, quota: CompanyQuota) -> Result<Vec<Job>, StoreError> {
    let now = app.pulse.now();
    let claim = ClaimRequest { now, due_until: now, lease_until: lease_until(app, now), limit, quota };
    app.pulse.local.jobs().claim_due(claim).await
}

/// Counts the jobs that are due and were not tried, until the time is up.
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
