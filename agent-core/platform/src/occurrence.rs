//! Deduplicates the effects of job occurrences, which the scheduler delivers at least once.
//!
//! A receiver claims the occurrence under its [key](agent_jobs::job::Job::occurrence_key) in the store. While one
//! receiver holds the claim, the others are answered "busy"; after completion they are answered "done". A claim ends
//! with the lease of its process ([`ProcessLease`]), so that an occurrence whose process was killed is tried again
//! within seconds, and at the claim's own expiry at the latest. [`journal`](crate::journal) makes the effects of a
//! repeated attempt happen once.

mod process;

use std::time::Duration;

use agent_core::ids::{CompanyId, JobId};
use agent_jobs::job::occurrence_key;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pulse::JobRequest;
use crate::records::{
    Collection, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};
use crate::time::saturating_after;

/// Collection of the occurrence records.
pub const OCCURRENCE_COLLECTION: &str = "pulseOccurrences";
/// Retention of finished occurrence records: 30 days. A scheduler makes its twelve attempts within about an hour; the
/// rest covers a scheduler that was down.
pub(crate) const OCCURRENCE_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum number of records kept per job, those of its newest occurrences. More than the dead letters of a job.
const MAX_OCCURRENCES_PER_JOB: u64 = 100;
/// Maximum number of attempts to claim when other receivers claim concurrently.
const MAX_CLAIM_ATTEMPTS: usize = 8;
/// Time after which a claim that a running process holds is worth another look: the process may end at any time.
const BUSY_RECHECK: Duration = Duration::from_secs(1);

pub use process::{PROCESS_LEASE, ProcessLease, delete_expired_leases};

/// Stored state of an occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum OccurrenceState {
    /// Claimed by a receiver that makes the effect happen.
    Running {
        /// Expiry of the claim.
        until: Timestamp,
        /// Identity of the process; absent in records of older versions, whose claims end at their expiry only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// The effect has happened; a job that it requested is still to be created.
    FollowUp {
        /// Expiry of the claim for creating the job.
        until: Timestamp,
        /// Identity of the process that creates the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Request for the job.
        request: Box<JobRequest>,
    },
    /// Failed; may be retried.
    Failed {
        /// Time of the failure.
        at: Timestamp,
    },
    /// The effect has happened.
    Done {
        /// Time of the completion.
        at: Timestamp,
    },
}

/// Decision for the receiver of a callback.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OccurrenceDecision {
    /// Make the effect happen.
    Run,
    /// Create the job that the effect requested.
    FollowUp(Box<JobRequest>),
    /// Retry after this time: another receiver holds the claim.
    Wait(Duration),
    /// Do nothing: the occurrence is done.
    Nothing,
}

/// State of the process that holds a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// The record names no process; the claim's expiry decides.
    Unknown,
    /// Another process with a valid lease.
    Alive,
    /// A process that has ended, or this one, which does not run the occurrence.
    Gone,
}

/// Decides whether a callback for an occurrence runs it, creates its follow-up job, waits or does nothing. Pure.
pub(crate) fn decide_occurrence(
    state: Option<&OccurrenceState>,
    owner: OwnerState,
    now: Timestamp,
) -> OccurrenceDecision {
    match state {
        None | Some(OccurrenceState::Failed { .. }) => OccurrenceDecision::Run,
        Some(OccurrenceState::Running { until, .. } | OccurrenceState::FollowUp { until, .. })
            if *until > now && owner != OwnerState::Gone =>
        {
            let remaining = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            OccurrenceDecision::Wait(if owner == OwnerState::Alive {
                remaining.min(BUSY_RECHECK)
            } else {
                remaining
            })
        }
        Some(OccurrenceState::Running { .. }) => OccurrenceDecision::Run,
        Some(OccurrenceState::FollowUp { request, .. }) => OccurrenceDecision::FollowUp(request.clone()),
        Some(OccurrenceState::Done { .. }) => OccurrenceDecision::Nothing,
    }
}

impl OccurrenceState {
    /// Returns the process that holds the claim.
    fn owner(&self) -> Option<&str> {
        match self {
            Self::Running { owner, .. } | Self::FollowUp { owner, .. } => owner.as_deref(),
            Self::Failed { .. } | Self::Done { .. } => None,
        }
    }

    /// Returns true if the record is past its retention and can be deleted. Pure.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        let ended_at = match self {
            Self::Running { until, .. } | Self::FollowUp { until, .. } => *until,
            Self::Failed { at } | Self::Done { at } => *at,
        };
        now.duration_since(ended_at)
            > SignedDuration::try_from(OCCURRENCE_RETENTION).unwrap_or(SignedDuration::MAX)
    }
}

/// Claim of an occurrence, held by the caller.
#[derive(Debug, Clone)]
pub(crate) struct OccurrenceClaim {
    pub(crate) key: Key,
    pub(crate) version: u64,
}

impl OccurrenceClaim {
    /// Returns the write that replaces the state. It fails with [`StoreError::Conflict`] if the claim was lost.
    ///
    /// # Errors
    /// None in practice: the state serializes to JSON.
    pub(crate) fn state_write(&self, state: &OccurrenceState) -> Result<Write, StoreError> {
        let precondition = Precondition::Version(self.version);
        Ok(Write::Put { key: self.key.clone(), value: to_json(state)?, precondition })
    }

    /// Returns the write that fails with [`StoreError::Conflict`] if the claim was lost, and changes nothing.
    pub(crate) fn check_write(&self) -> Write {
        Write::Check { key: self.key.clone(), precondition: Precondition::Version(self.version) }
    }
}

/// Outcome of a claim attempt.
#[derive(Debug, Clone)]
pub(crate) enum ClaimAttempt {
    /// Claimed by the caller until it writes another state, its process ends, or the claim expires.
    Claimed {
        /// The claim.
        claim: OccurrenceClaim,
        /// Work to do under it.
        work: OccurrenceWork,
        /// True if an earlier attempt claimed the occurrence.
        is_repeated: bool,
    },
    /// Claimed by another receiver; retry after this time.
    Busy(Duration),
    /// The occurrence is done.
    Done,
}

/// Work to do under a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum OccurrenceWork {
    /// Make the effect happen.
    Run,
    /// Create the job that the effect requested.
    FollowUp(Box<JobRequest>),
}

/// Claims occurrence number `occurrence` of the job `job_id` for `lease` at most. The caller ensures that this process
/// does not run the occurrence already.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn claim(
    records: &dyn Records,
    process: &ProcessLease,
    company_id: &CompanyId,
    (job_id, occurrence): (&JobId, u64),
    now: Timestamp,
    lease: Duration,
) -> Result<ClaimAttempt, StoreError> {
    let occurrences = Collection::new(company_id, OCCURRENCE_COLLECTION)?;
    let key = occurrences.key(occurrence_key(job_id, occurrence))?;
    let until = saturating_after(now, lease);
    let owner = Some(process.id().to_owned());
    let mut attempt = 1;
    loop {
        let stored_state: Option<Record<OccurrenceState>> = records.get_as(&key).await?;
        let state = stored_state.as_ref().map(|stored_state| &stored_state.value);
        let holder = owner_state(records, process, company_id, state, now).await?;
        let work = match decide_occurrence(state, holder, now) {
            OccurrenceDecision::Wait(remaining) => return Ok(ClaimAttempt::Busy(remaining)),
            OccurrenceDecision::Nothing => return Ok(ClaimAttempt::Done),
            OccurrenceDecision::Run => OccurrenceWork::Run,
            OccurrenceDecision::FollowUp(request) => OccurrenceWork::FollowUp(request),
        };
        let new_state = match &work {
            OccurrenceWork::Run => OccurrenceState::Running { until, owner: owner.clone() },
            OccurrenceWork::FollowUp(request) => {
                OccurrenceState::FollowUp { until, owner: owner.clone(), request: request.clone() }
            }
        };
        let is_repeated = stored_state.is_some();
        let precondition =
            Precondition::unchanged_since(stored_state.map(|stored_state| stored_state.version));
        let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&new_state)?, precondition }];
        if let Some(old) = occurrence.checked_sub(MAX_OCCURRENCES_PER_JOB) {
            let key = occurrences.key(occurrence_key(job_id, old))?;
            writes.push(Write::Delete { key, precondition: Precondition::Any });
        }
        let extension = process.extension(now)?;
        let extended = extension.as_ref().map(|(_, until)| *until);
        writes.extend(extension.map(|(write, _)| write));
        match records.commit(writes).await {
            Ok(versions) => {
                extended.into_iter().for_each(|until| process.confirm(until));
                let version = versions.into_iter().next().flatten();
                let version = version.ok_or_else(|| StoreError::unavailable("a version is missing"))?;
                let claim = OccurrenceClaim { key, version };
                return Ok(ClaimAttempt::Claimed { claim, work, is_repeated });
            }
            Err(StoreError::Conflict { .. }) if attempt < MAX_CLAIM_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if the latest attempt at an occurrence of a job has failed in the application.
///
/// # Errors
/// Errors of the store.
pub async fn has_failed(
    records: &dyn Records,
    company_id: &CompanyId,
    (job_id, occurrence): (&JobId, u64),
) -> Result<bool, StoreError> {
    let key = Collection::new(company_id, OCCURRENCE_COLLECTION)?.key(occurrence_key(job_id, occurrence))?;
    let stored: Option<Record<OccurrenceState>> = records.get_as(&key).await?;
    Ok(stored.is_some_and(|stored| matches!(stored.value, OccurrenceState::Failed { .. })))
}

async fn owner_state(
    records: &dyn Records,
    process: &ProcessLease,
    company_id: &CompanyId,
    state: Option<&OccurrenceState>,
    now: Timestamp,
) -> Result<OwnerState, StoreError> {
    match state.and_then(OccurrenceState::owner) {
        None => Ok(OwnerState::Unknown),
        Some(owner) if owner == process.id() => Ok(OwnerState::Gone),
        Some(owner) if process::is_alive(records, owner, company_id, now).await? => Ok(OwnerState::Alive),
        Some(_) => Ok(OwnerState::Gone),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
        future.now_or_never().expect("no wait").expect("the store works")
    }

    fn claimed(records: &MemoryRecords, process: &ProcessLease, occurrence: u64, now: i64) -> ClaimAttempt {
        let which = (&"j".into(), occurrence);
        ready(claim(records, process, &"c".into(), which, at(now), Duration::from_secs(10)))
    }

    fn write(
        records: &MemoryRecords,
        claim: &OccurrenceClaim,
        state: &OccurrenceState,
    ) -> Result<(), StoreError> {
        let writes = vec![claim.state_write(state).expect("JSON")];
        records.commit(writes).now_or_never().expect("no wait").map(drop)
    }

    #[test]
    fn a_claim_runs_waits_or_reports_the_outcome() {
        use OwnerState::{Alive, Gone, Unknown};
        let running = |until| Some(OccurrenceState::Running { until: at(until), owner: None });
        let wait = |seconds| OccurrenceDecision::Wait(Duration::from_secs(seconds));
        for (state, owner, expected) in [
            (None, Unknown, OccurrenceDecision::Run),
            (running(15), Unknown, wait(5)),
            (running(15), Alive, wait(1)),
            (running(15), Gone, OccurrenceDecision::Run),
            (running(10), Alive, OccurrenceDecision::Run),
            (Some(OccurrenceState::Failed { at: at(10) }), Unknown, OccurrenceDecision::Run),
            (Some(OccurrenceState::Done { at: at(0) }), Unknown, OccurrenceDecision::Nothing),
        ] {
            assert_eq!(decide_occurrence(state.as_ref(), owner, at(10)), expected, "{state:?}, {owner:?}");
        }
    }

    #[test]
    fn one_at_a_time_and_done_once() {
        let records = MemoryRecords::default();
        let [one, other] = [ProcessLease::default(), ProcessLease::default()];
        let ClaimAttempt::Claimed { claim: first, is_repeated: false, .. } = claimed(&records, &one, 1, 0)
        else {
            panic!("it is new")
        };
        let ClaimAttempt::Busy(remaining) = claimed(&records, &other, 1, 2) else {
            panic!("a process runs it")
        };
        assert_eq!(remaining, BUSY_RECHECK);
        let ClaimAttempt::Claimed { claim: second, is_repeated: true, .. } = claimed(&records, &other, 1, 3)
        else {
            panic!("the process has ended")
        };
        let late = write(&records, &first, &OccurrenceState::Done { at: at(3) });
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        let late = records.commit(vec![first.check_write()]).now_or_never().expect("no wait");
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        write(&records, &second, &OccurrenceState::Failed { at: at(4) }).expect("it holds the claim");
        let ClaimAttempt::Claimed { claim: third, .. } = claimed(&records, &one, 1, 4) else {
            panic!("it may be tried")
        };
        write(&records, &third, &OccurrenceState::Done { at: at(5) }).expect("it holds the claim");
        assert!(matches!(claimed(&records, &other, 1, 1_000_000), ClaimAttempt::Done));
        assert!(matches!(claimed(&records, &other, 2, 5), ClaimAttempt::Claimed { is_repeated: false, .. }));
    }

    #[test]
    fn a_claim_of_an_older_version_ends_at_its_expiry() {
        let records = MemoryRecords::default();
        let key = Key::new("c", OCCURRENCE_COLLECTION, "j:1").expect("a key");
        let old = serde_json::json!({"is": "running", "until": "1970-01-01T00:00:30Z"});
        ready(records.put_as(&key, &old, Precondition::Absent));
        let process = ProcessLease::default();
        let ClaimAttempt::Busy(remaining) = claimed(&records, &process, 1, 10) else {
            panic!("it is claimed")
        };
        assert_eq!(remaining, Duration::from_secs(20));
        assert!(matches!(claimed(&records, &process, 1, 30), ClaimAttempt::Claimed { .. }));
    }

    #[test]
    fn marks_of_a_job_are_bounded_and_expire() {
        let records = MemoryRecords::default();
        let process = ProcessLease::default();
        for occurrence in 1..=MAX_OCCURRENCES_PER_JOB + 5 {
            let ClaimAttempt::Claimed { claim: mine, .. } = claimed(&records, &process, occurrence, 0) else {
                panic!("it is new")
            };
            write(&records, &mine, &OccurrenceState::Done { at: at(0) }).expect("it holds the claim");
        }
        let occurrences = Collection::new("c", OCCURRENCE_COLLECTION).expect("a name");
        let list = crate::records::ListQuery { limit: Some(200), ..Default::default() };
        let page = ready(records.list_as::<OccurrenceState>(&occurrences, &list));
        assert_eq!(page.records.len() as u64, MAX_OCCURRENCES_PER_JOB);
        let days = |days: i64| at(days * 24 * 60 * 60);
        assert!(!page.records[0].value.is_expired(days(30)));
        assert!(page.records[0].value.is_expired(days(31)));
    }
}
