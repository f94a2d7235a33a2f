//! SQLite files as source and target of a copy.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Params, Row, params};

use super::conversations::feedback_rows::{INSERT_FEEDBACK, insert_feedback};
use super::conversations::log_rows::log_row;
use super::conversations::rows::{NODE_COLUMNS, insert_node, insert_node_sql, node_row};
use super::copy_folder::CopyFolder;
use super::file::{self, sync_folder};
use super::open_error::SqliteOpenError;
use super::usage::{insert_call, insert_call_row, insert_day_row, sum_columns, upsert_day};
use super::{SqliteOptions, schema};
use crate::conversation_row::{BATCH_LOG_BYTES, ContextRow, FeedbackRow, LogRow, NodeRow, RunRow, ThreadRow};
use crate::copy_rows::{CopyError, CopyRows, CopySink, CopyTarget, JobTableRow, ROWS_PER_PAGE, RecordRow};
use crate::usage_row::{CALL_COLUMNS, CallRow, DayRow, KEY_COLUMNS, SUM_COLUMNS};

const SELECT_RECORDS: &str = "
    SELECT company, collection, id, version, updated_ms, value FROM records
    WHERE (company, collection, id) > (?1, ?2, ?3) ORDER BY company, collection, id LIMIT ?4";

const SELECT_JOBS: &str = "
    SELECT id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent
    FROM jobs WHERE id > ?1 ORDER BY id LIMIT ?2";

const INSERT_RECORD: &str = "
    INSERT INTO records (company, collection, id, version, updated_ms, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const INSERT_JOB: &str = "
    INSERT INTO jobs
        (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

const SELECT_THREADS: &str = "
    SELECT n, company, owner, id, agent, archived, status, origin, active_ms, body FROM threads
    WHERE n > ?1 ORDER BY n LIMIT ?2";

const INSERT_THREAD: &str = "
    INSERT INTO threads (n, company, owner, id, agent, archived, status, origin, active_ms, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const SELECT_RUNS: &str = "
    SELECT n, company, owner, id, thread, agent, state, kind, process, body, seq, log_until_ms, due_ms FROM runs
    WHERE n > ?1 ORDER BY n LIMIT ?2";

const INSERT_RUN: &str = "
    INSERT INTO runs (n, company, owner, id, thread, agent, state, kind, process, body, seq, log_until_ms, due_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

const SELECT_LOGS: &str = "
    SELECT run, first, last, body FROM run_events WHERE (run, first) > (?1, ?2) ORDER BY run, first LIMIT ?3";

const INSERT_LOG: &str = "INSERT INTO run_events (run, first, last, body) VALUES (?1, ?2, ?3, ?4)";

const SELECT_FEEDBACK: &str = "
    SELECT thread, seq, company, agent, at_ms, id, shared, body FROM feedback
    WHERE (thread, seq) > (?1, ?2) ORDER BY thread, seq LIMIT ?3";

const SELECT_CONTEXTS: &str = "
    SELECT thread, seq, turn, body FROM turn_contexts
    WHERE (thread, seq, turn) > (?1, ?2, ?3) ORDER BY thread, seq, turn LIMIT ?4";

const INSERT_CONTEXT: &str = "INSERT INTO turn_contexts (thread, seq, turn, body) VALUES (?1, ?2, ?3, ?4)";

/// A SQLite file, read in one transaction.
pub(crate) struct SqliteCopySource(Connection);

impl SqliteCopySource {
    /// Opens an existing file, migrating it from an older version if needed.
    pub(crate) fn open(path: &Path) -> Result<Self, CopyError> {
        let path = file::absolute(path).map_err(CopyError::open)?;
        if !path.exists() {
            return Err(CopyError::open(SqliteOpenError::NotAFile(path)));
        }
        let (connection, _) = file::open(&path, &SqliteOptions::default()).map_err(CopyError::open)?;
        connection.execute_batch("BEGIN").map_err(CopyError::failed)?;
        Ok(Self(connection))
    }
}

impl CopyRows for SqliteCopySource {
    async fn records(&mut self, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError> {
        select_records(&self.0, after).map_err(CopyError::failed)
    }

    async fn jobs(&mut self, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError> {
        select_jobs(&self.0, after).map_err(CopyError::failed)
    }

    async fn threads(&mut self, after: Option<&ThreadRow>) -> Result<Vec<ThreadRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        select(&self.0, SELECT_THREADS, params![after, ROWS_PER_PAGE], thread_row)
    }

    async fn nodes(&mut self, after: Option<&NodeRow>) -> Result<Vec<NodeRow>, CopyError> {
        let (thread, seq) = after.map_or((i64::MIN, 0), |row| (row.thread, row.seq));
        let sql = format!(
            "SELECT {NODE_COLUMNS} FROM nodes WHERE (thread, seq) > (?1, ?2) ORDER BY thread, seq LIMIT ?3"
        );
        select(&self.0, &sql, params![thread, seq, ROWS_PER_PAGE], node_row)
    }

    async fn runs(&mut self, after: Option<&RunRow>) -> Result<Vec<RunRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        select(&self.0, SELECT_RUNS, params![after, ROWS_PER_PAGE], run_row)
    }

    async fn logs(&mut self, after: Option<&LogRow>) -> Result<Vec<LogRow>, CopyError> {
        select_logs(&self.0, after).map_err(CopyError::failed)
    }

    async fn feedback(&mut self, after: Option<&FeedbackRow>) -> Result<Vec<FeedbackRow>, CopyError> {
        let (thread, seq) = after.map_or((i64::MIN, 0), |row| (row.thread, row.seq));
        select(&self.0, SELECT_FEEDBACK, params![thread, seq, ROWS_PER_PAGE], feedback_row)
    }

    async fn contexts(&mut self, after: Option<&ContextRow>) -> Result<Vec<ContextRow>, CopyError> {
        let (thread, seq, turn) = after.map_or((i64::MIN, 0, ""), |row| (row.thread, row.seq, &row.turn));
        select(&self.0, SELECT_CONTEXTS, params![thread, seq, turn, ROWS_PER_PAGE], context_row)
    }

    async fn usage_calls(&mut self, after: Option<&CallRow>) -> Result<Vec<CallRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        let sql = format!("SELECT n, {CALL_COLUMNS} FROM usage_calls WHERE n > ?1 ORDER BY n LIMIT ?2");
        select(&self.0, &sql, params![after, ROWS_PER_PAGE], call_row)
    }

    async fn usage_days(&mut self, after: Option<&DayRow>) -> Result<Vec<DayRow>, CopyError> {
        let key = after.map(|row| row.key.clone()).unwrap_or_default();
        let [company, day, agent, user, caller, provider, model, operation] = key;
        let values = params![company, day, agent, user, caller, provider, model, operation, ROWS_PER_PAGE];
        let (keys, sums) = (KEY_COLUMNS.join(", "), SUM_COLUMNS.join(", "));
        let sql = format!(
            "SELECT {keys}, {sums} FROM usage_days WHERE ({keys}) > (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ORDER BY {keys} LIMIT ?9"
        );
        select(&self.0, &sql, values, day_row)
    }

    async fn last_version(&mut self) -> Result<i64, CopyError> {
        last_version(&self.0)
    }
}

/// A new SQLite file in a temporary folder beside its final path.
pub(crate) struct SqliteCopyTarget {
    rows: SqliteCopySource,
    folder: CopyFolder,
    path: PathBuf,
}

impl SqliteCopyTarget {
    /// Creates a file that [`finish`](CopyTarget::finish) moves to `path`, where there must be none.
    pub(crate) fn create(path: &Path) -> Result<Self, CopyError> {
        let path = file::absolute(path).map_err(CopyError::open)?;
        if path.symlink_metadata().is_ok() {
            return Err(CopyError::NotEmpty);
        }
        let parent = path.parent().unwrap_or(&path);
        if !parent.is_dir() {
            return Err(CopyError::open(SqliteOpenError::NoFolder(parent.to_owned())));
        }
        let folder = CopyFolder::create_in(parent)
            .map_err(|error| CopyError::open(SqliteOpenError::failed(&path, error)))?;
        let (connection, _) =
            file::open(&folder.path().join("copy.db"), &SqliteOptions::default()).map_err(CopyError::open)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(CopyError::failed)?;
        Ok(Self { rows: SqliteCopySource(connection), folder, path })
    }
}

impl CopySink for SqliteCopyTarget {
    async fn insert_records(&mut self, rows: &[RecordRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_RECORD).map_err(CopyError::failed)?;
        for row in rows {
            let RecordRow { company, collection, id, version, updated_ms, value } = row;
            let values = params![company, collection, id, version, updated_ms, value];
            insert.execute(values).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_jobs(&mut self, rows: &[JobTableRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_JOB).map_err(CopyError::failed)?;
        for row in rows {
            let values = params![
                row.id,
                row.company,
                row.user_id,
                row.tool,
                row.assignment,
                row.idempotency,
                row.state,
                row.wake_ms,
                row.ended_ms,
                row.dead,
                row.body,
                row.progress,
                row.agent,
            ];
            insert.execute(values).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_threads(&mut self, rows: &[ThreadRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_THREAD).map_err(CopyError::failed)?;
        for row in rows {
            let ThreadRow { n, company, owner, id, agent, archived, status, origin, active_ms, body } = row;
            let values = params![n, company, owner, id, agent, archived, status, origin, active_ms, body];
            insert.execute(values).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_nodes(&mut self, rows: &[NodeRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(&insert_node_sql()).map_err(CopyError::failed)?;
        rows.iter().try_for_each(|row| insert_node(&mut insert, row)).map_err(CopyError::failed)
    }

    async fn insert_runs(&mut self, rows: &[RunRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_RUN).map_err(CopyError::failed)?;
        for row in rows {
            let RunRow {
                n,
                company,
                owner,
                id,
                thread,
                agent,
                state,
                kind,
                process,
                body,
                seq,
                log_until_ms,
                due_ms,
            } = row;
            let values = params![
                n,
                company,
                owner,
                id,
                thread,
                agent,
                state,
                kind,
                process,
                body,
                seq,
                log_until_ms,
                due_ms
            ];
            insert.execute(values).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_logs(&mut self, rows: &[LogRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_LOG).map_err(CopyError::failed)?;
        for LogRow { run, first, last, body } in rows {
            insert.execute(params![run, first, last, body]).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_feedback(&mut self, rows: &[FeedbackRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_FEEDBACK).map_err(CopyError::failed)?;
        rows.iter().try_for_each(|row| insert_feedback(&mut insert, row)).map_err(CopyError::failed)
    }

    async fn insert_contexts(&mut self, rows: &[ContextRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(INSERT_CONTEXT).map_err(CopyError::failed)?;
        for ContextRow { thread, seq, turn, body } in rows {
            insert.execute(params![thread, seq, turn, body]).map_err(CopyError::failed)?;
        }
        Ok(())
    }

    async fn insert_usage_calls(&mut self, rows: &[CallRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(&insert_call()).map_err(CopyError::failed)?;
        rows.iter().try_for_each(|row| insert_call_row(&mut insert, row).map(drop)).map_err(CopyError::failed)
    }

    async fn insert_usage_days(&mut self, rows: &[DayRow]) -> Result<(), CopyError> {
        let mut insert = self.rows.0.prepare_cached(&upsert_day()).map_err(CopyError::failed)?;
        rows.iter().try_for_each(|row| insert_day_row(&mut insert, row)).map_err(CopyError::failed)
    }
}

/// Runs a query and reads its rows.
fn select<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, CopyError> {
    let rows =
        || -> rusqlite::Result<Vec<T>> { connection.prepare_cached(sql)?.query_map(values, read)?.collect() };
    rows().map_err(CopyError::failed)
}

fn thread_row(row: &Row<'_>) -> rusqlite::Result<ThreadRow> {
    Ok(ThreadRow {
        n: row.get(0)?,
        company: row.get(1)?,
        owner: row.get(2)?,
        id: row.get(3)?,
        agent: row.get(4)?,
        archived: row.get(5)?,
        status: row.get(6)?,
        origin: row.get(7)?,
        active_ms: row.get(8)?,
        body: row.get(9)?,
    })
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        n: row.get(0)?,
        company: row.get(1)?,
        owner: row.get(2)?,
        id: row.get(3)?,
        thread: row.get(4)?,
        agent: row.get(5)?,
        state: row.get(6)?,
        kind: row.get(7)?,
        process: row.get(8)?,
        body: row.get(9)?,
        seq: row.get(10)?,
        log_until_ms: row.get(11)?,
        due_ms: row.get(12)?,
    })
}

fn feedback_row(row: &Row<'_>) -> rusqlite::Result<FeedbackRow> {
    Ok(FeedbackRow {
        thread: row.get(0)?,
        seq: row.get(1)?,
        company: row.get(2)?,
        agent: row.get(3)?,
        at_ms: row.get(4)?,
        id: row.get(5)?,
        shared: row.get(6)?,
        body: row.get(7)?,
    })
}

fn context_row(row: &Row<'_>) -> rusqlite::Result<ContextRow> {
    Ok(ContextRow { thread: row.get(0)?, seq: row.get(1)?, turn: row.get(2)?, body: row.get(3)? })
}

fn call_row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        n: row.get(0)?,
        company: row.get(1)?,
        id: row.get(2)?,
        run: row.get(3)?,
        ended_ms: row.get(4)?,
        body: row.get(5)?,
    })
}

fn day_row(row: &Row<'_>) -> rusqlite::Result<DayRow> {
    let mut key: [String; KEY_COLUMNS.len()] = Default::default();
    for (position, column) in key.iter_mut().enumerate() {
        *column = row.get(position)?;
    }
    Ok(DayRow { key, sums: sum_columns(row, KEY_COLUMNS.len())? })
}

/// Reads chunks of logs until they have [`BATCH_LOG_BYTES`].
fn select_logs(connection: &Connection, after: Option<&LogRow>) -> rusqlite::Result<Vec<LogRow>> {
    let (run, first) = after.map_or((i64::MIN, 0), |row| (row.run, row.first));
    let mut select = connection.prepare_cached(SELECT_LOGS)?;
    let mut rows = select.query(params![run, first, ROWS_PER_PAGE])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_LOG_BYTES {
        let Some(row) = rows.next()? else { break };
        let row = log_row(row)?;
        bytes += row.body.len();
        found.push(row);
    }
    Ok(found)
}

impl CopyTarget for SqliteCopyTarget {
    fn rows(&mut self) -> &mut impl CopyRows {
        &mut self.rows
    }

    async fn set_last_version(&mut self, version: i64) -> Result<(), CopyError> {
        let version = u64::try_from(version).unwrap_or_default();
        schema::set_last_version(&self.rows.0, version).map_err(CopyError::failed)
    }

    async fn finish(self) -> Result<(), CopyError> {
        let Self { rows: SqliteCopySource(connection), folder, path } = self;
        connection.execute_batch("COMMIT").map_err(CopyError::failed)?;
        // Closing the last connection moves the write-ahead log into the file.
        connection.close().map_err(|(_, error)| CopyError::failed(error))?;
        let copy = folder.path().join("copy.db");
        std::fs::File::open(&copy).and_then(|file| file.sync_all()).map_err(CopyError::failed)?;
        // A link fails if another process has created the file meanwhile; a rename would replace it.
        match std::fs::hard_link(&copy, &path) {
            Ok(()) => sync_folder(path.parent().unwrap_or(&path)).map_err(CopyError::failed),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(CopyError::NotEmpty),
            Err(error) => Err(CopyError::failed(error)),
        }
    }
}

fn select_records(connection: &Connection, after: Option<&RecordRow>) -> rusqlite::Result<Vec<RecordRow>> {
    let (company, collection, id) =
        after.map_or(("", "", ""), |row| (row.company.as_str(), row.collection.as_str(), row.id.as_str()));
    let mut select = connection.prepare_cached(SELECT_RECORDS)?;
    let rows = select.query_map(params![company, collection, id, ROWS_PER_PAGE], |row| {
        Ok(RecordRow {
            company: row.get(0)?,
            collection: row.get(1)?,
            id: row.get(2)?,
            version: row.get(3)?,
            updated_ms: row.get(4)?,
            value: row.get(5)?,
        })
    })?;
    rows.collect()
}

fn select_jobs(connection: &Connection, after: Option<&JobTableRow>) -> rusqlite::Result<Vec<JobTableRow>> {
    let after = after.map_or("", |row| row.id.as_str());
    let mut select = connection.prepare_cached(SELECT_JOBS)?;
    let rows = select.query_map(params![after, ROWS_PER_PAGE], job_row)?;
    rows.collect()
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobTableRow> {
    Ok(JobTableRow {
        id: row.get(0)?,
        company: row.get(1)?,
        user_id: row.get(2)?,
        tool: row.get(3)?,
        assignment: row.get(4)?,
        idempotency: row.get(5)?,
        state: row.get(6)?,
        wake_ms: row.get(7)?,
        ended_ms: row.get(8)?,
        dead: row.get(9)?,
        body: row.get(10)?,
        progress: row.get(11)?,
        agent: row.get(12)?,
    })
}

fn last_version(connection: &Connection) -> Result<i64, CopyError> {
    let version = schema::last_version(connection).map_err(CopyError::failed)?;
    Ok(i64::try_from(version).unwrap_or(i64::MAX))
}
