//! Number of jobs by state.

use std::time::Duration;

use agent_jobs::job::{JobCounts, JobState};
use futures_util::future::try_join_all;
use jiff::Timestamp;

use crate::job_row::floor_millis;
use crate::postgres::error::OperationError;
use crate::postgres::session::Session;

/// Job counts. Each statement is answered by an index alone.
const COUNT_OPEN: &str = "
    SELECT count(*) FILTER (WHERE state = 'scheduled'), count(*) FILTER (WHERE state = 'running'),
           count(*) FILTER (WHERE state = 'retryable')
    FROM jobs WHERE wake_ms IS NOT NULL";
const COUNT_PAUSED: &str = "SELECT count(*) FROM jobs WHERE state = 'paused'";
const COUNT_FINAL: &str = "
    SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'discarded'),
           count(*) FILTER (WHERE state = 'cancelled')
    FROM jobs WHERE ended_ms IS NOT NULL";
/// Due time of the earliest job that is not running. Running jobs precede it in the index only while their
/// lease is expired, which applies to few.
const SELECT_EARLIEST_WAITING: &str = "
    SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL AND state <> 'running'
    ORDER BY wake_ms, id LIMIT 1";

pub(in crate::postgres) async fn counts(
    session: &Session,
    now: Timestamp,
) -> Result<JobCounts, OperationError> {
    let mut counts = JobCounts::default();
    let open = [JobState::Scheduled, JobState::Running, JobState::Retryable];
    let ended = [JobState::Completed, JobState::Discarded, JobState::Cancelled];
    let groups = [(COUNT_OPEN, &open[..]), (COUNT_PAUSED, &[JobState::Paused]), (COUNT_FINAL, &ended)];
    let counted = try_join_all(groups.map(|(sql, _)| session.query(sql, &[]))).await?;
    for ((_, states), rows) in groups.iter().zip(&counted) {
        let Some(row) = rows.first() else { continue };
        for (column, state) in states.iter().enumerate() {
            let count: i64 = row.get(column);
            counts.by_state.insert(*state, u64::try_from(count).unwrap_or_default());
        }
    }
    let latest = session.query(SELECT_EARLIEST_WAITING, &[]).await?;
    let lag = latest.first().map_or(0, |row| floor_millis(now).saturating_sub(row.get(0)));
    counts.lag = Duration::from_millis(u64::try_from(lag).unwrap_or_default());
    Ok(counts)
}
