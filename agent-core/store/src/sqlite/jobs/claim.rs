//! Which jobs are claimed.

use agent_core::job::{Claim, Job, MAX_CLAIM, Quota, Step};
use jiff::Timestamp;
use rusqlite::named_params;

use super::rows::{Found, JobRows};
use crate::job_row::{floor_millis, unreadable};
use crate::sqlite::fault::Halt;

pub(super) const EARLIEST: &str =
    "SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL ORDER BY wake_ms LIMIT 1";

/// What is due, the earliest first, after those of a company at a time. Of those that run, the time is when their
/// lease runs out, and that may not lie ahead.
pub(super) const DUE: &str = "
    SELECT rowid, wake_ms, company FROM jobs
    WHERE wake_ms <= :until AND (wake_ms, company) > (:wake_ms, :company)
      AND (state <> 'running' OR wake_ms <= :now)
    ORDER BY wake_ms, company";

/// After how many jobs in a row that cannot be taken all of the same company at the same time are passed at once.
const PASSED: usize = 8;

/// A job that is due.
struct Due {
    rowid: i64,
    wake_ms: i64,
    company: String,
}

impl JobRows<'_> {
    pub(super) fn claim(&self, claim: &Claim) -> Result<Vec<Job>, Halt> {
        let Claim { now, until, lease, limit, ref quota } = *claim;
        let limit = limit.min(MAX_CLAIM);
        let mut quota = quota.clone();
        let mut claimed = Vec::new();
        let mut steps = 0;
        while claimed.len() < limit && steps < MAX_CLAIM {
            let wanted = (limit - claimed.len()).min(MAX_CLAIM - steps);
            let due = self.due(floor_millis(now), floor_millis(until), wanted, &mut quota)?;
            steps += due.len();
            let mut in_vain = 0;
            let found = self.of_rows(due.iter().map(|due| due.rowid))?;
            for (Due { rowid, wake_ms, company }, found) in due.iter().zip(found) {
                match self.take(*rowid, found, Step::Claim { until, lease }, now)? {
                    Some(job) => claimed.push((*wake_ms, job)),
                    None => {
                        quota.give_back(company);
                        in_vain += 1;
                    }
                }
            }
            // All that there are were taken.
            if in_vain == 0 && due.len() < wanted {
                break;
            }
        }
        // Where a share was given back, an earlier job was passed at first.
        claimed.sort_by_key(|(wake_ms, _)| *wake_ms);
        Ok(claimed.into_iter().map(|(_, job)| job).collect())
    }

    /// At most `wanted` jobs that are due, as far as the quota goes, from which they are taken.
    fn due(&self, now: i64, until: i64, wanted: usize, quota: &mut Quota) -> Result<Vec<Due>, Halt> {
        let mut statement = self.connection.prepare_cached(DUE)?;
        let mut due = Vec::new();
        let mut after = Some((i64::MIN, String::new()));
        while let Some((wake_ms, company)) = after.take() {
            let parameters =
                named_params! {":now": now, ":until": until, ":wake_ms": wake_ms, ":company": company};
            let mut rows = statement.query(parameters)?;
            let mut passed = 0;
            while due.len() < wanted
                && let Some(row) = rows.next()?
            {
                let company = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
                if quota.take(company) {
                    let (rowid, wake_ms, company) = (row.get(0)?, row.get(1)?, company.to_owned());
                    due.push(Due { rowid, wake_ms, company });
                    passed = 0;
                    continue;
                }
                passed += 1;
                if passed == PASSED {
                    after = Some((row.get(1)?, company.to_owned()));
                    break;
                }
            }
        }
        Ok(due)
    }

    /// Claims a job that is due, if there is anything to be delivered of it.
    fn take(
        &self,
        rowid: i64,
        found: Result<Found, Halt>,
        claim: Step,
        now: Timestamp,
    ) -> Result<Option<Job>, Halt> {
        match found {
            Ok(found) => {
                let stepped = self.step_of(found, claim, now)?.ok();
                Ok(stepped.map(|stepped| stepped.job).filter(Job::is_delivering))
            }
            Err(Halt::Refused(error)) => self.postpone(rowid, unreadable(&error, now)).map(|()| None),
            Err(failed) => Err(failed),
        }
    }
}
