//! Statements that read and write logs of runs, and signals.

use std::collections::HashMap;

use agent_core::ids::RunId;
use agent_platform::conversation::{
    CancelReason, LogChunk, LogEnd, LogPage, MAX_LOG_PAGE_BYTES, RunChunk, RunKey, RunSignal, ThreadOwner,
};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::run_tables::{placed_run, run_key};
use super::tables::{ConversationTables, TableError};
use crate::conversation_row::{
    DELETE_BATCH_CHUNKS, DeletedLogs, INPUTS_NUMBER, LogRow, PlacedRun, RunPosition, parse_run, to_number,
    with_stored_events,
};
use crate::postgres::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Session, contains_nul};

/// Locks the rows of a process's live runs against their end, and appends to their logs. Rows that other transactions have locked
/// are left out, so that they do not delay the runs of all companies. Returns the live runs, with true for those that were
/// locked. `LIMIT` makes the planner look up each run instead of scanning all.
const APPEND_EVENTS: &str = "
    WITH found AS MATERIALIZED (
        SELECT run.n, wanted.company, wanted.owner, wanted.id
        FROM unnest($2::text[], $3::text[], $4::text[]) AS wanted (company, owner, id)
        CROSS JOIN LATERAL (
            SELECT n, process, state FROM runs
            WHERE company = wanted.company AND owner = wanted.owner AND id = wanted.id LIMIT 1
        ) AS run
        WHERE run.process = $1 AND run.state IN ('queued', 'running')
    ), live AS MATERIALIZED (
        SELECT n, company, owner, id FROM runs
        WHERE n = ANY (ARRAY(SELECT n FROM found)) AND process = $1 AND state IN ('queued', 'running')
        ORDER BY n FOR SHARE SKIP LOCKED
    ), appended AS (
        INSERT INTO run_events (run, first, last, body)
        SELECT live.n, chunk.first, chunk.last, chunk.body
        FROM unnest($2::text[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::bytea[])
            AS chunk (company, owner, id, first, last, body)
        JOIN live ON live.company = chunk.company AND live.owner = chunk.owner AND live.id = chunk.id
        ORDER BY live.n, chunk.first
        ON CONFLICT DO NOTHING
    )
    SELECT company, owner, id, n IN (SELECT n FROM live) FROM found";

/// Selects a run with each chunk of a page of its log, all from one snapshot. The first row alone has the run.
const SELECT_LOG_PAGE: &str = "
    SELECT CASE WHEN coalesce(page.place, 1) = 1 THEN runs.body END,
           CASE WHEN coalesce(page.place, 1) = 1 THEN
               (SELECT last FROM run_events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
           END,
           runs.n, page.first, page.last, page.body
    FROM runs LEFT JOIN LATERAL (
        SELECT first, last, body, row_number() OVER (ORDER BY first) AS place,
               sum(octet_length(body)) OVER (ORDER BY first) - octet_length(body) AS bytes_before
        FROM run_events
        WHERE run = runs.n AND last >= $4 AND first >= coalesce(
            (SELECT max(first) FROM run_events WHERE run = runs.n AND first <= $4), 0
        )
    ) AS page ON page.bytes_before < $5
    WHERE runs.company = $1 AND runs.owner = $2 AND runs.id = $3
    ORDER BY page.first";

/// Deletes chunks of a thread's logs until they have a number of bytes.
const DELETE_THREAD_LOGS: &str = "
    DELETE FROM run_events USING (
        SELECT run, first, sum(size) OVER (ORDER BY run, first) - size AS bytes_before FROM (
            SELECT logged.run, logged.first, octet_length(logged.body) AS size
            FROM runs JOIN run_events AS logged ON logged.run = runs.n WHERE runs.thread = $1 LIMIT $3
        ) AS found
    ) AS chosen
    WHERE run_events.run = chosen.run AND run_events.first = chosen.first AND chosen.bytes_before < $2
    RETURNING octet_length(run_events.body)::int8";

/// Stores a signal for the process of a live run. The run's row is locked, so that the run does not end meanwhile.
const PUT_SIGNAL: &str = "
    WITH live AS MATERIALIZED (
        SELECT n, process FROM runs
        WHERE company = $1 AND owner = $2 AND id = $3 AND state IN ('queued', 'running') FOR SHARE
    )
    INSERT INTO signals (process, run, kind, until_ms) SELECT process, n, $4, $5 FROM live
    ON CONFLICT (process, run, kind) DO UPDATE SET until_ms = excluded.until_ms RETURNING until_ms";

/// Selects the signals to a process, with the keys of their runs.
const SELECT_SIGNALS: &str = "
    SELECT runs.company, runs.owner, runs.id, signals.run, signals.kind, signals.until_ms
    FROM signals LEFT JOIN runs ON runs.n = signals.run WHERE signals.process = $1";

/// Deletes signals to a process, unless they were sent again since. Rows that other transactions have locked are left to the
/// next call, so that this one does not wait.
const DELETE_TAKEN_SIGNALS: &str = "
    DELETE FROM signals WHERE (process, run, kind) IN (
        SELECT found.process, found.run, found.kind
        FROM unnest($2::int8[], $3::text[], $4::int8[]) AS taken (run, kind, until_ms)
        CROSS JOIN LATERAL (
            SELECT process, run, kind FROM signals
            WHERE process = $1 AND run = taken.run AND kind = taken.kind AND until_ms = taken.until_ms LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    )";

/// Selects runs whose logs have expired. Rows that other transactions have locked are skipped, however many there are, since they
/// would hide the rows of other companies.
const SELECT_RUNS_TO_TRIM: &str = "
    SELECT company, owner, id, log_until_ms, n FROM runs
    WHERE log_until_ms <= $1 AND (log_until_ms, n) > ($2, $3) ORDER BY log_until_ms, n LIMIT $4
    FOR NO KEY UPDATE SKIP LOCKED";

const INSERT_LOGS: &str = "
    INSERT INTO run_events (run, first, last, body)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::bytea[]) ON CONFLICT DO NOTHING";

/// Signal to the process of a run, as it is stored.
pub(super) struct StoredSignal {
    /// Key of the run, unless it was deleted.
    key: Option<RunKey>,
    /// Number of the run.
    run: i64,
    kind: String,
    until_ms: i64,
}

impl StoredSignal {
    /// Returns the signal with the key of its run, unless it has expired.
    pub(super) fn current(&self, now: Timestamp) -> Option<(RunKey, RunSignal)> {
        let signal = RunSignal::from_name(&self.kind).filter(|_| !self.has_expired(now))?;
        Some((self.key.clone()?, signal))
    }

    /// Returns true if the signal is deleted when it is taken: it is delivered once, has expired, or its run was deleted.
    pub(super) fn is_taken_once(&self, now: Timestamp) -> bool {
        self.has_expired(now) || self.key.is_none() || self.kind == RunSignal::Start.as_str()
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.until_ms <= now.as_millisecond()
    }
}

impl ConversationTables {
    /// Returns all chunks of a run's log.
    pub(super) async fn log(&self, run: i64) -> Result<Vec<LogChunk>, TableError> {
        let sql =
            "SELECT run, first, last, body FROM run_events WHERE run = $1 AND first >= 0 ORDER BY first";
        let rows = self.select(sql, &[&run]).await?;
        Ok(rows.iter().map(|row| log_row(row, 0).into_chunk()).collect())
    }

    /// Returns a run with a page of its log.
    pub(super) async fn log_page(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        from: u64,
    ) -> Result<Option<LogPage>, TableError> {
        let parts = [owner.company.as_str(), owner.owner.as_str(), id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(None);
        }
        let max_bytes = i64::try_from(MAX_LOG_PAGE_BYTES).unwrap_or(i64::MAX);
        let values: [&(dyn Param + Sync); 5] =
            [&parts[0], &parts[1], &parts[2], &to_number(from), &max_bytes];
        let rows = self.select(SELECT_LOG_PAGE, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let run = with_stored_events(parse_run(id, row.get(0))?, row.get(1));
        // A run without chunks has one row.
        let rows = rows.iter().filter(|row| row.get::<_, Option<i64>>(3).is_some());
        Ok(Some(LogPage { run, chunks: rows.map(|row| log_row(row, 2).into_chunk()).collect() }))
    }

    /// Adds the last chunks of a run's log and the inputs of the run. Events that are already in the log stay.
    pub(super) async fn insert_log_end(&self, run: i64, end: &LogEnd) -> Result<(), TableError> {
        let chunk = |chunk: &LogChunk| LogRow {
            run,
            first: to_number(chunk.first),
            last: to_number(chunk.last),
            body: chunk.body.clone(),
        };
        let inputs =
            |body: &Vec<u8>| LogRow { run, first: INPUTS_NUMBER, last: INPUTS_NUMBER, body: body.clone() };
        let rows: Vec<_> = end.chunks.iter().map(chunk).chain(end.inputs.iter().map(inputs)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        Ok(insert_logs(&self.0, &rows).await?)
    }

    /// Returns the inputs of a run.
    pub(super) async fn run_inputs(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<Vec<u8>>, TableError> {
        let Some((run, ..)) = self.run(owner, id).await? else { return Ok(None) };
        let sql = "SELECT body FROM run_events WHERE run = $1 AND first = $2";
        let rows = self.select(sql, &[&run, &INPUTS_NUMBER]).await?;
        let inputs: Option<Vec<u8>> = rows.first().map(|row| row.get(0));
        Ok(inputs.filter(|inputs| !inputs.is_empty()))
    }

    /// Appends chunks to the logs of a process's live runs that no other transaction has locked. Returns the live runs, with
    /// true for those to whose logs the chunks were appended.
    pub(super) async fn append_events(
        &self,
        process: &str,
        chunks: &[RunChunk],
    ) -> Result<HashMap<RunKey, bool>, TableError> {
        let has_nul = |chunk: &RunChunk| {
            let RunKey { owner, id } = &chunk.run;
            [owner.company.as_str(), owner.owner.as_str(), id.as_str()].into_iter().any(contains_nul)
        };
        let storable = || chunks.iter().filter(|chunk| !has_nul(chunk));
        let companies: Vec<&str> = storable().map(|chunk| chunk.run.owner.company.as_str()).collect();
        let owners: Vec<&str> = storable().map(|chunk| chunk.run.owner.owner.as_str()).collect();
        let ids: Vec<&str> = storable().map(|chunk| chunk.run.id.as_str()).collect();
        let firsts: Vec<i64> = storable().map(|chunk| to_number(chunk.chunk.first)).collect();
        let lasts: Vec<i64> = storable().map(|chunk| to_number(chunk.chunk.last)).collect();
        let bodies: Vec<&[u8]> = storable().map(|chunk| chunk.chunk.body.as_slice()).collect();
        let values: [&(dyn Param + Sync); 7] =
            [&process, &companies, &owners, &ids, &firsts, &lasts, &bodies];
        let rows = self.select(APPEND_EVENTS, &values).await?;
        Ok(rows.iter().map(|row| (run_key(row), row.get(3))).collect())
    }

    /// Deletes a run's log.
    pub(super) async fn delete_log(&self, run: i64) -> Result<(), TableError> {
        self.select("DELETE FROM run_events WHERE run = $1", &[&run]).await?;
        Ok(())
    }

    /// Deletes the inputs of a thread's runs.
    pub(super) async fn delete_thread_inputs(&self, thread: i64) -> Result<(), TableError> {
        let sql = "DELETE FROM run_events WHERE first = $2 AND run IN (SELECT n FROM runs WHERE thread = $1)";
        self.select(sql, &[&thread, &INPUTS_NUMBER]).await?;
        Ok(())
    }

    /// Deletes chunks of the logs of a thread's runs until they have `max_bytes`.
    pub(super) async fn delete_thread_logs(
        &self,
        thread: i64,
        max_bytes: usize,
    ) -> Result<DeletedLogs, TableError> {
        let limit = i64::try_from(DELETE_BATCH_CHUNKS).unwrap_or(i64::MAX);
        let byte_limit = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        let rows = self.select(DELETE_THREAD_LOGS, &[&thread, &byte_limit, &limit]).await?;
        let bytes = rows.iter().map(|row| usize::try_from(row.get::<_, i64>(0)).unwrap_or_default()).sum();
        Ok(DeletedLogs { bytes, has_more: bytes >= max_bytes || rows.len() >= DELETE_BATCH_CHUNKS })
    }

    /// Returns at most `limit` runs whose logs have expired and that no other transaction has locked, after a position in their
    /// order.
    pub(super) async fn runs_to_trim(
        &self,
        now: Timestamp,
        (after_ms, after): RunPosition,
        limit: i64,
    ) -> Result<Vec<PlacedRun>, TableError> {
        let values: [&(dyn Param + Sync); 4] = [&now.as_millisecond(), &after_ms, &after, &limit];
        let rows = self.select(SELECT_RUNS_TO_TRIM, &values).await?;
        Ok(rows.iter().map(placed_run).collect())
    }

    /// Stores a signal for the process of a run if the run is live. Returns true if it was.
    pub(super) async fn put_signal(
        &self,
        run: &RunKey,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<bool, TableError> {
        let RunKey { owner, id } = run;
        let parts = [owner.company.as_str(), owner.owner.as_str(), id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(false);
        }
        let values: [&(dyn Param + Sync); 5] =
            [&parts[0], &parts[1], &parts[2], &signal.as_str(), &until.as_millisecond()];
        Ok(!self.select(PUT_SIGNAL, &values).await?.is_empty())
    }

    /// Returns the signals to a process.
    pub(super) async fn signals(&self, process: &str) -> Result<Vec<StoredSignal>, TableError> {
        let rows = self.select(SELECT_SIGNALS, &[&process]).await?;
        let signal = |row: &Row| StoredSignal {
            key: row.get::<_, Option<&str>>(0).map(|_| run_key(row)),
            run: row.get(3),
            kind: row.get(4),
            until_ms: row.get(5),
        };
        Ok(rows.iter().map(signal).collect())
    }

    /// Deletes signals to a process, unless they were sent again since they were read.
    pub(super) async fn delete_taken_signals(
        &self,
        process: &str,
        signals: &[&StoredSignal],
    ) -> Result<(), TableError> {
        let runs: Vec<i64> = signals.iter().map(|signal| signal.run).collect();
        let kinds: Vec<&str> = signals.iter().map(|signal| signal.kind.as_str()).collect();
        let ends: Vec<i64> = signals.iter().map(|signal| signal.until_ms).collect();
        self.select(DELETE_TAKEN_SIGNALS, &[&process, &runs, &kinds, &ends]).await?;
        Ok(())
    }

    /// Returns the reason of the signal that the process of a run has to cancel it. The run's row must be locked, so that no signal
    /// is stored between this statement and the end of the transaction.
    pub(super) async fn cancel_signal(
        &self,
        process: &str,
        run: i64,
    ) -> Result<Option<CancelReason>, TableError> {
        let sql = "SELECT kind FROM signals WHERE process = $1 AND run = $2";
        let found = self.select(sql, &[&process, &run]).await?;
        Ok(found.iter().find_map(|row| RunSignal::from_name(row.get(0))?.cancel_reason()))
    }

    /// Deletes the signals for a run to its process.
    pub(super) async fn delete_signals_for_run(&self, process: &str, run: i64) -> Result<(), TableError> {
        self.select("DELETE FROM signals WHERE process = $1 AND run = $2", &[&process, &run]).await?;
        Ok(())
    }
}

/// Inserts chunks by one statement. Existing ones are not changed.
pub(in crate::postgres) async fn insert_logs(
    session: &Session,
    rows: &[LogRow],
) -> Result<(), PostgresError> {
    let number = |column: fn(&LogRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
    let bodies: Vec<&[u8]> = rows.iter().map(|row| row.body.as_slice()).collect();
    let values: [&(dyn Param + Sync); 4] =
        [&number(|row| row.run), &number(|row| row.first), &number(|row| row.last), &bodies];
    session.query(INSERT_LOGS, &values).await.map(drop)
}

/// Reads the columns `run`, `first`, `last` and `body` of a chunk, beginning at column `at`.
pub(in crate::postgres) fn log_row(row: &Row, at: usize) -> LogRow {
    LogRow { run: row.get(at), first: row.get(at + 1), last: row.get(at + 2), body: row.get(at + 3) }
}
