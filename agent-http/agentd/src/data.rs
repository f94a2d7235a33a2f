//! `agentd import`, `export`, `backup` and `secrets`: the operator's commands on stored data.

use std::io::Write;
use std::path::Path;

use crate::config::{AppConfig, Database};
use crate::migration;
use crate::stores::{self, Imported, ParsedWorkspace, Stores};
use agent_core::ids::CompanyId;
use agent_platform::workspace::{ExportError, WorkspaceFile};
use agent_platform::{coding, providers};
use agent_store::sqlite::BackupError;

use crate::command_error::CommandError;

/// Imports a workspace file into the store, in full or not at all.
pub(crate) async fn import(file: &Path, config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    // Read first: a file that cannot be imported leaves no new database behind.
    let workspace = ParsedWorkspace::read(file)?;
    let stores = Stores::open(config).await?;
    let Imported { summary: imported, warnings } = stores.import_parsed(&workspace).await?;
    for warning in warnings {
        writeln!(out, "warning: {} {}", warning.path, warning.message)?;
    }
    writeln!(
        out,
        "{}: {} created, {} changed, {} unchanged.",
        file.display(),
        imported.created,
        imported.updated,
        imported.unchanged
    )?;
    Ok(())
}

/// Writes the contents of the store as a workspace file, for one company or for all.
pub(crate) async fn export(
    company: Option<&CompanyId>,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let records = Stores::open_existing(config).await?.records;
    if let Some(company) = company
        && records.collections(company, None).await?.is_empty()
    {
        return Err(CommandError::NoCompany(company.to_string()));
    }
    let file = WorkspaceFile::export(&*records, company).await?;
    writeln!(out, "{}", file.to_text().map_err(ExportError::TooMuch)?)?;
    Ok(())
}

/// Copies the store into a new SQLite file while it is in use.
pub(crate) async fn backup(file: &Path, config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    match &config.database {
        Database::Sqlite(path) => stores::open_existing_file(path)?.backup(file).await?,
        _ if file.exists() => return Err(BackupError::Exists(file.to_owned()).into()),
        database => {
            stores::check_existing(database).await?;
            migration::copy_databases(database, &Database::Sqlite(file.to_owned())).await?;
        }
    }
    writeln!(out, "Wrote a consistent backup to {}.", file.display())?;
    Ok(())
}

/// Reseals under `DATA_SECRET` all secrets that are not sealed under it.
pub(crate) async fn rotate(config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    if config.data_secret.is_none() {
        return Err(CommandError::Missing("DATA_SECRET"));
    }
    let Stores { roles, records, .. } = Stores::open_existing(config).await?;
    let mut rotated = roles.rotate_secrets(&*records).await?;
    coding::rotate_secrets(&*records, roles.sealer(), &mut rotated).await?;
    providers::rotate_secrets(&*records, roles.sealer(), &mut rotated).await?;
    for error in &rotated.errors {
        writeln!(out, "{error}")?;
    }
    writeln!(
        out,
        "{} agents: {} secrets re-encrypted, {} already encrypted with DATA_SECRET.",
        rotated.agents, rotated.resealed, rotated.already_current
    )?;
    match rotated.unopened {
        0 => Ok(()),
        unopened => Err(CommandError::UnopenedSecrets(unopened)),
    }
}

#[cfg(test)]
mod tests;
