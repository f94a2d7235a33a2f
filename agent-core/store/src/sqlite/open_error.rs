//! Error of opening a file as a store.

use std::path::{Path, PathBuf};

use super::error::{SqliteError, SqliteErrorKind};

/// Error of opening a file as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteOpenError {
    /// The SQLite library of this program is too old.
    #[error("SQLite {found} is too old: its write-ahead log can lose commits before 3.51.3")]
    Library {
        /// Library version.
        found: &'static str,
    },
    /// The folder of the file does not exist, or is a file.
    #[error("there is no directory {}", .0.display())]
    NoFolder(PathBuf),
    /// The path exists but is not a file.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The file, or the folder of its write-ahead log, is not writable.
    #[error("{} cannot be written", .0.display())]
    ReadOnly(PathBuf),
    /// The file exists and cannot be opened, as one that another user owns. SQLite gives no reason.
    #[error("{} cannot be opened; may this user read and write it and its directory?", .0.display())]
    Inaccessible(PathBuf),
    /// The file system does not support SQLite's write-ahead log.
    #[error("the file system of {} does not support SQLite's write-ahead log", .0.display())]
    NoWriteAheadLog(PathBuf),
    /// The file is not a database, or its header is corrupt.
    #[error("{} is not an SQLite database", .0.display())]
    NotADatabase(PathBuf),
    /// The database is corrupt.
    #[error("the database {} is corrupt: restore it from a backup", .0.display())]
    Damaged(PathBuf),
    /// The database has the schema version of this program, but not its tables: a copy or a restore was not completed.
    #[error("the database {} lacks tables of its schema version {version}: restore it from a backup", .path.display())]
    Incomplete {
        /// File path.
        path: PathBuf,
        /// Schema version of the file.
        version: i64,
    },
    /// The database belongs to another program.
    #[error("{} is a database of another application", .0.display())]
    OtherProgram(PathBuf),
    /// The file was written by a newer version of this program.
    #[error("{} has schema version {found}, and this program knows versions up to {known}: update this program", .path.display())]
    Newer {
        /// File path.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this program supports.
        known: i64,
    },
    /// Another process held the database lock for longer than the timeout.
    #[error("{} is locked by another process", .0.display())]
    Locked(PathBuf),
    /// The disk is full.
    #[error("there is not enough disk space for {}", .0.display())]
    Full(PathBuf),
    /// Any other error, given by the source.
    #[error("{} cannot be opened", .path.display())]
    Failed {
        /// File path.
        path: PathBuf,
        /// Cause.
        source: SqliteError,
    },
}

impl SqliteOpenError {
    pub(super) fn failed(path: &Path, error: impl Into<SqliteError>) -> Self {
        let (path, error) = (path.to_owned(), error.into());
        match error.kind() {
            SqliteErrorKind::Full => Self::Full(path),
            SqliteErrorKind::Locked => Self::Locked(path),
            SqliteErrorKind::ReadOnly => Self::ReadOnly(path),
            SqliteErrorKind::Inaccessible => Self::Inaccessible(path),
            SqliteErrorKind::Damaged => Self::Damaged(path),
            SqliteErrorKind::NotADatabase => Self::NotADatabase(path),
            _ => Self::Failed { path, source: error },
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_opened_is_named_once() {
        let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
        let text = "unable to open database file: /data/app.db".to_owned();
        let error = SqliteOpenError::failed(
            Path::new("/data/app.db"),
            rusqlite::Error::SqliteFailure(code, Some(text)),
        );
        assert_eq!(
            error.to_string(),
            "/data/app.db cannot be opened; may this user read and write it and its directory?"
        );
        assert!(std::error::Error::source(&error).is_none());
    }
}
