//! Statements that read and write jobs.

use agent_core::ids::JobId;
use agent_jobs::job::{Job, JobFilter, JobOrder, JobPage, JobScope, MAX_JOBS_PER_PAGE};
use jiff::Timestamp;
use tokio_postgres::Row;

use self::filter::{SqlFilter, row_limit};
use super::error::OperationError;
use super::session::{Session, contains_nul};
use crate::job_row::{ceil_millis, from_millis, job_page, parse_job};

mod claim;
mod counts;
mod filter;
mod insert;
mod update;

pub(super) use claim::claim;
pub(super) use counts::counts;
pub(super) use insert::{insert, insert_within_limit, new_rows};
pub(super) use update::{apply_steps, apply_steps_unlocked};

/// Notifies the listeners of channel `$3` that a job is due at `$1`, if no stored job is due as early. `$2` is the
/// sender's name.
const NOTIFY_IF_EARLIEST: &str = "
    SELECT pg_notify($3, $2)
    WHERE NOT EXISTS (SELECT FROM jobs WHERE wake_ms <= $1)";

/// Origin of a notification.
#[derive(Clone)]
pub(super) struct Sender {
    /// Unique name of the store, so that its listener ignores its own notifications.
    pub(super) name: String,
    pub(super) channel: &'static str,
}

/// Parses a job from a row that begins with `id, body, progress`.
fn parse_row(row: &Row) -> Result<Job, OperationError> {
    Ok(parse_job(row.get(0), row.get(1), row.get(2))?)
}

pub(super) async fn get(
    session: &Session,
    scope: &JobScope,
    id: &str,
) -> Result<Option<Job>, OperationError> {
    let (company, user) = (scope.company.as_deref(), scope.user.as_deref());
    if [Some(id), company, user].into_iter().flatten().any(contains_nul) {
        return Ok(None);
    }
    let sql = "SELECT id, body, progress FROM jobs
               WHERE id = $1 AND ($2::text IS NULL OR company = $2) AND ($3::text IS NULL OR user_id = $3)";
    let rows = session.query(sql, &[&id, &company, &user]).await?;
    rows.first().map(parse_row).transpose()
}

pub(super) async fn list(
    session: &Session,
    filter: &JobFilter,
    order: JobOrder,
    after: Option<&str>,
    limit: usize,
) -> Result<JobPage, OperationError> {
    let Some(sql_filter) = SqlFilter::from_filter(filter) else { return Ok(JobPage::default()) };
    let limit = limit.clamp(1, MAX_JOBS_PER_PAGE);
    let rows = sql_filter.select(session, order, after, limit + 1).await?;
    // Every error of a row is one of its content, since the row has been read.
    let parse = |row: &Row| (JobId::from(row.get::<_, &str>(0)), parse_row(row).ok());
    Ok(job_page(rows.iter().map(parse), limit))
}

pub(super) async fn count(session: &Session, filter: &JobFilter) -> Result<u64, OperationError> {
    let Some(sql_filter) = SqlFilter::from_filter(filter) else { return Ok(0) };
    Ok(sql_filter.count(session).await?)
}

/// Returns the number of jobs that match a filter, but at most `limit`.
async fn count_up_to(session: &Session, filter: &JobFilter, limit: u64) -> Result<u64, OperationError> {
    let Some(sql_filter) = SqlFilter::from_filter(filter) else { return Ok(0) };
    Ok(sql_filter.count_up_to(session, limit).await?)
}

/// Returns the time at which the next job is due.
pub(super) async fn earliest(session: &Session) -> Result<Option<Timestamp>, OperationError> {
    let sql = "SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL ORDER BY wake_ms, id LIMIT 1";
    let rows = session.query(sql, &[]).await?;
    Ok(rows.first().map(|row| from_millis(row.get(0))))
}

/// Deletes up to `limit` jobs that ended before a time. Rows locked by other transactions are skipped until
/// the next call.
pub(super) async fn purge(
    session: &Session,
    ended_before: Timestamp,
    limit: usize,
) -> Result<u64, OperationError> {
    let (ended_before, limit) = (ceil_millis(ended_before), row_limit(limit));
    let sql = "
        WITH old AS MATERIALIZED (
            SELECT id FROM jobs WHERE ended_ms < $1 ORDER BY ended_ms LIMIT $2
            FOR UPDATE SKIP LOCKED
        ), removed AS (
            DELETE FROM jobs WHERE id = ANY (ARRAY (SELECT id FROM old)) RETURNING id
        )
        SELECT count(*) FROM removed";
    let rows = session.query(sql, &[&ended_before, &limit]).await?;
    let removed: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(u64::try_from(removed).unwrap_or_default())
}
