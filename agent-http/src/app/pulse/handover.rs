//! Hand-over of the jobs that the application has stored itself to a scheduler that was configured later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_jobs::job::{Job, Phase, Step};
use agent_jobs::schedule::{Schedule, ScheduleSpec};
use agent_platform::pulse::{JobControl, JobRequest, Pulse, PulseError};
use agent_platform::records::StoreError;
use agent_platform::workspace::is_assignment_job;

use super::super::App;
use super::local_run::resume_lost_run;
use crate::shutdown::ShutdownStage;

/// Number of jobs that are read at once.
const PAGE_SIZE: usize = 100;
/// Maximum duration of a pass, after which it reads no further page; the next pass continues.
const MAX_PASS_TIME: Duration = Duration::from_secs(5);
/// Time within which a job that was paused is paused at the scheduler: a day, with many passes.
const PAUSE_TIME_LIMIT_MS: u64 = 24 * 60 * 60 * 1000;
/// Maximum number of lost runs that a pass resumes.
const MAX_RESUMED_RUNS: usize = 8;

/// Moves local jobs to the scheduler, if one is configured. Jobs of assignments are only cancelled here:
/// the synchronization of their assignment creates new ones. Follow-ups of their tools move as other jobs do.
///
/// A job that is being run is left for the next pass. If its process has ended, this process runs it first, even if it was paused
/// in the meantime: under the scheduler's key, its effect could happen twice.
///
/// Jobs with other ids are not read. They are those of a scheduler whose `DATABASE_URL` names the application's SQLite file:
/// moved, they would be in the same store again, with new ids and new intervals, at each pass.
pub(super) async fn hand_over_local_jobs(app: &Arc<App>) -> Result<(), PulseError> {
    let Some(pulse) = app.pulse.remote.as_deref() else { return Ok(()) };
    let (began, mut resumed, mut after) = (Instant::now(), 0, None);
    while began.elapsed() < MAX_PASS_TIME {
        let page = app.pulse.local.open_local_jobs(after.as_ref(), PAGE_SIZE).await.map_err(unavailable)?;
        for job in page.jobs {
            if !job.is_delivering() {
                hand_over(app, pulse, job).await?;
            } else if resumed < MAX_RESUMED_RUNS && is_lost(app, &job) {
                resumed += 1;
                resume_lost_run(app, &job).await.map_err(unavailable)?;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// Returns true if the process that ran a job has ended, and this one does not.
fn is_lost(app: &App, job: &Job) -> bool {
    let is_expired = matches!(job.phase, Phase::Running { lease } if lease <= app.pulse.now());
    is_expired && app.conversations.shutdown.stage() == ShutdownStage::Running
}

/// Moves a job that is not being run.
async fn hand_over(app: &App, pulse: &dyn Pulse, job: Job) -> Result<(), PulseError> {
    if !is_assignment_job(&job) {
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
    let scheduled = match job.paused {
        true => schedule_paused(pulse, &request).await,
        false => pulse.schedule_job(&request).await.map(drop),
    };
    match scheduled {
        Ok(()) => Ok(()),
        Err(error @ (PulseError::Invalid(_) | PulseError::Conflict(_))) => {
            tracing::warn!(%error, job = %job.id, "a local job was rejected by the scheduler and is cancelled");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Creates a paused job. The scheduler delivers a job at once whose time has passed, so the job is created with a later time
/// and gets its own schedule once it is paused.
async fn schedule_paused(pulse: &dyn Pulse, request: &JobRequest) -> Result<(), PulseError> {
    let later = ScheduleSpec { delay_ms: Some(PAUSE_TIME_LIMIT_MS), ..ScheduleSpec::default() };
    let created = pulse.schedule_job(&JobRequest { schedule: later, ..request.clone() }).await?;
    let scope = request.scope();
    pulse.control_job(&scope, &created.job_id, JobControl::Pause).await?;
    let rescheduled = pulse.reschedule_job(&scope, &created.job_id, &request.schedule).await;
    if let Err(PulseError::Invalid(_) | PulseError::Conflict(_)) = &rescheduled {
        // A job whose schedule is rejected is not handed over.
        pulse.cancel_job(&scope, &created.job_id).await?;
    }
    rescheduled.map(drop)
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
