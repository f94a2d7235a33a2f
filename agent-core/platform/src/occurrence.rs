//! Makes the effect of an occurrence happen once, although the scheduler calls back at least once.
//!
//! Whoever is called back claims the occurrence under its [key](agent_core::job::Job::occurrence_key) in the store.
//! While somebody has it, others are told to come back; when it is done, they are told that. A claim ends by
//! itself after its lease, so that what was interrupted can be tried again: a process that ends between the
//! effect and the note of it makes the effect happen again, and nothing else does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pulse::JobRequest;
use crate::records::{
    Collection, Key, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};

/// Collection of the occurrence records.
pub const OCCURRENCES: &str = "pulseOccurrences";
/// Retention of finished occurrence records: 30 days. A scheduler makes its twelve attempts within about an hour; the
/// rest covers a scheduler that was down.
pub const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Number of records kept per job, those of its newest occurrences. More than the dead letters of a job.
const KEPT_OF_A_JOB: u64 = 100;
/// Maximum number of attempts to claim when other receivers claim concurrently.
const ATTEMPTS: usize = 8;

/// Stored state of an occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum Mark {
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
pub enum Turn {
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
pub fn turn(mark: Option<&Mark>, now: Timestamp) -> Turn {
    match mark {
        None | Some(Mark::Failed { .. }) => Turn::Run,
        Some(Mark::Running { until } | Mark::FollowUp { until, .. }) if *until > now => {
            Turn::Wait(Duration::try_from(until.duration_since(now)).unwrap_or_default())
        }
        Some(Mark::Running { .. }) => Turn::Run,
        Some(Mark::FollowUp { request, .. }) => Turn::FollowUp(request.clone()),
        Some(Mark::Done { .. }) => Turn::Nothing,
    }
}

impl Mark {
    /// Returns true if the record is past its retention and can be deleted. Pure.
    pub fn is_over(&self, now: Timestamp) -> bool {
        let since = match self {
            Self::Running { until } | Self::FollowUp { until, .. } => *until,
            Self::Failed { at } | Self::Done { at } => *at,
        };
        now.duration_since(since) > SignedDuration::try_from(KEPT).unwrap_or(SignedDuration::MAX)
    }
}

/// Claim of an occurrence, held by the caller.
#[derive(Debug, Clone)]
pub struct Claim {
    key: Key,
    version: u64,
}

impl Claim {
    /// Returns the write that replaces the state. It fails with [`StoreError::Conflict`] if the claim was lost.
    ///
    /// # Errors
    /// None in practice: the state serializes to JSON.
    pub fn write(&self, mark: &Mark) -> Result<Write, StoreError> {
        let precondition = Precondition::Version(self.version);
        Ok(Write::Put { key: self.key.clone(), value: to_json(mark)?, precondition })
    }

    /// Replaces the stored state.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost; errors of the store.
    pub async fn note(&mut self, records: &dyn Records, mark: &Mark) -> Result<(), StoreError> {
        self.version = records.put_as(&self.key, mark, Precondition::Version(self.version)).await?;
        Ok(())
    }
}

/// Outcome of a claim attempt.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// Claimed by the caller until it writes another state or the lease expires.
    Mine(Claim, Work),
    /// Claimed by another receiver; retry after this time.
    Busy(Duration),
    /// The occurrence is done.
    Done,
}

/// Work to do under a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
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
    company_id: &str,
    (job_id, occurrence): (&str, u64),
    now: Timestamp,
    lease: Duration,
) -> Result<Claimed, StoreError> {
    let marks = Collection::new(company_id, OCCURRENCES)?;
    let key = marks.key(agent_core::job::occurrence_key(job_id, occurrence))?;
    let until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
    let mut attempt = 1;
    loop {
        let found: Option<Record<Mark>> = records.get_as(&key).await?;
        let work = match turn(found.as_ref().map(|found| &found.value), now) {
            Turn::Wait(left) => return Ok(Claimed::Busy(left)),
            Turn::Nothing => return Ok(Claimed::Done),
            Turn::Run => Work::Run,
            Turn::FollowUp(request) => Work::FollowUp(request),
        };
        let mark = match &work {
            Work::Run => Mark::Running { until },
            Work::FollowUp(request) => Mark::FollowUp { until, request: request.clone() },
        };
        let precondition = found.map_or(Precondition::Absent, |found| Precondition::Version(found.version));
        let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&mark)?, precondition }];
        if let Some(old) = occurrence.checked_sub(KEPT_OF_A_JOB) {
            let key = marks.key(agent_core::job::occurrence_key(job_id, old))?;
            writes.push(Write::Delete { key, precondition: Precondition::Any });
        }
        match records.commit(writes).await {
            Ok(versions) => {
                let version = versions.into_iter().next().flatten();
                let version = version.ok_or_else(|| StoreError::unavailable("a version is missing"))?;
                return Ok(Claimed::Mine(Claim { key, version }, work));
            }
            Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
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

    fn claimed(records: &MemoryRecords, occurrence: u64, now: i64) -> Claimed {
        ready(claim(records, "c", ("j", occurrence), at(now), Duration::from_secs(10)))
    }

    #[test]
    fn whose_turn_it_is() {
        for (mark, expected) in [
            (None, Turn::Run),
            (Some(Mark::Running { until: at(15) }), Turn::Wait(Duration::from_secs(5))),
            (Some(Mark::Running { until: at(10) }), Turn::Run),
            (Some(Mark::Failed { at: at(10) }), Turn::Run),
            (Some(Mark::Done { at: at(0) }), Turn::Nothing),
        ] {
            assert_eq!(turn(mark.as_ref(), at(10)), expected, "{mark:?}");
        }
    }

    #[test]
    fn one_at_a_time_and_done_once() {
        let records = MemoryRecords::default();
        let Claimed::Mine(mut first, Work::Run) = claimed(&records, 1, 0) else { panic!("it is new") };
        let Claimed::Busy(left) = claimed(&records, 1, 4) else { panic!("somebody is at it") };
        assert_eq!(left, Duration::from_secs(6));
        let Claimed::Mine(mut second, Work::Run) = claimed(&records, 1, 10) else {
            panic!("the lease is over")
        };
        let late = first.note(&records, &Mark::Done { at: at(11) }).now_or_never().expect("no wait");
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        ready(second.note(&records, &Mark::Failed { at: at(11) }));
        let Claimed::Mine(mut third, Work::Run) = claimed(&records, 1, 11) else { panic!("it may be tried") };
        ready(third.note(&records, &Mark::Done { at: at(12) }));
        assert!(matches!(claimed(&records, 1, 1_000_000), Claimed::Done));
        assert!(matches!(claimed(&records, 2, 12), Claimed::Mine(..)), "another occurrence");
    }

    #[test]
    fn a_job_has_so_many_marks_and_old_ones_are_over() {
        let records = MemoryRecords::default();
        for occurrence in 1..=KEPT_OF_A_JOB + 5 {
            let Claimed::Mine(mut mine, _) = claimed(&records, occurrence, 0) else { panic!("it is new") };
            ready(mine.note(&records, &Mark::Done { at: at(0) }));
        }
        let marks = Collection::new("c", OCCURRENCES).expect("a name");
        let list = crate::records::List { limit: Some(200), ..Default::default() };
        let page = ready(records.list_as::<Mark>(&marks, &list));
        assert_eq!(page.records.len() as u64, KEPT_OF_A_JOB);
        let days = |days: i64| at(days * 24 * 60 * 60);
        assert!(!page.records[0].value.is_over(days(30)));
        assert!(page.records[0].value.is_over(days(31)));
    }
}
