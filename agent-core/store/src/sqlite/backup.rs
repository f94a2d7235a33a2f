//! Copies while the store runs, and the check of the whole file.

use std::path::{Path, PathBuf};
use std::thread;

use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;
use super::file::sync_folder;

/// How many things a check finds wrong before it stops.
const MAX_FINDINGS: u32 = 100;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is something already, which is not overwritten.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The folder that the backup would be in is not there.
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// Anything else; the source says what.
    #[error("{} cannot be written", .path.display())]
    Failed {
        /// The backup.
        path: PathBuf,
        /// What happened.
        source: Fault,
    },
}

pub(super) async fn copy(from: PathBuf, to: PathBuf) -> Result<(), BackupError> {
    let failed = BackupError::Failed { path: to.clone(), source: Fault::closed() };
    aside(move || copy_blocking(&from, &to)).await.unwrap_or(Err(failed))
}

/// Into a file beside the target that gets its name when it is whole. The copy is of one read transaction,
/// so it is of one moment and keeps nobody from writing.
fn copy_blocking(from: &Path, to: &Path) -> Result<(), BackupError> {
    let failed = |source: Fault| BackupError::Failed { path: to.to_owned(), source };
    let to = std::path::absolute(to).map_err(|error| failed(error.into()))?;
    let folder = to.parent().unwrap_or(&to);
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to));
    }
    if !folder.is_dir() {
        return Err(BackupError::NoFolder(folder.to_owned()));
    }
    // It is removed if anything fails, and it is its owner's alone.
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

pub(super) async fn check(path: PathBuf) -> Result<Vec<String>, Fault> {
    let check = move || -> rusqlite::Result<Vec<String>> {
        let connection = read_only(&path)?;
        let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_FINDINGS})"))?;
        let findings: Vec<String> = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(findings.into_iter().filter(|finding| finding != "ok").collect())
    };
    match aside(check).await {
        Some(findings) => Ok(findings?),
        None => Err(Fault::closed()),
    }
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Runs what takes long on a thread of its own; `None` where there can be none.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        // Nobody needs the answer who has gone meanwhile.
        let _ = answer.send(work());
    };
    thread::Builder::new().name("store-backup".to_owned()).spawn(work).ok()?;
    answered.await.ok()
}
