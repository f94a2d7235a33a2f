//! Statements that read and write logs of runs, and signals.

use agent_platform::conversation::{LogChunk, MAX_LOG_PAGE_BYTES, RunKey, RunSignal};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use super::rows::{ConversationTables, TableError};
use super::run_rows::{placed_run, run_key};
use crate::conversation_row::{
    DELETE_BATCH_CHUNKS, DeletedLogs, INPUTS_NUMBER, LogRow, PlacedRun, RunPosition, to_number,
};

impl ConversationTables<'_> {
    /// Returns the number of the last stored event of a run.
    pub(super) fn last_event(&self, run: i64) -> Result<Option<i64>, TableError> {
        let mut statement = self
            .0
            .prepare_cached("SELECT last FROM run_events WHERE run = ?1 ORDER BY first DESC LIMIT 1")?;
        Ok(statement.query_row([run], |row| row.get(0)).optional()?)
    }

    /// Returns the chunks of a run's log with events from number `from` on, until they have `max_bytes`.
    pub(super) fn log(&self, run: i64, from: u64, max_bytes: usize) -> Result<Vec<LogChunk>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT run, first, last, body FROM run_events
             WHERE run = ?1 AND last >= ?2 AND first >= coalesce(
                 (SELECT max(first) FROM run_events WHERE run = ?1 AND first <= ?2), 0
             ) ORDER BY first",
        )?;
        let mut rows = statement.query(params![run, to_number(from)])?;
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        while bytes < max_bytes {
            let Some(row) = rows.next()? else { break };
            let chunk = log_row(row)?.into_chunk();
            bytes += chunk.body.len();
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// Returns a page of a run's log.
    pub(super) fn log_page(&self, run: i64, from: u64) -> Result<Vec<LogChunk>, TableError> {
        self.log(run, from, MAX_LOG_PAGE_BYTES)
    }

    /// Adds a chunk to a run's log, unless the log has it.
    pub(super) fn insert_chunk(&self, run: i64, chunk: &LogChunk) -> Result<(), TableError> {
        let mut insert = self.0.prepare_cached(
            "INSERT INTO run_events (run, first, last, body) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?;
        insert.execute(params![run, to_number(chunk.first), to_number(chunk.last), chunk.body])?;
        Ok(())
    }

    /// Adds the inputs of a run to its log, unless it has a row for them.
    pub(super) fn insert_inputs(&self, run: i64, inputs: &[u8]) -> Result<(), TableError> {
        let mut insert = self.0.prepare_cached(
            "INSERT INTO run_events (run, first, last, body) VALUES (?1, ?2, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        insert.execute(params![run, INPUTS_NUMBER, inputs])?;
        Ok(())
    }

    /// Returns the inputs of a run.
    pub(super) fn inputs(&self, run: i64) -> Result<Option<Vec<u8>>, TableError> {
        let mut statement =
            self.0.prepare_cached("SELECT body FROM run_events WHERE run = ?1 AND first = ?2")?;
        let inputs: Option<Vec<u8>> =
            statement.query_row(params![run, INPUTS_NUMBER], |row| row.get(0)).optional()?;
        Ok(inputs.filter(|inputs| !inputs.is_empty()))
    }

    /// Returns the number of a live run of a process.
    pub(super) fn live_run_of(&self, process: &str, run: &RunKey) -> Result<Option<i64>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT n FROM runs WHERE company = ?1 AND owner = ?2 AND id = ?3 AND process = ?4
               AND state IN ('queued', 'running')",
        )?;
        let values = params![&*run.owner.company, &*run.owner.owner, &*run.id, process];
        Ok(statement.query_row(values, |row| row.get(0)).optional()?)
    }

    /// Deletes a run's log and returns its size.
    pub(super) fn delete_log(&self, run: i64) -> Result<usize, TableError> {
        let mut size =
            self.0.prepare_cached("SELECT coalesce(sum(length(body)), 0) FROM run_events WHERE run = ?1")?;
        let bytes = size.query_row([run], |row| row.get(0))?;
        self.0.prepare_cached("DELETE FROM run_events WHERE run = ?1")?.execute([run])?;
        Ok(bytes)
    }

    /// Deletes the inputs of a thread's runs.
    pub(super) fn delete_thread_inputs(&self, thread: i64) -> Result<(), TableError> {
        let mut delete = self.0.prepare_cached(
            "DELETE FROM run_events WHERE first = ?2 AND run IN (SELECT n FROM runs WHERE thread = ?1)",
        )?;
        delete.execute(params![thread, INPUTS_NUMBER])?;
        Ok(())
    }

    /// Deletes chunks of the logs of a thread's runs until they have `max_bytes`.
    pub(super) fn delete_thread_logs(
        &self,
        thread: i64,
        max_bytes: usize,
    ) -> Result<DeletedLogs, TableError> {
        let mut select = self.0.prepare_cached(
            "SELECT run, first, length(body) FROM run_events
             WHERE run IN (SELECT n FROM runs WHERE thread = ?1) LIMIT ?2",
        )?;
        let chunk = |row: &Row<'_>| -> rusqlite::Result<(i64, i64, usize)> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        };
        let found = select.query_map(params![thread, DELETE_BATCH_CHUNKS], chunk)?;
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let mut delete = self.0.prepare_cached("DELETE FROM run_events WHERE run = ?1 AND first = ?2")?;
        let mut bytes = 0;
        for (run, first, size) in &found {
            if bytes >= max_bytes {
                return Ok(DeletedLogs { bytes, has_more: true });
            }
            delete.execute(params![run, first])?;
            bytes += size;
        }
        Ok(DeletedLogs { bytes, has_more: found.len() == DELETE_BATCH_CHUNKS })
    }

    /// Returns at most `limit` runs whose logs have expired, after a position in their order.
    pub(super) fn runs_to_trim(
        &self,
        now: Timestamp,
        (after_ms, after): RunPosition,
        limit: usize,
    ) -> Result<Vec<PlacedRun>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT company, owner, id, log_until_ms, n FROM runs
             WHERE log_until_ms BETWEEN ?2 AND ?1 AND (log_until_ms > ?2 OR n > ?3)
             ORDER BY log_until_ms, n LIMIT ?4",
        )?;
        let found = statement.query_map(params![now.as_millisecond(), after_ms, after, limit], placed_run)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Writes a signal to the process of a live run.
    pub(super) fn put_signal(
        &self,
        run: i64,
        process: &str,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<(), TableError> {
        let mut put = self.0.prepare_cached(
            "INSERT INTO signals (process, run, kind, until_ms) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (process, run, kind) DO UPDATE SET until_ms = excluded.until_ms",
        )?;
        put.execute(params![process, run, signal.as_str(), until.as_millisecond()])?;
        Ok(())
    }

    /// Returns the signals to a process, with the ends of their times.
    pub(super) fn signals(&self, process: &str) -> Result<Vec<(RunKey, Option<RunSignal>, i64)>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT company, owner, id, signals.kind, until_ms FROM signals CROSS JOIN runs ON runs.n = signals.run
             WHERE signals.process = ?1",
        )?;
        let signal = |row: &Row<'_>| {
            let kind: String = row.get(3)?;
            Ok((run_key(row)?, RunSignal::from_name(&kind), row.get(4)?))
        };
        let found = statement.query_map([process], signal)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Deletes the signals to a process that are delivered once, and those that have expired.
    pub(super) fn delete_taken_signals(&self, process: &str, now: Timestamp) -> Result<(), TableError> {
        let mut delete = self
            .0
            .prepare_cached("DELETE FROM signals WHERE process = ?1 AND (until_ms <= ?2 OR kind = ?3)")?;
        delete.execute(params![process, now.as_millisecond(), RunSignal::Start.as_str()])?;
        Ok(())
    }

    /// Returns the kinds of the signals for a run to its process.
    pub(super) fn signals_for_run(&self, process: &str, run: i64) -> Result<Vec<String>, TableError> {
        let mut select = self.0.prepare_cached("SELECT kind FROM signals WHERE process = ?1 AND run = ?2")?;
        let kinds = select.query_map(params![process, run], |row| row.get(0))?;
        Ok(kinds.collect::<Result<_, _>>()?)
    }

    /// Deletes the signals for a run to its process.
    pub(super) fn delete_signals_for_run(&self, process: &str, run: i64) -> Result<(), TableError> {
        let mut delete = self.0.prepare_cached("DELETE FROM signals WHERE process = ?1 AND run = ?2")?;
        delete.execute(params![process, run])?;
        Ok(())
    }
}

/// Reads the columns `run`, `first`, `last` and `body` of a chunk.
pub(in crate::sqlite) fn log_row(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    Ok(LogRow { run: row.get(0)?, first: row.get(1)?, last: row.get(2)?, body: row.get(3)? })
}
