//! Selection and claiming of due jobs.

use agent_jobs::job::{ClaimRequest, Job, MAX_JOBS_PER_CLAIM, Step};
use tokio_postgres::Row;

use super::update::JobUpdates;
use super::{contains_nul, parse_row, row_limit};
use crate::job_row::{floor_millis, postpone_unparsable};
use crate::postgres::fault::{JobStoreError, PostgresError};
use crate::postgres::session::{Session, Values};

/// Selects and locks due jobs, earliest first, skipping locked rows. `wake_ms` of a running job is its lease
/// expiry, which must not be in the future (`$2`).
const SELECT_DUE: &str = "
    SELECT id, body, progress, wake_ms FROM scheduler.jobs
    WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
    ORDER BY wake_ms, id LIMIT $3
    FOR UPDATE SKIP LOCKED";

/// Variant of [`SELECT_DUE`] for claims in which some companies have exhausted their quota. Their jobs can precede
/// those of other companies by any distance. The first 2,000 due jobs are therefore scanned in the index
/// alone; if too few of them belong to other companies, the first due jobs of each company are added. A
/// recursive query enumerates the companies with one index step each.
const SELECT_DUE_WITHIN_QUOTA: &str = "
    WITH RECURSIVE near AS MATERIALIZED (
        SELECT id, wake_ms, company FROM scheduler.jobs
        WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
        ORDER BY wake_ms, id LIMIT 2000
    ), chosen AS MATERIALIZED (
        SELECT id FROM near WHERE company <> ALL ($3) ORDER BY wake_ms, id LIMIT $4
    ), companies (company) AS (
        (SELECT company FROM scheduler.jobs
         WHERE wake_ms IS NOT NULL AND (SELECT count(*) FROM near) = 2000 AND (SELECT count(*) FROM chosen) < $4
         ORDER BY company LIMIT 1)
        UNION ALL
        SELECT (SELECT next.company FROM scheduler.jobs AS next
                WHERE next.wake_ms IS NOT NULL AND next.company > companies.company
                ORDER BY next.company LIMIT 1)
        FROM companies WHERE companies.company IS NOT NULL
    ), far AS (
        SELECT first.id FROM companies CROSS JOIN LATERAL (
            SELECT id, wake_ms FROM scheduler.jobs AS job
            WHERE job.company = companies.company AND wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
            ORDER BY wake_ms, id LIMIT $4
        ) AS first
        WHERE companies.company <> ALL ($3) ORDER BY first.wake_ms, first.id LIMIT $4
    )
    SELECT id, body, progress, wake_ms FROM scheduler.jobs
    WHERE id = ANY (ARRAY (SELECT id FROM chosen UNION SELECT id FROM far))
      AND wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
    ORDER BY wake_ms, id LIMIT $4
    FOR UPDATE SKIP LOCKED";

/// Postpones a job that cannot be parsed.
const POSTPONE: &str = "UPDATE scheduler.jobs SET wake_ms = $2 WHERE id = $1";

/// Maximum number of reads per claim. Another read follows while jobs of the previous one were skipped
/// because of a quota, or ended without a delivery.
const MAX_READS_PER_CLAIM: usize = 16;

pub(in crate::postgres) async fn claim(
    session: &Session,
    mut claim: ClaimRequest,
) -> Result<Vec<Job>, JobStoreError> {
    let limit = claim.limit.min(MAX_JOBS_PER_CLAIM);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut taking = ClaimProgress::default();
    for round in 0..MAX_READS_PER_CLAIM {
        let wanted = (limit - taking.claimed.len()).min(MAX_JOBS_PER_CLAIM - taking.steps);
        let due = lock_due(session, &claim, wanted, round == 0).await?;
        for row in &due {
            match parse_row(row) {
                Ok(job) => taking.claim_job(job, row.get(3), &mut claim)?,
                Err(JobStoreError::Rejected(error)) => {
                    let (id, until): (&str, _) = (row.get(0), postpone_unparsable(&error, claim.now));
                    session.query(POSTPONE, &[&id, &until]).await?;
                    taking.steps += 1;
                }
                Err(failed) => return Err(failed),
            }
        }
        if due.len() < wanted || taking.claimed.len() == limit || taking.steps == MAX_JOBS_PER_CLAIM {
            break;
        }
        // Writes the steps first, so that the next read does not return the same jobs.
        std::mem::take(&mut taking.update).write_rows(session).await?;
    }
    taking.update.commit(session).await?;
    // A later read can return earlier jobs if another transaction released its locks in between.
    taking.claimed.sort_by_key(|(wake_ms, _)| *wake_ms);
    Ok(taking.claimed.into_iter().map(|(_, job)| job).collect())
}

/// Locks at most `wanted` due jobs.
async fn lock_due(
    session: &Session,
    claim: &ClaimRequest,
    wanted: usize,
    first: bool,
) -> Result<Vec<Row>, PostgresError> {
    let (until, now, limit) = (floor_millis(claim.due_until), floor_millis(claim.now), row_limit(wanted));
    let exhausted: Vec<&str> = claim.quota.exhausted().filter(|company| !contains_nul(company)).collect();
    let all: Values<'_> = &[&until, &now, &limit];
    let of_others: Values<'_> = &[&until, &now, &exhausted, &limit];
    let query = if exhausted.is_empty() { (SELECT_DUE, all) } else { (SELECT_DUE_WITHIN_QUOTA, of_others) };
    if first {
        Ok(session.begin(&[query]).await?.pop().unwrap_or_default())
    } else {
        session.query(query.0, query.1).await
    }
}

/// Intermediate state of a claim.
#[derive(Default)]
struct ClaimProgress {
    claimed: Vec<(i64, Job)>,
    steps: usize,
    update: JobUpdates,
}

impl ClaimProgress {
    /// Claims a job, unless its company has exhausted its quota.
    fn claim_job(&mut self, job: Job, wake_ms: i64, claim: &mut ClaimRequest) -> Result<(), JobStoreError> {
        if !claim.quota.take(&job.payload.company_id) {
            return Ok(());
        }
        let company = job.payload.company_id.clone();
        let stepped = job.step(Step::Claim { until: claim.due_until, lease: claim.lease_until }, claim.now);
        if let Ok(stepped) = &stepped {
            self.steps += 1;
            self.update.add(stepped)?;
        }
        match stepped {
            Ok(stepped) if stepped.job.is_delivering() => self.claimed.push((wake_ms, stepped.job)),
            _ => claim.quota.release(&company),
        }
        Ok(())
    }
}
