//! Deduplicates the effects of job occurrences, which the scheduler delivers at least once.
//!
//! A receiver claims the occurrence under its [key](agent_jobs::job::Job::occurrence_key) in the store. While one
//! receiver holds the claim, the others are answered "busy"; after completion they are answered "done". A claim
//! expires with its lease, so that an interrupted occurrence is tried again: the effect happens twice only if a process
//! ends between the effect and the record of it.

use std::time::Duration;

use agent_core::ids::{CompanyId, JobId};
use agent_jobs::job::occurrence_key;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pulse::JobRequest;
use crate::records::{
    Collection, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};

/// Collection of the occurrence records.
pub const OCCURRENCE_COLLECTION: &str = "pulseOccurrences";
/// Retention of finished occurrence records: 30 days. A scheduler makes its twelve attempts within about an hour; the
/// rest covers a scheduler that was down.
pub(crate) const OCCURRENCE_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Number of records kept per job, those of its newest occurrences. More than the dead letters of a job.
const MAX_OCCURRENCES_PER_JOB: u64 = 100;
/// Maximum number of attempts to claim when other receivers claim concurrently.
const MAX_CLAIM_ATTEMPTS: usize = 8;

/// Stored state of an occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum OccurrenceState {
    /// Claimed by a receiver that makes the effect happen.
    Running {
        /// Expiry of the lease.
        until: Timestamp,
    },
    /// The effect has happened; a job that it requested is still to be created.
    FollowUp {
        /// Expiry of the lease for creating the job.
        until: Timestamp,
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
        /// Time of the failure.
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

/// Decides whether a callback for an occurrence runs it, creates its follow-up job, waits or does nothing. Pure.
pub(crate) fn decide_occurrence(mark: Option<&OccurrenceState>, now: Timestamp) -> OccurrenceDecision {
    match mark {
        None | Some(OccurrenceState::Failed { .. }) => OccurrenceDecision::Run,
        Some(OccurrenceState::Running { until } | OccurrenceState::FollowUp { until, .. })
            if *until > now =>
        {
            OccurrenceDecision::Wait(Duration::try_from(until.duration_since(now)).unwrap_or_default())
        }
        Some(OccurrenceState::Running { .. }) => OccurrenceDecision::Run,
        Some(OccurrenceState::FollowUp { request, .. }) => OccurrenceDecision::FollowUp(request.clone()),
        Some(OccurrenceState::Done { .. }) => OccurrenceDecision::Nothing,
    }
}

impl OccurrenceState {
    /// Returns true if the record is past its retention and can be deleted. Pure.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        let since = match self {
            Self::Running { until } | Self::FollowUp { until, .. } => *until,
            Self::Failed { at } | Self::Done { at } => *at,
        };
        now.duration_since(since)
            > SignedDuration::try_from(OCCURRENCE_RETENTION).unwrap_or(SignedDuration::MAX)
    }
}

/// Claim of an occurrence, held by the caller.
#[derive(Debug, Clone)]
pub struct OccurrenceClaim {
    key: Key,
    version: u64,
}

impl OccurrenceClaim {
    /// Returns the write that replaces the state. It fails with [`StoreError::Conflict`] if the claim was lost.
    ///
    /// # Errors
    /// None in practice: the state serializes to JSON.
    pub fn state_write(&self, mark: &OccurrenceState) -> Result<Write, StoreError> {
        let precondition = Precondition::Version(self.version);
        Ok(Write::Put { key: self.key.clone(), value: to_json(mark)?, precondition })
    }

    /// Replaces the stored state.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost; errors of the store.
    pub async fn record_state(
        &mut self,
        records: &dyn Records,
        mark: &OccurrenceState,
    ) -> Result<(), StoreError> {
        self.version = records.put_as(&self.key, mark, Precondition::Version(self.version)).await?;
        Ok(())
    }
}

/// Outcome of a claim attempt.
#[derive(Debug, Clone)]
pub enum ClaimOutcome {
    /// Claimed by the caller until it writes another state or the lease expires.
    Claimed(OccurrenceClaim, OccurrenceWork),
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

/// Claims occurrence number `occurrence` of the job `job_id` for `lease`.
///
/// # Errors
/// Errors of the store.
pub async fn claim(
    records: &dyn Records,
    company_id: &CompanyId,
    (job_id, occurrence): (&JobId, u64),
    now: Timestamp,
    lease: Duration,
) -> Result<ClaimOutcome, StoreError> {
    let marks = Collection::new(company_id, OCCURRENCE_COLLECTION)?;
    let key = marks.key(occurrence_key(job_id, occurrence))?;
    let until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
    let mut attempt = 1;
    loop {
        let found: Option<Record<OccurrenceState>> = records.get_as(&key).await?;
        let work = match decide_occurrence(found.as_ref().map(|found| &found.value), now) {
            OccurrenceDecision::Wait(left) => return Ok(ClaimOutcome::Busy(left)),
            OccurrenceDecision::Nothing => return Ok(ClaimOutcome::Done),
            OccurrenceDecision::Run => OccurrenceWork::Run,
            OccurrenceDecision::FollowUp(request) => OccurrenceWork::FollowUp(request),
        };
        let mark = match &work {
            OccurrenceWork::Run => OccurrenceState::Running { until },
            OccurrenceWork::FollowUp(request) => {
                OccurrenceState::FollowUp { until, request: request.clone() }
            }
        };
        let precondition = found.map_or(Precondition::Absent, |found| Precondition::Version(found.version));
        let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&mark)?, precondition }];
        if let Some(old) = occurrence.checked_sub(MAX_OCCURRENCES_PER_JOB) {
            let key = marks.key(occurrence_key(job_id, old))?;
            writes.push(Write::Delete { key, precondition: Precondition::Any });
        }
        match records.commit(writes).await {
            Ok(versions) => {
                let version = versions.into_iter().next().flatten();
                let version = version.ok_or_else(|| StoreError::unavailable("a version is missing"))?;
                return Ok(ClaimOutcome::Claimed(OccurrenceClaim { key, version }, work));
            }
            Err(StoreError::Conflict { .. }) if attempt < MAX_CLAIM_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
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

    fn claimed(records: &MemoryRecords, occurrence: u64, now: i64) -> ClaimOutcome {
        ready(claim(records, &"c".into(), (&"j".into(), occurrence), at(now), Duration::from_secs(10)))
    }

    #[test]
    fn whose_turn_it_is() {
        for (mark, expected) in [
            (None, OccurrenceDecision::Run),
            (
                Some(OccurrenceState::Running { until: at(15) }),
                OccurrenceDecision::Wait(Duration::from_secs(5)),
            ),
            (Some(OccurrenceState::Running { until: at(10) }), OccurrenceDecision::Run),
            (Some(OccurrenceState::Failed { at: at(10) }), OccurrenceDecision::Run),
            (Some(OccurrenceState::Done { at: at(0) }), OccurrenceDecision::Nothing),
        ] {
            assert_eq!(decide_occurrence(mark.as_ref(), at(10)), expected, "{mark:?}");
        }
    }

    #[test]
    fn one_at_a_time_and_done_once() {
        let records = MemoryRecords::default();
        let ClaimOutcome::Claimed(mut first, OccurrenceWork::Run) = claimed(&records, 1, 0) else {
            panic!("it is new")
        };
        let ClaimOutcome::Busy(left) = claimed(&records, 1, 4) else { panic!("somebody is at it") };
        assert_eq!(left, Duration::from_secs(6));
        let ClaimOutcome::Claimed(mut second, OccurrenceWork::Run) = claimed(&records, 1, 10) else {
            panic!("the lease is over")
        };
        let late = first
            .record_state(&records, &OccurrenceState::Done { at: at(11) })
            .now_or_never()
            .expect("no wait");
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        ready(second.record_state(&records, &OccurrenceState::Failed { at: at(11) }));
        let ClaimOutcome::Claimed(mut third, OccurrenceWork::Run) = claimed(&records, 1, 11) else {
            panic!("it may be tried")
        };
        ready(third.record_state(&records, &OccurrenceState::Done { at: at(12) }));
        assert!(matches!(claimed(&records, 1, 1_000_000), ClaimOutcome::Done));
        assert!(matches!(claimed(&records, 2, 12), ClaimOutcome::Claimed(..)), "another occurrence");
    }

    #[test]
    fn a_job_has_so_many_marks_and_old_ones_are_over() {
        let records = MemoryRecords::default();
        for occurrence in 1..=MAX_OCCURRENCES_PER_JOB + 5 {
            let ClaimOutcome::Claimed(mut mine, _) = claimed(&records, occurrence, 0) else {
                panic!("it is new")
            };
            ready(mine.record_state(&records, &OccurrenceState::Done { at: at(0) }));
        }
        let marks = Collection::new("c", OCCURRENCE_COLLECTION).expect("a name");
        let list = crate::records::ListQuery { limit: Some(200), ..Default::default() };
        let page = ready(records.list_as::<OccurrenceState>(&marks, &list));
        assert_eq!(page.records.len() as u64, MAX_OCCURRENCES_PER_JOB);
        let days = |days: i64| at(days * 24 * 60 * 60);
        assert!(!page.records[0].value.is_expired(days(30)));
        assert!(page.records[0].value.is_expired(days(31)));
    }
}
