//! PostgreSQL databases as source and target of a copy.

use tokio_postgres::Row;

use super::conversations::feedback_tables::insert_feedback;
use super::conversations::log_tables::{insert_logs, log_row};
use super::conversations::tables::{NODE_COLUMNS, insert_nodes, node_row};
use super::param::Param;
use super::schema::{APP, APP_JOBS};
use super::session::{Session, Values};
use super::usage::{insert_call_rows, insert_day_rows, select_call_rows, select_day_rows};
use super::{PostgresError, PostgresErrorKind, PostgresOpenError, PostgresOptions};
use crate::conversation_row::{BATCH_LOG_BYTES, ContextRow, FeedbackRow, LogRow, NodeRow, RunRow, ThreadRow};
use crate::copy_rows::{CopyError, CopyRows, CopySink, CopyTarget, JobTableRow, ROWS_PER_PAGE, RecordRow};
use crate::usage_row::{CallRow, DayRow};

/// Makes the tables of both schemas visible, and allows a long transaction.
const SET_UP: &str = "
    SET LOCAL search_path = app, app_jobs;
    SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0";

const SELECT_RECORDS: &str = "
    SELECT company, collection, id, version, updated_ms, value FROM records
    WHERE (company, collection, id) > ($1, $2, $3) ORDER BY company, collection, id LIMIT $4";

const SELECT_JOBS: &str = "
    SELECT id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent
    FROM jobs WHERE id > $1 ORDER BY id LIMIT $2";

const INSERT_RECORDS: &str = "
    INSERT INTO records (company, collection, id, version, updated_ms, value)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::text[])";

const INSERT_JOBS: &str = "
    INSERT INTO jobs
        (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $8::int8[], $9::int8[], $10::bool[], $11::text[], $12::text[], $13::text[])";

const SELECT_THREADS: &str = "
    SELECT n, company, owner, id, agent, archived, status, origin, active_ms, body FROM threads
    WHERE n > $1 ORDER BY n LIMIT $2";

const INSERT_THREADS: &str = "
    INSERT INTO threads (n, company, owner, id, agent, archived, status, origin, active_ms, body)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bool[], $7::text[],
                         $8::text[], $9::int8[], $10::text[])";

const SELECT_RUNS: &str = "
    SELECT n, company, owner, id, thread, agent, state, kind, process, body, seq, log_until_ms, due_ms FROM runs
    WHERE n > $1 ORDER BY n LIMIT $2";

const INSERT_RUNS: &str = "
    INSERT INTO runs (n, company, owner, id, thread, agent, state, kind, process, body, seq, log_until_ms, due_ms)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::text[],
                         $8::text[], $9::text[], $10::text[], $11::int8[], $12::int8[], $13::int8[])";

/// Selects a page of chunks that has a number of bytes at most, and one more chunk.
const SELECT_LOGS: &str = "
    SELECT run, first, last, body FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY run, first) - octet_length(body) AS bytes_before FROM (
            SELECT run, first, last, body FROM run_events WHERE (run, first) > ($1, $2)
            ORDER BY run, first LIMIT $3
        ) AS page
    ) AS page WHERE bytes_before < $4 ORDER BY run, first";

/// Columns of feedback, in the order of [`feedback_row`].
const FEEDBACK_COLUMNS: &str = "thread, seq, company, agent, at_ms, id, shared, body";

/// Columns of a context, in the order of [`context_row`].
const CONTEXT_COLUMNS: &str = "thread, seq, turn, body";

/// Inserts rows from arrays of [`CONTEXT_COLUMNS`].
const INSERT_CONTEXTS: &str = "
    INSERT INTO turn_contexts (thread, seq, turn, body)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[])";

/// Sets the sequences of threads and runs to continue after the copied numbers.
const CONTINUE_NUMBERS: &str = "
    SELECT setval(pg_get_serial_sequence('threads', 'n'), greatest(1, (SELECT max(n) FROM threads))),
           setval(pg_get_serial_sequence('runs', 'n'), greatest(1, (SELECT max(n) FROM runs)))";

/// Returns true if the database has rows, and if the user may set the sequences, as the owner may.
const SELECT_TARGET_STATE: &str = "
    SELECT EXISTS (SELECT FROM records) OR EXISTS (SELECT FROM jobs) OR EXISTS (SELECT FROM threads)
               OR EXISTS (SELECT FROM usage_days),
           has_sequence_privilege('record_version', 'UPDATE')";

/// Makes the versions of new records follow the copied versions, and the versions that the database assigned before it was
/// emptied.
const CONTINUE_VERSIONS: &str = "
    SELECT setval('record_version', greatest($1::int8, (SELECT last_value FROM record_version)))";

/// A PostgreSQL database, read in one transaction.
pub(crate) struct PostgresCopySource(Session);

/// An empty PostgreSQL database in a transaction.
pub(crate) struct PostgresCopyTarget(PostgresCopySource);

impl PostgresCopySource {
    /// Opens the database, migrating it from an older version if needed, and begins a snapshot.
    pub(crate) async fn open(url: &str) -> Result<Self, CopyError> {
        let session = connect(url).await?;
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {SET_UP}");
        session.begin_as(&begin).await.map_err(CopyError::failed)?;
        Ok(Self(session))
    }
}

async fn connect(url: &str) -> Result<Session, CopyError> {
    // With a second connection, a pooler that is not named in the URL is noticed.
    let options = PostgresOptions { connections: 2, ..PostgresOptions::default() };
    APP_JOBS.open(url, &options).await.map_err(CopyError::open)?;
    let sessions = APP.open(url, &options).await.map_err(CopyError::open)?;
    sessions.get().await.map_err(CopyError::failed)
}

impl PostgresCopyTarget {
    /// Opens the database, creating its tables if needed, and begins a transaction. Other writers wait for its end.
    pub(crate) async fn open(url: &str) -> Result<Self, CopyError> {
        let session = connect(url).await?;
        // With the settings of the pool, behind a pooler too: the commit is durable, and the wait for the locks is bounded.
        session.begin(&[]).await.map_err(CopyError::failed)?;
        let lock = format!(
            "{SET_UP}; LOCK TABLE records, jobs, threads, nodes, runs, run_events, feedback, turn_contexts,
             usage_calls, usage_days IN EXCLUSIVE MODE"
        );
        session.run(&lock).await.map_err(CopyError::failed)?;
        let rows = session.query(SELECT_TARGET_STATE, &[]).await.map_err(CopyError::failed)?;
        match rows.first().map_or((true, false), |row| (row.get(0), row.get(1))) {
            (true, _) => Err(CopyError::NotEmpty),
            (false, false) => {
                let denied = PostgresError::from_kind(PostgresErrorKind::Denied);
                Err(CopyError::open(PostgresOpenError::from(denied)))
            }
            (false, true) => Ok(Self(PostgresCopySource(session))),
        }
    }
}

impl CopyRows for PostgresCopySource {
    async fn records(&mut self, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError> {
        select_records(&self.0, after).await
    }

    async fn jobs(&mut self, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError> {
        select_jobs(&self.0, after).await
    }

    async fn threads(&mut self, after: Option<&ThreadRow>) -> Result<Vec<ThreadRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        let rows = self.0.query(SELECT_THREADS, &[&after, &page_size()]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(thread_row).collect())
    }

    async fn nodes(&mut self, after: Option<&NodeRow>) -> Result<Vec<NodeRow>, CopyError> {
        let (thread, seq) = after.map_or((i64::MIN, 0), |row| (row.thread, row.seq));
        let sql = format!(
            "SELECT {NODE_COLUMNS} FROM nodes WHERE (thread, seq) > ($1, $2) ORDER BY thread, seq LIMIT $3"
        );
        let rows = self.0.query(&sql, &[&thread, &seq, &page_size()]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(node_row).collect())
    }

    async fn runs(&mut self, after: Option<&RunRow>) -> Result<Vec<RunRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        let rows = self.0.query(SELECT_RUNS, &[&after, &page_size()]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(run_row).collect())
    }

    async fn logs(&mut self, after: Option<&LogRow>) -> Result<Vec<LogRow>, CopyError> {
        let (run, first) = after.map_or((i64::MIN, 0), |row| (row.run, row.first));
        let max_bytes = i64::try_from(BATCH_LOG_BYTES).unwrap_or(i64::MAX);
        let rows = self.0.query(SELECT_LOGS, &[&run, &first, &page_size(), &max_bytes]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(|row| log_row(row, 0)).collect())
    }

    async fn feedback(&mut self, after: Option<&FeedbackRow>) -> Result<Vec<FeedbackRow>, CopyError> {
        let (thread, seq) = after.map_or((i64::MIN, 0), |row| (row.thread, row.seq));
        let sql = format!(
            "SELECT {FEEDBACK_COLUMNS} FROM feedback WHERE (thread, seq) > ($1, $2) ORDER BY thread, seq LIMIT $3"
        );
        let rows = self.0.query(&sql, &[&thread, &seq, &page_size()]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(feedback_row).collect())
    }

    async fn contexts(&mut self, after: Option<&ContextRow>) -> Result<Vec<ContextRow>, CopyError> {
        let (thread, seq, turn) =
            after.map_or((i64::MIN, 0, ""), |row| (row.thread, row.seq, row.turn.as_str()));
        let sql = format!(
            "SELECT {CONTEXT_COLUMNS} FROM turn_contexts WHERE (thread, seq, turn) > ($1, $2, $3)
             ORDER BY thread, seq, turn LIMIT $4"
        );
        let rows = self.0.query(&sql, &[&thread, &seq, &turn, &page_size()]).await;
        Ok(rows.map_err(CopyError::failed)?.iter().map(context_row).collect())
    }

    async fn usage_calls(&mut self, after: Option<&CallRow>) -> Result<Vec<CallRow>, CopyError> {
        let after = after.map_or(i64::MIN, |row| row.n);
        select_call_rows(&self.0, after, page_size()).await.map_err(CopyError::failed)
    }

    async fn usage_days(&mut self, after: Option<&DayRow>) -> Result<Vec<DayRow>, CopyError> {
        select_day_rows(&self.0, after, page_size()).await.map_err(CopyError::failed)
    }

    async fn last_version(&mut self) -> Result<i64, CopyError> {
        last_version(&self.0).await
    }
}

impl CopySink for PostgresCopyTarget {
    async fn insert_records(&mut self, rows: &[RecordRow]) -> Result<(), CopyError> {
        let text = |column: fn(&RecordRow) -> &String| -> Vec<&str> {
            rows.iter().map(|row| column(row).as_str()).collect()
        };
        let number = |column: fn(&RecordRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
        let (companies, collections, ids) =
            (text(|row| &row.company), text(|row| &row.collection), text(|row| &row.id));
        let (versions, updated, values) =
            (number(|row| row.version), number(|row| row.updated_ms), text(|row| &row.value));
        let values: Values<'_> = &[&companies, &collections, &ids, &versions, &updated, &values];
        self.0.0.query(INSERT_RECORDS, values).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_jobs(&mut self, rows: &[JobTableRow]) -> Result<(), CopyError> {
        let text = |column: fn(&JobTableRow) -> Option<&str>| -> Vec<Option<&str>> {
            rows.iter().map(column).collect()
        };
        let number = |column: fn(&JobTableRow) -> Option<i64>| -> Vec<Option<i64>> {
            rows.iter().map(column).collect()
        };
        let dead: Vec<bool> = rows.iter().map(|row| row.dead).collect();
        let values: Values<'_> = &[
            &text(|row| Some(&row.id)),
            &text(|row| Some(&row.company)),
            &text(|row| Some(&row.user_id)),
            &text(|row| row.tool.as_deref()),
            &text(|row| row.assignment.as_deref()),
            &text(|row| row.idempotency.as_deref()),
            &text(|row| Some(&row.state)),
            &number(|row| row.wake_ms),
            &number(|row| row.ended_ms),
            &dead,
            &text(|row| Some(&row.body)),
            &text(|row| row.progress.as_deref()),
            &text(|row| row.agent.as_deref()),
        ];
        self.0.0.query(INSERT_JOBS, values).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_threads(&mut self, rows: &[ThreadRow]) -> Result<(), CopyError> {
        let text = |column: fn(&ThreadRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
        let archived: Vec<bool> = rows.iter().map(|row| row.archived).collect();
        let numbers: Vec<i64> = rows.iter().map(|row| row.n).collect();
        let active: Vec<i64> = rows.iter().map(|row| row.active_ms).collect();
        let values: Values<'_> = &[
            &numbers,
            &text(|row| &row.company),
            &text(|row| &row.owner),
            &text(|row| &row.id),
            &text(|row| &row.agent),
            &archived,
            &text(|row| &row.status),
            &text(|row| &row.origin),
            &active,
            &text(|row| &row.body),
        ];
        self.0.0.query(INSERT_THREADS, values).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_nodes(&mut self, rows: &[NodeRow]) -> Result<(), CopyError> {
        insert_nodes(&self.0.0, rows).await.map_err(CopyError::failed)
    }

    async fn insert_runs(&mut self, rows: &[RunRow]) -> Result<(), CopyError> {
        let text = |column: fn(&RunRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
        let numbers: Vec<i64> = rows.iter().map(|row| row.n).collect();
        let threads: Vec<i64> = rows.iter().map(|row| row.thread).collect();
        let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        let log_ends: Vec<Option<i64>> = rows.iter().map(|row| row.log_until_ms).collect();
        let due: Vec<Option<i64>> = rows.iter().map(|row| row.due_ms).collect();
        let values: Values<'_> = &[
            &numbers,
            &text(|row| &row.company),
            &text(|row| &row.owner),
            &text(|row| &row.id),
            &threads,
            &text(|row| &row.agent),
            &text(|row| &row.state),
            &text(|row| &row.kind),
            &text(|row| &row.process),
            &text(|row| &row.body),
            &seqs,
            &log_ends,
            &due,
        ];
        self.0.0.query(INSERT_RUNS, values).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_logs(&mut self, rows: &[LogRow]) -> Result<(), CopyError> {
        insert_logs(&self.0.0, rows).await.map_err(CopyError::failed)
    }

    async fn insert_feedback(&mut self, rows: &[FeedbackRow]) -> Result<(), CopyError> {
        insert_feedback(&self.0.0, rows).await.map_err(CopyError::failed)
    }

    async fn insert_contexts(&mut self, rows: &[ContextRow]) -> Result<(), CopyError> {
        insert_contexts(&self.0.0, rows).await.map_err(CopyError::failed)
    }

    async fn insert_usage_calls(&mut self, rows: &[CallRow]) -> Result<(), CopyError> {
        insert_call_rows(&self.0.0, rows).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_usage_days(&mut self, rows: &[DayRow]) -> Result<(), CopyError> {
        insert_day_rows(&self.0.0, rows).await.map_err(CopyError::failed)
    }
}

impl CopyTarget for PostgresCopyTarget {
    fn rows(&mut self) -> &mut impl CopyRows {
        &mut self.0
    }

    async fn set_last_version(&mut self, version: i64) -> Result<(), CopyError> {
        self.0.0.query(CONTINUE_VERSIONS, &[&version]).await.map(drop).map_err(CopyError::failed)
    }

    async fn finish(self) -> Result<(), CopyError> {
        self.0.0.commit(&[(CONTINUE_NUMBERS, &[])]).await.map(drop).map_err(CopyError::failed)
    }
}

async fn select_records(session: &Session, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError> {
    let (company, collection, id) =
        after.map_or(("", "", ""), |row| (row.company.as_str(), row.collection.as_str(), row.id.as_str()));
    let rows = session.query(SELECT_RECORDS, &[&company, &collection, &id, &page_size()]).await;
    let record = |row: &Row| RecordRow {
        company: row.get(0),
        collection: row.get(1),
        id: row.get(2),
        version: row.get(3),
        updated_ms: row.get(4),
        value: row.get(5),
    };
    Ok(rows.map_err(CopyError::failed)?.iter().map(record).collect())
}

async fn select_jobs(session: &Session, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError> {
    let after = after.map_or("", |row| row.id.as_str());
    let rows = session.query(SELECT_JOBS, &[&after, &page_size()]).await;
    let job = |row: &Row| JobTableRow {
        id: row.get(0),
        company: row.get(1),
        user_id: row.get(2),
        tool: row.get(3),
        assignment: row.get(4),
        idempotency: row.get(5),
        state: row.get(6),
        wake_ms: row.get(7),
        ended_ms: row.get(8),
        dead: row.get(9),
        body: row.get(10),
        progress: row.get(11),
        agent: row.get(12),
    };
    Ok(rows.map_err(CopyError::failed)?.iter().map(job).collect())
}

fn thread_row(row: &Row) -> ThreadRow {
    ThreadRow {
        n: row.get(0),
        company: row.get(1),
        owner: row.get(2),
        id: row.get(3),
        agent: row.get(4),
        archived: row.get(5),
        status: row.get(6),
        origin: row.get(7),
        active_ms: row.get(8),
        body: row.get(9),
    }
}

fn run_row(row: &Row) -> RunRow {
    RunRow {
        n: row.get(0),
        company: row.get(1),
        owner: row.get(2),
        id: row.get(3),
        thread: row.get(4),
        agent: row.get(5),
        state: row.get(6),
        kind: row.get(7),
        process: row.get(8),
        body: row.get(9),
        seq: row.get(10),
        log_until_ms: row.get(11),
        due_ms: row.get(12),
    }
}

fn page_size() -> i64 {
    i64::try_from(ROWS_PER_PAGE).unwrap_or(i64::MAX)
}

async fn last_version(session: &Session) -> Result<i64, CopyError> {
    let rows = session.query("SELECT last_value FROM record_version", &[]).await;
    Ok(rows.map_err(CopyError::failed)?.first().map_or(0, |row| row.get(0)))
}

/// Reads a row of [`FEEDBACK_COLUMNS`].
fn feedback_row(row: &Row) -> FeedbackRow {
    FeedbackRow {
        thread: row.get(0),
        seq: row.get(1),
        company: row.get(2),
        agent: row.get(3),
        at_ms: row.get(4),
        id: row.get(5),
        shared: row.get(6),
        body: row.get(7),
    }
}

/// Inserts contexts by one statement.
async fn insert_contexts(session: &Session, rows: &[ContextRow]) -> Result<(), PostgresError> {
    let text = |column: fn(&ContextRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
    let number = |column: fn(&ContextRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
    let values: [&(dyn Param + Sync); 4] =
        [&number(|row| row.thread), &number(|row| row.seq), &text(|row| &row.turn), &text(|row| &row.body)];
    session.query(INSERT_CONTEXTS, &values).await.map(drop)
}

/// Reads a row of [`CONTEXT_COLUMNS`].
fn context_row(row: &Row) -> ContextRow {
    ContextRow { thread: row.get(0), seq: row.get(1), turn: row.get(2), body: row.get(3) }
}
