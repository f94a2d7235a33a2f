//! Rows of a claim: locks those of its range, and writes its decisions.

use agent_core::ids::JobId;
use agent_jobs::job::ClaimRequest;
use agent_jobs::job::claim::{Candidate, ClaimDecision, ClaimPlanner, ClaimRange};
use tokio_postgres::Row;

use super::update::JobUpdates;
use super::{parse_row, row_limit};
use crate::job_row::{ClaimedRows, floor_millis, from_millis};
use crate::postgres::error::OperationError;
use crate::postgres::schema::{SELECT_VERSIONS, check_not_newer};
use crate::postgres::session::{Session, Values, contains_nul};

/// Selects and locks the rows of a [`ClaimRange`], earliest first, skipping locked rows. `wake_ms` of a running job is
/// its lease expiry.
const SELECT_DUE: &str = "
    SELECT id, body, progress, wake_ms, company FROM jobs
    WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
    ORDER BY wake_ms, id LIMIT $3
    FOR UPDATE SKIP LOCKED";

/// Variant of [`SELECT_DUE`] for claims in which some companies have exhausted their quota. Their jobs can precede
/// those of other companies by any distance. The first 2,000 due jobs are therefore scanned in the index
/// alone; if too few of them belong to other companies, the first due jobs of each company are added. A
/// recursive query enumerates the companies with one index step each.
const SELECT_DUE_WITHIN_QUOTA: &str = "
    WITH RECURSIVE near AS MATERIALIZED (
        SELECT id, wake_ms, company FROM jobs
        WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
        ORDER BY wake_ms, id LIMIT 2000
    ), chosen AS MATERIALIZED (
        SELECT id FROM near WHERE company <> ALL ($3) ORDER BY wake_ms, id LIMIT $4
    ), companies (company) AS (
        (SELECT company FROM jobs
         WHERE wake_ms IS NOT NULL AND (SELECT count(*) FROM near) = 2000 AND (SELECT count(*) FROM chosen) < $4
         ORDER BY company LIMIT 1)
        UNION ALL
        SELECT (SELECT next.company FROM jobs AS next
                WHERE next.wake_ms IS NOT NULL AND next.company > companies.company
                ORDER BY next.company LIMIT 1)
        FROM companies WHERE companies.company IS NOT NULL
    ), far AS (
        SELECT first.id FROM companies CROSS JOIN LATERAL (
            SELECT id, wake_ms FROM jobs AS job
            WHERE job.company = companies.company AND wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
            ORDER BY wake_ms, id LIMIT $4
        ) AS first
        WHERE companies.company <> ALL ($3) ORDER BY first.wake_ms, first.id LIMIT $4
    )
    SELECT id, body, progress, wake_ms, company FROM jobs
    WHERE id = ANY (ARRAY (SELECT id FROM chosen UNION SELECT id FROM far))
      AND wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
    ORDER BY wake_ms, id LIMIT $4
    FOR UPDATE SKIP LOCKED";

/// Sets the wake time of a row.
const POSTPONE: &str = "UPDATE jobs SET wake_ms = $2 WHERE id = $1";

/// Maximum number of reads per claim. Another read follows while jobs of the previous one were turned away because of
/// a quota, or ended without a delivery.
const MAX_READS_PER_CLAIM: usize = 16;

pub(in crate::postgres) async fn claim(
    session: &Session,
    request: ClaimRequest,
) -> Result<ClaimedRows, OperationError> {
    let mut planner = ClaimPlanner::new(request);
    if planner.remaining_rows() == 0 {
        return Ok(ClaimedRows::default());
    }
    let (mut update, mut unreadable) = (JobUpdates::default(), Vec::new());
    for round in 0..MAX_READS_PER_CLAIM {
        let max_rows = planner.remaining_rows();
        let due = lock_due(session, &planner, max_rows, round == 0).await?;
        for row in &due {
            unreadable.extend(decide(session, &mut planner, row, &mut update).await?);
        }
        if !planner.next_round(due.len() < max_rows) {
            break;
        }
        // Writes the decisions first, so that the next read does not return the same jobs.
        std::mem::take(&mut update).write_rows(session).await?;
    }
    update.commit(session).await?;
    Ok(ClaimedRows { jobs: planner.finish(), unreadable })
}

/// Locks at most `max_rows` rows of the claim's range.
async fn lock_due(
    session: &Session,
    planner: &ClaimPlanner,
    max_rows: usize,
    is_first: bool,
) -> Result<Vec<Row>, OperationError> {
    let ClaimRange { due_until, leases_until } = planner.range();
    let (until, now, limit) = (floor_millis(due_until), floor_millis(leases_until), row_limit(max_rows));
    let exhausted: Vec<&str> =
        planner.exhausted_companies().filter(|company| !contains_nul(company)).collect();
    let all: Values<'_> = &[&until, &now, &limit];
    let of_others: Values<'_> = &[&until, &now, &exhausted, &limit];
    let query = if exhausted.is_empty() { (SELECT_DUE, all) } else { (SELECT_DUE_WITHIN_QUOTA, of_others) };
    if !is_first {
        return Ok(session.query(query.0, query.1).await?);
    }
    let mut results = session.begin(&[(SELECT_VERSIONS, &[]), query]).await?;
    check_not_newer(results.first())?;
    Ok(results.pop().unwrap_or_default())
}

/// Plans the decision on a locked row, and adds it to the update. Returns the id of a job that cannot be read.
async fn decide(
    session: &Session,
    planner: &mut ClaimPlanner,
    row: &Row,
    update: &mut JobUpdates,
) -> Result<Option<JobId>, OperationError> {
    let company: &str = row.get(4);
    if !planner.admit(company) {
        return Ok(None);
    }
    let (job, unreadable) = match parse_row(row) {
        Ok(job) => (Some(job), None),
        Err(OperationError::Rejected(_)) => (None, Some(row.get::<_, &str>(0).into())),
        Err(error) => return Err(error),
    };
    match planner.decide(Candidate { wake: from_millis(row.get(3)), company, job }) {
        ClaimDecision::Claim(job) | ClaimDecision::Skip(job) => update.add(job)?,
        ClaimDecision::Postpone(until) => {
            let (id, until): (&str, _) = (row.get(0), floor_millis(until));
            session.query(POSTPONE, &[&id, &until]).await?;
        }
        ClaimDecision::Leave => {}
    }
    Ok(unreadable)
}
