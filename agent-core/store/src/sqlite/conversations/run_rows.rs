//! Statements that read and write runs and leases.

use agent_core::ids::{CompanyId, RunId};
use agent_platform::conversation::commit::StoredRun;
use agent_platform::conversation::{Run, RunFilter, RunKey, RunLease, ThreadOwner};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use super::rows::{ConversationTables, TableError, text};
use crate::conversation_row::{
    DueRun, NumberedRun, PlacedRun, RunPosition, RunRow, due_ms, from_millis, log_until_ms, parse_run,
    parse_run_of_any, with_stored_events,
};

impl ConversationTables<'_> {
    /// Returns a run with its number and its thread's.
    pub(super) fn run(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<(i64, i64, StoredRun)>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT n, thread, process, body FROM runs WHERE company = ?1 AND owner = ?2 AND id = ?3",
        )?;
        let mut rows = statement.query(params![&*owner.company, &*owner.owner, &**id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let stored = StoredRun { run: parse_run(id, text(row, 3)?)?, process: row.get(2)? };
        Ok(Some((row.get(0)?, row.get(1)?, stored)))
    }

    /// Returns a run as clients see it.
    pub(super) fn run_for_client(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, TableError> {
        let Some((n, _, stored)) = self.run(owner, id)? else { return Ok(None) };
        Ok(Some(with_stored_events(stored.run, self.last_event(n)?)))
    }

    /// Returns at most `limit` runs as clients see them, with their numbers among the owner's, the newest first.
    pub(super) fn runs(
        &self,
        owner: &ThreadOwner,
        filter: &RunFilter,
        before: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Run)>, TableError> {
        let thread = match &filter.thread {
            Some(id) => match self.thread(&owner.thread(id.clone()))? {
                Some((n, _)) => Some(n),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let sql = match thread {
            Some(_) => "WHERE thread = ?3 AND company = ?1 AND owner = ?2",
            None => "WHERE company = ?1 AND owner = ?2 AND ?3 IS NULL",
        };
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT seq, id, body, n FROM runs {sql} AND seq < ?4 AND (?5 IS NULL OR agent = ?5)
               AND (?6 IS NULL OR state = ?6) AND (?7 IS NULL OR kind = ?7)
             ORDER BY seq DESC LIMIT ?8"
        ))?;
        let mut rows = statement.query(params![
            &*owner.company,
            &*owner.owner,
            thread,
            before,
            filter.agent.as_deref(),
            filter.state.map(|state| state.as_str()),
            filter.kind.map(|kind| kind.as_str()),
            limit,
        ])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            let run = parse_run(text(row, 1)?, text(row, 2)?)?;
            let last = if run.state.is_live() { self.last_event(row.get(3)?)? } else { None };
            runs.push((row.get(0)?, with_stored_events(run, last)));
        }
        Ok(runs)
    }

    /// Returns the runs of a company that wait for decisions with their numbers, which are below `before`: at most `limit`, the
    /// newest first.
    pub(super) fn waiting_runs(
        &self,
        company: &CompanyId,
        before: i64,
        limit: usize,
    ) -> Result<Vec<NumberedRun>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT n, owner, id, body FROM runs WHERE company = ?1 AND state = 'waiting' AND n < ?2
             ORDER BY n DESC LIMIT ?3",
        )?;
        let mut rows = statement.query(params![&**company, before, limit])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            let owner = ThreadOwner::new(company.clone(), text(row, 1)?);
            runs.push((row.get(0)?, owner, parse_run(text(row, 2)?, text(row, 3)?)?));
        }
        Ok(runs)
    }

    /// Returns at most `limit` runs that are due at a time, after a due time and a number, in their order.
    pub(super) fn due_runs(
        &self,
        now: Timestamp,
        (after_ms, after): RunPosition,
        limit: usize,
    ) -> Result<Vec<DueRun>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT coalesce(due_ms, 0), n, company, owner, id, body FROM runs
             WHERE state = 'waiting' AND coalesce(due_ms, 0) BETWEEN ?2 AND ?1
               AND (coalesce(due_ms, 0) > ?2 OR n > ?3)
             ORDER BY coalesce(due_ms, 0), n LIMIT ?4",
        )?;
        let mut rows = statement.query(params![now.as_millisecond(), after_ms, after, limit])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            let owner = ThreadOwner::new(text(row, 2)?, text(row, 3)?);
            let run = parse_run_of_any(text(row, 4)?, text(row, 5)?);
            runs.push(((row.get(0)?, row.get(1)?), owner, run));
        }
        Ok(runs)
    }

    /// Adds a run, which gets the next number among the owner's.
    pub(super) fn insert_run(
        &self,
        owner: &ThreadOwner,
        thread: i64,
        stored: &StoredRun,
    ) -> Result<(), TableError> {
        let row = RunRow::new(0, owner, thread, stored)?;
        let mut insert = self.0.prepare_cached(
            "INSERT INTO runs (company, owner, id, thread, agent, state, kind, process, body, log_until_ms, due_ms, seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                     (SELECT coalesce(max(seq), 0) + 1 FROM runs WHERE company = ?1 AND owner = ?2))",
        )?;
        insert.execute(params![
            row.company,
            row.owner,
            row.id,
            row.thread,
            row.agent,
            row.state,
            row.kind,
            row.process,
            row.body,
            row.log_until_ms,
            row.due_ms
        ])?;
        Ok(())
    }

    pub(super) fn update_run(&self, n: i64, run: &Run) -> Result<(), TableError> {
        let body = serde_json::to_string(run).unwrap_or_default();
        let mut update = self.0.prepare_cached(
            "UPDATE runs SET state = ?2, kind = ?3, body = ?4, log_until_ms = ?5, due_ms = ?6 WHERE n = ?1",
        )?;
        let (state, kind) = (run.state.as_str(), run.trigger.kind.as_str());
        update.execute(params![n, state, kind, body, log_until_ms(run), due_ms(run)])?;
        Ok(())
    }

    /// Returns live runs whose process has no lease after `now`, at most `limit`, after a position in their order.
    pub(super) fn lost_runs(
        &self,
        now: Timestamp,
        (_, after): RunPosition,
        limit: usize,
    ) -> Result<Vec<PlacedRun>, TableError> {
        // The signs keep the planner from a scan of all runs in the order of their numbers.
        let mut statement = self.0.prepare_cached(
            "SELECT company, owner, id, 0, n FROM runs
             WHERE state IN ('queued', 'running') AND +n > ?2 AND NOT EXISTS (
                 SELECT 1 FROM processes WHERE processes.id = runs.process AND lease_ms > ?1
             ) ORDER BY +n LIMIT ?3",
        )?;
        let found = statement.query_map(params![now.as_millisecond(), after, limit], placed_run)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    pub(super) fn lease(&self, process: &str) -> Result<Option<Timestamp>, TableError> {
        let mut statement = self.0.prepare_cached("SELECT lease_ms FROM processes WHERE id = ?1")?;
        let lease: Option<i64> = statement.query_row([process], |row| row.get(0)).optional()?;
        Ok(lease.map(from_millis))
    }

    /// Writes a lease; an earlier one replaces a later one only if `is_renewal`.
    pub(super) fn put_lease(&self, lease: &RunLease, is_renewal: bool) -> Result<(), TableError> {
        let mut put = self.0.prepare_cached(
            "INSERT INTO processes (id, lease_ms) VALUES (?1, ?2)
             ON CONFLICT (id) DO UPDATE SET lease_ms = excluded.lease_ms
             WHERE ?3 OR excluded.lease_ms > processes.lease_ms",
        )?;
        put.execute(params![lease.process, lease.until.as_millisecond(), is_renewal])?;
        Ok(())
    }

    /// Deletes leases that have expired: a process without a lease counts as one whose lease has expired.
    pub(super) fn delete_leases(&self, now: Timestamp) -> Result<(), TableError> {
        let mut delete = self.0.prepare_cached("DELETE FROM processes WHERE lease_ms <= ?1")?;
        delete.execute([now.as_millisecond()])?;
        Ok(())
    }
}

/// Reads the company, owner and id of a run, and its position.
pub(super) fn placed_run(row: &Row<'_>) -> rusqlite::Result<PlacedRun> {
    Ok(((row.get(3)?, row.get(4)?), run_key(row)?))
}

/// Reads the company, owner and id of a run.
pub(super) fn run_key(row: &Row<'_>) -> rusqlite::Result<RunKey> {
    let (company, owner, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(RunKey { owner: ThreadOwner::new(company, owner), id: id.into() })
}
