//! Why a service does not start. Each message says what to do, for it is all that an operator sees.

use std::net::SocketAddr;

use agent_http::config::Faults;
use agent_http::outbound::OutboundError;
use agent_platform::records::StoreError;
use agent_platform::workspace::FileError;
use agent_store::sqlite::OpenError;

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings are wrong; all of them are named.
    #[error("the configuration is wrong:\n{0}")]
    Config(#[from] Faults),
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("{path} cannot be written: {source}")]
    Unwritable {
        /// The file or folder.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The workspace is wrong.
    #[error("{origin}: {source}")]
    Workspace {
        /// The file.
        origin: String,
        /// What is wrong, by line and field.
        source: FileError,
    },
    /// The database cannot be opened.
    #[error("the database cannot be used: {}", with_source(.0))]
    Database(#[from] OpenError),
    /// The database server cannot be used.
    #[cfg(feature = "postgres")]
    #[error("the database in DATABASE_URL cannot be used: {}", with_source(.0))]
    Postgres(#[from] agent_store::postgres::OpenError),
    /// A store failed.
    #[error("the store failed: {}", with_source(.0))]
    Store(#[from] StoreError),
    /// The outbound client cannot be made.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The address to listen on cannot be had.
    #[error("cannot listen on {address}: {source}; is another process using the port? (see PORT and HOST)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A server stopped with an error.
    #[error("the server failed: {0}")]
    Serve(std::io::Error),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// An error with what it says of its cause, which alone tells an operator what to do.
pub fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_source(source)),
        None => error.to_string(),
    }
}
