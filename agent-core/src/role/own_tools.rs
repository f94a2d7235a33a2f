//! Tools that a role defines itself. `agent_platform::own_tools` reads and checks their settings.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// Tools that a role defines, by their kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct OwnTools {
    /// Tools that call an HTTP API.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_tools: Vec<OwnTool>,
    /// OpenAPI documents, whose operations are tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_api: Vec<OwnTool>,
    /// MCP servers with tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_servers: Vec<OwnTool>,
}

impl OwnTools {
    /// Returns the names of the tools, which the agent may use without an entry in `tools`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        [&self.http_tools, &self.open_api, &self.tool_servers].into_iter().flatten().flat_map(OwnTool::names)
    }
}

impl OwnTool {
    /// Returns its name; those of a group of tools begin with the group's `id`.
    pub fn names(&self) -> Vec<String> {
        let text = |field: &str| self.settings.get(field).and_then(Value::as_str);
        let all = ["tools", "operations"].into_iter().filter_map(|list| self.settings.get(list)?.as_array());
        let grouped = all.flatten().filter_map(|tool| Some(grouped_name(text("id")?, tool.as_str()?)));
        text("name").map(str::to_owned).into_iter().chain(grouped).collect()
    }
}

/// Returns the name of a tool of a group: the group's id and the tool's own name, with underscores for invalid characters.
/// The end of one of more than 64 bytes is replaced by a hash of the tool's own name.
pub fn grouped_name(group: &str, tool: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = format!("{group}_{}", tool.replace(|c: char| !is_allowed(c), "_"));
    let hash = || hex::encode(&Sha256::digest(tool)[..4]);
    if name.len() <= 64 { name } else { format!("{}_{}", &name[..name.floor_char_boundary(55)], hash()) }
}

/// A tool or a group of tools that a role defines, with its credential.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ToolAuth {
    /// The secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// `type` (`none`, `bearer`, `basic`, `header`, `query` or `cookie`), and what it needs.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}
