//! Tokens without their secrets.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::TokenError;
use super::grant::Grant;
use super::time;
use agent_core::ids::{AgentId, CompanyId};

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The public identifier, a UUID of version 7.
    pub id: String,
    /// The company of the agent.
    pub company_id: CompanyId,
    /// The agent that the token is valid for; of an API token, the first of its agents.
    pub agent_id: AgentId,
    /// Permissions of the bearer.
    #[serde(flatten)]
    pub grant: Grant,
    /// Creation time, to the millisecond. RFC 3339 in JSON, like the other times.
    #[serde(with = "time")]
    #[schemars(schema_with = "time::schema")]
    pub created_at: SystemTime,
    /// Expiry time; the token never expires if absent.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::schema")]
    pub expires_at: Option<SystemTime>,
    /// Revocation time, if the token was revoked.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::schema")]
    pub revoked_at: Option<SystemTime>,
    /// Label given by the creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Token {
    /// Checks that the token is neither revoked nor expired at `now`.
    ///
    /// # Errors
    /// [`TokenError::Revoked`] and [`TokenError::Expired`].
    pub fn check(&self, now: SystemTime) -> Result<(), TokenError> {
        if self.revoked_at.is_some() {
            return Err(TokenError::Revoked);
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(TokenError::Expired);
        }
        Ok(())
    }

    /// Returns the agents that the token is valid for.
    pub fn agents(&self) -> &[AgentId] {
        match &self.grant {
            Grant::Api(grant) => &grant.agents,
            Grant::Widget(_) | Grant::Mcp(_) => std::slice::from_ref(&self.agent_id),
        }
    }
}
