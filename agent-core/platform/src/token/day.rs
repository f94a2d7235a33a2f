//! How many runs a token has had today.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::records::{Collection, Record, Records, RecordsExt, StoreError};

/// The platform's collection of counts, by the token's id. A record holds the latest day alone, so that
/// counts of days that are over need no removal.
const TOKEN_DAYS: &str = "tokenDays";

const DAY: u64 = 24 * 60 * 60;

/// How long to wait where so many runs began at once that one could not be counted.
const CROWDED: Duration = Duration::from_secs(1);

/// The count of a day.
#[derive(Serialize, Deserialize)]
struct Count {
    /// Days since 1970-01-01, UTC.
    day: u64,
    runs: u32,
}

/// Why a run was not counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapError {
    /// The day's runs have been had.
    #[error("the day's runs have been had")]
    Spent {
        /// When the next may be tried.
        retry_after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) async fn count(
    records: &dyn Records,
    now: SystemTime,
    token_id: &str,
    per_day: NonZeroU32,
) -> Result<(), CapError> {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (day, left) = (seconds / DAY, DAY - seconds % DAY);
    let key = Collection::of_platform(TOKEN_DAYS)?.key(token_id)?;
    let add = |found: Option<Record<Count>>| {
        let today = found.map(|record| record.value).filter(|count| count.day == day);
        let runs = today.map_or(0, |count| count.runs);
        if runs >= per_day.get() {
            return Err(CapError::Spent { retry_after: Duration::from_secs(left) });
        }
        Ok(Count { day, runs: runs + 1 })
    };
    match records.update(&key, add).await {
        Ok(_) => Ok(()),
        Err(CapError::Store(StoreError::Conflict { .. })) => Err(CapError::Spent { retry_after: CROWDED }),
        Err(error) => Err(error),
    }
}
