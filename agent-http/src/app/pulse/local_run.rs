//! Runs of jobs that the application stores itself, and their ends.

use std::sync::Arc;
use std::time::Duration;

use agent_jobs::job::{AttemptOutcome, Delivery, Job, Step, StepOutcome};
use agent_platform::records::StoreError;
use futures_util::FutureExt;
use jiff::Timestamp;
use tracing::Instrument;

use super::super::App;
use super::callback::{Completion, run_occurrence};
use crate::error::{Code, HttpError};

/// Time added to the run's time limit to get the claim's lease, so that the outcome can be recorded.
const LEASE_MARGIN: Duration = Duration::from_secs(60);

/// Returns the end of the lease of a job that is claimed at `now`.
pub(in crate::app) fn lease_until(app: &App, now: Timestamp) -> Timestamp {
    now.saturating_add(app.pulse.deadline + LEASE_MARGIN).unwrap_or(Timestamp::MAX)
}

/// Runs the occurrence of a claimed job.
pub(in crate::app) async fn run_claimed_job(app: Arc<App>, job: Job) -> (Job, Result<Completion, HttpError>) {
    let result = run_occurrence(&app, Delivery::from(&job), true).await;
    (job, result)
}

/// Returns true if a run was refused, since another process runs the occurrence or too many runs are in progress.
pub(in crate::app) fn is_busy(error: &HttpError) -> bool {
    matches!(error.code(), Code::Conflict | Code::RateLimited)
}

/// Returns the step that ends a run. The outcomes are those that a scheduler derives from the callback's status. An occurrence
/// that is being run elsewhere is released instead of deferred.
pub(in crate::app) fn end_step(job: &Job, result: &Result<Completion, HttpError>) -> Step {
    let (outcome, status) = match result {
        Ok(_) => (AttemptOutcome::Succeeded, 200),
        Err(error) if error.code() == Code::Conflict => return Step::Release { fence: job.fence },
        Err(error) => {
            let status = error.code().status().as_u16();
            (AttemptOutcome::from_status(status, error.to_string(), error.retry_after()), status)
        }
    };
    let jitter = uuid::Uuid::new_v4().as_u128() as u32;
    Step::End { fence: job.fence, outcome, duration: Duration::ZERO, status: Some(status), jitter }
}

/// Claims a job whose lease has expired, runs its occurrence again in the background, under its own key, and records the end.
/// Does nothing if another process has claimed the job, or if no attempt is left. A refused run is tried again once the lease of
/// the claim has expired: a released job would be handed over, although the lost run may have had its effect.
///
/// A job that was paused during the lost run stays paused: that run ends as it would have, and none follows.
pub(super) async fn resume_lost_run(app: &Arc<App>, lost_job: &Job) -> Result<(), StoreError> {
    let (store, now) = (app.pulse.local.jobs().clone(), app.pulse.now());
    let claim = Step::Claim { until: now, lease: lease_until(app, now) };
    // Only a job that is not paused can be claimed.
    let steps = if lost_job.paused { vec![Step::Resume, claim, Step::Pause] } else { vec![claim] };
    let steps = steps.into_iter().map(|step| (lost_job.id.clone(), step)).collect();
    let claimed = store.apply_steps(steps, now).await?.into_iter().nth(usize::from(lost_job.paused));
    let job = claimed.and_then(StepOutcome::applied).map(|result| result.job);
    let Some(job) = job.filter(Job::is_delivering) else { return Ok(()) };
    let (guard, app) = (app.pulse.begin_local_run(), app.clone());
    let spawner = app.conversations.spawner.clone();
    let run = async move {
        let (job, result) = run_claimed_job(app.clone(), job).await;
        let step = end_step(&job, &result);
        if matches!(step, Step::Release { .. }) {
            return;
        }
        if let Err(error) = store.apply_steps(vec![(job.id, step)], app.pulse.now()).await {
            tracing::warn!(%error, "the end of a job could not be stored; it is run again once its lease expires");
        }
        drop(guard);
    };
    spawner.spawn(run.in_current_span().boxed());
    Ok(())
}
