//! Selection and claiming of due jobs.

use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, MAX_JOBS_PER_CLAIM, Step};
use jiff::Timestamp;
use rusqlite::named_params;

use super::rows::{JobTable, StoredJob};
use crate::job_row::{floor_millis, postpone_unparsable};
use crate::sqlite::fault::WriteError;

pub(super) const SELECT_EARLIEST: &str =
    "SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL ORDER BY wake_ms LIMIT 1";

/// Selects due jobs, earliest first, after a position given by time and company. `wake_ms` of a running job
/// is its lease expiry, which must not be in the future (`:now`).
pub(super) const SELECT_DUE: &str = "
    SELECT rowid, wake_ms, company FROM jobs
    WHERE wake_ms <= :until AND (wake_ms, company) > (:wake_ms, :company)
      AND (state <> 'running' OR wake_ms <= :now)
    ORDER BY wake_ms, company";

/// Number of consecutive jobs over quota after which the query restarts behind all jobs of the same company
/// and time.
const MAX_CONSECUTIVE_SKIPS: usize = 8;

/// A due job.
struct DueJob {
    rowid: i64,
    wake_ms: i64,
    company: String,
}

impl JobTable<'_> {
    pub(super) fn claim(&self, claim: &ClaimRequest) -> Result<Vec<Job>, WriteError> {
        let ClaimRequest { now, due_until: until, lease_until: lease, limit, ref quota } = *claim;
        let limit = limit.min(MAX_JOBS_PER_CLAIM);
        let mut quota = quota.clone();
        let mut claimed = Vec::new();
        let mut steps = 0;
        while claimed.len() < limit && steps < MAX_JOBS_PER_CLAIM {
            let wanted = (limit - claimed.len()).min(MAX_JOBS_PER_CLAIM - steps);
            let due = self.select_due(floor_millis(now), floor_millis(until), wanted, &mut quota)?;
            steps += due.len();
            let mut in_vain = 0;
            let found = self.find_by_rowids(due.iter().map(|due| due.rowid))?;
            for (DueJob { rowid, wake_ms, company }, found) in due.iter().zip(found) {
                match self.claim_job(*rowid, found, Step::Claim { until, lease }, now)? {
                    Some(job) => claimed.push((*wake_ms, job)),
                    None => {
                        quota.release(company);
                        in_vain += 1;
                    }
                }
            }
            // The query returned fewer jobs than wanted, so all due jobs have been claimed.
            if in_vain == 0 && due.len() < wanted {
                break;
            }
        }
        // A quota unit that was given back can admit an earlier job that was skipped before.
        claimed.sort_by_key(|(wake_ms, _)| *wake_ms);
        Ok(claimed.into_iter().map(|(_, job)| job).collect())
    }

    /// Selects at most `wanted` due jobs within the quota, and takes them from the quota.
    fn select_due(
        &self,
        now: i64,
        until: i64,
        wanted: usize,
        quota: &mut CompanyQuota,
    ) -> Result<Vec<DueJob>, WriteError> {
        let mut statement = self.connection.prepare_cached(SELECT_DUE)?;
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
                    due.push(DueJob { rowid, wake_ms, company });
                    passed = 0;
                    continue;
                }
                passed += 1;
                if passed == MAX_CONSECUTIVE_SKIPS {
                    after = Some((row.get(1)?, company.to_owned()));
                    break;
                }
            }
        }
        Ok(due)
    }

    /// Claims a due job. Returns `None` if the step leaves nothing to deliver, or if the job cannot be
    /// parsed.
    fn claim_job(
        &self,
        rowid: i64,
        found: Result<StoredJob, WriteError>,
        claim: Step,
        now: Timestamp,
    ) -> Result<Option<Job>, WriteError> {
        match found {
            Ok(found) => {
                let stepped = self.apply_step(found, claim, now)?.applied();
                Ok(stepped.map(|stepped| stepped.job).filter(Job::is_delivering))
            }
            Err(WriteError::Refused(error)) => {
                self.postpone(rowid, postpone_unparsable(&error, now)).map(|()| None)
            }
            Err(failed) => Err(failed),
        }
    }
}
