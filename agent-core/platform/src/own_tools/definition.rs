//! The definition of an HTTP tool, parsed from a role and checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::role::OwnTool;
use agent_core::tool::{ToolAnnotations, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::credential::Credential;
use super::offered_schema::offered_schema;
use super::request::{RequestSettings, RequestTemplate};
use super::schema::ArgumentSchema;
use super::settings::read_tool;
use super::{MAX_NAME_BYTES, ToolSettingsError};

/// Maximum length of a tool's description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 4096;
/// Time limit of a call: default, and bounds.
const DEFAULT_TIMEOUT_MS: u64 = 15_000;
pub(super) const TIMEOUT_RANGE_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// Limit on a result's text: default, and bounds.
pub(super) const DEFAULT_RESULT_BYTES: usize = 64 * 1024;
pub(super) const RESULT_BYTES_RANGE: std::ops::RangeInclusive<usize> = 256..=256 * 1024;
/// Maximum number of texts for statuses, and the length of one in bytes.
const MAX_ERROR_TEXTS: usize = 32;
const MAX_ERROR_TEXT_BYTES: usize = 1024;

/// An HTTP tool.
pub(super) struct HttpTool {
    pub(super) spec: Arc<ToolSpec>,
    pub(super) schema: ArgumentSchema,
    pub(super) request: RequestTemplate,
    pub(super) result: ResultSettings,
    pub(super) credential: Credential,
    pub(super) is_signed: bool,
    pub(super) timeout: Duration,
}

/// Settings of an HTTP tool in a role, without its credential.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HttpToolSettings {
    name: String,
    description: String,
    #[serde(default = "schema_without_arguments")]
    input_schema: Value,
    #[serde(default)]
    annotations: Option<HintSettings>,
    #[serde(default)]
    identity: IdentitySetting,
    #[serde(default)]
    timeout_ms: Option<u64>,
    request: RequestSettings,
    #[serde(default)]
    result: ResultSettings,
}

/// Hints about the effects of a tool.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HintSettings {
    read_only_hint: bool,
    destructive_hint: Option<bool>,
    idempotent_hint: bool,
    open_world_hint: Option<bool>,
}

impl HintSettings {
    /// Returns the hints of a tool with this method. Only a `GET` is read-only and a `DELETE` is destructive, whatever the
    /// definition says. With any other method, a tool is destructive unless its hints deny it. Every tool calls an external
    /// system unless its hints declare the system to be the company's own: both are the protocol's defaults.
    fn resolve(self, method: &str) -> ToolAnnotations {
        let Self { read_only_hint, destructive_hint, idempotent_hint, open_world_hint } = self;
        let read_only_hint = read_only_hint && method == "GET";
        let destructive_hint = method == "DELETE" || destructive_hint.unwrap_or(method != "GET");
        let open_world_hint = open_world_hint.unwrap_or(true);
        ToolAnnotations { read_only_hint, destructive_hint, idempotent_hint, open_world_hint }
    }
}

/// Setting of the header with the user's identity.
#[derive(Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum IdentitySetting {
    #[default]
    None,
    Signed,
}

/// Use of a response.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ResultSettings {
    /// JSON Pointer (RFC 6901) of the result in the response.
    pub(super) pick: Option<String>,
    /// Limit on the result's text, in bytes.
    max_bytes: Option<usize>,
    /// Texts for the model, by status.
    pub(super) errors: BTreeMap<String, String>,
}

impl ResultSettings {
    /// Returns the limit on the result's text, in bytes.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes.unwrap_or(DEFAULT_RESULT_BYTES)
    }

    fn check(&self) -> Result<(), ToolSettingsError> {
        if self.pick.as_deref().is_some_and(|pick| !pick.is_empty() && !pick.starts_with('/')) {
            return Err(ToolSettingsError::new("result.pick", "is not a JSON Pointer, such as /data"));
        }
        if self.max_bytes.is_some_and(|bytes| !RESULT_BYTES_RANGE.contains(&bytes)) {
            return Err(out_of_range(
                "result.maxBytes",
                RESULT_BYTES_RANGE.start(),
                RESULT_BYTES_RANGE.end(),
            ));
        }
        if self.errors.len() > MAX_ERROR_TEXTS {
            let message = format!("has more than {MAX_ERROR_TEXTS} entries");
            return Err(ToolSettingsError::new("result.errors", message));
        }
        for (status, text) in &self.errors {
            let path = || format!("result.errors.{status}");
            if !status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
                return Err(ToolSettingsError::new(path(), "is not a status from 400 to 599"));
            }
            if text.len() > MAX_ERROR_TEXT_BYTES {
                return Err(ToolSettingsError::new(path(), format!("exceeds {MAX_ERROR_TEXT_BYTES} bytes")));
            }
        }
        Ok(())
    }
}

pub(super) fn out_of_range(
    path: &str,
    least: impl std::fmt::Display,
    most: impl std::fmt::Display,
) -> ToolSettingsError {
    ToolSettingsError::new(path, format!("must be from {least} to {most}"))
}

fn schema_without_arguments() -> Value {
    json!({"type": "object", "properties": {}})
}

impl HttpTool {
    /// Parses and checks a tool. The path of the fault is within the tool.
    pub(super) fn parse(tool: &OwnTool) -> Result<Self, ToolSettingsError> {
        let settings: HttpToolSettings = read_tool(tool, &[])?;
        check_name(&settings.name)?;
        if settings.description.trim().is_empty() {
            return Err(ToolSettingsError::new("description", "is empty; the model chooses a tool by it"));
        }
        if settings.description.len() > MAX_DESCRIPTION_BYTES {
            let message = format!("exceeds {MAX_DESCRIPTION_BYTES} bytes");
            return Err(ToolSettingsError::new("description", message));
        }
        let schema = ArgumentSchema::compile(&settings.input_schema)
            .map_err(|message| ToolSettingsError::new("inputSchema", message))?;
        let credential = Credential::parse(tool.auth.as_ref())?;
        let request = RequestTemplate::parse(&settings.request)?;
        if let Some(name) = credential.query_name().filter(|name| request.has_query_parameter(name)) {
            let path = format!("request.query.{name}");
            return Err(ToolSettingsError::new(path, "is the parameter that auth sets"));
        }
        check_arguments(&settings.input_schema, &request)?;
        settings.result.check()?;
        let timeout_ms = settings.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        if !TIMEOUT_RANGE_MS.contains(&timeout_ms) {
            return Err(out_of_range("timeoutMs", TIMEOUT_RANGE_MS.start(), TIMEOUT_RANGE_MS.end()));
        }
        let is_signed = settings.identity == IdentitySetting::Signed;
        if is_signed && tool.auth.is_none() {
            return Err(ToolSettingsError::new("auth.secret", "is needed: it signs the identity"));
        }
        let spec = ToolSpec {
            name: settings.name,
            description: settings.description,
            input_schema: raw_json(&offered_schema(&settings.input_schema))?,
            output_schema: None,
            annotations: Some(settings.annotations.unwrap_or_default().resolve(request.method)),
            is_client_side: false,
        };
        let timeout = Duration::from_millis(timeout_ms);
        let spec = Arc::new(spec);
        Ok(Self { spec, schema, request, result: settings.result, credential, is_signed, timeout })
    }

    /// Returns the size of the definition as the model receives it, in bytes.
    pub(super) fn definition_bytes(&self) -> usize {
        let ToolSpec { name, description, input_schema, .. } = &*self.spec;
        name.len() + description.len() + input_schema.get().len()
    }

    /// Returns true if the request may be sent again after it may have taken effect.
    pub(super) fn is_idempotent(&self) -> bool {
        let hints = self.spec.annotations.unwrap_or_default();
        self.request.method == "GET" || hints.idempotent_hint
    }
}

fn check_name(name: &str) -> Result<(), ToolSettingsError> {
    let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match is_valid {
        true => Ok(()),
        false => Err(ToolSettingsError::new(
            "name",
            format!("must be 1 to {MAX_NAME_BYTES} letters, digits, underscores and hyphens"),
        )),
    }
}

/// Checks that each placeholder is an argument, and that the placeholders of the path are required.
fn check_arguments(schema: &Value, request: &RequestTemplate) -> Result<(), ToolSettingsError> {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|required| required.iter().any(|item| item == name))
    };
    for (path, name, is_needed) in request.arguments() {
        if schema["properties"].get(name).is_none() {
            let message = format!("has the placeholder {{{name}}}, which is not a property of inputSchema");
            return Err(ToolSettingsError::new(path, message));
        }
        if is_needed && !required(name) {
            let message = format!("has the placeholder {{{name}}}, which inputSchema does not require");
            return Err(ToolSettingsError::new(path, message));
        }
    }
    Ok(())
}

pub(super) fn raw_json(schema: &Value) -> Result<Arc<serde_json::value::RawValue>, ToolSettingsError> {
    let raw = serde_json::value::to_raw_value(schema);
    raw.map(Arc::from).map_err(|error| ToolSettingsError::new("inputSchema", error.to_string()))
}
