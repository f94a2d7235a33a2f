//! Arguments of `agentd token`.

use std::num::NonZeroU32;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_http::cors::normalize_origin;
use agent_platform::token::RunCaps;
use clap::{Args, Subcommand};

use super::{AgentArgs, ConfigFileArg, whole_seconds};

/// Subcommands of `agentd token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a session token, signed with SESSION_SECRET, alone on the last line.
    #[command(after_help = "Example:\n  TOKEN=$(agentd token session --user ada --company acme | tail -n 1)")]
    Session(SessionArgs),
    /// Create a token for a page that embeds an agent, printed alone on the last line.
    Widget(WidgetArgs),
    /// Create a token for calling an agent's tools, printed alone on the last line.
    Mcp(McpArgs),
    /// Create a token for chatting with agents by clients of OpenAI's API, printed alone on the last line.
    Api(ApiArgs),
    /// Revoke a token permanently.
    Revoke {
        /// Identifier of the token, as `token list` shows it.
        id: String,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// List an agent's widget, MCP and API tokens, a line each: id, kind, state, label, and origins or user.
    List(AgentArgs),
}

/// Arguments common to widget and MCP tokens.
#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// Agent for which the token is valid.
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Lifetime of the token, such as 30m, 1h or 7d; without it, the token is valid until it is revoked.
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) ttl: Option<Duration>,
    /// Label of the token.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// Arguments of `agentd token widget`.
#[derive(Debug, Args)]
pub(crate) struct WidgetArgs {
    /// Arguments common to all tokens.
    #[command(flatten)]
    pub(crate) token: NewTokenArgs,
    /// Origin of pages that may use the token, such as https://shop.example; any origin, if none is given.
    #[arg(long = "origin", value_name = "ORIGIN", value_parser = origin)]
    pub(crate) origins: Vec<String>,
    /// Maximum number of runs started per minute.
    #[arg(long, value_name = "N", value_parser = run_limit, default_value_t = RunCaps::default().runs_per_minute)]
    pub(crate) runs_per_minute: NonZeroU32,
    /// Maximum number of runs started per day; unlimited, if it is left out.
    #[arg(long, value_name = "N", value_parser = run_limit)]
    pub(crate) runs_per_day: Option<NonZeroU32>,
}

/// Arguments of `agentd token mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Arguments common to all tokens.
    #[command(flatten)]
    pub(crate) token: NewTokenArgs,
    /// Identifier of the user for whom the tools act.
    #[arg(long, value_name = "ID")]
    pub(crate) user: UserId,
    /// Todo list to which tasks and plans are written.
    #[arg(long, value_name = "ID")]
    pub(crate) todo_list: Option<String>,
    /// Tool that may be called; all of the agent's tools, if none is given.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
}

/// Arguments of `agentd token api`.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// Identifier of the user for whom the agents answer.
    #[arg(long, value_name = "ID")]
    pub(crate) user: UserId,
    /// Agent with which clients may chat; may be repeated.
    #[arg(long = "agent", value_name = "ID", required = true)]
    pub(crate) agents: Vec<AgentId>,
    /// Company of the user and the agents; may be left out if only one company has an agent of the first id.
    #[arg(long, value_name = "ID")]
    pub(crate) company: Option<CompanyId>,
    /// Maximum number of runs started per minute with the token, in addition to the user's own limit.
    #[arg(long, value_name = "N", value_parser = run_limit)]
    pub(crate) runs_per_minute: Option<NonZeroU32>,
    /// Maximum number of runs started per day with the token; unlimited, if it is left out.
    #[arg(long, value_name = "N", requires = "runs_per_minute", value_parser = run_limit)]
    pub(crate) runs_per_day: Option<NonZeroU32>,
    /// Lifetime of the token, such as 30m, 1h or 7d; without it, the token is valid until it is revoked.
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) ttl: Option<Duration>,
    /// Label of the token.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Arguments of `agentd token session`.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Identifier of the user.
    #[arg(long, value_name = "ID")]
    pub(crate) user: UserId,
    /// Identifier of the user's company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Lifetime of the token, such as 30m, 1h or 7d.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = whole_seconds)]
    pub(crate) ttl: Duration,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Parses an origin and normalizes it to the form that browsers send.
fn origin(text: &str) -> Result<String, String> {
    let problem = "must be an origin, such as https://shop.example or http://localhost:5173";
    normalize_origin(text).ok_or_else(|| problem.to_owned())
}

/// Parses a limit on the number of runs.
fn run_limit(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("must be a whole number from 1 to {}", u32::MAX))
}
