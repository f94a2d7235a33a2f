//! Parameters of tokens to be created, and their validation.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::error::TokenMintError;
use super::grant::{ApiGrant, Grant, McpGrant, WidgetGrant};
use super::metadata::Token;
use super::text::TokenText;
use super::time;
use crate::ids::check_id;
use crate::records::{MAX_ID_BYTES, to_millis};
use agent_core::ids::{AgentId, CompanyId};

/// Maximum number of agents for which an API token is valid.
pub const MAX_AGENTS_PER_TOKEN: usize = 50;
/// Maximum number of origins in a widget token.
const MAX_ORIGINS_PER_TOKEN: usize = 100;
/// Maximum length of an origin, in bytes: a scheme, a host name of full length, and a port.
const MAX_ORIGIN_BYTES: usize = 300;
/// Maximum number of tools in an MCP token.
const MAX_TOOLS_PER_TOKEN: usize = 500;
/// Maximum length of a label, in bytes.
const MAX_LABEL_BYTES: usize = 200;

/// Parameters of a token to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The company of the agent.
    pub company_id: CompanyId,
    /// The agent. The caller must have checked that it exists.
    pub agent_id: AgentId,
    /// Permissions of the bearer.
    pub grant: Grant,
    /// Lifetime; unlimited if absent.
    pub ttl: Option<Duration>,
    /// Label given by the creator.
    pub label: Option<String>,
}

impl NewToken {
    /// Creates parameters for a token that is valid until it is revoked.
    pub fn new(company_id: impl Into<CompanyId>, agent_id: impl Into<AgentId>, grant: Grant) -> Self {
        Self { company_id: company_id.into(), agent_id: agent_id.into(), grant, ttl: None, label: None }
    }

    /// Creates parameters for an API token that is valid until it is revoked.
    pub fn api(company_id: impl Into<CompanyId>, grant: ApiGrant) -> Self {
        let first = grant.agents.first().cloned().unwrap_or_default();
        Self::new(company_id, first, Grant::Api(grant))
    }

    /// Creates the token and its text, with creation time `now`.
    pub(super) fn create(self, now: SystemTime) -> Result<(Token, TokenText), TokenMintError> {
        check_new_token(&self)?;
        let text = TokenText::random(&self.grant)?;
        let created_at = to_millis(now);
        let end = |ttl| created_at.checked_add(ttl).filter(|end| time::is_representable(*end));
        let end = |ttl| end(ttl).map(to_millis);
        let token = Token {
            id: text.id.to_string(),
            company_id: self.company_id,
            agent_id: self.agent_id,
            grant: self.grant,
            created_at,
            expires_at: self.ttl.map(|ttl| end(ttl).ok_or_else(TokenMintError::ttl)).transpose()?,
            revoked_at: None,
            label: self.label,
        };
        Ok((token, text))
    }
}

fn check_new_token(new: &NewToken) -> Result<(), TokenMintError> {
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

/// Checks the agents of an API token. The first one is the token's own agent.
fn check_agents(first: &AgentId, agents: &[AgentId]) -> Result<(), TokenMintError> {
    if agents.len() > MAX_AGENTS_PER_TOKEN {
        let fault = format!("has more than {MAX_AGENTS_PER_TOKEN} elements");
        return Err(TokenMintError::invalid("agents", fault));
    }
    if agents.first() != Some(first) {
        return Err(TokenMintError::invalid("agents", "must begin with the token's agent"));
    }
    if agents.iter().collect::<HashSet<_>>().len() < agents.len() {
        return Err(TokenMintError::invalid("agents", "names an agent twice"));
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
