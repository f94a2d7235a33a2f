//! Why a command failed, as its user reads it.

use agent_core::turn::TurnError;
use agent_http::auth::MintError;
use agent_http::config::Faults;
use agent_platform::records::StoreError;
use agent_platform::workspace::ExportError;
use agent_store::sqlite::BackupError;
use agentd::{StartError, with_source};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The configuration is refused.
    #[error("the configuration is refused:\n{0}")]
    Config(#[from] Faults),
    /// The configuration of some service is, and has been said to be.
    #[error("the configuration is refused")]
    Checked,
    /// A setting that the command needs is missing.
    #[error("{0} is not configured; set it, or name a file with --config")]
    Missing(&'static str),
    /// The session token cannot be made.
    #[error("the token cannot be made: {0}")]
    Mint(#[from] MintError),
    /// The token cannot be made.
    #[error("the token cannot be made: {0}")]
    Token(#[from] agent_platform::token::MintError),
    /// There is no such agent.
    #[error("there is no agent {0:?} here; see --agent and DATABASE_URL")]
    NoAgent(String),
    /// Nobody is named, and nobody owns the agent.
    #[error("the agent has no owner; say with --user for whom it should answer")]
    NoUser,
    /// The turn cannot be made.
    #[error("the prompt cannot be shown: {}", with_source(.0))]
    Turn(#[from] TurnError),
    /// There is no token of that identifier. What was given is not repeated: it might be the token itself.
    #[error("there is no such token; its identifier is the one that `agentd token list` shows")]
    NoToken,
    /// The store failed.
    #[error("the store failed: {}", with_source(.0))]
    Store(#[from] StoreError),
    /// There is no workspace file of what the store holds.
    #[error("{}", with_source(.0))]
    Export(#[from] ExportError),
    /// There is no backup.
    #[error("there is no backup: {}", with_source(.0))]
    Backup(#[from] BackupError),
    /// Some secrets are under neither key.
    #[error(
        "{0} secrets could be opened with neither DATA_SECRET nor DATA_SECRET_PREVIOUS; they are as they were"
    )]
    Unopened(usize),
    /// The service does not answer as a living one does.
    #[error("{0}")]
    Unhealthy(String),
    /// The command's output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// The service does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}
