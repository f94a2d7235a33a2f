//! State of an assignment's synchronization as it is stored, and the scheduler that should have the job.

use agent_core::ids::JobId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::local_pulse::is_local_job;
use crate::workspace::Assignment;

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

impl SyncedState {
    /// Returns the job, unless it is at another scheduler than the target's.
    pub(super) fn job_at(&self, target: SyncTarget) -> Option<&AssignedJob> {
        self.job.as_ref().filter(|job| target.has_job(job))
    }
}

/// Scheduler that an assignment's job belongs to, and the permission that the job requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncTarget {
    /// True if the agent may do the work; see [`Assignment::can_run`]. An assignment without permission is treated as
    /// a disabled one until the permission returns.
    pub can_run: bool,
    /// True if the application stores the jobs itself, because no scheduler is configured.
    pub is_local: bool,
}

impl SyncTarget {
    /// Returns the assignment as the scheduler should know it: disabled if the agent may not do the work.
    pub(super) fn effective(self, assignment: &Assignment) -> Assignment {
        let mut effective = assignment.clone();
        effective.schedule.enabled &= self.can_run;
        effective
    }

    /// Returns true for a job of the target's scheduler.
    pub(super) fn has_job(self, job: &AssignedJob) -> bool {
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
    /// True if the user has paused the job. A process of an older version drops the member, and runs such a job while the
    /// scheduler is unavailable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}
