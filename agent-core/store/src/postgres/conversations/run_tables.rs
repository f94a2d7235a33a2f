//! Statements that read and write runs and leases.

use agent_core::ids::{CompanyId, RunId, ThreadId};
use agent_platform::conversation::commit::StoredRun;
use agent_platform::conversation::{Run, RunFilter, RunKey, RunLease, ThreadOwner};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::tables::{ConversationTables, TableError};
use crate::conversation_row::{
    DueRun, NumberedRun, PlacedRun, RunPosition, RunRow, due_ms, from_millis, log_until_ms, parse_run,
    parse_run_of_any, with_stored_events,
};
use crate::postgres::param::Param;
use crate::postgres::session::contains_nul;

const SELECT_RUN_FOR_CLIENT: &str = "
    SELECT body, CASE WHEN state IN ('queued', 'running') THEN
        (SELECT last FROM run_events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
    END FROM runs WHERE company = $1 AND owner = $2 AND id = $3";

const SELECT_RUNS: &str = "
    SELECT seq, id, body, CASE WHEN state IN ('queued', 'running') THEN
        (SELECT last FROM run_events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
    END FROM runs
    WHERE company = $1 AND owner = $2 AND seq < $3 AND ($4::text IS NULL OR agent = $4)
      AND ($5::text IS NULL OR state = $5) AND ($6::text IS NULL OR kind = $6)
    ORDER BY seq DESC LIMIT $7";

const SELECT_THREAD_RUNS: &str = "
    SELECT seq, id, body, CASE WHEN state IN ('queued', 'running') THEN
        (SELECT last FROM run_events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
    END FROM runs
    WHERE thread = $8 AND company = $1 AND owner = $2 AND seq < $3 AND ($4::text IS NULL OR agent = $4)
      AND ($5::text IS NULL OR state = $5) AND ($6::text IS NULL OR kind = $6)
    ORDER BY seq DESC LIMIT $7";

const INSERT_RUN: &str = "
    INSERT INTO runs (company, owner, id, thread, agent, state, kind, process, body, log_until_ms, due_ms, seq)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
            (SELECT coalesce(max(seq), 0) + 1 FROM runs WHERE company = $1 AND owner = $2))";

const LOCK_LIVE_RUNS: &str = "
    SELECT n FROM runs WHERE n = ANY (ARRAY(
        SELECT live.n FROM unnest($3::text[]) AS wanted (id)
        CROSS JOIN LATERAL (
            SELECT n FROM threads WHERE company = $1 AND owner = $2 AND id = wanted.id LIMIT 1
        ) AS thread
        JOIN runs AS live ON live.thread = thread.n AND live.state IN ('queued', 'running')
    )) ORDER BY n FOR UPDATE";

/// Selects a page of the lost runs. The sums keep the planner from a scan of all runs in the order of their numbers.
const SELECT_LOST_RUNS: &str = "
    SELECT company, owner, id, 0::int8, n FROM runs
    WHERE state IN ('queued', 'running') AND n + 0 > $2 AND NOT EXISTS (
        SELECT FROM processes WHERE processes.id = runs.process AND lease_ms > $1
    ) ORDER BY n + 0 LIMIT $3";

const SELECT_DUE_RUNS: &str = "
    SELECT coalesce(due_ms, 0), n, company, owner, id, body FROM runs
    WHERE state = 'waiting' AND coalesce(due_ms, 0) <= $1 AND (coalesce(due_ms, 0), n) > ($2, $3)
    ORDER BY coalesce(due_ms, 0), n LIMIT $4";

/// Stores a lease. Inserts nothing if the lease is stored already. A conflict would lock the row until the end of the
/// transaction, and all runs that the process begins use the same row.
const PUT_LEASE: &str = "
    INSERT INTO processes AS found (id, lease_ms)
    SELECT $1::text, $2::int8 WHERE $3::bool OR NOT EXISTS (
        SELECT FROM processes AS stored WHERE stored.id = $1 AND stored.lease_ms >= $2
    )
    ON CONFLICT (id) DO UPDATE SET lease_ms = excluded.lease_ms WHERE $3 OR excluded.lease_ms > found.lease_ms";

impl ConversationTables {
    /// Returns a run with its number and its thread's.
    pub(super) async fn run(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<(i64, i64, StoredRun)>, TableError> {
        let parts = [owner.company.as_str(), owner.owner.as_str(), id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(None);
        }
        let sql = "SELECT n, thread, process, body FROM runs WHERE company = $1 AND owner = $2 AND id = $3";
        let rows = self.select(sql, &[&parts[0], &parts[1], &parts[2]]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let stored = StoredRun { run: parse_run(id, row.get(3))?, process: row.get(2) };
        Ok(Some((row.get(0), row.get(1), stored)))
    }

    /// Returns a run as [`run`](Self::run) does, if an id is given.
    pub(super) async fn optional_run(
        &self,
        owner: &ThreadOwner,
        id: Option<&RunId>,
    ) -> Result<Option<(i64, i64, StoredRun)>, TableError> {
        match id {
            Some(id) => self.run(owner, id).await,
            None => Ok(None),
        }
    }

    /// Returns a run as clients see it.
    pub(super) async fn run_for_client(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<Run>, TableError> {
        let parts = [owner.company.as_str(), owner.owner.as_str(), id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(None);
        }
        let rows = self.select(SELECT_RUN_FOR_CLIENT, &[&parts[0], &parts[1], &parts[2]]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(with_stored_events(parse_run(id, row.get(0))?, row.get(1))))
    }

    /// Locks a run's row until the end of the transaction, so that nothing is appended to its log. Returns its number.
    pub(super) async fn lock_run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<i64>, TableError> {
        let parts = [owner.company.as_str(), owner.owner.as_str(), id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(None);
        }
        let sql = "SELECT n FROM runs WHERE company = $1 AND owner = $2 AND id = $3 FOR UPDATE";
        let rows = self.select(sql, &[&parts[0], &parts[1], &parts[2]]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Locks the rows of the live runs of threads until the end of the transaction, in the order in which appends to logs lock
    /// them.
    pub(super) async fn lock_live_runs(
        &self,
        owner: &ThreadOwner,
        threads: &[ThreadId],
    ) -> Result<(), TableError> {
        let ids: Vec<&str> = threads.iter().map(|id| id.as_str()).filter(|id| !contains_nul(id)).collect();
        self.select(LOCK_LIVE_RUNS, &[&owner.company.as_str(), &owner.owner.as_str(), &ids]).await?;
        Ok(())
    }

    /// Returns at most `limit` runs as clients see them, with their numbers among the owner's, the newest first.
    pub(super) async fn runs(
        &self,
        owner: &ThreadOwner,
        filter: &RunFilter,
        before: i64,
        limit: i64,
    ) -> Result<Vec<(i64, Run)>, TableError> {
        let agent = filter.agent.as_deref();
        if [&*owner.company, &*owner.owner, agent.unwrap_or_default()].into_iter().any(contains_nul) {
            return Ok(Vec::new());
        }
        let (state, kind) = (filter.state.map(|state| state.as_str()), filter.kind.map(|kind| kind.as_str()));
        let (company, person) = (owner.company.as_str(), owner.owner.as_str());
        let values: [&(dyn Param + Sync); 7] = [&company, &person, &before, &agent, &state, &kind, &limit];
        let rows = match &filter.thread {
            None => self.select(SELECT_RUNS, &values).await?,
            Some(id) => {
                let Some((n, _)) = self.thread(&owner.thread(id.clone())).await? else {
                    return Ok(Vec::new());
                };
                self.select(SELECT_THREAD_RUNS, &[&values[..], &[&n]].concat()).await?
            }
        };
        let run = |row: &Row| {
            let run = parse_run(row.get(1), row.get(2))?;
            Ok((row.get(0), with_stored_events(run, row.get(3))))
        };
        let runs: Result<_, StoreError> = rows.iter().map(run).collect();
        Ok(runs?)
    }

    /// Returns at most `limit` runs that are due at a time, after a due time and a number, in their order.
    pub(super) async fn due_runs(
        &self,
        now: Timestamp,
        (after_ms, after): RunPosition,
        limit: i64,
    ) -> Result<Vec<DueRun>, TableError> {
        let rows = self.select(SELECT_DUE_RUNS, &[&now.as_millisecond(), &after_ms, &after, &limit]).await?;
        let run = |row: &Row| {
            let owner = ThreadOwner::new(row.get::<_, &str>(2), row.get::<_, &str>(3));
            ((row.get(0), row.get(1)), owner, parse_run_of_any(row.get(4), row.get(5)))
        };
        Ok(rows.iter().map(run).collect())
    }

    /// Returns the runs of a company that wait for decisions with their numbers, which are below `before`: at most `limit`, the
    /// newest first.
    pub(super) async fn waiting_runs(
        &self,
        company: &CompanyId,
        before: i64,
        limit: i64,
    ) -> Result<Vec<NumberedRun>, TableError> {
        if contains_nul(company) {
            return Ok(Vec::new());
        }
        let sql = "SELECT n, owner, id, body FROM runs WHERE company = $1 AND state = 'waiting' AND n < $2
                   ORDER BY n DESC LIMIT $3";
        let rows = self.select(sql, &[&company.as_str(), &before, &limit]).await?;
        let run = |row: &Row| {
            let owner: &str = row.get(1);
            Ok((row.get(0), ThreadOwner::new(company.clone(), owner), parse_run(row.get(2), row.get(3))?))
        };
        let runs: Result<_, StoreError> = rows.iter().map(run).collect();
        Ok(runs?)
    }

    /// Adds a run, which gets the next number among the owner's.
    pub(super) async fn insert_run(
        &self,
        owner: &ThreadOwner,
        thread: i64,
        stored: &StoredRun,
    ) -> Result<(), TableError> {
        let row = RunRow::new(0, owner, thread, stored)?;
        let values: [&(dyn Param + Sync); 11] = [
            &row.company,
            &row.owner,
            &row.id,
            &row.thread,
            &row.agent,
            &row.state,
            &row.kind,
            &row.process,
            &row.body,
            &row.log_until_ms,
            &row.due_ms,
        ];
        self.select(INSERT_RUN, &values).await?;
        Ok(())
    }

    pub(super) async fn update_run(&self, n: i64, run: &Run) -> Result<(), TableError> {
        let body = serde_json::to_string(run).unwrap_or_default();
        let sql =
            "UPDATE runs SET state = $2, kind = $3, body = $4, log_until_ms = $5, due_ms = $6 WHERE n = $1";
        let (state, kind) = (run.state.as_str(), run.trigger.kind.as_str());
        self.select(sql, &[&n, &state, &kind, &body, &log_until_ms(run), &due_ms(run)]).await?;
        Ok(())
    }

    /// Writes a run, if there is one.
    pub(super) async fn update_optional_run(
        &self,
        n: Option<i64>,
        run: Option<&Run>,
    ) -> Result<(), TableError> {
        match n.zip(run) {
            Some((n, run)) => self.update_run(n, run).await,
            None => Ok(()),
        }
    }

    /// Returns live runs whose process has no lease after `now`, at most `limit`, after a position in their order.
    pub(super) async fn lost_runs(
        &self,
        now: Timestamp,
        (_, after): RunPosition,
        limit: i64,
    ) -> Result<Vec<PlacedRun>, TableError> {
        let rows = self.select(SELECT_LOST_RUNS, &[&now.as_millisecond(), &after, &limit]).await?;
        Ok(rows.iter().map(placed_run).collect())
    }

    pub(super) async fn lease(&self, process: &str) -> Result<Option<Timestamp>, TableError> {
        let rows = self.select("SELECT lease_ms FROM processes WHERE id = $1", &[&process]).await?;
        Ok(rows.first().map(|row| from_millis(row.get(0))))
    }

    /// Writes a lease; an earlier one replaces a later one only if `is_renewal`. All runs of the process wait for the row if it
    /// is written, so this is the last statement of a transaction.
    pub(super) async fn put_lease(&self, lease: &RunLease, is_renewal: bool) -> Result<(), TableError> {
        let values: [&(dyn Param + Sync); 3] = [&lease.process, &lease.until.as_millisecond(), &is_renewal];
        self.select(PUT_LEASE, &values).await?;
        Ok(())
    }

    /// Deletes leases that have expired, except those that other transactions have locked.
    pub(super) async fn delete_leases(&self, now: Timestamp) -> Result<(), TableError> {
        let sql = "DELETE FROM processes WHERE id = ANY (ARRAY (
                       SELECT id FROM processes WHERE lease_ms <= $1 FOR UPDATE SKIP LOCKED
                   ))";
        self.select(sql, &[&now.as_millisecond()]).await?;
        Ok(())
    }
}

/// Reads the company, owner and id of a run, and its position.
pub(super) fn placed_run(row: &Row) -> PlacedRun {
    ((row.get(3), row.get(4)), run_key(row))
}

/// Reads the company, owner and id of a run.
pub(super) fn run_key(row: &Row) -> RunKey {
    let (company, owner, id): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    RunKey { owner: ThreadOwner::new(company, owner), id: id.into() }
}
