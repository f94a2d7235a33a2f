//! Hand-over of the jobs that the application has stored itself to a scheduler that was configured later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_jobs::job::{Job, JobFilter, JobOrder, Phase, Step};
use agent_jobs::schedule::{Schedule, ScheduleSpec};
use agent_platform::pulse::{JobControl, JobRequest, Pulse, PulseError};
use agent_platform::records::StoreError;

use super::super::App;
use super::local_run::resume_lost_run;
use crate::shutdown::ShutdownStage;

/// Number of jobs that are read at once.
const PAGE_SIZE: usize = 100;
/// Time after which a pass reads no further page; the next pass continues.
const MAX_PASS_TIME: Duration = Duration::from_secs(5);
/// Maximum number of lost runs that a pass resumes.
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
    let (began, mut resumed, mut after) = (Instant::now(), 0, None);
    while began.elapsed() < MAX_PASS_TIME {
        let page = store.list(&open, JobOrder::OldestFirst, after.as_ref(), PAGE_SIZE).await;
        let page = page.map_err(unavailable)?;
        for job in page.jobs {
            if !job.is_delivering() {
                hand_over(app, pulse, job).await?;
            } else if resumed < MAX_RESUMED_RUNS && is_lost(app, &job) {
                resumed += 1;
                resume_lost_run(app, job.id).await.map_err(unavailable)?;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// Returns true if the process that ran a job has ended, and this one does not. A paused job cannot be claimed.
fn is_lost(app: &App, job: &Job) -> bool {
    let is_expired = matches!(job.phase, Phase::Running { lease } if lease <= app.pulse.now());
    is_expired && !job.paused && app.conversations.shutdown.stage() == ShutdownStage::Running
}

/// Moves a job that is not being run.
async fn hand_over(app: &App, pulse: &dyn Pulse, job: Job) -> Result<(), PulseError> {
    if job.payload.assignment_id.is_none() {
        schedule(pulse, &job).await?;
    }
    let cancel = vec![(job.id, Step::Cancel)];
    let cancelled = app.pulse.local.jobs().apply_steps(cancel, app.pulse.now()).await;
    cancelled.map(drop).map_err(unavailable)
}

fn unavailable(error: StoreError) -> PulseError {
    PulseError::Unavailable(error.into())
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
