//! Arguments of `agentd budget`.

use agent_core::ids::CompanyId;
use agent_platform::usage::{BudgetKind, BudgetTimeZone};
use clap::{Args, Subcommand};

use super::ConfigFileArg;

/// Subcommands of `agentd budget`.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Print a budget and how far it is used, a limit a line.
    Show(BudgetArgs),
    /// Create or replace a budget. What is used in the current periods stays used.
    #[command(after_help = r#"Example:
  agentd budget set company --company acme --limits '[{"unit":"cost","amount":"50","window":"month"}]'"#)]
    Set {
        /// The budget.
        #[command(flatten)]
        budget: BudgetArgs,
        /// JSON array of limits, such as [{"unit":"cost","amount":"50","window":"month"}].
        #[arg(long, value_name = "JSON")]
        limits: String,
        /// IANA time zone of the days and months of all budgets of a company, such as Europe/Berlin, which its own budget has. UTC at
        /// first; that of the budget before if absent.
        #[arg(long, value_name = "ZONE")]
        timezone: Option<BudgetTimeZone>,
    },
    /// Delete a budget.
    Delete(BudgetArgs),
}

/// Selection of a budget.
#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Kind of the subject: company, agent, user, token or run (each run of an agent).
    #[arg(value_name = "KIND")]
    pub(crate) kind: BudgetKind,
    /// Identifier of the subject; that of the company if absent.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Identifier of the company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}
