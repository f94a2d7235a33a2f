//! Database schema and migrations.

use std::collections::BTreeSet;
use std::path::Path;

use agent_platform::records::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error::WriteError;
use super::open_error::SqliteOpenError;
use crate::job_row::NewerSchemaError;

/// SQLite `application_id` of the store's files: `Agnt` in ASCII.
const APPLICATION_ID: i32 = 0x4167_6e74;

/// Migration steps, one per schema version; the first creates version 1. A released step must not be changed.
///
/// `records` is a rowid table with a separate index. In a `WITHOUT ROWID` table the rows are stored in the
/// index, whose pages cannot hold a value of two kilobytes, and reading one takes three times as long.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE records (
        company TEXT NOT NULL,
        collection TEXT NOT NULL,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (company, collection, id)
    ) STRICT;
    -- One row. Versions are of the whole store, so that a record that is made anew repeats none, and every
    -- transaction that changes something raises the number, so that other processes notice.
    CREATE TABLE counter (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        last_version INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counter (id, last_version) VALUES (1, 0);
", "
    CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY,
        company TEXT NOT NULL,
        user_id TEXT NOT NULL,
        tool TEXT,
        assignment TEXT,
        idempotency TEXT,
        state TEXT NOT NULL,
        -- When it is to be looked at, and since when it is final: never both.
        wake_ms INTEGER,
        ended_ms INTEGER,
        -- Whether something of it failed for good and can be run again.
        dead INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    -- Claims are chosen within this index, past the jobs of those who have their share, and nothing but what is
    -- taken is read.
    CREATE INDEX jobs_wake ON jobs (wake_ms, company, state) WHERE wake_ms IS NOT NULL;
    -- With the one before and the one after it, all states are counted without a look at the jobs.
    CREATE INDEX jobs_ended ON jobs (ended_ms, state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON jobs (id) WHERE state = 'paused';
    -- Lists, in the order of ids.
    CREATE INDEX jobs_company ON jobs (company, id);
    CREATE INDEX jobs_user ON jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON jobs (company, id) WHERE dead = 1;
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (company, idempotency) WHERE idempotency IS NOT NULL;
", "
    -- What has become of a job. In rows without it, the body has that too.
    ALTER TABLE jobs ADD COLUMN progress TEXT;
", "
    -- Agents' ids are unique within their company only; the platform's map of an id to its company is gone.
    UPDATE counter SET last_version = last_version + 1
        WHERE EXISTS (SELECT 1 FROM records WHERE company = '' AND collection = 'agents');
    DELETE FROM records WHERE company = '' AND collection = 'agents';
", "
    -- Times in `body` and `progress` are numbers; readers accept the text of older rows. Every row has `progress`: it
    -- ignores the fields of `body` that are not its own, and the reverse.
    UPDATE jobs SET progress = body WHERE progress IS NULL;
    -- The agent of the payload, for filters. NULL in a damaged row.
    ALTER TABLE jobs ADD COLUMN agent TEXT;
    UPDATE jobs SET agent = CASE WHEN json_valid(body) THEN json_extract(body, '$.payload.agentId') END;
", "
    -- Threads, with all of them in `body`; the other columns are for queries.
    CREATE TABLE threads (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        archived INTEGER NOT NULL,
        status TEXT NOT NULL,
        origin TEXT NOT NULL,
        active_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, owner, id)
    ) STRICT;
    CREATE INDEX threads_recent ON threads (company, owner, archived, active_ms, id);
    -- Messages. `seq` is the order in which they were stored: children come after their parent.
    CREATE TABLE nodes (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        parent INTEGER,
        id TEXT NOT NULL,
        client_id TEXT,
        turn TEXT NOT NULL,
        role TEXT NOT NULL,
        status TEXT NOT NULL,
        -- Of role and content, for the comparison with what clients send again.
        sha TEXT NOT NULL,
        run TEXT,
        origin TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) STRICT;
    CREATE UNIQUE INDEX nodes_id ON nodes (thread, id);
    -- Counts children.
    CREATE INDEX nodes_parent ON nodes (thread, parent);
    -- Runs, with all of them in `body`, in the order in which they began.
    CREATE TABLE runs (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        thread INTEGER NOT NULL,
        agent TEXT NOT NULL,
        state TEXT NOT NULL,
        kind TEXT NOT NULL,
        process TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, owner, id)
    ) STRICT;
    CREATE INDEX runs_thread ON runs (thread, n);
    CREATE INDEX runs_owner ON runs (company, owner, n);
    CREATE INDEX runs_live ON runs (process) WHERE state IN ('queued', 'running');
    -- Leases of the processes that have runs.
    CREATE TABLE processes (
        id TEXT NOT NULL PRIMARY KEY,
        lease_ms INTEGER NOT NULL
    ) STRICT;
", "
    -- Number among the owner's runs in the order in which they began. Cursors of lists have it, and not `n`, which
    -- would tell how active others are.
    ALTER TABLE runs ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
    UPDATE runs SET seq = n;
    -- Time until which the log is kept.
    ALTER TABLE runs ADD COLUMN log_until_ms INTEGER;
    DROP INDEX runs_thread;
    DROP INDEX runs_owner;
    CREATE INDEX runs_thread ON runs (thread, seq);
    CREATE INDEX runs_owner ON runs (company, owner, seq);
    CREATE INDEX runs_log ON runs (log_until_ms) WHERE log_until_ms IS NOT NULL;
    CREATE INDEX runs_waiting ON runs (company, n) WHERE state = 'waiting';
    -- Logs of runs: packed events by the numbers of the first and the last of them. Chunks are small, and those
    -- of a run are read in order.
    CREATE TABLE run_events (
        run INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (run, first)
    ) STRICT, WITHOUT ROWID;
    -- Signals to the processes of live runs.
    CREATE TABLE signals (
        process TEXT NOT NULL,
        run INTEGER NOT NULL,
        kind TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (process, run, kind)
    ) STRICT, WITHOUT ROWID;
", "
    -- Number of threads of each owner that has any. Counting them for each new thread would take time in proportion.
    CREATE TABLE thread_counts (
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        threads INTEGER NOT NULL,
        PRIMARY KEY (company, owner)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO thread_counts SELECT company, owner, count(*) FROM threads GROUP BY company, owner;
    CREATE TRIGGER thread_added AFTER INSERT ON threads BEGIN
        INSERT INTO thread_counts VALUES (new.company, new.owner, 1)
            ON CONFLICT (company, owner) DO UPDATE SET threads = threads + 1;
    END;
    CREATE TRIGGER thread_deleted AFTER DELETE ON threads BEGIN
        UPDATE thread_counts SET threads = threads - 1 WHERE company = old.company AND owner = old.owner;
        DELETE FROM thread_counts WHERE company = old.company AND owner = old.owner AND threads < 1;
    END;
    -- Ratings of messages, with all of them in `body`.
    CREATE TABLE feedback (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        company TEXT NOT NULL,
        agent TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        id TEXT NOT NULL,
        shared INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) STRICT;
    CREATE INDEX feedback_agent ON feedback (company, agent, at_ms, id);
    -- Also for a process of the version before, which does not know of feedback.
    CREATE TRIGGER thread_feedback_deleted AFTER DELETE ON threads BEGIN
        DELETE FROM feedback WHERE thread = old.n;
    END;
    CREATE TRIGGER node_feedback_deleted AFTER UPDATE OF status ON nodes WHEN new.status = 'deleted' BEGIN
        DELETE FROM feedback WHERE thread = old.thread AND seq = old.seq;
    END;
    -- Threads of visitors in the order of the list of the agent's owner.
    CREATE INDEX threads_visitors ON threads (company, agent, active_ms, owner, id) WHERE owner GLOB 'widget:*';
", "
    -- Calls of models and tools, with all of them in `body`; the other columns are for queries.
    CREATE TABLE usage_calls (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        id TEXT NOT NULL,
        run TEXT NOT NULL,
        ended_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, id)
    ) STRICT;
    CREATE INDEX usage_calls_run ON usage_calls (company, run, n);
    CREATE INDEX usage_calls_ended ON usage_calls (ended_ms);
    -- Sums of the calls by day.
    CREATE TABLE usage_days (
        company TEXT NOT NULL,
        day TEXT NOT NULL,
        agent TEXT NOT NULL,
        user_id TEXT NOT NULL,
        caller TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        operation TEXT NOT NULL,
        runs INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        input INTEGER NOT NULL,
        cached_input INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        output INTEGER NOT NULL,
        reasoning INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        cost INTEGER NOT NULL,
        estimated_cost INTEGER NOT NULL,
        unpriced_calls INTEGER NOT NULL,
        PRIMARY KEY (company, day, agent, user_id, caller, provider, model, operation)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_days_user ON usage_days (company, user_id, day);
    CREATE INDEX usage_days_agent ON usage_days (company, agent, day);
", "
    -- Contexts with which user messages were sent, by the turns that answer them.
    CREATE TABLE turn_contexts (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        turn TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq, turn)
    ) STRICT;
    -- Also for a process of the version before, which does not know of contexts.
    CREATE TRIGGER node_contexts_deleted AFTER DELETE ON nodes BEGIN
        DELETE FROM turn_contexts WHERE thread = old.thread AND seq = old.seq;
    END;
    CREATE TRIGGER node_contexts_erased AFTER UPDATE OF status ON nodes WHEN new.status = 'deleted' BEGIN
        DELETE FROM turn_contexts WHERE thread = old.thread AND seq = old.seq;
    END;
", "
    -- Time from which a run that waits needs no more decisions. A process of the version before sets none: such a run
    -- counts as due, which costs no more than in that version.
    ALTER TABLE runs ADD COLUMN due_ms INTEGER;
    CREATE INDEX runs_due ON runs (coalesce(due_ms, 0), n) WHERE state = 'waiting';
", "
    -- Children come after their parent, so that they are counted from there on by the primary key: mostly below the newest
    -- message. Each commit of messages changed a page of the index.
    DROP INDEX nodes_parent;
", "
    -- Counts and lists a user's jobs that are not final, past none that is. `ended_ms` is NULL in each entry; a count
    -- need not read the row to find that out.
    CREATE INDEX jobs_open ON jobs (company, user_id, id, ended_ms) WHERE ended_ms IS NULL;
"];

/// Returns an error if the file belongs to another program or a newer version. Changes nothing.
pub(super) fn check_ownership(connection: &mut Connection, path: &Path) -> Result<(), SqliteOpenError> {
    let found =
        read_marks_and_table_count(connection).map_err(|error| SqliteOpenError::failed(path, error))?;
    let known = newest_version(MIGRATIONS);
    match found {
        (0, 0, 0) => Ok(()),
        (APPLICATION_ID, version, _) if version > known => {
            Err(SqliteOpenError::Newer { path: path.to_owned(), found: version, known })
        }
        (APPLICATION_ID, ..) => Ok(()),
        _ => Err(SqliteOpenError::OtherProgram(path.to_owned())),
    }
}

/// Reads the file's marks and number of tables in one snapshot, because another process may be creating them.
fn read_marks_and_table_count(connection: &mut Connection) -> rusqlite::Result<(i32, i64, i64)> {
    let transaction = connection.transaction()?;
    let (application, version) = read_marks(&transaction)?;
    let tables = transaction.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    Ok((application, version, tables))
}

/// Returns the schema version of an existing file, and the newest one that this program knows. Changes nothing.
///
/// # Errors
/// The file cannot be read, or is of another or a newer program.
pub fn schema_versions(path: &Path) -> Result<(i64, i64), SqliteOpenError> {
    let failed = |error: rusqlite::Error| SqliteOpenError::failed(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    check_ownership(&mut connection, path)?;
    let (_, found) = read_marks(&connection).map_err(failed)?;
    Ok((found, newest_version(MIGRATIONS)))
}

/// Returns an error if a table of the file's schema version is missing, or has another definition than this program's.
pub(super) fn check_tables(connection: &mut Connection, path: &Path) -> Result<(), SqliteOpenError> {
    let failed = |error: rusqlite::Error| SqliteOpenError::failed(path, error);
    // One snapshot, because another process may be migrating the file.
    let transaction = connection.transaction().map_err(failed)?;
    let (_, version) = read_marks(&transaction).map_err(failed)?;
    let steps = usize::try_from(version).unwrap_or_default().min(MIGRATIONS.len());
    let expected = columns_after(steps).map_err(failed)?;
    let found = columns(&transaction).map_err(failed)?;
    match expected.is_subset(&found) {
        true => Ok(()),
        false => Err(SqliteOpenError::Incomplete { path: path.to_owned(), version }),
    }
}

/// Returns the columns of the tables that the first `steps` migrations make.
fn columns_after(steps: usize) -> rusqlite::Result<BTreeSet<(String, String)>> {
    let empty = Connection::open_in_memory()?;
    for step in &MIGRATIONS[..steps] {
        empty.execute_batch(step)?;
    }
    columns(&empty)
}

/// Returns all tables' columns, as table and column name.
fn columns(connection: &Connection) -> rusqlite::Result<BTreeSet<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT tables.name, columns.name
         FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let found = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    found.collect()
}

/// Migrates the file to the newest schema version, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    migrate_by(connection, MIGRATIONS)
}

fn migrate_by(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    if read_marks(connection)? == (APPLICATION_ID, newest_version(steps)) {
        return Ok(());
    }
    // Another process may open the file at the same time. The second one finds the steps done.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (_, version) = read_marks(&transaction)?;
    let applied_steps = usize::try_from(version).unwrap_or_default();
    for step in steps.iter().skip(applied_steps) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    // Never decreases the version: the second process may know fewer steps.
    transaction.pragma_update(None, "user_version", version.max(newest_version(steps)))?;
    transaction.commit()
}

/// Returns the application id and the schema version.
fn read_marks(connection: &Connection) -> rusqlite::Result<(i32, i64)> {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok((application, version))
}

fn newest_version(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// Returns an error if a newer program has migrated the file since it was opened.
///
/// A running process of an older version must not claim or change jobs that it may misread: it ends the deliveries
/// that it has started and leaves the others to the newer program.
pub(super) fn check_not_newer(connection: &Connection) -> Result<(), WriteError> {
    let mut statement = connection.prepare_cached("PRAGMA user_version")?;
    let found: i64 = statement.query_row((), |row| row.get(0))?;
    match newest_version(MIGRATIONS) {
        known if found > known => Err(StoreError::unavailable(NewerSchemaError { found, known }).into()),
        _ => Ok(()),
    }
}

/// Returns the last record version that was assigned, in any collection.
pub(super) fn last_version(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT last_version FROM counter WHERE id = 1")?
        .query_row((), |row| row.get(0))
}

/// Stores the last assigned record version.
pub(super) fn set_last_version(connection: &Connection, version: u64) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE counter SET last_version = ?1 WHERE id = 1")?.execute([version])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_migration_runs_once_and_keeps_existing_rows() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate_by(&mut connection, MIGRATIONS).expect("from nothing");
        set_last_version(&connection, 7).expect("written");
        let steps = [MIGRATIONS, &["ALTER TABLE counter ADD COLUMN note TEXT"]].concat();
        for _ in 0..2 {
            migrate_by(&mut connection, &steps).expect("from the version before");
            assert_eq!(read_marks(&connection).expect("read"), (APPLICATION_ID, newest_version(&steps)));
            assert_eq!(last_version(&connection).expect("read"), 7);
        }
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().expect("a database");
        let steps = [MIGRATIONS, &["CREATE TABLE more (id TEXT) STRICT; SELECT broken"]].concat();
        migrate_by(&mut connection, &steps).expect_err("a broken step");
        assert_eq!(read_marks(&connection).expect("read"), (0, 0));
        last_version(&connection).expect_err("no table is there");
    }
}
