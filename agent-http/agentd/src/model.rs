//! `agentd model`: weights of the embedded model.

use std::io::Write;

use crate::config::AppConfig;
use crate::weights;

use crate::failure::CommandError;

/// Lists the known models, and which of them are downloaded.
pub(crate) fn list(config: &AppConfig, out: &mut dyn Write) -> Result<(), CommandError> {
    for line in weights::list(config) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Downloads a model's weights and writes their path.
pub(crate) async fn pull(
    name: Option<&str>,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let path = weights::pull(config, name).await?;
    writeln!(out, "{}", path.display())?;
    Ok(())
}
