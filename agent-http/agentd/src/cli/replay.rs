//! Arguments of `agentd replay`.

use agent_core::ids::{CompanyId, UserId};
use clap::Args;

use super::ConfigFileArg;

/// Arguments of `agentd replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// File with a bundle of GET /api/runs/{id}/bundle; or, with --user and --company, a run's identifier.
    #[arg(value_name = "RUN|BUNDLE")]
    pub(crate) run: String,
    /// Identifier of the run's user, or of a visitor: widget:<tokenId>:<hash>.
    #[arg(long, value_name = "ID", requires = "company")]
    pub(crate) user: Option<UserId>,
    /// Identifier of the user's company.
    #[arg(long, value_name = "ID", requires = "user")]
    pub(crate) company: Option<CompanyId>,
    /// Read a bundle that was changed, to see what the change does.
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// Print the run's bundle, and replay nothing.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// Call the models again with the requests of the replay, and print their answers beside the recorded ones. Tools are
    /// not called.
    #[arg(long, conflicts_with = "bundle")]
    pub(crate) live: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}
