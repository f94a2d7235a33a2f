//! Rows of a claim: selects those of its range, and writes its decisions.

use agent_core::ids::JobId;
use agent_jobs::job::ClaimRequest;
use agent_jobs::job::claim::{Candidate, ClaimDecision, ClaimPlanner, ClaimRange};
use agent_platform::records::StoreError;
use rusqlite::named_params;

use super::rows::{JobTable, StoredJob};
use crate::job_row::{ClaimedRows, floor_millis, from_millis};
use crate::sqlite::error::WriteError;
use crate::sqlite::schema;

/// Selects the rows of a [`ClaimRange`], earliest first, after a position given by time and company. `wake_ms` of a
/// running job is its lease expiry.
pub(super) const SELECT_DUE: &str = "
    SELECT rowid, wake_ms, company FROM jobs
    WHERE wake_ms <= :until AND (wake_ms, company) > (:wake_ms, :company)
      AND (state <> 'running' OR wake_ms <= :now)
    ORDER BY wake_ms, company";

/// Maximum number of consecutive jobs over quota; after them, the query restarts behind all jobs of the same company
/// and time.
const MAX_CONSECUTIVE_SKIPS: usize = 8;

/// An admitted row.
struct AdmittedRow {
    rowid: i64,
    wake_ms: i64,
    company: String,
}

impl JobTable<'_> {
    pub(super) fn claim(&self, request: ClaimRequest) -> Result<ClaimedRows, WriteError> {
        schema::check_not_newer(self.connection)?;
        let mut planner = ClaimPlanner::new(request);
        let mut unreadable = Vec::new();
        while planner.remaining_rows() > 0 {
            let admitted = self.select_admitted(&mut planner)?;
            let is_range_exhausted = planner.remaining_rows() > 0;
            let found = self.find_by_rowids(admitted.iter().map(|row| row.rowid))?;
            for (row, found) in admitted.iter().zip(found) {
                unreadable.extend(self.decide(&mut planner, row, found)?);
            }
            if !planner.next_round(is_range_exhausted) {
                break;
            }
        }
        Ok(ClaimedRows { jobs: planner.finish(), unreadable })
    }

    /// Reads the rows of the claim's range until the claim is complete, and returns the admitted ones.
    fn select_admitted(&self, planner: &mut ClaimPlanner) -> Result<Vec<AdmittedRow>, WriteError> {
        let ClaimRange { due_until, leases_until } = planner.range();
        let (until, now) = (floor_millis(due_until), floor_millis(leases_until));
        let mut statement = self.connection.prepare_cached(SELECT_DUE)?;
        let mut admitted = Vec::new();
        let mut after = Some((i64::MIN, String::new()));
        while let Some((wake_ms, company)) = after.take() {
            let parameters =
                named_params! {":now": now, ":until": until, ":wake_ms": wake_ms, ":company": company};
            let mut rows = statement.query(parameters)?;
            let mut passed = 0;
            while planner.remaining_rows() > 0
                && let Some(row) = rows.next()?
            {
                let company = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
                let company = String::from_utf8_lossy(company);
                if planner.admit(&company) {
                    let (rowid, wake_ms, company) = (row.get(0)?, row.get(1)?, company.into_owned());
                    admitted.push(AdmittedRow { rowid, wake_ms, company });
                    passed = 0;
                    continue;
                }
                passed += 1;
                if passed == MAX_CONSECUTIVE_SKIPS {
                    after = Some((row.get(1)?, company.into_owned()));
                    break;
                }
            }
        }
        Ok(admitted)
    }

    /// Plans the decision on an admitted row, and writes it. Returns the id of a job that cannot be read.
    fn decide(
        &self,
        planner: &mut ClaimPlanner,
        row: &AdmittedRow,
        found: Result<StoredJob, WriteError>,
    ) -> Result<Option<JobId>, WriteError> {
        let AdmittedRow { rowid, wake_ms, ref company } = *row;
        let (job, body, unreadable) = match found {
            Ok(found) => (Some(found.job), found.body, None),
            Err(WriteError::Refused(StoreError::Malformed { id, .. })) => (None, None, Some(id.into())),
            Err(failed) => return Err(failed),
        };
        match planner.decide(Candidate { wake: from_millis(wake_ms), company, job }) {
            ClaimDecision::Claim(job) | ClaimDecision::Skip(job) => self.write(rowid, job, body)?,
            ClaimDecision::Postpone(until) => self.postpone(rowid, floor_millis(until))?,
            ClaimDecision::Leave => {}
        }
        Ok(unreadable)
    }
}
