//! Folder of a copy that is not complete.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = ".agentd-copy-";
/// File that the process of the copy has locked. The system releases the lock of a process that is killed.
const LOCK_FILE: &str = "copy.lock";

/// A folder that only its owner can enter, deleted on drop. One that a killed process has left is deleted by the next copy
/// into the same place.
pub(super) struct CopyFolder {
    folder: TempDir,
    _lock: File,
}

impl CopyFolder {
    /// Creates a folder in `parent`, and deletes abandoned ones.
    pub(super) fn create_in(parent: &Path) -> io::Result<Self> {
        delete_abandoned(parent);
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let path = folder.path().join(LOCK_FILE);
            let lock = File::create_new(&path)?;
            // Until it is locked, another copy may take the folder for an abandoned one.
            let is_own = match lock.try_lock() {
                Ok(()) => path.exists(),
                Err(TryLockError::WouldBlock) => false,
                // On a file system without locks, folders are never taken for abandoned ones.
                Err(TryLockError::Error(_)) => true,
            };
            if is_own {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Deletes the folders of copies whose process has ended. Files that cannot be deleted are kept.
fn delete_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_running_copies_stay_and_abandoned_ones_are_deleted() {
        let parent = tempfile::tempdir().expect("a folder");
        let running = CopyFolder::create_in(parent.path()).expect("created");
        let CopyFolder { folder, _lock } = CopyFolder::create_in(parent.path()).expect("created");
        let abandoned = folder.keep();
        drop(_lock);
        let other = parent.path().join(".agentd-copy-without-a-lock");
        fs::create_dir(&other).expect("created");
        let next = CopyFolder::create_in(parent.path()).expect("created");
        assert!(!abandoned.exists());
        assert!(running.path().exists() && other.exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
