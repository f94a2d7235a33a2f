//! What a server fails with, by what can be done about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use agent_platform::records::StoreError;
use deadpool_postgres::{HookError, PoolError, TimeoutType};
use tokio_postgres::error::DbError;

/// Why the server did not do what was asked: the source of [`StoreError::Unavailable`]. It names no values, no
/// keys and no passwords.
///
/// Where an operation fails, nothing of it is stored, with one exception that no database can avoid: where the
/// connection is lost or times out while a commit is under way, nobody knows. The operation has not been
/// acknowledged, and whoever repeats it with an idempotency key or a fence does nothing twice.
#[derive(Debug, Clone)]
pub struct Fault {
    kind: FaultKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What can be done about a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// No connection can be had, or the one there was is lost: the server is down, restarts, or ended it. The
    /// store connects anew by itself.
    Unreachable,
    /// The server has no connection left, or all of the store's own are in use for longer than is waited.
    Busy,
    /// The answer took longer than is waited.
    TimedOut,
    /// Others hold a row locked, longer than is waited.
    Locked,
    /// The disk has no room, or some other store of the server's is full.
    Full,
    /// The database takes no writes: it is a standby, or was made read-only.
    ReadOnly,
    /// The server does not let this user in, or does not let him do that.
    Denied,
    /// The database is damaged: time for a backup.
    Damaged,
    /// Anything else; the source says what.
    Failed,
}

impl Fault {
    /// What can be done about it.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// A fault that needs no further words.
    pub(super) fn of(kind: FaultKind) -> Self {
        Self { kind, source: None }
    }

    /// Whether the server has said so itself, on a connection that goes on, and another connection would say
    /// the same.
    pub(super) fn was_answered(&self) -> bool {
        !matches!(self.kind, FaultKind::Unreachable | FaultKind::TimedOut | FaultKind::ReadOnly)
    }

    /// The kind, and why in one line, for a log.
    pub(super) fn in_full(&self) -> String {
        match &self.source {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FaultKind::Unreachable => "the database server cannot be reached",
            FaultKind::Busy => "no connection to the database server is free",
            FaultKind::TimedOut => "the database server did not answer in time",
            FaultKind::Locked => "others hold the rows locked",
            FaultKind::Full => "the database server has no room",
            FaultKind::ReadOnly => "the database takes no writes",
            FaultKind::Denied => "the database server does not permit it",
            FaultKind::Damaged => "the database is damaged",
            FaultKind::Failed => "the database failed",
        })
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// What a server said, without the details in which it repeats values.
#[derive(Debug)]
struct Said {
    code: String,
    message: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

impl Error for Said {}

impl From<&DbError> for Fault {
    fn from(error: &DbError) -> Self {
        let said = Said { code: error.code().code().to_owned(), message: error.message().to_owned() };
        Self { kind: kind_of(error.code().code()), source: Some(Arc::new(said)) }
    }
}

/// By the classes and codes of `SQLSTATE` in PostgreSQL's appendix A.
fn kind_of(code: &str) -> FaultKind {
    match code {
        "53300" => FaultKind::Busy,
        "57014" => FaultKind::TimedOut,
        "40001" | "40P01" | "55P03" => FaultKind::Locked,
        "25006" => FaultKind::ReadOnly,
        "42501" => FaultKind::Denied,
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => FaultKind::Unreachable,
        "XX001" | "XX002" => FaultKind::Damaged,
        _ if code.starts_with("53") => FaultKind::Full,
        _ if code.starts_with("28") => FaultKind::Denied,
        _ if code.starts_with("08") => FaultKind::Unreachable,
        _ => FaultKind::Failed,
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return error.into();
        }
        let is_lost = error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>());
        let kind = if is_lost { FaultKind::Unreachable } else { FaultKind::Failed };
        Self { kind, source: Some(Arc::new(error)) }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Timeout(TimeoutType::Wait) => Self::of(FaultKind::Busy),
            PoolError::Timeout(_) | PoolError::Closed => Self::of(FaultKind::Unreachable),
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error.into(),
            PoolError::PostCreateHook(HookError::Message(_)) => Self::of(FaultKind::TimedOut),
            PoolError::NoRuntimeSpecified => Self::of(FaultKind::Failed),
        }
    }
}

/// Why work on jobs ended: by what the jobs are, or by what the server did.
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

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_kind_that_says_what_to_do() {
        use FaultKind::{Busy, Damaged, Denied, Failed, Full, Locked, ReadOnly, TimedOut, Unreachable};
        let cases = [
            ("53300", Busy),
            ("53100", Full),
            ("53200", Full),
            ("57014", TimedOut),
            ("40P01", Locked),
            ("55P03", Locked),
            ("25006", ReadOnly),
            ("28P01", Denied),
            ("42501", Denied),
            ("57P01", Unreachable),
            ("08006", Unreachable),
            ("XX001", Damaged),
            ("42P01", Failed),
        ];
        for (code, kind) in cases {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }
}
