//! Permissions of the bearers of tokens, by kind of token.

use std::num::NonZeroU32;

use agent_core::ids::{AgentId, RunId, UserId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permissions of a token's bearer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Grant {
    /// Chat with the agent as a visitor of a web page.
    Widget(WidgetGrant),
    /// Call the agent's tools on behalf of a user.
    Mcp(McpGrant),
    /// Chat with agents on behalf of a user, by the API that follows OpenAI's.
    Api(ApiGrant),
}

impl Grant {
    /// Returns the user on whose behalf the bearer acts; `None` for widgets.
    pub fn user_id(&self) -> Option<&UserId> {
        match self {
            Self::Widget(_) => None,
            Self::Mcp(grant) => Some(&grant.user_id),
            Self::Api(grant) => Some(&grant.user_id),
        }
    }
}

/// Permissions of a widget token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WidgetGrant {
    /// Exact origins of the pages that may use the token; any origin, if empty.
    pub origins: Vec<String>,
    /// Rate caps.
    pub caps: RunCaps,
}

/// Rate caps of a widget or API token, shared by all its bearers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCaps {
    /// Runs per minute; also the maximum burst.
    pub runs_per_minute: NonZeroU32,
    /// Runs per day, which begins at midnight UTC; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_per_day: Option<NonZeroU32>,
}

impl Default for RunCaps {
    /// Returns 20 runs per minute without a daily cap.
    fn default() -> Self {
        Self { runs_per_minute: NonZeroU32::new(20).expect("twenty is not zero"), runs_per_day: None }
    }
}

/// Permissions of an MCP token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpGrant {
    /// The user on whose behalf the tools work.
    pub user_id: UserId,
    /// Identifier of the task list for tasks and plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// Restricts the agent's tools to these names; all of them, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The user's IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Identifier of the run that the token was issued for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Identifier of the API token with which that run was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// True if calls of the run may wait for a person's approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_suspend: bool,
}

/// Permissions of an API token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiGrant {
    /// The user on whose behalf the agents answer.
    pub user_id: UserId,
    /// The agents that may be chatted with.
    pub agents: Vec<AgentId>,
    /// Rate caps in addition to the user's limits; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<RunCaps>,
}
