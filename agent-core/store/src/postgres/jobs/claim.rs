//! Which jobs are claimed.

use agent_core::job::{Claim, Job, MAX_CLAIM, Step};
use tokio_postgres::Row;

use super::update::Update;
use super::{cannot_be, found, rows};
use crate::job_row::{floor_millis, unreadable};
use crate::postgres::fault::{Fault, Halt};
use crate::postgres::session::{Session, Values};

/// What is due and nobody has locked, the earliest first. Of those that run, the time is when their lease runs
/// out, and that may not lie ahead.
const DUE: &str = "
    SELECT id, body, progress, wake_ms FROM scheduler.jobs
    WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2)
    ORDER BY wake_ms, id LIMIT $3
    FOR UPDATE SKIP LOCKED";

/// The same where some companies have their share, behind whose jobs those of others can be far away. So the
/// first jobs that are due are looked at, within the index alone, and where too few of them are others', the first
/// of each company that has any: all companies are found by one step in the index each.
const DUE_OF_OTHERS: &str = "
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

/// Sees to it that a job is not looked at for a while, whatever it says itself.
const POSTPONE: &str = "UPDATE scheduler.jobs SET wake_ms = $2 WHERE id = $1";

/// How often more is read at most, where what was read before was left to those who have their share, or out.
const ROUNDS: usize = 16;

pub(in crate::postgres) async fn claim(session: &Session, mut claim: Claim) -> Result<Vec<Job>, Halt> {
    let limit = claim.limit.min(MAX_CLAIM);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut taking = Taking::default();
    for round in 0..ROUNDS {
        let wanted = (limit - taking.claimed.len()).min(MAX_CLAIM - taking.steps);
        let due = read_due(session, &claim, wanted, round == 0).await?;
        for row in &due {
            match found(row) {
                Ok(job) => taking.take(job, row.get(3), &mut claim)?,
                Err(Halt::Refused(error)) => {
                    let (id, until): (&str, _) = (row.get(0), unreadable(&error, claim.now));
                    session.query(POSTPONE, &[&id, &until]).await?;
                    taking.steps += 1;
                }
                Err(failed) => return Err(failed),
            }
        }
        if due.len() < wanted || taking.claimed.len() == limit || taking.steps == MAX_CLAIM {
            break;
        }
        // What is read next must not be the same again.
        std::mem::take(&mut taking.update).run(session).await?;
    }
    taking.update.commit(session).await?;
    // Where others let go of earlier ones meanwhile.
    taking.claimed.sort_by_key(|(wake_ms, _)| *wake_ms);
    Ok(taking.claimed.into_iter().map(|(_, job)| job).collect())
}

/// Locks at most `wanted` jobs that are due.
async fn read_due(session: &Session, claim: &Claim, wanted: usize, first: bool) -> Result<Vec<Row>, Fault> {
    let (until, now, limit) = (floor_millis(claim.until), floor_millis(claim.now), rows(wanted));
    let exhausted: Vec<&str> = claim.quota.exhausted().filter(|company| !cannot_be(company)).collect();
    let all: Values<'_> = &[&until, &now, &limit];
    let of_others: Values<'_> = &[&until, &now, &exhausted, &limit];
    let query = if exhausted.is_empty() { (DUE, all) } else { (DUE_OF_OTHERS, of_others) };
    if first {
        Ok(session.begin(&[query]).await?.pop().unwrap_or_default())
    } else {
        session.query(query.0, query.1).await
    }
}

/// What is taken by one claim.
#[derive(Default)]
struct Taking {
    claimed: Vec<(i64, Job)>,
    steps: usize,
    update: Update,
}

impl Taking {
    /// Takes a job, unless its company has its share.
    fn take(&mut self, job: Job, wake_ms: i64, claim: &mut Claim) -> Result<(), Halt> {
        if !claim.quota.take(&job.payload.company_id) {
            return Ok(());
        }
        let company = job.payload.company_id.clone();
        let stepped = job.step(Step::Claim { until: claim.until, lease: claim.lease }, claim.now);
        if let Ok(stepped) = &stepped {
            self.steps += 1;
            self.update.add(stepped)?;
        }
        match stepped {
            Ok(stepped) if stepped.job.is_delivering() => self.claimed.push((wake_ms, stepped.job)),
            _ => claim.quota.give_back(&company),
        }
        Ok(())
    }
}
