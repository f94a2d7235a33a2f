//! Database schemas and migrations.
//!
//! Each kind of store has a separate schema with a table `schema_version` of one row: the version, and the oldest
//! version of a program that works with it. A release adds to the tables what it needs (expand), and the release after
//! it removes what is no longer used (contract), so that the processes of two successive releases can share a database
//! during an upgrade.

use std::time::{Duration, Instant};

use agent_platform::records::StoreError;
use tokio::time::sleep;
use tokio_postgres::Row;

use super::error::{PostgresError, PostgresErrorKind};
use super::session::{Session, SessionPool};
use super::{PostgresOpenError, PostgresOptions};
use crate::job_row::NewerSchemaError;

mod jobs;
mod records;

/// Minimum server version, 13, as `server_version_num`: the oldest that supports all table settings used
/// here.
const MIN_SERVER_VERSION: i32 = 130_000;

/// Timeout of a migration step, of waiting for another process's migration, and of waiting for the locks of tables.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout of one attempt to lock a table. Statements of running processes wait behind the attempt, so it is shorter than
/// their own timeout of locks.
const TABLE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before a migration that could not lock a table begins again.
const LOCK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Makes the server end a migration whose process was killed while a step waits for a lock, where the server can
/// (PostgreSQL 14). Otherwise the next migration would wait until the step times out.
const DETECT_LOST_CLIENT: &str = "
    SELECT set_config(name, '1s', true) FROM pg_settings WHERE name = 'client_connection_check_interval'";

/// Selects the schema version and the oldest compatible version, and more columns.
macro_rules! select_versions {
    ($columns:literal) => {
        concat!(
            "SELECT version, coalesce((to_jsonb(found) ->> 'compatible_from')::int4, version)",
            $columns,
            " FROM schema_version AS found"
        )
    };
}

/// A schema and its migration steps.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: &'static str,
    /// A table that every version has, and a column of it, which distinguish the schema from another program's.
    table: (&'static str, &'static str),
    /// Migration steps, one per schema version; the first creates version 1. A released step must not be changed.
    steps: &'static [&'static str],
    /// Oldest version of a program that works with the newest version of the schema.
    compatible_from: i32,
    /// Second key of the advisory lock that serializes migrations.
    lock: i32,
}

/// First key of the advisory locks: `Agnt` in ASCII.
const LOCK_NAMESPACE: i32 = 0x4167_6e74;

/// Jobs of the scheduler. Running processes that are not compatible with a newer version stop when the schema is migrated to
/// it; see [`check_not_newer`].
pub(super) static SCHEDULER: Schema = Schema {
    name: "scheduler",
    table: ("jobs", "wake_ms"),
    steps: jobs::STEPS,
    // Version 3 has the rows of version 4, which adds an index.
    compatible_from: 3,
    lock: 0x4a6f_6273,
};

/// Jobs of an application without a scheduler.
pub(super) static APP_JOBS: Schema = Schema { name: "app_jobs", lock: 0x4c6f_636c, ..SCHEDULER };

/// Records of the application.
pub(super) static APP: Schema = Schema {
    name: "app",
    table: ("records", "updated_ms"),
    steps: records::STEPS,
    compatible_from: 1,
    lock: 0x5265_6373,
};

/// Reads the schema version and the oldest compatible version. Tables of the first releases have no column for the
/// latter: only programs of the same version work with them.
pub(super) const SELECT_VERSIONS: &str = select_versions!("");

/// Like [`SELECT_VERSIONS`], and sets the timeout `$1` of each lock of the transaction in the same statement.
pub(super) const SELECT_VERSIONS_WITH_LOCK_TIMEOUT: &str =
    select_versions!(", set_config('lock_timeout', $1, true)");

/// Returns true for a schema of this program, and for a schema with tables. Other programs, too, have a table of versions of
/// this name: this one's has numbers, and beside it the oldest compatible version or, since the first release, a table `$2`
/// with a column `$3`.
const SELECT_ORIGIN: &str = "
    SELECT coalesce(bool_or(is_version) AND bool_or(NOT is_version), false),
           EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1))
    FROM (
        SELECT attname = 'version' AS is_version FROM pg_attribute
        WHERE attrelid = to_regclass($1 || '.schema_version') AND attname IN ('version', 'compatible_from')
          AND atttypid = 'int4'::regtype
        UNION ALL
        SELECT false FROM pg_attribute
        WHERE attrelid = to_regclass($1 || '.' || $2::text) AND attname = $3::text
    ) AS found";

/// Returns an error if a newer program, with which this one is not compatible, has migrated the schema of jobs since it was
/// opened. `rows` are those of [`SELECT_VERSIONS`].
///
/// A running process of an older version must not claim or change jobs that it may misread: it ends the deliveries
/// that it has started and leaves the others to the newer program.
pub(super) fn check_not_newer(rows: Option<&Vec<Row>>) -> Result<(), StoreError> {
    let known = SCHEDULER.newest();
    match rows.and_then(|rows| rows.first()).and_then(|row| SchemaState::from_row(row).newer_than(known)) {
        Some(found) => {
            Err(StoreError::unavailable(NewerSchemaError { found: found.into(), known: known.into() }))
        }
        None => Ok(()),
    }
}

/// State of a schema in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaState {
    /// The schema has no tables.
    Empty,
    /// The schema contains tables of another program.
    OtherProgram,
    /// The schema contains the tables of this version.
    Version {
        version: i32,
        /// Oldest version of a program that works with it.
        compatible_from: i32,
    },
}

impl SchemaState {
    /// Reads a row of [`SELECT_VERSIONS`].
    fn from_row(row: &Row) -> Self {
        Self::Version { version: row.get(0), compatible_from: row.get(1) }
    }

    /// Returns the version of the schema, if a program that knows versions up to `known` is not compatible with it.
    fn newer_than(self, known: i32) -> Option<i32> {
        match self {
            Self::Version { version, compatible_from } => (compatible_from > known).then_some(version),
            Self::Empty | Self::OtherProgram => None,
        }
    }
}

impl Schema {
    /// Returns the channel of notifications about jobs.
    pub(super) fn job_channel(&self) -> &'static str {
        if self.name == SCHEDULER.name { "scheduler_jobs" } else { self.name }
    }

    /// Returns the newest version, which this program creates.
    pub(super) fn newest(&self) -> i32 {
        newest_version(self.steps)
    }

    /// Creates a pool of connections that find tables in the schema, and migrates the schema.
    pub(super) async fn open(
        &self,
        url: &str,
        options: &PostgresOptions,
    ) -> Result<SessionPool, PostgresOpenError> {
        let pool = SessionPool::connect(self.name, url, options)?;
        let mut session = pool.get().await?;
        pool.check_not_shared(&session).await?;
        // On an error, the session is dropped, which closes the connection and rolls back an open migration.
        self.ensure(&mut session).await?;
        drop(session);
        Ok(pool)
    }

    /// Migrates the schema to the newest version, in one transaction, unless it has that version or a newer compatible
    /// one.
    async fn ensure(&self, session: &mut Session) -> Result<(), PostgresOpenError> {
        match self.check(session).await? {
            SchemaState::Version { version, .. } if version >= self.newest() => Ok(()),
            _ => self.migrate(session).await,
        }
    }

    /// Returns the state of the schema if this program can use or migrate it.
    ///
    /// # Errors
    /// The server or the database cannot be used, or the schema is of a newer or another program.
    pub(super) async fn check(&self, session: &Session) -> Result<SchemaState, PostgresOpenError> {
        check_server(session).await?;
        let state = self.read_state(session).await?;
        self.check_state(state)?;
        Ok(state)
    }

    fn check_state(&self, state: SchemaState) -> Result<(), PostgresOpenError> {
        let (schema, known) = (self.name, self.newest());
        if state == SchemaState::OtherProgram {
            return Err(PostgresOpenError::OtherProgram { schema });
        }
        match state.newer_than(known) {
            Some(found) => Err(PostgresOpenError::Newer { schema, found, known }),
            None => Ok(()),
        }
    }

    async fn read_state(&self, session: &Session) -> Result<SchemaState, PostgresOpenError> {
        let (table, column) = self.table;
        let rows = session.query(SELECT_ORIGIN, &[&self.name, &table, &column]).await?;
        let row = rows.first().ok_or_else(missing_row_error)?;
        match (row.get(0), row.get(1)) {
            (true, _) => {
                let rows = session.query(SELECT_VERSIONS, &[]).await?;
                Ok(rows.first().map_or(SchemaState::OtherProgram, SchemaState::from_row))
            }
            (false, true) => Ok(SchemaState::OtherProgram),
            (false, false) => Ok(SchemaState::Empty),
        }
    }

    /// Runs the missing migration steps. A transaction of another session, such as a backup, may lock a table for a
    /// long time. The migration does not wait for it, since all later statements would wait behind the migration; it
    /// begins again until it gets the lock.
    async fn migrate(&self, session: &mut Session) -> Result<(), PostgresOpenError> {
        session.set_response_timeout(MIGRATION_TIMEOUT);
        let deadline = Instant::now() + MIGRATION_TIMEOUT;
        let mut is_reported = false;
        loop {
            match self.run_steps(session).await {
                Err(PostgresOpenError::Failed(error))
                    if error.kind() == PostgresErrorKind::Locked && Instant::now() < deadline =>
                {
                    session.run("ROLLBACK").await?;
                    if !is_reported {
                        tracing::warn!(schema = self.name, "the migration waits for a table that is in use");
                        is_reported = true;
                    }
                    sleep(LOCK_RETRY_DELAY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Runs the missing migration steps in one transaction. Concurrent migrations wait for the advisory lock and then find
    /// the steps done.
    async fn run_steps(&self, session: &Session) -> Result<(), PostgresOpenError> {
        let limit = MIGRATION_TIMEOUT.as_millis();
        session.begin(&[]).await?;
        session
            .run(&format!(
                "SET LOCAL lock_timeout = {limit}; SET LOCAL statement_timeout = {limit}; {DETECT_LOST_CLIENT}"
            ))
            .await?;
        let lock = format!("SELECT pg_advisory_xact_lock({LOCK_NAMESPACE}, {})", self.lock);
        session.run(&lock).await?;
        session.run(&format!("SET LOCAL lock_timeout = {}", TABLE_LOCK_TIMEOUT.as_millis())).await?;
        let state = self.read_state(session).await?;
        self.check_state(state)?;
        let found = match state {
            SchemaState::Version { version, .. } => version,
            _ => {
                self.create(session).await?;
                0
            }
        };
        for step in self.steps.iter().skip(usize::try_from(found).unwrap_or_default()) {
            session.run(step).await?;
        }
        // Never decreases the version: a process that waited for the lock may know fewer steps.
        let (version, compatible_from) = (found.max(self.newest()), self.compatible_from);
        let sql = format!(
            "ALTER TABLE schema_version ADD COLUMN IF NOT EXISTS compatible_from int4;
             UPDATE schema_version
             SET version = {version}, compatible_from = greatest(compatible_from, {compatible_from})"
        );
        session.run(&sql).await?;
        session.commit(&[]).await?;
        Ok(())
    }

    /// Creates the schema, if it does not exist, and its table of the version.
    async fn create(&self, session: &Session) -> Result<(), PostgresOpenError> {
        // Checked first, because `CREATE SCHEMA IF NOT EXISTS` requires a privilege that the user of an existing
        // schema need not have.
        let rows = session.query("SELECT to_regnamespace($1) IS NULL", &[&self.name]).await?;
        if rows.first().is_none_or(|row| row.get(0)) {
            session.run(&format!("CREATE SCHEMA {}", self.name)).await?;
        }
        let sql = "CREATE TABLE schema_version (version int4 NOT NULL);
                   INSERT INTO schema_version (version) VALUES (0)";
        session.run(sql).await?;
        Ok(())
    }
}

/// Returns an error if the server cannot be used: wrong version, encoding, or read-only.
async fn check_server(session: &Session) -> Result<(), PostgresOpenError> {
    let sql = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'),
                      current_setting('transaction_read_only')";
    let rows = session.query(sql, &[]).await?;
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

/// State of a schema's migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Name of the schema.
    pub schema: &'static str,
    /// Version in the database; 0 if the schema does not exist.
    pub found: i32,
    /// Newest version that this program knows.
    pub newest: i32,
}

/// Returns the state of the application's schemas, without changing anything.
///
/// # Errors
/// See [`PostgresOpenError`].
pub async fn migration_status(
    url: &str,
    options: &PostgresOptions,
) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    let mut status = Vec::new();
    for schema in [&APP, &APP_JOBS] {
        let sessions = SessionPool::connect(schema.name, url, options)?;
        let found = match schema.check(&sessions.get().await?).await? {
            SchemaState::Version { version, .. } => version,
            SchemaState::Empty | SchemaState::OtherProgram => 0,
        };
        status.push(MigrationStatus { schema: schema.name, found, newest: schema.newest() });
    }
    Ok(status)
}

/// Migrates the application's schemas to the newest version.
///
/// # Errors
/// See [`PostgresOpenError`].
pub async fn migrate(url: &str, options: &PostgresOptions) -> Result<(), PostgresOpenError> {
    for schema in [&APP, &APP_JOBS] {
        schema.open(url, options).await?;
    }
    Ok(())
}

const fn newest_version(steps: &[&str]) -> i32 {
    steps.len() as i32
}

/// Returns the error for a result without its expected row.
fn missing_row_error() -> PostgresError {
    PostgresError::from_kind(PostgresErrorKind::Failed)
}
