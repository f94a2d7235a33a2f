//! Rate caps of widget and API tokens, counted in the store for all processes.
//!
//! A token has one record with its runs of the current day and the state of the cap per minute
//! ([`minute_rate`](crate::minute_rate)). An admitted run is one commit, which also claims the run's id if the client has
//! chosen it; a refused run writes nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Tokens;
use super::grant::RunCaps;
use crate::minute_rate::{MinuteState, RateLimitError};
use crate::records::{Collection, Key, Precondition, RecordsExt, StoreError, UpdateAttempts, Write, to_json};
use crate::run_registry::{NewRunId, RunIdClaim};
use agent_core::ids::{CompanyId, RunId};
use agent_core::request::Principal;

/// Name of the platform's collection of counts, by the token's id. A record holds the latest day only, so that counts
/// of past days need no cleanup.
const TOKEN_DAYS: &str = "tokenDays";

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Retry delay if a run could not be counted because too many runs began at once.
const CONTENTION_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Error of counting a run against the caps of its token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunCapError {
    /// The cap per minute is reached, or too many runs of the token began at once.
    #[error("the limit of runs per minute is reached")]
    PerMinute {
        /// Time until a run may be tried again.
        retry_after: Duration,
    },
    /// The daily cap is reached.
    #[error("the daily limit of runs is reached")]
    PerDay {
        /// Time until a run may be tried again.
        retry_after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RateLimitError> for RunCapError {
    fn from(RateLimitError { retry_after }: RateLimitError) -> Self {
        Self::PerMinute { retry_after }
    }
}

impl Tokens {
    /// Counts a run of a company's token against its caps, over all processes that share the store.
    ///
    /// # Errors
    /// [`RunCapError::PerDay`] and [`RunCapError::PerMinute`] if a cap is reached; then the run is not counted.
    pub async fn count_run(
        &self,
        (company_id, token_id): (&CompanyId, &str),
        caps: &RunCaps,
    ) -> Result<(), RunCapError> {
        self.count((company_id, token_id), caps, None).await.map(drop)
    }

    /// Counts a run of a token as [`count_run`](Self::count_run) does and, in the same commit, claims the run id that the client
    /// has chosen, as [`RunRegistry::claim`](crate::run_registry::RunRegistry::claim) does in a separate commit. Returns `None`
    /// if the user has already used the id; the run is counted nevertheless, since repetitions must not be free.
    ///
    /// # Errors
    /// [`RunCapError::PerDay`] and [`RunCapError::PerMinute`] if a cap is reached; then the run is not counted, and its id
    /// not claimed.
    pub async fn count_run_with_id(
        &self,
        (token_id, caps): (&str, &RunCaps),
        (principal, run_id): (&Principal, &RunId),
    ) -> Result<Option<RunIdClaim>, RunCapError> {
        let new_id = NewRunId::new(principal, run_id, self.clock.now())?;
        self.count((&principal.company_id, token_id), caps, Some(new_id)).await
    }

    /// Counts a run, and claims an id unless it is used.
    async fn count(
        &self,
        (company_id, token_id): (&CompanyId, &str),
        caps: &RunCaps,
        mut new_id: Option<NewRunId>,
    ) -> Result<Option<RunIdClaim>, RunCapError> {
        let key = run_counts_key(token_id)?.counted_for(company_id);
        let mut attempts = UpdateAttempts::new(&*self.records, &key);
        loop {
            let found = self.records.get_as::<RunCounts>(&key).await?;
            let precondition = Precondition::unchanged_since(found.as_ref().map(|record| record.version));
            let counts = RunCounts::admit(found.map(|record| record.value), caps, self.clock.now())?;
            let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&counts)?, precondition }];
            if let Some(new_id) = &new_id {
                writes.extend(new_id.writes()?);
            }
            let error = match self.records.commit(writes).await {
                Ok(versions) => {
                    return Ok(new_id.map(|new_id| new_id.claimed(self.records.clone(), &versions)));
                }
                Err(error) => error,
            };
            let is_used = match (&new_id, &error) {
                // A conflict with an expected version is one with another run of the token.
                (Some(new_id), StoreError::Conflict { expected: None, .. }) => {
                    !NewRunId::find_used(&*self.records, &[new_id]).await?.is_empty()
                }
                _ => false,
            };
            if is_used {
                new_id = None;
            } else {
                attempts.retry(error).await.map_err(contended)?;
            }
        }
    }
}

/// Returns the error of a run that could not be counted in all attempts.
fn contended(error: StoreError) -> RunCapError {
    match error {
        StoreError::Conflict { .. } => RunCapError::PerMinute { retry_after: CONTENTION_RETRY_AFTER },
        error => error.into(),
    }
}

/// Returns the key of a token's run counts.
pub(super) fn run_counts_key(token_id: &str) -> Result<Key, StoreError> {
    Collection::of_platform(TOKEN_DAYS)?.key(token_id)
}

/// The runs of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RunCounts {
    /// Days since 1970-01-01, UTC.
    day: u64,
    /// Number of runs on the day.
    runs: u32,
    /// State of the cap per minute. Absent in records of versions that counted minutes in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minute: Option<MinuteState>,
}

impl RunCounts {
    /// Returns the counts with another run at `now`.
    fn admit(found: Option<Self>, caps: &RunCaps, now: SystemTime) -> Result<Self, RunCapError> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let today = now.as_secs() / SECONDS_PER_DAY;
        // The clock of another process may have reached the next day already.
        let counted = found.filter(|counts| counts.day == today || counts.day == today + 1);
        let (day, runs) = counted.map_or((today, 0), |counts| (counts.day, counts.runs));
        if caps.runs_per_day.is_some_and(|cap| runs >= cap.get()) {
            let next_day = Duration::from_secs((day + 1) * SECONDS_PER_DAY);
            return Err(RunCapError::PerDay { retry_after: next_day.saturating_sub(now) });
        }
        let minute = found.and_then(|counts| counts.minute);
        let minute = MinuteState::admit(minute, caps.runs_per_minute, now)?;
        Ok(Self { day, runs: runs.saturating_add(1), minute: Some(minute) })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::minute_rate::interval_micros;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The counts of one token in the store, and the clock of the process that counts.
    struct CountsFixture {
        counts: Option<RunCounts>,
        now: SystemTime,
    }

    impl CountsFixture {
        fn new() -> Self {
            Self { counts: None, now: UNIX_EPOCH + Duration::from_secs(20_000 * SECONDS_PER_DAY) }
        }

        fn count(&mut self, runs_per_minute: u32, runs_per_day: Option<u32>) -> Result<(), RunCapError> {
            let cap = |number| NonZeroU32::new(number).expect("not zero");
            let caps = RunCaps { runs_per_minute: cap(runs_per_minute), runs_per_day: runs_per_day.map(cap) };
            self.counts = Some(RunCounts::admit(self.counts, &caps, self.now)?);
            Ok(())
        }

        /// Counts runs until one is refused; returns their number and the retry delay.
        fn burst(&mut self, runs_per_minute: u32) -> (usize, Duration) {
            for admitted in 0..100_000 {
                match self.count(runs_per_minute, None) {
                    Ok(()) => {}
                    Err(RunCapError::PerMinute { retry_after }) => return (admitted, retry_after),
                    Err(error) => panic!("{error}"),
                }
            }
            panic!("no run is refused")
        }
    }

    #[test]
    fn a_burst_has_the_runs_of_the_cap_then_one_per_interval() {
        for cap in [1, 2, 3, 7, 20, 59, 1000, 7001] {
            let mut test = CountsFixture::new();
            let (admitted, retry_after) = test.burst(cap);
            let interval = Duration::from_micros(interval_micros(NonZeroU32::new(cap).expect("a cap")));
            assert_eq!((admitted, retry_after), (cap as usize, interval), "{cap}");
            test.now += retry_after - Duration::from_micros(1);
            assert_eq!(test.burst(cap).0, 0, "{cap}");
            test.now += Duration::from_micros(1);
            assert_eq!(test.burst(cap), (1, interval), "{cap}");
            test.now += MINUTE + Duration::from_millis(10);
            assert_eq!(test.burst(cap).0, cap as usize, "{cap}");
        }
    }

    #[test]
    fn a_changed_cap_takes_effect_at_once_and_keeps_the_runs() {
        let mut test = CountsFixture::new();
        assert_eq!(test.burst(1).0, 1);
        assert_eq!(test.burst(3).0, 2, "one of three was used");
        assert_eq!(test.burst(30).0, 27, "three of thirty were used");
        test.now += MINUTE / 2;
        assert_eq!(test.burst(20).0, 5, "fifteen runs count");
        assert_eq!(test.burst(2), (0, MINUTE / 2), "more than the cap count as a full minute");
        test.now += MINUTE / 2;
        assert_eq!(test.burst(2).0, 0, "ten runs of the minute still count");
        test.now += MINUTE / 2;
        assert_eq!(test.burst(2).0, 2);
    }

    #[test]
    fn clocks_that_differ_by_seconds_exceed_the_cap_by_the_difference_at_most() {
        let (mut test, skew) = (CountsFixture::new(), Duration::from_secs(6));
        assert_eq!(test.burst(20).0, 20);
        test.now += skew;
        assert_eq!(test.burst(20).0, 2, "a process whose clock is ahead");
        test.now -= skew;
        assert_eq!(test.burst(20), (0, Duration::from_secs(9)), "and back");
    }

    #[test]
    fn a_clock_that_is_set_back_refuses_for_a_minute_at_most() {
        let mut test = CountsFixture::new();
        test.burst(20);
        test.now -= 2 * MINUTE;
        assert_eq!(test.burst(20), (1, Duration::from_secs(3)), "the state is that of a full minute");
        test.now += MINUTE;
        assert_eq!(test.burst(20).0, 20);
        test.now = UNIX_EPOCH;
        assert_eq!(test.burst(20).0, 1);
    }

    #[test]
    fn a_day_has_so_many_runs_and_clocks_may_differ_at_its_end() {
        let mut test = CountsFixture::new();
        let refused = |result| match result {
            Err(RunCapError::PerDay { retry_after }) => retry_after,
            other => panic!("{other:?}"),
        };
        test.now += Duration::from_secs(SECONDS_PER_DAY - 1);
        test.count(100, Some(1)).expect("within the cap");
        assert_eq!(refused(test.count(100, Some(1))), Duration::from_secs(1));
        test.now += Duration::from_secs(1);
        test.count(100, Some(1)).expect("a new day");
        test.now -= Duration::from_secs(1);
        let wait = Duration::from_secs(SECONDS_PER_DAY + 1);
        assert_eq!(refused(test.count(100, Some(1))), wait, "a clock that is behind");
        test.now -= Duration::from_secs(5 * SECONDS_PER_DAY);
        test.count(100, Some(1)).expect("a clock that was set back");
    }

    #[test]
    fn a_record_of_an_older_version_is_read() {
        let old: RunCounts = serde_json::from_str(r#"{"day":20000,"runs":7}"#).expect("it is read");
        let mut test = CountsFixture { counts: Some(old), ..CountsFixture::new() };
        assert!(matches!(test.count(20, Some(7)), Err(RunCapError::PerDay { .. })));
        test.count(20, Some(8)).expect("within the cap");
        assert_eq!(
            serde_json::to_string(&test.counts).expect("JSON"),
            r#"{"day":20000,"runs":8,"minute":{"arrivalMicros":1728000003000000,"runsPerMinute":20}}"#
        );
    }
}
