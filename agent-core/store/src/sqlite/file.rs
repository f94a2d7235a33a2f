//! Opening of the file and its connections.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::vtab::array;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::open_error::SqliteOpenError;
use super::{SqliteOptions, schema};

/// Minimum SQLite version, 3.51.3. Older ones can lose a commit when the write-ahead log is reset.
const MIN_SQLITE_VERSION: i32 = 3_051_003;
/// Page size in bytes. A value of the typical two kilobytes fits into one page.
const PAGE_BYTES: u64 = 4096;
/// Size in bytes to which the write-ahead log is truncated after it was larger, such as after an import.
const WAL_TRUNCATE_BYTES: u64 = 64 << 20;
/// Length of the write-ahead log, in pages, at which the next commit checkpoints it. A page changed by many
/// commits is written once per checkpoint; a longer log would slow down reads and crash recovery.
const WAL_CHECKPOINT_PAGES: u32 = 4000;
/// Capacity of the prepared-statement cache of a connection: enough for all fixed statements and some job
/// lists.
const STATEMENT_CACHE_CAPACITY: usize = 128;
/// Delay between attempts for locks that SQLite's busy timeout does not cover.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Returns the absolute path, which SQLite always takes for a file. `:memory:` and `file:` have a special
/// meaning to it.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, SqliteOpenError> {
    std::path::absolute(path).map_err(|error| SqliteOpenError::failed(path, error))
}

/// Creates the file if needed and migrates it. Returns the writer connection and the last assigned record
/// version.
pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Connection, u64), SqliteOpenError> {
    if rusqlite::version_number() < MIN_SQLITE_VERSION {
        return Err(SqliteOpenError::Library { found: rusqlite::version() });
    }
    create(path)?;
    let failed = |error: rusqlite::Error| SqliteOpenError::failed(path, error);
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options).map_err(failed)?;
    // SQLite falls back to read-only for a file that it cannot write.
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(SqliteOpenError::ReadOnly(path.to_owned()));
    }
    // If two processes create a file at the same time, SQLite fails one of them without the busy timeout,
    // because each might wait for the other (deadlock avoidance).
    let deadline = Instant::now() + options.busy_timeout;
    let version = loop {
        match configure_and_migrate(&mut connection, path, options) {
            Err(SqliteOpenError::Locked(_)) if Instant::now() < deadline => thread::sleep(LOCK_RETRY_DELAY),
            outcome => break outcome?,
        }
    };
    Ok((connection, version))
}

/// Configures and migrates the file. Returns the last assigned record version.
fn configure_and_migrate(
    connection: &mut Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<u64, SqliteOpenError> {
    let failed = |error: rusqlite::Error| SqliteOpenError::failed(path, error);
    schema::check_ownership(connection, path)?;
    let mode = configure(connection, options).map_err(failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(SqliteOpenError::NoWriteAheadLog(path.to_owned()));
    }
    schema::check_tables(connection, path)?;
    schema::migrate(connection).map_err(failed)?;
    schema::last_version(connection).map_err(failed)
}

/// Opens a read-only connection to an existing file.
pub(super) fn open_reader(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?;
    array::load_module(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn connect(path: &Path, mode: OpenFlags, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    // Each connection belongs to one thread, so SQLite's own mutexes are not needed.
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    // Without this, a parameter that the planner compares with the condition of a partial index compiles the statement
    // again each time that a value is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Sets the connection's options. Returns the journal mode, which stays another if the file system does not support the
/// write-ahead log.
fn configure(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<String> {
    array::load_module(connection)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "full")?;
    // Overwrites what is deleted. Decision 0030 has the cost.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_TRUNCATE_BYTES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES, |_| Ok(()))?;
    if let Some(bytes) = options.max_file_bytes {
        let pages = (bytes / PAGE_BYTES).clamp(1, u64::from(u32::MAX - 1));
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(mode)
}

/// Creates an empty file for its owner only, if it does not exist. SQLite gives the write-ahead log the same
/// permissions. An existing file is not opened: closing it would release the POSIX locks that this process
/// may hold on it.
fn create(path: &Path) -> Result<(), SqliteOpenError> {
    let folder = path.parent().unwrap_or(path);
    let mut file = fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    match file.open(path) {
        Ok(_) => sync_folder(folder).map_err(|error| SqliteOpenError::failed(path, error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(()),
            Ok(_) => Err(SqliteOpenError::NotAFile(path.to_owned())),
            Err(error) => Err(SqliteOpenError::failed(path, error)),
        },
        Err(_) if !folder.is_dir() => Err(SqliteOpenError::NoFolder(folder.to_owned())),
        Err(error) => Err(SqliteOpenError::failed(path, error)),
    }
}

/// Flushes a directory entry to disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_statement_is_compiled_once_for_all_values() {
        let folder = tempfile::tempdir().expect("a folder");
        let (connection, _) =
            open(&folder.path().join("app.db"), &SqliteOptions::default()).expect("a store");
        // `runs` has partial indexes with conditions on this column.
        let mut statement =
            connection.prepare("SELECT n FROM runs WHERE company = ?1 AND state = ?2").expect("a statement");
        for state in ["waiting", "running", "queued"] {
            assert!(!statement.exists(["c1", state]).expect("read"));
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }

    /// A commit that was acknowledged must survive a power failure, which no test can cause.
    #[test]
    fn each_commit_is_flushed_to_the_write_ahead_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (connection, _) =
            open(&folder.path().join("app.db"), &SqliteOptions::default()).expect("a store");
        let synchronous: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0)).expect("read");
        let mode: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("read");
        assert_eq!((synchronous, mode.as_str()), (2, "wal"), "2 is FULL");
    }
}
