//! Error types, classified by the caller's possible reaction.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use agent_platform::records::StoreError;
use rusqlite::ErrorCode;

/// Database error: the source of [`StoreError::Unavailable`]. Contains no values and no keys.
#[derive(Debug, Clone)]
pub struct Fault {
    kind: FaultKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Classification of a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The disk is full, or the file has reached its size limit.
    Full,
    /// Another process held the database lock for longer than the timeout.
    Locked,
    /// The file or its folder is not writable.
    ReadOnly,
    /// The file is corrupt or not a database, and should be restored from a backup.
    Damaged,
    /// The store is closed, or one of its threads has ended.
    Closed,
    /// Any other error, given by the source.
    Failed,
}

impl Fault {
    /// Returns the classification.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    pub(super) fn closed() -> Self {
        Self { kind: FaultKind::Closed, source: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FaultKind::Full => "the disk is full, or the file has reached its limit",
            FaultKind::Locked => "another process holds the database locked",
            FaultKind::ReadOnly => "the database cannot be written",
            FaultKind::Damaged => "the database is damaged",
            FaultKind::Closed => "the store is closed, or a thread of it has ended",
            FaultKind::Failed => "the database failed",
        })
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => FaultKind::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FaultKind::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => FaultKind::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => FaultKind::Damaged,
            _ => FaultKind::Failed,
        };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => FaultKind::Full,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                FaultKind::ReadOnly
            }
            _ => FaultKind::Failed,
        };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

/// Error of an operation: rejected because of the records' content, or failed in the database.
#[derive(Debug)]
pub(super) enum Halt {
    Refused(StoreError),
    Failed(Fault),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Halt {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Halt> for StoreError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Refused(error) => error,
            Halt::Failed(fault) => Self::unavailable(fault),
        }
    }
}
