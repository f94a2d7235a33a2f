//! Assignments: tool calls and turns that an agent runs on a schedule, and their synchronization with the scheduler.
//!
//! An [`Assignment`] is the stored configuration; the [`AssignmentSync`] beside it records the state last sent to the
//! scheduler. `pending_calls`, a pure function, derives the outstanding scheduler calls from the two;
//! [`sync_assignment`] makes them. An assignment whose synchronized version differs is out of sync until
//! [`sync_assignment`] is called for it, by the request that saved it or by a periodic pass over all assignments.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use agent_jobs::job::{JobPayload, JobScope, JobState};

use crate::local_pulse::is_local_job;
use crate::pulse::{JobRequest, Pulse, PulseError, ScheduledJob};
use crate::records::{Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json};
use crate::workspace::{Assignment, assignment_key};
use agent_core::ids::{CompanyId, JobId};

/// Collection of the synchronization states.
pub const SYNC_COLLECTION: &str = "assignmentLinks";
/// Lease of one synchronization. Longer than its scheduler calls take, including their timeouts.
const SYNC_LEASE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of rounds of one [`sync_assignment`] call, when the assignment changes or another process writes the
/// link meanwhile.
const MAX_SYNC_ROUNDS: usize = 4;

/// Returns the record key of an assignment's synchronization state.
///
/// # Errors
/// [`StoreError::Invalid`] for an invalid identifier.
pub fn sync_key(company_id: &CompanyId, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, SYNC_COLLECTION, id)
}

/// Synchronization state of an assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSync {
    /// State last sent to the scheduler; absent before the first synchronization.
    #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<SyncedState>,
    /// Expiry of the lease of a synchronization in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_until: Option<Timestamp>,
}

/// Assignment state known to the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncedState {
    /// Assignment as it was sent.
    pub assignment: Assignment,
    /// Record version of the assignment when it was sent.
    pub version: u64,
    /// Number of times that the job was cancelled because the agent might no longer do the work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspensions: u64,
    /// Job of the assignment; absent if it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<AssignedJob>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Circumstances that decide, beside the assignment itself, if it has a job and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncTarget {
    /// True if the agent may do the work; see [`Assignment::can_run`]. An assignment without permission is treated as
    /// a disabled one until the permission returns.
    pub can_run: bool,
    /// True if the application stores the jobs itself, because no scheduler is configured.
    pub is_local: bool,
}

impl SyncTarget {
    /// Returns the assignment as the scheduler should know it.
    fn effective(self, assignment: &Assignment) -> Assignment {
        let mut effective = assignment.clone();
        effective.schedule.enabled &= self.can_run;
        effective
    }

    /// Returns true if a job of the assignment is where it should be.
    fn holds(self, job: &AssignedJob) -> bool {
        is_local_job(&job.job_id) == self.is_local
    }
}

/// Locally recorded state of an assignment's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedJob {
    /// Job id.
    pub job_id: JobId,
    /// Number of the next occurrence; absent if only the scheduler knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u64>,
    /// Due time of the next occurrence.
    pub execute_at: Timestamp,
}

/// Outstanding scheduler call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SchedulerCall {
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

/// Returns the outstanding scheduler calls: `before` is the state known to the scheduler, `after` the stored
/// assignment with its version. Pure.
///
/// A replaced job is cancelled after the new one is created, so that an interrupted sequence can be repeated from the
/// start.
pub(crate) fn pending_calls(
    before: Option<&SyncedState>,
    after: Option<(&Assignment, u64)>,
    target: SyncTarget,
) -> Vec<SchedulerCall> {
    // A job elsewhere is unknown to this scheduler. The application cancels those that it has stored itself.
    let is_on_target = |job: &&AssignedJob| target.holds(job);
    let known = before.and_then(|last_sent| Some((last_sent, last_sent.job.as_ref().filter(is_on_target)?)));
    let suspensions = before.map_or(0, |last_sent| last_sent.suspensions);
    // A one-off job that has run elsewhere is not run again here.
    let is_over = before.zip(after).is_some_and(|(last_sent, (new, version))| {
        let has_run = |job: &AssignedJob| !target.holds(job) && job.occurrence.is_none();
        last_sent.version == version
            && new.schedule.execute_at.is_some()
            && last_sent.job.as_ref().is_some_and(has_run)
    });
    let enabled = after.filter(|(assignment, _)| assignment.schedule.enabled);
    match (known, enabled) {
        (None, None) => Vec::new(),
        (None, Some(_)) if is_over => Vec::new(),
        (Some((last_sent, _)), None) => {
            vec![SchedulerCall::CancelAll { scope: last_sent.assignment.scope() }]
        }
        (None, Some((new, version))) => {
            vec![SchedulerCall::Schedule(Box::new(new.request(version, suspensions)))]
        }
        (Some((last_sent, job)), Some((new, version))) => {
            let (old, request) = (&last_sent.assignment, Box::new(new.request(version, suspensions)));
            let job_id = job.job_id.clone();
            let same_work = without_zone(old.payload()) == without_zone(new.payload());
            if old.payload() == new.payload() && old.schedule == new.schedule {
                // An earlier cancellation may have reached the scheduler although its answer was lost, or the scheduler may
                // have cancelled the job at a callback while the assignment was disabled.
                vec![SchedulerCall::Confirm { job_id, request }]
            } else if same_work && old.schedule.timezone == new.schedule.timezone {
                vec![SchedulerCall::Reschedule { job_id, request }]
            } else {
                let cancel = SchedulerCall::CancelJob { job_id, scope: old.scope() };
                vec![SchedulerCall::Schedule(request), cancel]
            }
        }
    }
}

fn without_zone(payload: JobPayload) -> JobPayload {
    JobPayload { timezone: None, ..payload }
}

/// Error of a synchronization.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// Another process holds the lease of this assignment.
    #[error("concurrent synchronization of the same assignment; retry")]
    Busy,
    /// A call to the scheduler failed.
    #[error(transparent)]
    Pulse(#[from] PulseError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Synchronizes the scheduler with the stored assignment, which may have been deleted.
///
/// # Errors
/// [`SyncError`] if the synchronization is incomplete; the assignment stays out of sync, and the call may be
/// repeated.
pub async fn sync_assignment(
    records: &dyn Records,
    pulse: &dyn Pulse,
    (company_id, id): (&CompanyId, &str),
    target: SyncTarget,
    now: Timestamp,
) -> Result<(), SyncError> {
    let keys = [assignment_key(company_id, id)?, sync_key(company_id, id)?];
    for _ in 0..MAX_SYNC_ROUNDS {
        let mut rows = records.get_many(&keys).await?.into_iter();
        let saved = rows.next().flatten().map(|record| record.parse::<Assignment>(keys[0].collection()));
        let link = rows.next().flatten().map(|record| record.parse::<AssignmentSync>(keys[1].collection()));
        let (saved, link) = (saved.transpose()?, link.transpose()?);
        let last_sent = link.as_ref().and_then(|link| link.value.last_sent.clone());
        if is_in_sync(saved.as_ref(), link.as_ref(), target) {
            return Ok(());
        }
        if link.as_ref().and_then(|link| link.value.busy_until).is_some_and(|until| until > now) {
            return Err(SyncError::Busy);
        }
        let lease =
            AssignmentSync { last_sent: last_sent.clone(), busy_until: now.saturating_add(SYNC_LEASE).ok() };
        let precondition = Precondition::unchanged_since(link.map(|link| link.version));
        let version = match records.put_as(&keys[1], &lease, precondition).await {
            Err(StoreError::Conflict { .. }) => continue,
            put => put?,
        };
        let held = Precondition::Version(version);
        let state = saved.as_ref().map(|saved| (target.effective(&saved.value), saved.version));
        let calls =
            pending_calls(last_sent.as_ref(), state.as_ref().map(|(new, version)| (new, *version)), target);
        let known =
            last_sent.as_ref().and_then(|last_sent| last_sent.job.clone()).filter(|job| target.holds(job));
        let job = match execute_calls(pulse, id, known, calls).await {
            Ok(job) => job,
            Err(error) => {
                // Releases the lease, so that the next caller need not wait. If this write fails too, the lease
                // expires.
                let _ = records.put_as(&keys[1], &AssignmentSync { last_sent, busy_until: None }, held).await;
                return Err(error.into());
            }
        };
        let write = match state {
            None => Write::Delete { key: keys[1].clone(), precondition: held },
            Some((assignment, version)) => {
                let was_suspended =
                    saved.is_some_and(|saved| saved.value.schedule.enabled) && !target.can_run;
                let suspensions =
                    last_sent.map_or(0, |last_sent| last_sent.suspensions) + u64::from(was_suspended);
                let last_sent = Some(SyncedState { assignment, version, suspensions, job });
                let value = to_json(&AssignmentSync { last_sent, busy_until: None })?;
                Write::Put { key: keys[1].clone(), value, precondition: held }
            }
        };
        match records.commit(vec![write]).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(SyncError::Busy)
}

/// Returns true if the scheduler knows the stored version, as the target has it.
pub fn is_in_sync(
    saved: Option<&Record<Assignment>>,
    link: Option<&Record<AssignmentSync>>,
    target: SyncTarget,
) -> bool {
    let last_sent = link.and_then(|link| link.value.last_sent.as_ref());
    match (saved, last_sent) {
        (Some(saved), Some(last_sent)) => {
            saved.version == last_sent.version
                && last_sent.assignment.schedule.enabled == (saved.value.schedule.enabled && target.can_run)
                && last_sent.job.as_ref().is_none_or(|job| target.holds(job))
        }
        (None, _) => link.is_none(),
        (Some(_), None) => false,
    }
}

async fn execute_calls(
    pulse: &dyn Pulse,
    id: &str,
    mut job: Option<AssignedJob>,
    calls: Vec<SchedulerCall>,
) -> Result<Option<AssignedJob>, PulseError> {
    for operation in calls {
        match operation {
            SchedulerCall::Schedule(request) => {
                job = Some(assigned_job(pulse.schedule_job(&request).await?, Some(1)))
            }
            SchedulerCall::Reschedule { job_id, request } => {
                let moved = pulse.reschedule_job(&request.scope(), &job_id, &request.schedule).await;
                job = Some(match moved {
                    // Only the scheduler knows the new occurrence number.
                    Ok(moved) => assigned_job(moved, None),
                    Err(PulseError::NotFound | PulseError::Conflict(_)) => {
                        assigned_job(pulse.schedule_job(&request).await?, Some(1))
                    }
                    Err(error) => return Err(error),
                });
            }
            SchedulerCall::Confirm { job_id, request } => {
                let is_gone = match pulse.get_job(&request.scope(), &job_id).await {
                    Ok(found) => found.state == JobState::Cancelled,
                    // A one-off job that has run is deleted after a time, and must not run again.
                    Err(PulseError::NotFound) => request.schedule.execute_at.is_none(),
                    Err(error) => return Err(error),
                };
                if is_gone {
                    job = Some(assigned_job(pulse.schedule_job(&request).await?, Some(1)));
                }
            }
            SchedulerCall::CancelJob { job_id, scope } => match pulse.cancel_job(&scope, &job_id).await {
                Ok(_) | Err(PulseError::NotFound) => {}
                Err(error) => return Err(error),
            },
            SchedulerCall::CancelAll { scope } => {
                pulse.cancel_jobs_for_assignment(&scope, id).await?;
                job = None;
            }
        }
    }
    Ok(job)
}

fn assigned_job(scheduled: ScheduledJob, occurrence: Option<u64>) -> AssignedJob {
    AssignedJob { job_id: scheduled.job_id, occurrence, execute_at: scheduled.execute_at }
}

/// Records that an occurrence of an assignment's job has run, and the next one, so that it can be run while the
/// scheduler is unavailable. Best effort: a lost update is harmless, so a conflict is not retried.
///
/// # Errors
/// Errors of the store.
pub async fn record_run(
    records: &dyn Records,
    (company_id, id): (&CompanyId, &str),
    (job_id, occurrence): (&JobId, u64),
    by_scheduler: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = sync_key(company_id, id)?;
    let Some(found) = records.get_as::<AssignmentSync>(&key).await? else { return Ok(()) };
    let mut link = found.value;
    let Some(last_sent) = &mut link.last_sent else { return Ok(()) };
    let Some(job) = last_sent.job.as_mut().filter(|job| job.job_id == *job_id) else { return Ok(()) };
    if job.occurrence.is_some_and(|known| known > occurrence) {
        return Ok(());
    }
    let schedule = last_sent.assignment.schedule.spec().resolve(now).ok();
    let next = schedule.filter(|_| last_sent.assignment.schedule.execute_at.is_none());
    match next.and_then(|schedule| schedule.next_after(now)) {
        // The scheduler alone knows the next occurrence after one that it did not run itself.
        Some(next) if by_scheduler => {
            (job.occurrence, job.execute_at) = (Some(occurrence + 1), next);
        }
        _ => job.occurrence = None,
    }
    match records.put_as(&key, &link, Precondition::Version(found.version)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
