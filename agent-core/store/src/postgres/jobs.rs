//! Statements that read and write jobs.

use agent_jobs::job::{Job, JobFilter, JobPage, JobScope, MAX_JOBS_PER_PAGE, Step};
use jiff::Timestamp;
use tokio_postgres::Row;

use self::filter::SqlFilter;
use self::update::JobUpdates;
use super::fault::JobStoreError;
use super::session::Session;
use crate::job_row::{CANCEL_BATCH_SIZE, ceil_millis, from_millis, parse_job};

mod claim;
mod counts;
mod filter;
mod insert;
mod update;

pub(super) use claim::claim;
pub(super) use counts::counts;
pub(super) use insert::insert;
pub(super) use update::apply_steps;

/// Notifies the listeners that a job is due at `$1`, if no stored job is due as early. `$2` is the sender's
/// name.
const NOTIFY_IF_EARLIEST: &str = "
    SELECT pg_notify('scheduler_jobs', $2)
    WHERE NOT EXISTS (SELECT FROM scheduler.jobs WHERE wake_ms <= $1)";

/// Returns true if a text contains NUL. PostgreSQL cannot store NUL and rejects a query with one, so no row
/// can match.
fn contains_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Parses a job from a row that begins with `id, body, progress`.
fn parse_row(row: &Row) -> Result<Job, JobStoreError> {
    Ok(parse_job(row.get(0), row.get(1), row.get(2))?)
}

pub(super) async fn get(session: &Session, scope: &JobScope, id: &str) -> Result<Option<Job>, JobStoreError> {
    let (company, user) = (scope.company.as_deref(), scope.user.as_deref());
    if [Some(id), company, user].into_iter().flatten().any(contains_nul) {
        return Ok(None);
    }
    let sql = "SELECT id, body, progress FROM scheduler.jobs
               WHERE id = $1 AND ($2::text IS NULL OR company = $2) AND ($3::text IS NULL OR user_id = $3)";
    let rows = session.query(sql, &[&id, &company, &user]).await?;
    rows.first().map(parse_row).transpose()
}

pub(super) async fn list(
    session: &Session,
    filter: &JobFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<JobPage, JobStoreError> {
    let Some(meant) = SqlFilter::from_filter(filter) else { return Ok(JobPage::default()) };
    // No stored id contains NUL, but a cursor may. The ids after it are those after the part before the NUL.
    let after = after.map(|after| after.split_once('\0').map_or(after, |(before, _)| before));
    let limit = limit.clamp(1, MAX_JOBS_PER_PAGE);
    let rows = meant.select(session, after, limit + 1).await?;
    let mut jobs = rows.iter().take(limit).map(parse_row).collect::<Result<Vec<_>, _>>()?;
    let next = jobs.last_mut().filter(|_| rows.len() > limit).map(|last| last.id.clone());
    Ok(JobPage { jobs, next })
}

pub(super) async fn cancel_all(
    session: &Session,
    filter: &JobFilter,
    now: Timestamp,
) -> Result<u64, JobStoreError> {
    let Some(meant) = SqlFilter::from_filter(filter) else { return Ok(0) };
    // Jobs inserted from here on are excluded, so that the loop ends.
    let begun = session.begin(&[("SELECT max(id) FROM scheduler.jobs", &[])]).await?;
    let last: Option<String> = begun.first().and_then(|rows| rows.first()?.get(0));
    let mut cancelled = 0;
    let mut after: Option<String> = None;
    while let Some(last) = &last {
        let rows = meant.select_open_for_update(session, after.as_deref(), last, CANCEL_BATCH_SIZE).await?;
        let Some(row) = rows.last() else { break };
        after = Some(row.get(0));
        let mut update = JobUpdates::default();
        for row in &rows {
            if let Ok(stepped) = parse_row(row)?.step(Step::Cancel, now) {
                cancelled += 1;
                if stepped.changed {
                    update.add(&stepped.job)?;
                }
            }
        }
        update.write_rows(session).await?;
    }
    session.commit(&[]).await?;
    Ok(cancelled)
}

/// Returns the time at which the next job is due.
pub(super) async fn earliest(session: &Session) -> Result<Option<Timestamp>, JobStoreError> {
    let sql = "SELECT wake_ms FROM scheduler.jobs WHERE wake_ms IS NOT NULL ORDER BY wake_ms, id LIMIT 1";
    let rows = session.query(sql, &[]).await?;
    Ok(rows.first().map(|row| from_millis(row.get(0))))
}

/// Deletes up to `limit` jobs that ended before a time. Rows locked by other transactions are skipped until
/// the next call.
pub(super) async fn purge(
    session: &Session,
    ended_before: Timestamp,
    limit: usize,
) -> Result<u64, JobStoreError> {
    let (ended_before, limit) = (ceil_millis(ended_before), row_limit(limit));
    let sql = "
        WITH old AS MATERIALIZED (
            SELECT id FROM scheduler.jobs WHERE ended_ms < $1 ORDER BY ended_ms LIMIT $2
            FOR UPDATE SKIP LOCKED
        ), removed AS (
            DELETE FROM scheduler.jobs WHERE id = ANY (ARRAY (SELECT id FROM old)) RETURNING id
        )
        SELECT count(*) FROM removed";
    let rows = session.query(sql, &[&ended_before, &limit]).await?;
    let removed: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(u64::try_from(removed).unwrap_or_default())
}

/// Converts a limit to the type that the server takes.
fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
