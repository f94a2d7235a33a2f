//! Number of jobs by state.

use std::time::Duration;

use agent_jobs::job::{JobCounts, JobState};
use rusqlite::OptionalExtension;

use super::rows::JobTable;
use crate::sqlite::error::WriteError;

/// Counts with filters instead of `GROUP BY`, which would sort.
pub(super) const COUNT_OPEN: &str = "
    SELECT count(*) FILTER (WHERE state = 'scheduled'), count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE state = 'retryable')
    FROM jobs WHERE wake_ms IS NOT NULL";
pub(super) const COUNT_PAUSED: &str = "SELECT count(*) FROM jobs WHERE state = 'paused'";
pub(super) const COUNT_FINAL: &str = "
    SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'discarded'), count(*) FILTER (WHERE state = 'cancelled')
    FROM jobs WHERE ended_ms IS NOT NULL";
/// Due time of the earliest job that is not running. Running jobs precede it in the index only while their
/// lease is expired, which applies to few.
pub(super) const SELECT_EARLIEST_WAITING: &str = "
    SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL AND state <> 'running' ORDER BY wake_ms LIMIT 1";

impl JobTable<'_> {
    pub(super) fn counts(&self, now_ms: i64) -> Result<JobCounts, WriteError> {
        let mut counts = JobCounts::default();
        let open = [JobState::Scheduled, JobState::Running, JobState::Retryable];
        let ended = [JobState::Completed, JobState::Discarded, JobState::Cancelled];
        for (sql, states) in
            [(COUNT_OPEN, &open[..]), (COUNT_PAUSED, &[JobState::Paused]), (COUNT_FINAL, &ended)]
        {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(())?;
            let Some(row) = rows.next()? else { continue };
            for (column, state) in states.iter().enumerate() {
                counts.by_state.insert(*state, row.get(column)?);
            }
        }
        let mut statement = self.connection.prepare_cached(SELECT_EARLIEST_WAITING)?;
        let longest: Option<i64> = statement.query_row((), |row| row.get(0)).optional()?;
        let lag = longest.map_or(0, |wake_ms| now_ms.saturating_sub(wake_ms));
        counts.lag = Duration::from_millis(u64::try_from(lag).unwrap_or_default());
        Ok(counts)
    }
}
