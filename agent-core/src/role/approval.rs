//! Rules by which tool calls wait for a person's approval.

use serde::{Deserialize, Serialize};

/// Rule by which calls of some tools wait for approval. The first rule of a role that matches a tool applies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalRule {
    /// Names of the tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// A tool must have at least one of these hints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<ToolHint>,
    /// The people who may decide.
    pub by: Approver,
    /// Treatment of a call while no user can be asked.
    pub unattended: UnattendedCalls,
    /// Time for the decision, in milliseconds; a day if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// True if the person may change the arguments; absent means true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub editable: Option<bool>,
    /// Question for the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Hint of a tool's definition about the side effects of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ToolHint {
    /// The tool may delete or overwrite data.
    Destructive,
    /// The tool acts outside of the company's own data.
    OpenWorld,
}

/// The people who may decide about a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Approver {
    /// The user of the run.
    #[default]
    User,
    /// The user of the run, who may be a visitor of a widget.
    Visitor,
    /// The owner of the agent.
    Owner,
    /// Every user of the company.
    Company,
}

/// Treatment of a call that needs approval while no user can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum UnattendedCalls {
    /// The call is refused.
    #[default]
    Deny,
    /// The call waits, if the run is stored; else it is refused.
    Wait,
    /// The call is made.
    Allow,
}
