//! Error types, classified by the caller's possible reaction.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use agent_platform::records::StoreError;
use deadpool_postgres::{HookError, PoolError, TimeoutType};
use tokio_postgres::error::DbError;

/// Database error: the source of [`StoreError::Unavailable`]. Contains no values, keys or passwords.
///
/// A failed operation stores nothing, with one exception that no database can avoid: if the connection is
/// lost or times out during a commit, the outcome is unknown. The operation was not acknowledged, and a
/// caller that repeats it with an idempotency key or a fencing token does not apply it twice.
#[derive(Debug, Clone)]
pub struct PostgresError {
    kind: PostgresErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Classification of a [`PostgresError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostgresErrorKind {
    /// No connection can be made, or it was lost: the server is down, restarts, or has closed it. The store
    /// reconnects by itself.
    Unreachable,
    /// The server's connection limit is reached, or no pooled connection became free within the timeout.
    Busy,
    /// The response did not arrive within the timeout.
    TimedOut,
    /// Another transaction held a row lock for longer than the timeout.
    Locked,
    /// The disk, or another resource of the server, is full.
    Full,
    /// The database is read-only: it is a standby, or is configured as read-only.
    ReadOnly,
    /// The server denied access to the user, or permission for the operation.
    Denied,
    /// The database is corrupt and should be restored from a backup.
    Damaged,
    /// Any other error, given by the source.
    Failed,
}

impl PostgresError {
    /// Returns the classification.
    pub fn kind(&self) -> PostgresErrorKind {
        self.kind
    }

    /// Creates an error without a source.
    pub(super) fn from_kind(kind: PostgresErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// Returns true if the server itself reported the error, the connection remains usable, and another
    /// connection would get the same error.
    pub(super) fn leaves_session_usable(&self) -> bool {
        let is_lost = matches!(
            self.kind,
            PostgresErrorKind::Unreachable | PostgresErrorKind::TimedOut | PostgresErrorKind::ReadOnly
        );
        !is_lost && !self.is_of_client()
    }

    /// Returns true if the server itself reported the error, so that the transaction has certainly had no effect.
    pub(super) fn has_no_effect(&self) -> bool {
        let is_reported = matches!(
            self.kind,
            PostgresErrorKind::Locked
                | PostgresErrorKind::Full
                | PostgresErrorKind::Damaged
                | PostgresErrorKind::Failed
        );
        is_reported && !self.is_of_client()
    }

    /// Returns true if the client found the error, such as a response that it cannot read: the server may have done what it was
    /// asked for.
    fn is_of_client(&self) -> bool {
        self.source.as_ref().is_some_and(|source| !source.is::<ServerError>())
    }

    /// Formats the error with its source on one line, for the log.
    pub(super) fn display_with_source(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            PostgresErrorKind::Unreachable => "the database server cannot be reached",
            PostgresErrorKind::Busy => "the connection pool is exhausted",
            PostgresErrorKind::TimedOut => "the database server did not respond in time",
            PostgresErrorKind::Locked => "the rows are locked by concurrent transactions",
            PostgresErrorKind::Full => "the database server is out of disk space or connections",
            PostgresErrorKind::ReadOnly => "the database is read-only",
            PostgresErrorKind::Denied => "the database server denied permission",
            PostgresErrorKind::Damaged => "the database is corrupt",
            PostgresErrorKind::Failed => "the database reported an error",
        })
    }
}

impl Error for PostgresError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// An error message of the server, without the detail fields, which repeat values.
#[derive(Debug)]
struct ServerError {
    code: String,
    message: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

impl Error for ServerError {}

impl From<&DbError> for PostgresError {
    fn from(error: &DbError) -> Self {
        let source =
            ServerError { code: error.code().code().to_owned(), message: error.message().to_owned() };
        Self { kind: classify_sqlstate(error.code().code()), source: Some(Arc::new(source)) }
    }
}

/// Classifies an `SQLSTATE` by its class and code (PostgreSQL documentation, appendix A).
fn classify_sqlstate(code: &str) -> PostgresErrorKind {
    match code {
        "53300" => PostgresErrorKind::Busy,
        "57014" => PostgresErrorKind::TimedOut,
        "40001" | "40P01" | "55P03" => PostgresErrorKind::Locked,
        "25006" => PostgresErrorKind::ReadOnly,
        "42501" => PostgresErrorKind::Denied,
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => PostgresErrorKind::Unreachable,
        "XX001" | "XX002" => PostgresErrorKind::Damaged,
        _ if code.starts_with("53") => PostgresErrorKind::Full,
        _ if code.starts_with("28") => PostgresErrorKind::Denied,
        _ if code.starts_with("08") => PostgresErrorKind::Unreachable,
        _ => PostgresErrorKind::Failed,
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return error.into();
        }
        let is_lost = error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>());
        let kind = if is_lost { PostgresErrorKind::Unreachable } else { PostgresErrorKind::Failed };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Timeout(TimeoutType::Wait) => Self::from_kind(PostgresErrorKind::Busy),
            PoolError::Timeout(_) | PoolError::Closed => Self::from_kind(PostgresErrorKind::Unreachable),
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error.into(),
            PoolError::PostCreateHook(HookError::Message(_)) => Self::from_kind(PostgresErrorKind::TimedOut),
            PoolError::NoRuntimeSpecified => Self::from_kind(PostgresErrorKind::Failed),
        }
    }
}

/// Error of an operation on stored data: rejected because of the data, or failed in the database.
#[derive(Debug)]
pub(super) enum OperationError {
    Rejected(StoreError),
    Failed(PostgresError),
}

impl OperationError {
    /// Returns the error of an operation that rejects nothing.
    pub(super) fn into_error(self) -> PostgresError {
        match self {
            Self::Failed(error) => error,
            Self::Rejected(_) => PostgresError::from_kind(PostgresErrorKind::Failed),
        }
    }
}

impl From<StoreError> for OperationError {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error)
    }
}

impl From<PostgresError> for OperationError {
    fn from(error: PostgresError) -> Self {
        Self::Failed(error)
    }
}

impl From<OperationError> for StoreError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Rejected(error) => error,
            OperationError::Failed(error) => Self::unavailable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_states_map_to_error_kinds() {
        use PostgresErrorKind::{
            Busy, Damaged, Denied, Failed, Full, Locked, ReadOnly, TimedOut, Unreachable,
        };
        let cases = [
            (["53300"].as_slice(), Busy),
            (&["53100", "53200"], Full),
            (&["57014"], TimedOut),
            (&["40001", "40P01", "55P03"], Locked),
            (&["25006"], ReadOnly),
            (&["28P01", "28000", "42501"], Denied),
            (&["57P01", "57P02", "57P03", "57P05", "25P03", "08006"], Unreachable),
            (&["XX001", "XX002"], Damaged),
            (&["42P01", "XX000", "25P02", "23505"], Failed),
        ];
        for (codes, kind) in cases {
            for code in codes {
                assert_eq!(classify_sqlstate(code), kind, "{code}");
            }
        }
    }

    #[test]
    fn the_outcome_is_unknown_after_an_error_that_the_client_found() {
        let judge =
            |error: &PostgresError| (error.kind(), error.has_no_effect(), error.leaves_session_usable());
        let found = "port=none".parse::<tokio_postgres::Config>().expect_err("it is no number");
        assert_eq!(judge(&found.into()), (PostgresErrorKind::Failed, false, false));
        let source = ServerError { code: "23505".to_owned(), message: "duplicate key".to_owned() };
        let kind = classify_sqlstate(&source.code);
        let reported = PostgresError { kind, source: Some(Arc::new(source)) };
        assert_eq!(judge(&reported), (PostgresErrorKind::Failed, true, true));
    }
}
