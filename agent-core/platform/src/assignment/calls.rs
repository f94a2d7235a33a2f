//! Calls that bring the scheduler to the state of a stored assignment: which ones are outstanding, and their execution.

use agent_core::ids::JobId;
use agent_jobs::job::{JobScope, JobState};

use super::state::{AssignedJob, SyncTarget, SyncedState};
use crate::pulse::{JobRequest, Pulse, PulseError, ScheduledJob};
use crate::workspace::Assignment;

/// Outstanding scheduler call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SchedulerCall {
    /// Creates a job.
    Schedule(Box<JobRequest>),
    /// Reschedules the job. If it is gone or final, a new one is created.
    Reschedule {
        /// Job id.
        job_id: JobId,
        /// Request for the new job, if one must be created.
        request: Box<JobRequest>,
    },
    /// Reads the job of an unchanged assignment. If it was cancelled, a new one is created.
    Confirm {
        /// Job id.
        job_id: JobId,
        /// Request for the new job, if one must be created.
        request: Box<JobRequest>,
    },
    /// Cancels one job that was replaced.
    CancelJob {
        /// Job id.
        job_id: JobId,
        /// Scope of the job.
        scope: JobScope,
    },
    /// Cancels all jobs of the assignment.
    CancelAll {
        /// Scope of the jobs.
        scope: JobScope,
    },
}

/// Returns the outstanding calls to the target's scheduler: `last_sent` is the state that was sent to it, `stored` the
/// stored assignment with its version. Pure.
///
/// A replaced job is cancelled after the new one is created, so that an interrupted sequence can be repeated from the
/// start.
pub(super) fn pending_calls(
    last_sent: Option<&SyncedState>,
    stored: Option<(&Assignment, u64)>,
    target: SyncTarget,
) -> Vec<SchedulerCall> {
    // The target's scheduler does not know a job of another one. The application cancels the jobs that it has stored itself.
    let sent_job = last_sent.and_then(|sent| Some((&sent.assignment, sent.job_at(target)?)));
    let enabled = stored.filter(|(assignment, _)| assignment.schedule.enabled);
    let Some((assignment, version)) = enabled else {
        return match sent_job {
            Some((sent, _)) => vec![SchedulerCall::CancelAll { scope: sent.scope() }],
            None => Vec::new(),
        };
    };
    let request = assignment.request(version, last_sent.map_or(0, |sent| sent.suspensions));
    match sent_job {
        Some((sent, job)) => update_calls((sent, job), assignment, request),
        None if last_sent.is_some_and(|sent| has_run_once(sent, assignment, version)) => Vec::new(),
        None => vec![SchedulerCall::Schedule(Box::new(request))],
    }
}

/// Returns the calls that replace the job of the sent assignment by the job of the stored one, which `request` creates.
fn update_calls(
    (sent, job): (&Assignment, &AssignedJob),
    stored: &Assignment,
    request: JobRequest,
) -> Vec<SchedulerCall> {
    let (job_id, request) = (job.job_id.clone(), Box::new(request));
    // A job keeps its payload, which contains the time zone, when it is rescheduled.
    if sent.payload() != stored.payload() {
        let cancel = SchedulerCall::CancelJob { job_id, scope: sent.scope() };
        return vec![SchedulerCall::Schedule(request), cancel];
    }
    vec![match sent.schedule == stored.schedule {
        // An earlier cancellation may have reached the scheduler although its answer was lost, or the scheduler may have
        // cancelled the job at a callback while the assignment was disabled.
        true => SchedulerCall::Confirm { job_id, request },
        false => SchedulerCall::Reschedule { job_id, request },
    }]
}

/// Returns true if this version of a one-off assignment had a job at another scheduler, which has run it.
fn has_run_once(sent: &SyncedState, stored: &Assignment, version: u64) -> bool {
    let has_run = sent.job.as_ref().is_some_and(|job| job.occurrence.is_none());
    has_run && sent.version == version && stored.schedule.execute_at.is_some()
}

/// Makes the calls in their order. Returns the assignment's job after them; `job` is the one before them.
///
/// # Errors
/// The error of the first call that fails, after which no further call is made.
pub(super) async fn execute_calls(
    pulse: &dyn Pulse,
    assignment_id: &str,
    calls: Vec<SchedulerCall>,
    mut job: Option<AssignedJob>,
) -> Result<Option<AssignedJob>, PulseError> {
    for call in calls {
        match call {
            SchedulerCall::Schedule(request) => job = Some(create_job(pulse, &request).await?),
            SchedulerCall::Reschedule { job_id, request } => {
                let is_paused = job.is_some_and(|job| job.job_id == job_id && job.paused);
                job = Some(reschedule_job(pulse, &job_id, &request, is_paused).await?);
            }
            SchedulerCall::Confirm { job_id, request } => {
                if is_cancelled(pulse, &job_id, &request).await? {
                    job = Some(create_job(pulse, &request).await?);
                }
            }
            SchedulerCall::CancelJob { job_id, scope } => match pulse.cancel_job(&scope, &job_id).await {
                Ok(_) | Err(PulseError::NotFound) => {}
                Err(error) => return Err(error),
            },
            SchedulerCall::CancelAll { scope } => {
                pulse.cancel_jobs_for_assignment(&scope, assignment_id).await?;
                job = None;
            }
        }
    }
    Ok(job)
}

async fn create_job(pulse: &dyn Pulse, request: &JobRequest) -> Result<AssignedJob, PulseError> {
    Ok(assigned_job(pulse.schedule_job(request).await?, Some(1)))
}

/// Reschedules a job, which stays paused if it `is_paused`, or creates one if it is gone or final.
async fn reschedule_job(
    pulse: &dyn Pulse,
    job_id: &JobId,
    request: &JobRequest,
    is_paused: bool,
) -> Result<AssignedJob, PulseError> {
    match pulse.reschedule_job(&request.scope(), job_id, &request.schedule).await {
        // Only the scheduler knows the new occurrence number.
        Ok(moved) => Ok(AssignedJob { paused: is_paused, ..assigned_job(moved, None) }),
        Err(PulseError::NotFound | PulseError::Conflict(_)) => create_job(pulse, request).await,
        Err(error) => Err(error),
    }
}

/// Returns true if the job was cancelled, so that the assignment needs another one.
async fn is_cancelled(pulse: &dyn Pulse, job_id: &JobId, request: &JobRequest) -> Result<bool, PulseError> {
    match pulse.get_job(&request.scope(), job_id).await {
        Ok(found) => Ok(found.state == JobState::Cancelled),
        // A one-off job that has run is deleted after a time, and must not run again.
        Err(PulseError::NotFound) => Ok(request.schedule.execute_at.is_none()),
        Err(error) => Err(error),
    }
}

fn assigned_job(scheduled: ScheduledJob, occurrence: Option<u64>) -> AssignedJob {
    let ScheduledJob { job_id, execute_at } = scheduled;
    AssignedJob { job_id, occurrence, execute_at, paused: false }
}
