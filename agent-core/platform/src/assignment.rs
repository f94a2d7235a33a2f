//! Assignments: tool calls and turns that an agent runs on a schedule, and their synchronization with the scheduler.
//!
//! An [`Assignment`] is the stored configuration. The [`AssignmentSync`] beside it, the link, has the state last sent to the
//! scheduler. `calls::pending_calls`, a pure function, derives the outstanding scheduler calls from the two;
//! [`sync_assignment`] makes them. An assignment whose synchronized version differs is out of sync until
//! [`sync_assignment`] is called for it, by the request that saved it or by a periodic pass over all assignments.

use std::time::Duration;

use agent_core::ids::{CompanyId, JobId};
use jiff::Timestamp;

use crate::pulse::{Pulse, PulseError};
use crate::records::{
    Key, Precondition, Record, Records, RecordsExt, StoreError, UpdateAttempts, Write, to_json,
};
use crate::workspace::{Assignment, assignment_key};

mod calls;
mod state;

use calls::{execute_calls, pending_calls};
pub use state::{AssignedJob, AssignmentSync, SyncTarget, SyncedState};

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
    let mut own_lease = None;
    for _ in 0..MAX_SYNC_ROUNDS {
        let round = SyncRound::read(records, &keys, target).await?;
        if is_in_sync(round.assignment.as_ref(), round.link.as_ref(), target) {
            return Ok(());
        }
        let Some(leased_version) = round.acquire_lease(&mut own_lease, now).await? else { continue };
        match round.call_scheduler(pulse, id).await {
            Ok(sent) => round.store(sent, leased_version).await?,
            Err(error) => {
                round.release_lease(leased_version).await;
                return Err(error.into());
            }
        }
    }
    Err(SyncError::Busy)
}

/// One attempt at a synchronization, from the assignment and the link as they are stored.
struct SyncRound<'r> {
    records: &'r dyn Records,
    link_key: &'r Key,
    target: SyncTarget,
    assignment: Option<Record<Assignment>>,
    link: Option<Record<AssignmentSync>>,
}

impl<'r> SyncRound<'r> {
    /// Reads the assignment and the link, which have these keys.
    async fn read(
        records: &'r dyn Records,
        keys: &'r [Key; 2],
        target: SyncTarget,
    ) -> Result<Self, StoreError> {
        let [assignment_key, link_key] = keys;
        let mut rows = records.get_many(keys).await?.into_iter();
        let assignment =
            rows.next().flatten().map(|row| row.parse(assignment_key.collection())).transpose()?;
        let link = rows.next().flatten().map(|row| row.parse(link_key.collection())).transpose()?;
        Ok(Self { records, link_key, target, assignment, link })
    }

    fn last_sent(&self) -> Option<&SyncedState> {
        self.link.as_ref()?.value.last_sent.as_ref()
    }

    /// Writes the lease to the link, and returns the version of the link with it; `None` if the link has changed. `own_lease` is
    /// the end of the lease that the caller has from an earlier round, in which the link has changed.
    ///
    /// # Errors
    /// [`SyncError::Busy`] while another process has the lease; errors of the store.
    async fn acquire_lease(
        &self,
        own_lease: &mut Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Option<u64>, SyncError> {
        let busy_until = self.link.as_ref().and_then(|link| link.value.busy_until);
        if busy_until != *own_lease && busy_until.is_some_and(|until| until > now) {
            return Err(SyncError::Busy);
        }
        let busy_until = now.saturating_add(SYNC_LEASE).ok();
        let leased = AssignmentSync { last_sent: self.last_sent().cloned(), busy_until };
        let unchanged = Precondition::unchanged_since(self.link.as_ref().map(|link| link.version));
        match self.records.put_as(self.link_key, &leased, unchanged).await {
            Ok(version) => {
                *own_lease = busy_until;
                Ok(Some(version))
            }
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the outstanding calls. Returns the state that the scheduler has then; `None` for a deleted assignment.
    async fn call_scheduler(&self, pulse: &dyn Pulse, id: &str) -> Result<Option<SyncedState>, PulseError> {
        let effective = |record: &Record<Assignment>| (self.target.effective(&record.value), record.version);
        let stored = self.assignment.as_ref().map(effective);
        let after = stored.as_ref().map(|(assignment, version)| (assignment, *version));
        let calls = pending_calls(self.last_sent(), after, self.target);
        let job = self.last_sent().and_then(|sent| sent.job_at(self.target)).cloned();
        let job = execute_calls(pulse, id, calls, job).await?;
        let suspensions = self.suspensions();
        Ok(stored.map(|(assignment, version)| SyncedState { assignment, version, suspensions, job }))
    }

    /// Returns the number of suspensions with the one of this round, if the agent may not do the work.
    fn suspensions(&self) -> u64 {
        let is_enabled = self.assignment.as_ref().is_some_and(|record| record.value.schedule.enabled);
        let is_suspended = is_enabled && !self.target.can_run;
        self.last_sent().map_or(0, |sent| sent.suspensions) + u64::from(is_suspended)
    }

    /// Stores the state that the scheduler has, and ends the lease. A link that has changed is left to the next round.
    async fn store(&self, sent: Option<SyncedState>, leased_version: u64) -> Result<(), StoreError> {
        let (key, precondition) = (self.link_key.clone(), Precondition::Version(leased_version));
        let write = match sent {
            None => Write::Delete { key, precondition },
            Some(sent) => {
                let value = to_json(&AssignmentSync { last_sent: Some(sent), busy_until: None })?;
                Write::Put { key, value, precondition }
            }
        };
        match self.records.commit(vec![write]).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the lease, so that the next caller need not wait for its expiry. A failed write has no other effect.
    async fn release_lease(&self, leased_version: u64) {
        let link = AssignmentSync { last_sent: self.last_sent().cloned(), busy_until: None };
        let _ = self.records.put_as(self.link_key, &link, Precondition::Version(leased_version)).await;
    }
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
                && last_sent.job.as_ref().is_none_or(|job| target.has_job(job))
        }
        (None, _) => link.is_none(),
        (Some(_), None) => false,
    }
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
        // Only the scheduler knows the next occurrence after an occurrence that it did not run itself.
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

/// Records whether the job of an assignment is paused, so that it is not run while the scheduler is unavailable. Does nothing for
/// another job. `is_paused` asks the scheduler.
///
/// The link is read before the scheduler is asked, and written even if it has the answer: the write of a caller whose answer is
/// older fails by the link's version, and that caller asks again. So of changes at the same moment, the one that took effect last
/// is recorded.
///
/// # Errors
/// Errors of the store and of `is_paused`.
pub async fn record_pause<F, E>(
    records: &dyn Records,
    (company_id, id): (&CompanyId, &str),
    job_id: &JobId,
    is_paused: impl Fn() -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<bool, E>>,
    E: From<StoreError>,
{
    let key = sync_key(company_id, id)?;
    let mut attempts = UpdateAttempts::new(records, &key);
    loop {
        let Some(found) = records.get_as::<AssignmentSync>(&key).await? else { return Ok(()) };
        let mut link = found.value;
        let job = link.last_sent.as_mut().and_then(|last_sent| last_sent.job.as_mut());
        let Some(job) = job.filter(|job| job.job_id == *job_id) else { return Ok(()) };
        job.paused = is_paused().await?;
        match records.put_as(&key, &link, Precondition::Version(found.version)).await {
            Ok(_) => return Ok(()),
            Err(error) => attempts.retry(error).await?,
        }
    }
}

#[cfg(test)]
mod tests;
