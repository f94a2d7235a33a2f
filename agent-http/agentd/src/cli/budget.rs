//! Arguments of `agentd budget`.

use agent_core::ids::CompanyId;
use agent_platform::usage::{BudgetKind, BudgetTimeZone};
use clap::{Args, Subcommand};

use super::ConfigFileArg;

/// Subcommands of `agentd budget`.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Print a budget with its used amounts, one limit per line.
    Show(BudgetArgs),
    /// Create or replace a budget. Amounts used in the current periods are kept.
    #[command(after_help = r#"Example:
  agentd budget set company --company acme --limits '[{"unit":"cost","amount":"50","window":"month"}]'"#)]
    Set {
        /// The budget.
        #[command(flatten)]
        budget: BudgetArgs,
        /// JSON array of limits, such as [{"unit":"cost","amount":"50","window":"month"}].
        #[arg(long, value_name = "JSON")]
        limits: String,
        /// IANA time zone of the days and months of all budgets of the company, such as Europe/Berlin; only for the budget of the
        /// company itself. If it is left out, the time zone stays as it is; without one, it is UTC.
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
    /// Identifier of the subject; the company's identifier if it is left out.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Identifier of the company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}
