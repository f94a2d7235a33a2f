//! Errors of commands, as shown to the user.

use std::process::ExitCode;

use crate::config::ConfigError;
use crate::{StartError, store_message, with_source};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::turn::TurnError;
use agent_http::auth::MintError;
use agent_platform::records::StoreError;
use agent_platform::replay::BundleError;
use agent_platform::workspace::ExportError;
use agent_store::sqlite::BackupError;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The configuration is invalid.
    #[error("invalid configuration:\n{0}")]
    Config(#[from] ConfigError),
    /// The configuration of a service is invalid; its errors have been printed.
    #[error("invalid configuration")]
    InvalidConfig,
    /// A setting that the command needs is missing.
    #[error("{0} is not configured; set it, or name a file with --config")]
    Missing(&'static str),
    /// The session token cannot be created.
    #[error("the token cannot be created: {0}")]
    MintSession(#[from] MintError),
    /// The widget, MCP or API token cannot be created.
    #[error("the token cannot be created: {}", with_source(.0))]
    MintToken(#[from] agent_platform::token::TokenMintError),
    /// The link to the console cannot be created.
    #[error("the link cannot be created: {}", with_source(.0))]
    ConsoleLink(#[from] agent_platform::console::ConsoleError),
    /// No company has the agent.
    #[error("there is no agent {0:?} in the database; see --agent and DATABASE_URL")]
    NoAgent(String),
    /// The company has no such agent.
    #[error("the company {company:?} has no agent {agent:?}; check --company, --agent and DATABASE_URL")]
    NoAgentOfCompany {
        /// Identifier of the agent.
        agent: String,
        /// Company in which the agent was searched.
        company: String,
    },
    /// Several companies have an agent of this id.
    #[error("several companies have an agent {0:?}; name one with --company")]
    AmbiguousAgent(String),
    /// The database has no data of the company.
    #[error("the database has no data of a company {0:?}; check --company and DATABASE_URL")]
    NoCompany(String),
    /// The company has no such user.
    #[error(
        "the database has no data of a user {user:?} of {company:?}; check --user, --company and DATABASE_URL"
    )]
    NoSuchUser {
        /// Identifier of the user.
        user: String,
        /// Company in which the user was searched.
        company: String,
    },
    /// A user without threads.
    #[error(
        "there are no threads of {user:?} at {company:?} in the database; see --user, --company and DATABASE_URL"
    )]
    NoThreads {
        /// Identifier of the user.
        user: String,
        /// Company in which the threads were searched.
        company: String,
    },
    /// The subject has no budget.
    #[error("the {kind} {id:?} of {company:?} has no budget; check KIND, ID, --company and DATABASE_URL")]
    NoBudget {
        /// Kind of the subject.
        kind: &'static str,
        /// Identifier of the subject.
        id: String,
        /// Company in which the budget was searched.
        company: String,
    },
    /// No user was given, and the agent has no owner.
    #[error("the agent has no owner; give a user with --user")]
    NoUser,
    /// The turn cannot be prepared.
    #[error("the prompt cannot be shown: {}", with_source(.0))]
    Turn(#[from] TurnError),
    /// No token has this identifier. The message does not repeat the argument, which might be the token
    /// itself.
    #[error("token not found; `agentd token list` shows the ids")]
    NoToken,
    /// A store operation failed.
    #[error("{}", store_message(.0))]
    Store(#[from] StoreError),
    /// The contents of the store cannot be exported.
    #[error("{}", with_source(.0))]
    Export(#[from] ExportError),
    /// The backup failed.
    #[error("no backup was written: {}", with_source(.0))]
    Backup(#[from] BackupError),
    /// A database cannot be copied.
    #[cfg(feature = "postgres")]
    #[error("nothing was copied: {}", with_source(.0))]
    Copy(#[from] agent_store::copy::CopyError),
    /// Migrations are pending, and were only to be checked.
    #[error("migrations are pending; `agentd migrate` runs them")]
    PendingMigrations,
    /// An argument is invalid.
    #[error("{argument} {problem}")]
    Argument {
        /// Name of the argument.
        argument: &'static str,
        /// Description of the error.
        problem: String,
    },
    /// Some secrets can be opened with neither key.
    #[error(
        "{0} secrets could not be decrypted with DATA_SECRET or DATA_SECRET_PREVIOUS and were left unchanged; set \
         DATA_SECRET_PREVIOUS to the secret under which they were sealed, or save them again"
    )]
    UnopenedSecrets(usize),
    /// Agents have models that the catalogue does not have; they have been printed.
    #[error(
        "models whose context window is not known, and is assumed to be 128000 tokens: {0}; a file in MODEL_CATALOG adds them"
    )]
    UnknownModels(usize),
    /// The health check failed.
    #[error("{0}")]
    Unhealthy(String),
    /// The command's output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// The replay differs from the record; the differences have been printed.
    #[error("the replay differs from the record")]
    ReplayDiffers,
    /// The run cannot be replayed.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The user has no such run.
    #[error("there is no run {0:?} of this user in the database; see --user, --company and DATABASE_URL")]
    NoRun(String),
    /// The argument is not a file, and no user was given.
    #[error("there is no file {0:?}; name the user and the company of a run with --user and --company")]
    NoBundle(String),
    /// A service cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Exit code of a replay that differs from its record.
const REPLAY_DIFFERS: u8 = 3;
/// Exit code of a replay whose inputs or events are not recorded.
const NOT_RECORDED_EXIT_CODE: u8 = 4;
/// Exit code of a command whose output has no reader any more: that which shells report for the signal SIGPIPE.
const BROKEN_PIPE_EXIT_CODE: u8 = 141;

impl CommandError {
    /// Returns the error of an agent that does not exist in the company, or in any.
    pub(crate) fn no_agent(agent: &AgentId, company: Option<&CompanyId>) -> Self {
        let agent = agent.to_string();
        match company {
            None => Self::NoAgent(agent),
            Some(company) => Self::NoAgentOfCompany { agent, company: company.to_string() },
        }
    }

    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::ReplayDiffers => REPLAY_DIFFERS.into(),
            Self::Bundle(BundleError::NoInputs | BundleError::NoEvents) => NOT_RECORDED_EXIT_CODE.into(),
            _ if self.is_broken_pipe() => BROKEN_PIPE_EXIT_CODE.into(),
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns true if the reader of the output has ended before the output.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
