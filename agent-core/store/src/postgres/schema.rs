//! Database schema and migrations.

use std::time::Duration;

use agent_platform::records::StoreError;
use tokio_postgres::Row;

use super::PostgresOpenError;
use super::fault::PostgresError;
use super::session::Session;
use crate::job_row::NewerSchemaError;

/// Minimum server version, 13, as `server_version_num`: the oldest that supports all table settings used
/// here.
const MIN_SERVER_VERSION: i32 = 130_000;

/// Advisory lock that serializes migrations. The keys are `Agnt` and `Jobs` in ASCII.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(1097297524, 1248813683)";

/// Timeout of a migration step, and of waiting for another process's migration.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(600);

/// Migration steps, one per schema version; the first creates version 1. A released step must not be changed.
///
/// Text columns use the collation `C`: cursors require byte order, and comparison is fastest in it. The job
/// is stored as `text`, because `jsonb` rejects NUL and normalizes numbers.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE scheduler.jobs (
        id text COLLATE \"C\" NOT NULL PRIMARY KEY,
        company text COLLATE \"C\" NOT NULL,
        user_id text COLLATE \"C\" NOT NULL,
        tool text COLLATE \"C\",
        assignment text COLLATE \"C\",
        idempotency text COLLATE \"C\",
        state text COLLATE \"C\" NOT NULL,
        -- When it is to be looked at, and since when it is final: never both.
        wake_ms bigint,
        ended_ms bigint,
        -- Whether something of it failed for good and can be run again.
        dead boolean NOT NULL,
        body text NOT NULL
    ) WITH (
        -- Every step leaves a dead row behind, and the earliest ones lie where the next claim looks first.
        autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05
    );
    -- Claims, in their order.
    CREATE INDEX jobs_wake ON scheduler.jobs (wake_ms, id) INCLUDE (company, state) WHERE wake_ms IS NOT NULL;
    -- Claims where some companies have their share.
    CREATE INDEX jobs_turn ON scheduler.jobs (company, wake_ms, id) INCLUDE (state) WHERE wake_ms IS NOT NULL;
    -- With jobs_wake and the one after it, all states are counted without a look at the jobs.
    CREATE INDEX jobs_ended ON scheduler.jobs (ended_ms) INCLUDE (state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON scheduler.jobs (id) WHERE state = 'paused';
    -- Lists, in the order of ids.
    CREATE INDEX jobs_company ON scheduler.jobs (company, id);
    CREATE INDEX jobs_user ON scheduler.jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON scheduler.jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON scheduler.jobs (company, id) WHERE dead;
    CREATE UNIQUE INDEX jobs_idempotency ON scheduler.jobs (company, idempotency) WHERE idempotency IS NOT NULL;
", "
    -- What has become of a job. In rows without it, the body has that too.
    ALTER TABLE scheduler.jobs ADD COLUMN progress text;
", "
    -- Times in `body` and `progress` are numbers; readers accept the text of older rows. Every row has `progress`: it
    -- ignores the fields of `body` that are not its own, and the reverse.
    UPDATE scheduler.jobs SET progress = body WHERE progress IS NULL;
    -- The agent of the payload, for filters. It is read by an expression, since a cast of a damaged row to JSON would
    -- fail; a quotation mark within a string is escaped in `body`. NULL in a damaged row.
    ALTER TABLE scheduler.jobs ADD COLUMN agent text COLLATE \"C\";
    UPDATE scheduler.jobs SET agent = regexp_replace(
        substring(body FROM '\"agentId\":\"((?:[^\"\\\\]|\\\\.)*)\"'), '\\\\(.)', '\\1', 'g');
"];

/// Reads the schema version.
pub(super) const SELECT_VERSION: &str = "SELECT version FROM scheduler.schema_version";

/// Returns an error if a newer program has migrated the schema since it was opened. `rows` are those of
/// [`SELECT_VERSION`].
///
/// A running process of an older version must not claim or change jobs that it may misread: it ends the deliveries
/// that it has begun and leaves the others to the newer program.
pub(super) fn check_not_newer(rows: Option<&Vec<Row>>) -> Result<(), StoreError> {
    let found: i32 = rows.and_then(|rows| rows.first()).map_or(0, |row| row.get(0));
    match newest_version(MIGRATIONS) {
        known if found > known => {
            Err(StoreError::unavailable(NewerSchemaError { found: found.into(), known: known.into() }))
        }
        _ => Ok(()),
    }
}

/// Migrates the database to the newest schema version, in one transaction.
pub(super) async fn ensure_schema(session: &mut Session) -> Result<(), PostgresOpenError> {
    check_server(session).await?;
    let known = newest_version(MIGRATIONS);
    match read_schema_state(session).await? {
        SchemaState::Version(version) if version > known => {
            Err(PostgresOpenError::Newer { found: version, known })
        }
        SchemaState::Version(version) if version == known => Ok(()),
        SchemaState::OtherProgram => Err(PostgresOpenError::OtherProgram),
        SchemaState::Empty | SchemaState::Version(_) => migrate(session).await,
    }
}

/// Returns an error if the server cannot store jobs: wrong version, encoding, or read-only.
async fn check_server(session: &Session) -> Result<(), PostgresOpenError> {
    let asked = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'),
                        current_setting('transaction_read_only')";
    let rows = session.query(asked, &[]).await?;
    let row = rows.first().ok_or_else(missing_row_error)?;
    let (version, encoding, read_only): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
    if version < MIN_SERVER_VERSION {
        return Err(PostgresOpenError::Server { found: version / 10_000 });
    }
    if encoding != "UTF8" {
        return Err(PostgresOpenError::Encoding { found: encoding });
    }
    if read_only == "on" { Err(PostgresOpenError::ReadOnly) } else { Ok(()) }
}

enum SchemaState {
    Empty,
    /// The schema contains tables of another program.
    OtherProgram,
    Version(i32),
}

async fn read_schema_state(session: &Session) -> Result<SchemaState, PostgresOpenError> {
    let asked = "SELECT to_regclass('scheduler.schema_version') IS NOT NULL, EXISTS (
                     SELECT FROM pg_class WHERE relnamespace = to_regnamespace('scheduler')
                 )";
    let rows = session.query(asked, &[]).await?;
    let row = rows.first().ok_or_else(missing_row_error)?;
    match (row.get(0), row.get(1)) {
        (true, _) => {
            let rows = session.query(SELECT_VERSION, &[]).await?;
            Ok(rows.first().map_or(SchemaState::OtherProgram, |row| SchemaState::Version(row.get(0))))
        }
        (false, true) => Ok(SchemaState::OtherProgram),
        (false, false) => Ok(SchemaState::Empty),
    }
}

/// Runs the missing migration steps. Concurrent migrations wait for the advisory lock and then find the steps
/// done.
async fn migrate(session: &mut Session) -> Result<(), PostgresOpenError> {
    session.set_response_timeout(MIGRATION_TIMEOUT);
    let limit = MIGRATION_TIMEOUT.as_millis();
    session.run("BEGIN").await?;
    session.run(&format!("SET LOCAL lock_timeout = {limit}; SET LOCAL statement_timeout = {limit}")).await?;
    session.run(MIGRATION_LOCK).await?;
    let done = match read_schema_state(session).await? {
        SchemaState::Version(version) => version,
        SchemaState::OtherProgram => return Err(PostgresOpenError::OtherProgram),
        SchemaState::Empty => {
            // Checked first, because `CREATE SCHEMA IF NOT EXISTS` requires a privilege that the user of an
            // existing schema need not have.
            let rows = session.query("SELECT to_regnamespace('scheduler') IS NULL", &[]).await?;
            if rows.first().is_none_or(|row| row.get(0)) {
                session.run("CREATE SCHEMA scheduler").await?;
            }
            let sql = "CREATE TABLE scheduler.schema_version (version int4 NOT NULL);
                       INSERT INTO scheduler.schema_version (version) VALUES (0)";
            session.run(sql).await?;
            0
        }
    };
    for step in MIGRATIONS.iter().skip(usize::try_from(done).unwrap_or_default()) {
        session.run(step).await?;
    }
    // Never decreases the version: a process that waited for the lock may know fewer steps.
    let version = done.max(newest_version(MIGRATIONS));
    session.run(&format!("UPDATE scheduler.schema_version SET version = {version}; COMMIT")).await?;
    Ok(())
}

fn newest_version(steps: &[&str]) -> i32 {
    i32::try_from(steps.len()).unwrap_or(i32::MAX)
}

/// Returns the error for a result without its expected row.
fn missing_row_error() -> PostgresError {
    PostgresError::from_kind(super::PostgresErrorKind::Failed)
}
