//! Tool servers in roles, and their pinned tools.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::role::{OwnTool, grouped_name};
use agent_core::tool::{ToolAnnotations, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::credential::Credential;
use super::definition::{
    DEFAULT_RESULT_BYTES, IdentitySetting, RESULT_BYTES_RANGE, TIMEOUT_RANGE_MS, out_of_range, raw_json,
};
use super::fingerprint::fingerprint;
use super::offered_schema::offered_schema;
use super::schema::ArgumentSchema;
use super::settings::read_tool;
use super::{MAX_DEFINITION_BYTES, MAX_OWN_TOOLS, ToolSettingsError};

/// Default time limit of a request to a tool server.
const DEFAULT_TIMEOUT_MS: u64 = 20_000;
/// Maximum lengths in bytes: of a server's id, of its address, and of the name that a tool has at the server.
const MAX_ID_BYTES: usize = 32;
const MAX_URL_BYTES: usize = 2048;
const MAX_SERVER_NAME_BYTES: usize = 128;

/// A tool server of a role.
pub(super) struct ToolServer {
    pub(super) id: String,
    pub(super) url: Url,
    pub(super) credential: Credential,
    pub(super) is_signed: bool,
    /// Names of the tools that the agent may have, as the server knows them.
    pub(super) tools: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) max_result_bytes: usize,
}

/// Settings of a tool server in a role, without its credential.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolServerSettings {
    id: String,
    url: String,
    #[serde(default)]
    identity: IdentitySetting,
    tools: Vec<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    max_result_bytes: Option<usize>,
}

/// Definition of a tool by its server: the members that a fingerprint covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The name at the server.
    pub name: String,
    /// The name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints about the effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// A pinned tool of a tool server.
pub(super) struct ServerTool {
    pub(super) server: Arc<ToolServer>,
    /// The name at the server.
    pub(super) name: String,
    pub(super) fingerprint: String,
    pub(super) spec: Arc<ToolSpec>,
    pub(super) schema: ArgumentSchema,
}

impl ToolServer {
    /// Parses and checks a server. The path of the fault is within the server.
    pub(super) fn parse(server: &OwnTool) -> Result<Self, ToolSettingsError> {
        let settings: ToolServerSettings = read_tool(server, &[])?;
        check_group_id(&settings.id)?;
        let url =
            parse_server_url(&settings.url).map_err(|message| ToolSettingsError::new("url", message))?;
        check_tool_names(&settings.id, &settings.tools)?;
        let timeout_ms = settings.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        if !TIMEOUT_RANGE_MS.contains(&timeout_ms) {
            return Err(out_of_range("timeoutMs", TIMEOUT_RANGE_MS.start(), TIMEOUT_RANGE_MS.end()));
        }
        let max_result_bytes = settings.max_result_bytes.unwrap_or(DEFAULT_RESULT_BYTES);
        if !RESULT_BYTES_RANGE.contains(&max_result_bytes) {
            let (min, max) = (RESULT_BYTES_RANGE.start(), RESULT_BYTES_RANGE.end());
            return Err(out_of_range("maxResultBytes", min, max));
        }
        let is_signed = settings.identity == IdentitySetting::Signed;
        if is_signed && server.auth.is_none() {
            return Err(ToolSettingsError::new("auth.secret", "is needed: it signs the identity"));
        }
        let credential = Credential::parse(server.auth.as_ref())?;
        if credential.query_name().is_some() {
            let message = "must not be `query`: the address of a tool server has no query; use `header`";
            return Err(ToolSettingsError::new("auth.type", message));
        }
        Ok(Self {
            id: settings.id,
            url,
            credential,
            is_signed,
            tools: settings.tools,
            timeout: Duration::from_millis(timeout_ms),
            max_result_bytes,
        })
    }

    /// Returns the name under which a tool is offered.
    pub(super) fn offered_name(&self, tool: &str) -> String {
        grouped_name(&self.id, tool)
    }
}

impl ToolDefinition {
    /// Returns the SHA-256 of the definition's canonical JSON (RFC 8785), in lower-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(&serde_json::to_value(self).unwrap_or_default())
    }

    /// Returns the size of the definition as the model receives it, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let description = self.description.as_ref().map_or(0, String::len);
        self.name.len() + description + self.input_schema.to_string().len()
    }

    /// Describes the excess of the definition's size, if it exceeds the limit.
    pub(super) fn size_fault(&self) -> Option<String> {
        let bytes = self.bytes();
        (bytes > MAX_DEFINITION_BYTES)
            .then(|| format!("has {bytes} bytes; the limit is {MAX_DEFINITION_BYTES}"))
    }

    /// Describes the reason why the definition cannot be pinned, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        let size_fault = self.size_fault();
        if size_fault.is_some() {
            return size_fault;
        }
        ArgumentSchema::compile(&self.input_schema)
            .err()
            .map(|message| format!("has an inputSchema that {message}"))
    }
}

impl ServerTool {
    /// Creates a tool from its pinned definition.
    pub(super) fn new(server: &Arc<ToolServer>, pinned: &ToolDefinition) -> Result<Self, ToolSettingsError> {
        let schema = ArgumentSchema::compile(&pinned.input_schema)
            .map_err(|message| ToolSettingsError::new("inputSchema", message))?;
        let spec = ToolSpec {
            name: server.offered_name(&pinned.name),
            description: pinned.description.clone().or_else(|| pinned.title.clone()).unwrap_or_default(),
            input_schema: raw_json(&offered_schema(&pinned.input_schema))?,
            // A truncated result conforms to no schema.
            output_schema: None,
            annotations: Some(hints(pinned.annotations.as_ref())),
            is_client_side: false,
        };
        Ok(Self {
            server: server.clone(),
            name: pinned.name.clone(),
            fingerprint: pinned.fingerprint(),
            spec: Arc::new(spec),
            schema,
        })
    }
}

/// Returns the hints of a definition, with the defaults of the protocol: a tool is destructive and reaches other parties
/// unless it says otherwise.
fn hints(annotations: Option<&Value>) -> ToolAnnotations {
    let hint = |name: &str| annotations.and_then(|annotations| annotations.get(name)?.as_bool());
    let read_only_hint = hint("readOnlyHint").unwrap_or(false);
    ToolAnnotations {
        read_only_hint,
        destructive_hint: !read_only_hint && hint("destructiveHint").unwrap_or(true),
        idempotent_hint: hint("idempotentHint").unwrap_or(false),
        open_world_hint: hint("openWorldHint").unwrap_or(true),
    }
}

/// Checks the id of a group of tools, with which their names begin.
pub(super) fn check_group_id(id: &str) -> Result<(), ToolSettingsError> {
    let is_valid = (1..=MAX_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match is_valid {
        true => Ok(()),
        false => {
            let message = format!("must be 1 to {MAX_ID_BYTES} letters, digits, underscores and hyphens");
            Err(ToolSettingsError::new("id", message))
        }
    }
}

fn check_tool_names(id: &str, tools: &[String]) -> Result<(), ToolSettingsError> {
    if tools.is_empty() || tools.len() > MAX_OWN_TOOLS {
        let message = format!("must name 1 to {MAX_OWN_TOOLS} tools of the server");
        return Err(ToolSettingsError::new("tools", message));
    }
    let mut seen = HashSet::new();
    for (i, name) in tools.iter().enumerate() {
        let offered = grouped_name(id, name);
        let message = if name.is_empty() || name.len() > MAX_SERVER_NAME_BYTES {
            format!("must have 1 to {MAX_SERVER_NAME_BYTES} bytes")
        } else if !seen.insert(offered) {
            "is offered under the name of another tool".to_owned()
        } else {
            continue;
        };
        return Err(ToolSettingsError::new(format!("tools[{i}]"), message));
    }
    Ok(())
}

/// Parses and checks the address of a server.
pub(super) fn parse_server_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or http://");
    }
    if text.len() > MAX_URL_BYTES {
        return Err("is too long");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not have a user; use auth");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or a fragment; use auth");
    }
    Ok(url)
}
