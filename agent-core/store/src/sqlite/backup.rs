//! Online backup and integrity check.

use std::path::{Path, PathBuf};
use std::thread;

use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};

use super::error::SqliteError;
use super::file::sync_folder;

/// Maximum number of findings of an integrity check.
const MAX_FINDINGS: u32 = 100;

/// Error of a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The target exists; it is not overwritten.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The target folder does not exist, or is a file.
    #[error("there is no directory {}", .0.display())]
    NoFolder(PathBuf),
    /// Any other error, given by the source.
    #[error("{} cannot be written", .path.display())]
    Failed {
        /// Path of the backup.
        path: PathBuf,
        /// Cause.
        source: SqliteError,
    },
}

pub(super) async fn copy(from: PathBuf, to: PathBuf) -> Result<(), BackupError> {
    let failed = BackupError::Failed { path: to.clone(), source: SqliteError::closed() };
    run_on_own_thread(move || copy_blocking(&from, &to)).await.unwrap_or(Err(failed))
}

/// Copies into a temporary file in the target folder and renames it when it is complete. The copy runs in one
/// read transaction, so it is a consistent snapshot and does not block writers.
fn copy_blocking(from: &Path, to: &Path) -> Result<(), BackupError> {
    let failed = |source: SqliteError| BackupError::Failed { path: to.to_owned(), source };
    let to = std::path::absolute(to).map_err(|error| failed(error.into()))?;
    let folder = to.parent().unwrap_or(&to);
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to));
    }
    if !folder.is_dir() {
        return Err(BackupError::NoFolder(folder.to_owned()));
    }
    // The temporary file is deleted on failure and is accessible to its owner only.
    let copy = tempfile::Builder::new().prefix(".backup-").tempfile_in(folder);
    let copy = copy.map_err(|error| failed(error.into()))?;
    vacuum_into(from, copy.path()).map_err(|error| failed(error.into()))?;
    copy.as_file().sync_all().map_err(|error| failed(error.into()))?;
    match copy.persist_noclobber(&to) {
        Ok(_) => sync_folder(folder).map_err(|error| failed(error.into())),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(BackupError::Exists(to)),
        Err(error) => Err(failed(error.error.into())),
    }
}

fn vacuum_into(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let to = to.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(to.to_owned()))?;
    read_only(from)?.execute("VACUUM INTO ?1", [to])?;
    Ok(())
}

pub(super) async fn check(path: PathBuf) -> Result<Vec<String>, SqliteError> {
    let check = move || -> rusqlite::Result<Vec<String>> {
        let connection = read_only(&path)?;
        let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_FINDINGS})"))?;
        let findings: Vec<String> = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(findings.into_iter().filter(|finding| finding != "ok").collect())
    };
    match run_on_own_thread(check).await {
        Some(findings) => Ok(findings?),
        None => Err(SqliteError::closed()),
    }
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Runs blocking work on its own thread. Returns `None` if the thread cannot be started or panics.
async fn run_on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        // Fails only if the caller was cancelled.
        let _ = answer.send(work());
    };
    thread::Builder::new().name("store-backup".to_owned()).spawn(work).ok()?;
    answered.await.ok()
}
