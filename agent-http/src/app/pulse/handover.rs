//! Hand-over of the jobs that the application has stored itself to a scheduler that was configured later.

use std::sync::Arc;

use agent_jobs::job::{Job, JobFilter, JobOrder, Phase, Step};
use agent_jobs::schedule::{Schedule, ScheduleSpec};
use agent_platform::pulse::{JobControl, JobRequest, Pulse, PulseError};

use super::super::App;
use super::local_run::resume_lost_run;
use crate::shutdown::ShutdownStage;

/// Maximum number of jobs per pass; the next pass continues.
const MAX_JOBS_PER_PASS: usize = 100;
/// Maximum number of these whose lost runs are resumed.
const MAX_RESUMED_RUNS: usize = 8;

/// Moves local jobs to the scheduler, if one is configured. Jobs of assignments are only cancelled here:
/// the synchronization of their assignment creates new ones.
///
/// A job that is being run is left for the next pass. If its process has ended, this one runs it first: under the scheduler's
/// key, its effect could happen twice.
pub(super) async fn hand_over_local_jobs(app: &Arc<App>) -> Result<(), PulseError> {
    let Some(pulse) = app.pulse.remote.as_deref() else { return Ok(()) };
    let store = app.pulse.local.jobs();
    let open = JobFilter { open: true, ..JobFilter::default() };
    let page = store.list(&open, JobOrder::OldestFirst, None, MAX_JOBS_PER_PASS).await;
    let jobs = page.map_err(|error| PulseError::Unavailable(error.into()))?.jobs;
    let (running, waiting): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_delivering);
    let now = app.pulse.now();
    let is_lost = |job: &Job| matches!(job.phase, Phase::Running { lease } if lease <= now);
    if app.conversations.shutdown.stage() == ShutdownStage::Running {
        for job in running.into_iter().filter(is_lost).take(MAX_RESUMED_RUNS) {
            let resumed = resume_lost_run(app, job.id).await;
            resumed.map_err(|error| PulseError::Unavailable(error.into()))?;
        }
    }
    for job in waiting {
        if job.payload.assignment_id.is_none() {
            schedule(pulse, &job).await?;
        }
        let cancel = vec![(job.id, Step::Cancel)];
        let cancelled = store.apply_steps(cancel, app.pulse.now()).await;
        cancelled.map_err(|error| PulseError::Unavailable(error.into()))?;
    }
    Ok(())
}

async fn schedule(pulse: &dyn Pulse, job: &Job) -> Result<(), PulseError> {
    let request = JobRequest {
        idempotency_key: Some(format!("handover:{}", job.id)),
        max_attempts: Some(job.max_attempts),
        misfire: Some(job.misfire),
        overlap: Some(job.overlap),
        ..JobRequest::new(job.payload.as_ref().clone(), spec(&job.schedule))
    };
    match pulse.schedule_job(&request).await {
        Ok(scheduled) if job.paused => {
            pulse.control_job(&request.scope(), &scheduled.job_id, JobControl::Pause).await.map(drop)
        }
        Ok(_) => Ok(()),
        Err(error @ (PulseError::Invalid(_) | PulseError::Conflict(_))) => {
            tracing::warn!(%error, job = %job.id, "a local job was rejected by the scheduler and is cancelled");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn spec(schedule: &Schedule) -> ScheduleSpec {
    match schedule {
        Schedule::At(time) => {
            ScheduleSpec { execute_at: Some(format!("{time:.3}")), ..ScheduleSpec::default() }
        }
        Schedule::Every { every, .. } => {
            let every_ms = u64::try_from(every.as_millis()).ok();
            ScheduleSpec { every_ms, ..ScheduleSpec::default() }
        }
        Schedule::Cron(cron) => ScheduleSpec {
            cron: Some(cron.expression().to_owned()),
            timezone: Some(cron.zone().to_owned()),
            dst: Some(cron.dst()),
            ..ScheduleSpec::default()
        },
    }
}
