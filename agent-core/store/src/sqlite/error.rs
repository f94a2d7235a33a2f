//! Error types, classified by the caller's possible reaction.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use agent_platform::records::StoreError;
use rusqlite::ErrorCode;

/// Database error: the source of [`StoreError::Unavailable`]. Contains no values and no keys.
#[derive(Debug, Clone)]
pub struct SqliteError {
    kind: SqliteErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Classification of a [`SqliteError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqliteErrorKind {
    /// The disk is full, or the file has reached its size limit.
    Full,
    /// Another process held the database lock for longer than the timeout.
    Locked,
    /// The file or its folder is not writable.
    ReadOnly,
    /// The file cannot be opened, as one that another user owns.
    Inaccessible,
    /// The file is corrupt, and should be restored from a backup.
    Damaged,
    /// The file is not a database.
    NotADatabase,
    /// Too many operations of the company wait.
    Busy,
    /// The store is closed, or the thread that ran the operation panicked.
    Closed,
    /// Any other error, given by the source.
    Failed,
}

impl SqliteError {
    /// Returns the classification.
    pub fn kind(&self) -> SqliteErrorKind {
        self.kind
    }

    pub(super) fn closed() -> Self {
        Self { kind: SqliteErrorKind::Closed, source: None }
    }

    pub(super) fn busy() -> Self {
        Self { kind: SqliteErrorKind::Busy, source: None }
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SqliteErrorKind::Full => "the disk is full, or the file has reached its limit",
            SqliteErrorKind::Locked => "the database is locked by another process",
            SqliteErrorKind::ReadOnly => "the database cannot be written",
            SqliteErrorKind::Inaccessible => "the database file cannot be opened",
            SqliteErrorKind::Damaged => "the database is corrupt",
            SqliteErrorKind::NotADatabase => "the file is not a database",
            SqliteErrorKind::Busy => "too many operations of the company wait",
            SqliteErrorKind::Closed => "the store is closed, or the thread of the operation panicked",
            SqliteErrorKind::Failed => "the database reported an error",
        })
    }
}

impl Error for SqliteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => SqliteErrorKind::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SqliteErrorKind::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => SqliteErrorKind::ReadOnly,
            Some(ErrorCode::CannotOpen) => SqliteErrorKind::Inaccessible,
            Some(ErrorCode::DatabaseCorrupt) => SqliteErrorKind::Damaged,
            Some(ErrorCode::NotADatabase) => SqliteErrorKind::NotADatabase,
            _ => SqliteErrorKind::Failed,
        };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

impl From<std::io::Error> for SqliteError {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SqliteErrorKind::Full,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                SqliteErrorKind::ReadOnly
            }
            _ => SqliteErrorKind::Failed,
        };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

/// Error of an operation: rejected because of the records' content, or failed in the database.
#[derive(Debug)]
pub(super) enum WriteError {
    Refused(StoreError),
    Failed(SqliteError),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WriteError> for StoreError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Refused(error) => error,
            WriteError::Failed(error) => Self::unavailable(error),
        }
    }
}
