//! Which jobs are claimed.

use agent_core::job::{Claim, Job, MAX_CLAIM, Step};

use super::update::Update;
use super::{found, rows};
use crate::job_row::floor_millis;
use crate::postgres::fault::Halt;
use crate::postgres::session::Session;

/// What is due and nobody has locked, the earliest first. Of those that run, the time is when their lease runs
/// out, and that may not lie ahead.
const DUE: &str = "
    SELECT id, body, wake_ms FROM scheduler.jobs
    WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2) AND company <> ALL ($3)
    ORDER BY wake_ms, id LIMIT $4
    FOR UPDATE SKIP LOCKED";

/// How often more is read at most, where what was read before was left to those who have their share, or out.
const ROUNDS: usize = 16;

pub(in crate::postgres) async fn claim(session: &Session, claim: Claim) -> Result<Vec<Job>, Halt> {
    let Claim { now, until, lease, limit, mut quota } = claim;
    let limit = limit.min(MAX_CLAIM);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let (until_ms, now_ms) = (floor_millis(until), floor_millis(now));
    let mut claimed: Vec<(i64, Job)> = Vec::new();
    let mut steps = 0;
    let mut update = Update::default();
    for round in 0..ROUNDS {
        let wanted = (limit - claimed.len()).min(MAX_CLAIM - steps);
        let exhausted: Vec<&str> = quota.exhausted().filter(|company| !company.contains('\0')).collect();
        let limit_of_rows = rows(wanted);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&until_ms, &now_ms, &exhausted, &limit_of_rows];
        let due = if round == 0 {
            session.begin(&[(DUE, &values)]).await?.pop().unwrap_or_default()
        } else {
            update.run(session).await?;
            session.query(DUE, &values).await?
        };
        update = Update::default();
        for row in &due {
            let job = found(row)?;
            let company = &job.payload.company_id;
            if !quota.take(company) {
                continue;
            }
            let stepped = job.step(Step::Claim { until, lease }, now);
            if let Ok(stepped) = &stepped {
                steps += 1;
                update.add(stepped)?;
            }
            match stepped {
                Ok(stepped) if stepped.job.is_delivering() => claimed.push((row.get(2), stepped.job)),
                _ => quota.give_back(company),
            }
        }
        if due.len() < wanted || claimed.len() == limit || steps == MAX_CLAIM {
            break;
        }
    }
    update.commit(session).await?;
    // Where others let go of earlier ones meanwhile.
    claimed.sort_by_key(|(wake_ms, _)| *wake_ms);
    Ok(claimed.into_iter().map(|(_, job)| job).collect())
}
