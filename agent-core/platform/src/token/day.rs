//! Daily run counts of tokens.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::records::{Collection, Record, Records, RecordsExt, StoreError};

/// Name of the platform's collection of counts, by the token's id. A record holds the latest day only, so that counts
/// of past days need no cleanup.
const TOKEN_DAYS: &str = "tokenDays";

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Retry delay if a run could not be counted because too many runs began at once.
const CONTENTION_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The number of runs on a day.
#[derive(Serialize, Deserialize)]
struct DayCount {
    /// Days since 1970-01-01, UTC.
    day: u64,
    runs: u32,
}

/// Error of counting a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DailyCapError {
    /// The daily cap is reached.
    #[error("the daily limit of runs is reached")]
    Reached {
        /// Time until a run may be tried again.
        retry_after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) async fn count_daily_run(
    records: &dyn Records,
    now: SystemTime,
    token_id: &str,
    per_day: NonZeroU32,
) -> Result<(), DailyCapError> {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (day, left) = (seconds / SECONDS_PER_DAY, SECONDS_PER_DAY - seconds % SECONDS_PER_DAY);
    let key = Collection::of_platform(TOKEN_DAYS)?.key(token_id)?;
    let add = |found: Option<Record<DayCount>>| {
        let today = found.map(|record| record.value).filter(|count| count.day == day);
        let runs = today.map_or(0, |count| count.runs);
        if runs >= per_day.get() {
            return Err(DailyCapError::Reached { retry_after: Duration::from_secs(left) });
        }
        Ok(DayCount { day, runs: runs + 1 })
    };
    match records.update(&key, add).await {
        Ok(_) => Ok(()),
        Err(DailyCapError::Store(StoreError::Conflict { .. })) => {
            Err(DailyCapError::Reached { retry_after: CONTENTION_RETRY_AFTER })
        }
        Err(error) => Err(error),
    }
}
