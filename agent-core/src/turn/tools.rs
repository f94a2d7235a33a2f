//! Tools of a turn.

use std::sync::Arc;

use super::prepared::TurnError;
use crate::backend::BackendCapabilities;
use crate::context::TurnInput;
use crate::tool::{ToolChoice, ToolSpec};

/// Adds the tools of the client, unless the role or the backend excludes them.
fn with_client_tools(
    tools: Arc<[Arc<ToolSpec>]>,
    input: &TurnInput,
    capabilities: &BackendCapabilities,
) -> Result<Arc<[Arc<ToolSpec>]>, TurnError> {
    let client_tools = &input.request.client_tools;
    let duplicate = client_tools.iter().find(|own| tools.iter().any(|tool| tool.name == own.name));
    if let Some(duplicate) = duplicate {
        let problem = format!("must not have {:?}, which is one of the agent's own tools", duplicate.name);
        return Err(TurnError::InvalidField { field: "tools", problem });
    }
    let setting = input.role.content.conversations.unwrap_or_default().client_tools.unwrap_or_default();
    // A remote runtime calls each tool itself.
    if client_tools.is_empty()
        || !setting.allows(input.context.caller)
        || capabilities.run_token_ttl.is_some()
    {
        return Ok(tools);
    }
    let specs = client_tools.iter().map(|tool| ToolSpec { is_client_side: true, ..ToolSpec::clone(tool) });
    let mut all: Vec<_> = tools.iter().cloned().chain(specs.map(Arc::new)).collect();
    all.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(all.into())
}

/// Returns the tools of the turn: those of the agent and the client's own that the constraint on calls allows.
pub(super) fn turn_tools(
    tools: Arc<[Arc<ToolSpec>]>,
    input: &TurnInput,
    capabilities: &BackendCapabilities,
) -> Result<Arc<[Arc<ToolSpec>]>, TurnError> {
    let tools = with_client_tools(tools, input, capabilities)?;
    let choice = &input.request.tool_choice;
    match choice.describe_conflict(&tools) {
        Some(problem) => Err(TurnError::InvalidField { field: "toolChoice", problem: problem.to_owned() }),
        None => Ok(offered_tools(choice, capabilities, tools)),
    }
}

/// Returns the tools of the whole run: none if no call is allowed, and the named one alone for a runtime that calls the
/// tools itself, since it does not know the choice.
pub(super) fn offered_tools(
    choice: &ToolChoice,
    capabilities: &BackendCapabilities,
    tools: Arc<[Arc<ToolSpec>]>,
) -> Arc<[Arc<ToolSpec>]> {
    match choice {
        ToolChoice::Tool(_) if capabilities.run_token_ttl.is_some() => choice.offered(&tools).into(),
        ToolChoice::None => choice.offered(&tools).into(),
        _ => tools,
    }
}
