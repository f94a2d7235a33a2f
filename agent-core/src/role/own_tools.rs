//! Tools that a role defines itself. `agent_platform::own_tools` reads and checks their settings.

#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::secret::Secret;

/// Tools that a role defines, by their kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct OwnTools {
    /// Tools that call an HTTP API.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_tools: Vec<OwnTool>,
}

impl OwnTools {
    /// Returns the names of the tools, which the agent may use without an entry in `tools`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.http_tools.iter().filter_map(|tool| Some(tool.settings.get("name")?.as_str()?.to_owned()))
    }
}

/// A tool that a role defines, with its credential.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(default)]
pub struct OwnTool {
    /// Credential that is sent to the tool's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<ToolAuth>,
    /// All other settings.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// Credential of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(default)]
pub struct ToolAuth {
    /// The secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// `type` (`none`, `bearer`, `basic` or `header`), and what it needs.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}
