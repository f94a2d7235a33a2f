//! Errors that prevent a service from starting. The message is all that an operator sees, so each one says
//! what to do.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use agent_client::outbound::OutboundError;
use agent_platform::records::StoreError;
use agent_platform::workspace::WorkspaceFileError;
use agent_store::sqlite::SqliteOpenError;

use crate::config::ConfigError;

/// Error that prevents a service from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Invalid settings; all of them are listed.
    #[error("invalid configuration:\n{0}")]
    Config(#[from] ConfigError),
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// File path.
        path: String,
        /// I/O error.
        source: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("{path} cannot be written: {source}")]
    Unwritable {
        /// Path of the file or folder.
        path: String,
        /// I/O error.
        source: std::io::Error,
    },
    /// The workspace file is invalid.
    #[error("{origin}: {source}")]
    Workspace {
        /// Name of the workspace file.
        origin: String,
        /// Errors by line and field.
        source: WorkspaceFileError,
    },
    /// The database file cannot be opened.
    #[error("the database cannot be used: {}", with_source(.0))]
    Database(#[from] SqliteOpenError),
    /// The PostgreSQL database cannot be opened.
    #[cfg(feature = "postgres")]
    #[error("the database in DATABASE_URL cannot be used: {}", with_source(.0))]
    Postgres(#[from] agent_store::postgres::PostgresOpenError),
    /// A store operation failed.
    #[error("{}", store_message(.0))]
    Store(#[from] StoreError),
    /// The outbound HTTP client cannot be created.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The listen address cannot be bound.
    #[error("cannot listen on {address}: {source}{} (see --port, or PORT and HOST)", listen_hint(.source))]
    Listen {
        /// Address to listen on.
        address: SocketAddr,
        /// I/O error.
        source: std::io::Error,
    },
    /// A server stopped with an error.
    #[error("the server failed: {0}")]
    Serve(std::io::Error),
    /// Any other error, as text.
    #[error("{0}")]
    Other(String),
}

impl StartError {
    /// Returns a conversion of the I/O errors of reading `path`.
    pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unreadable { path: path.display().to_string(), source }
    }

    /// Returns a conversion of the I/O errors of writing `path`.
    pub(crate) fn unwritable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unwritable { path: path.display().to_string(), source }
    }
}

/// Formats an error with all its sources, because only the source says what to do. A source that begins with the text of
/// its error continues it.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let Some(source) = error.source() else { return text };
    let source = with_source(source);
    match source.strip_prefix(&text) {
        Some(rest) if rest.is_empty() || rest.starts_with(": ") => source,
        _ => format!("{text}: {source}"),
    }
}

/// Returns the text for an error of the store. A missing setting and an argument that cannot be stored are not failures of
/// the store.
pub(crate) fn store_message(error: &StoreError) -> String {
    match error {
        StoreError::NotConfigured(_) | StoreError::Invalid(_) | StoreError::TooLarge { .. } => {
            error.to_string()
        }
        _ => format!("the store failed: {}", with_source(error)),
    }
}

/// Returns a hint on how to fix an address that cannot be bound, if the cause is known.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another process using the port?",
        io::ErrorKind::AddrNotAvailable => "; does this machine have the address?",
        io::ErrorKind::PermissionDenied => "; does the port need a privilege?",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as &(dyn Error + 'static))
        }
    }

    #[test]
    fn only_a_port_in_use_is_reported_as_in_use() {
        let text = |kind: io::ErrorKind| {
            let address = ([192, 0, 2, 1], 3000).into();
            StartError::Listen { address, source: kind.into() }.to_string()
        };
        let in_use = text(io::ErrorKind::AddrInUse);
        assert!(
            in_use.ends_with("; is another process using the port? (see --port, or PORT and HOST)"),
            "{in_use}"
        );
        for other in [io::ErrorKind::AddrNotAvailable, io::ErrorKind::PermissionDenied, io::ErrorKind::Other]
        {
            let other = text(other);
            assert!(other.starts_with("cannot listen on 192.0.2.1:3000: "), "{other}");
            assert!(
                other.ends_with(" (see --port, or PORT and HOST)") && !other.contains("another process"),
                "{other}"
            );
        }
    }

    #[test]
    fn an_argument_that_cannot_be_stored_is_not_an_error_of_the_store() {
        let empty = StartError::Store(StoreError::Invalid("the id is empty".to_owned()));
        assert_eq!(empty.to_string(), "the id is empty");
        let full = StartError::Store(StoreError::unavailable("the disk is full"));
        assert_eq!(full.to_string(), "the store failed: the store is unavailable: the disk is full");
    }

    #[test]
    fn the_text_of_a_source_is_not_repeated() {
        let of_two = |text, source| Layer(text, Some(Box::new(source)));
        assert_eq!(with_source(&Layer("a", None)), "a");
        assert_eq!(with_source(&of_two("a", Layer("b", None))), "a: b");
        assert_eq!(with_source(&of_two("a", Layer("a", None))), "a");
        assert_eq!(with_source(&of_two("a", of_two("a", Layer("b", None)))), "a: b");
        assert_eq!(with_source(&of_two("a", Layer("ab", None))), "a: ab");
    }
}
