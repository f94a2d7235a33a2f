//! Arguments of `agentd provider`.

use std::path::PathBuf;

use agent_core::ids::CompanyId;
use clap::{Args, Subcommand};

use super::ConfigFileArg;

/// Subcommands of `agentd provider`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Print the providers of a company without their keys, as a table with tabs.
    List {
        /// The company.
        #[command(flatten)]
        company: ProviderCompany,
    },
    /// Create or replace a provider. A key that is absent is kept while the address stays.
    #[command(after_help = "Example:\n  agentd provider set groq --company acme --file - < groq.json")]
    Set {
        /// Identifier, which agents name as their provider.
        #[arg(value_name = "ID")]
        id: String,
        /// File with the provider in JSON, such as {"type":"openai","baseUrl":"https://…","apiKey":"…"}; - for standard input.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// The company.
        #[command(flatten)]
        company: ProviderCompany,
    },
    /// Delete a provider that no agent names.
    Delete {
        /// Identifier.
        #[arg(value_name = "ID")]
        id: String,
        /// The company.
        #[command(flatten)]
        company: ProviderCompany,
    },
}

/// Selection of a company.
#[derive(Debug, Args)]
pub(crate) struct ProviderCompany {
    /// Identifier of the company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}
