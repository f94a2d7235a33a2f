//! Checks of scheduled tool calls before they are saved.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ToolSpec};
use agent_platform::own_tools::unusable_argument;
use serde_json::{Map, Value};

use super::super::App;
use crate::error::HttpError;

/// Returns the definitions of the tools that exist for an agent in a proactive run of the caller.
pub(in crate::app) async fn scheduled_tools(
    app: &App,
    principal: &Principal,
    role: &RoleBlock,
) -> Result<Vec<Arc<ToolSpec>>, HttpError> {
    let context = principal.agent_context(&role.id, Caller::Proactive);
    app.pulse.tools.list(&context).await.map_err(HttpError::from_tool_list)
}

/// Checks that a scheduled call has arguments that its tool accepts: with others, each run would fail. `at` is the path of the
/// arguments.
///
/// # Errors
/// 400 that names the argument that is missing or does not conform to the tool's schema.
pub(in crate::app) fn check_arguments(
    spec: &ToolSpec,
    arguments: Option<&Map<String, Value>>,
    at: &str,
) -> Result<(), HttpError> {
    match unusable_argument(spec, arguments.cloned().unwrap_or_default()) {
        Some((path, fault)) if path.is_empty() => Err(HttpError::invalid(at, fault)),
        Some((path, fault)) => Err(HttpError::invalid(&format!("{at}.{path}"), fault)),
        None => Ok(()),
    }
}
