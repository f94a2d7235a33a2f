//! Opening the file.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::vtab::array;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::fault::{Fault, FaultKind};
use super::{SqliteOptions, schema};

/// Older versions of SQLite can lose a commit when a write-ahead log begins anew.
const LEAST_SQLITE: i32 = 3_051_003;
/// The bytes of a page. A value of the usual two kilobytes fits into one.
const PAGE_BYTES: u64 = 4096;
/// The bytes that the log is cut back to once it has been larger, as after an import.
const LOG_BYTES: u64 = 64 << 20;
/// The pages of the log from which on it is written into the file, by whoever commits next. A page that many commits
/// have changed is written once; a longer log would be slower to read and to begin anew after a crash.
const LOG_PAGES: u32 = 4000;
/// How many statements a connection keeps prepared: all that there are, and some lists of jobs.
const STATEMENTS: usize = 64;
/// How long a lock that SQLite does not wait for itself is left alone.
const RETRY: Duration = Duration::from_millis(5);

/// Why a file cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The SQLite that this program was built with.
    #[error("SQLite {found} is too old: its write-ahead log can lose commits before 3.51.3")]
    Library {
        /// Its version.
        found: &'static str,
    },
    /// The folder that the file would be in is not there.
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// There is something else than a file.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The file, or the folder that its log would be in, cannot be written.
    #[error("{} cannot be written", .0.display())]
    ReadOnly(PathBuf),
    /// There is a file that is no database, or one that is damaged at its beginning.
    #[error("{} is not an SQLite database", .0.display())]
    NotADatabase(PathBuf),
    /// There is a database, and another program's.
    #[error("{} is a database of another program", .0.display())]
    OtherProgram(PathBuf),
    /// A newer version of this program has written the file.
    #[error("{} has schema version {found}, and this program knows versions up to {known}", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// Another process holds the database locked, longer than it was waited for.
    #[error("{} is locked by another process", .0.display())]
    Locked(PathBuf),
    /// The disk has no room.
    #[error("there is no room for {}", .0.display())]
    Full(PathBuf),
    /// Anything else; the source says what.
    #[error("{} cannot be opened", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: Fault,
    },
}

impl OpenError {
    pub(super) fn failed(path: &Path, fault: impl Into<Fault>) -> Self {
        let (path, fault) = (path.to_owned(), fault.into());
        match fault.kind() {
            FaultKind::Full => Self::Full(path),
            FaultKind::Locked => Self::Locked(path),
            FaultKind::ReadOnly => Self::ReadOnly(path),
            FaultKind::Damaged => Self::NotADatabase(path),
            _ => Self::Failed { path, source: fault },
        }
    }
}

/// The path from the root, which SQLite cannot take for anything but a file's: `:memory:` and `file:` mean
/// something else to it.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    std::path::absolute(path).map_err(|error| OpenError::failed(path, error))
}

/// Makes the file if need be, brings it up to date, and gives the connection that writes and the version
/// that was given last.
pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Connection, u64), OpenError> {
    if rusqlite::version_number() < LEAST_SQLITE {
        return Err(OpenError::Library { found: rusqlite::version() });
    }
    create(path)?;
    let failed = |error: rusqlite::Error| OpenError::failed(path, error);
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options).map_err(failed)?;
    // SQLite opens what it cannot write for reading.
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(OpenError::ReadOnly(path.to_owned()));
    }
    // Where two processes make a file at the same time, SQLite refuses one of them without a wait, since
    // for all it knows each could wait for the other.
    let deadline = Instant::now() + options.busy_timeout;
    let version = loop {
        match bring_up(&mut connection, path, options) {
            Err(OpenError::Locked(_)) if Instant::now() < deadline => thread::sleep(RETRY),
            outcome => break outcome?,
        }
    };
    Ok((connection, version))
}

/// Brings the file up to date, and gives the version that was given last.
fn bring_up(connection: &mut Connection, path: &Path, options: &SqliteOptions) -> Result<u64, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::failed(path, error);
    schema::recognise(connection, path)?;
    configure(connection, options).map_err(failed)?;
    schema::migrate(connection).map_err(failed)?;
    schema::last_version(connection).map_err(failed)
}

/// A connection for reading alone, to a file that is open.
pub(super) fn open_reader(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn connect(path: &Path, mode: OpenFlags, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    // Each connection belongs to one thread, so SQLite's own mutexes would guard nothing.
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn configure(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    array::load_module(connection)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    // Gives back the mode that it has set.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()))?;
    if let Some(bytes) = options.max_file_bytes {
        let pages = (bytes / PAGE_BYTES).clamp(1, u64::from(u32::MAX - 1));
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

/// Makes an empty file for its owner alone, where there is none. The log beside it gets the same
/// permissions from SQLite. A file that is there is not touched: closing it would release the locks that
/// this process may hold on it already.
fn create(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(path);
    let mut file = fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    match file.open(path) {
        Ok(_) => sync_folder(folder).map_err(|error| OpenError::failed(path, error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(()),
            Ok(_) => Err(OpenError::NotAFile(path.to_owned())),
            Err(error) => Err(OpenError::failed(path, error)),
        },
        Err(_) if !folder.is_dir() => Err(OpenError::NoFolder(folder.to_owned())),
        Err(error) => Err(OpenError::failed(path, error)),
    }
}

/// Puts on the disk that a file is in a folder.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}
