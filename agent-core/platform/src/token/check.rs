//! Validation of the fields of a new token.

use std::collections::HashSet;
use std::time::Duration;

use super::{ApiGrant, Grant, MAX_AGENTS_PER_TOKEN, McpGrant, NewToken, TokenMintError, WidgetGrant};
use crate::ids::check_id;
use crate::records::MAX_ID_BYTES;
use agent_core::ids::AgentId;

/// Maximum number of origins in a widget token.
pub(crate) const MAX_ORIGINS_PER_TOKEN: usize = 100;
/// Maximum length of an origin, in bytes: a scheme, a host name of full length, and a port.
pub(crate) const MAX_ORIGIN_BYTES: usize = 300;
/// Maximum number of tools in an MCP token.
pub(crate) const MAX_TOOLS_PER_TOKEN: usize = 500;
/// Maximum length of a label, in bytes.
pub(crate) const MAX_LABEL_BYTES: usize = 200;

pub(super) fn check_new_token(new: &NewToken) -> Result<(), TokenMintError> {
    check_token_line("companyId", &new.company_id, MAX_ID_BYTES)?;
    check_token_line("agentId", &new.agent_id, MAX_ID_BYTES)?;
    check_optional_token_line("label", new.label.as_deref(), MAX_LABEL_BYTES)?;
    if new.ttl == Some(Duration::ZERO) {
        return Err(TokenMintError::invalid("ttl", "must be greater than zero"));
    }
    match &new.grant {
        Grant::Widget(WidgetGrant { origins, caps: _ }) => {
            check_token_lines("origins", origins, MAX_ORIGINS_PER_TOKEN, MAX_ORIGIN_BYTES)
        }
        Grant::Mcp(McpGrant { user_id, todo_list_id, tools, timezone, run_id, token_id, can_suspend: _ }) => {
            check_token_id("userId", Some(user_id))?;
            check_token_id("todoListId", todo_list_id.as_deref())?;
            check_optional_token_line("timezone", timezone.as_deref(), MAX_ID_BYTES)?;
            check_token_id("runId", run_id.as_deref())?;
            check_token_id("tokenId", token_id.as_deref())?;
            check_token_lines(
                "tools",
                tools.as_deref().unwrap_or_default(),
                MAX_TOOLS_PER_TOKEN,
                MAX_ID_BYTES,
            )
        }
        Grant::Api(ApiGrant { user_id, agents, caps: _ }) => {
            check_token_id("userId", Some(user_id))?;
            check_agents(&new.agent_id, agents)
        }
    }
}

/// Checks the agents of an API token, the first of which is the token's own.
fn check_agents(first: &AgentId, agents: &[AgentId]) -> Result<(), TokenMintError> {
    if agents.len() > MAX_AGENTS_PER_TOKEN {
        let fault = format!("has more than {MAX_AGENTS_PER_TOKEN} elements");
        return Err(TokenMintError::invalid("agents", fault));
    }
    if agents.first() != Some(first) {
        return Err(TokenMintError::invalid("agents", "must begin with the token's agent"));
    }
    if agents.iter().collect::<HashSet<_>>().len() < agents.len() {
        return Err(TokenMintError::invalid("agents", "has an agent twice"));
    }
    agents.iter().try_for_each(|agent| check_token_line("agents", agent, MAX_ID_BYTES))
}

fn check_token_id(field: &'static str, id: Option<&str>) -> Result<(), TokenMintError> {
    let checked = id.map_or(Ok(()), |id| check_id(id, MAX_ID_BYTES));
    checked.map_err(|error| TokenMintError::invalid(field, error.to_string()))
}

fn check_token_line(field: &'static str, text: &str, limit: usize) -> Result<(), TokenMintError> {
    let fault = if text.trim().is_empty() {
        "is empty".to_owned()
    } else if text.len() > limit {
        format!("has more than {limit} bytes")
    } else if text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(TokenMintError::invalid(field, fault))
}

fn check_optional_token_line(
    field: &'static str,
    text: Option<&str>,
    limit: usize,
) -> Result<(), TokenMintError> {
    text.map_or(Ok(()), |text| check_token_line(field, text, limit))
}

fn check_token_lines(
    field: &'static str,
    texts: &[String],
    most: usize,
    limit: usize,
) -> Result<(), TokenMintError> {
    if texts.len() > most {
        return Err(TokenMintError::invalid(field, format!("has more than {most} elements")));
    }
    texts.iter().try_for_each(|text| check_token_line(field, text, limit))
}
