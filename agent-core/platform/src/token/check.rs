//! Validation of the fields of a new token.

use std::time::Duration;

use super::{Grant, McpGrant, MintError, NewToken, WidgetGrant};
use crate::records::MAX_ID_BYTES;

/// Maximum number of origins in a widget token.
pub const MAX_ORIGINS: usize = 100;
/// Maximum length of an origin, in bytes: a scheme, a host name of full length, and a port.
pub const MAX_ORIGIN_BYTES: usize = 300;
/// Maximum number of tools in an MCP token.
pub const MAX_TOOLS: usize = 500;
/// Maximum length of a label, in bytes.
pub const MAX_LABEL_BYTES: usize = 200;

pub(super) fn new_token(new: &NewToken) -> Result<(), MintError> {
    line("companyId", &new.company_id, MAX_ID_BYTES)?;
    line("agentId", &new.agent_id, MAX_ID_BYTES)?;
    optional("label", new.label.as_deref(), MAX_LABEL_BYTES)?;
    if new.ttl == Some(Duration::ZERO) {
        return Err(MintError::invalid("ttl", "is no time at all"));
    }
    match &new.grant {
        Grant::Widget(WidgetGrant { origins, caps: _ }) => {
            list("origins", origins, MAX_ORIGINS, MAX_ORIGIN_BYTES)
        }
        Grant::Mcp(McpGrant { user_id, todo_list_id, tools, timezone, run_id }) => {
            line("userId", user_id, MAX_ID_BYTES)?;
            optional("todoListId", todo_list_id.as_deref(), MAX_ID_BYTES)?;
            optional("timezone", timezone.as_deref(), MAX_ID_BYTES)?;
            optional("runId", run_id.as_deref(), MAX_ID_BYTES)?;
            list("tools", tools.as_deref().unwrap_or_default(), MAX_TOOLS, MAX_ID_BYTES)
        }
    }
}

fn line(field: &'static str, text: &str, limit: usize) -> Result<(), MintError> {
    let fault = if text.trim().is_empty() {
        "is empty".to_owned()
    } else if text.len() > limit {
        format!("has more than {limit} bytes")
    } else if text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(MintError::invalid(field, fault))
}

fn optional(field: &'static str, text: Option<&str>, limit: usize) -> Result<(), MintError> {
    text.map_or(Ok(()), |text| line(field, text, limit))
}

fn list(field: &'static str, texts: &[String], most: usize, limit: usize) -> Result<(), MintError> {
    if texts.len() > most {
        return Err(MintError::invalid(field, format!("has more than {most} elements")));
    }
    texts.iter().try_for_each(|text| line(field, text, limit))
}
