//! OpenAPI documents (3.0 and 3.1) of a role: their operations are compiled to HTTP tools where the role is saved, so that
//! a document that changes changes no tool.

mod document;
mod operation;
mod schemas;

use agent_core::role::{OwnTool, OwnTools, grouped_name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::definition::HttpTool;
use super::form::MULTIPART_CONTENT_TYPE;
use super::settings::{list_names, read_tool};
use super::tool_server::{check_group_id, parse_server_url};
use super::{MAX_OWN_TOOLS, ToolSettingsError};

use document::OpenApiDocument;
use operation::CredentialParameter;

/// Maximum length of an operation's key, in bytes.
const MAX_KEY_BYTES: usize = 256;
/// Reason why processes of earlier versions skip an operation that is a tool.
const SKIPPED_BY_EARLIER_VERSIONS: &str =
    "has a body of multipart/form-data, which processes of earlier versions cannot send";

/// Fields of an entry that are replaced before it is stored.
const OTHER_FIELDS: [&str; 1] = ["document"];

/// An OpenAPI document in a role, without its credential.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OpenApiSettings {
    id: String,
    /// Document of the company from which the tools are compiled whenever the role is saved.
    #[serde(default, rename = "documentId")]
    _document_id: Option<String>,
    server: String,
    operations: Vec<String>,
    #[serde(default)]
    identity: Option<Value>,
    /// The compiled tools: settings of HTTP tools without credential and identity. `omission` in a tool's `annotations` describes
    /// the parts of the operation that the tool does not send. Earlier versions ignore it.
    #[serde(default)]
    compiled: Vec<Map<String, Value>>,
    /// The operations that are not compiled. An operation that is listed here and compiled is a tool for this version only:
    /// processes of earlier versions cannot read its settings and would offer none of the tools.
    #[serde(default)]
    skipped: Vec<SkippedOperation>,
}

impl OpenApiSettings {
    /// Returns the compiled tool of the operation `key`.
    fn compiled_tool(&self, key: &str) -> Option<&Map<String, Value>> {
        let name = json!(grouped_name(&self.id, key));
        self.compiled.iter().find(|tool| tool.get("name") == Some(&name))
    }

    /// Returns the reason why the operation `key` is not a tool.
    fn skip_reason(&self, key: &str) -> Option<&str> {
        let skipped = self.skipped.iter().find(|skipped| skipped.operation == key)?;
        self.compiled_tool(key).is_none().then_some(skipped.reason.as_str())
    }

    /// Returns a description of the parts of the request that the tool of the operation `key` does not send.
    fn omission(&self, key: &str) -> Option<&str> {
        self.compiled_tool(key)?.get("annotations")?.get("omission")?.as_str()
    }
}

/// An operation that cannot be represented, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SkippedOperation {
    operation: String,
    reason: String,
}

/// An operation of an OpenAPI document of a role that cannot be a tool, or that is one without a part of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedOperationReport {
    /// Id of the document's entry in the role.
    pub open_api_id: String,
    /// The operation as the role names it.
    pub operation: String,
    /// Reason, worded to follow the operation.
    pub reason: String,
}

/// Returns the operations of a role's OpenAPI documents that cannot be tools.
pub fn skipped_operations(tools: &OwnTools) -> Vec<SkippedOperationReport> {
    operation_reports(tools, OpenApiSettings::skip_reason)
}

/// Returns the operations of a role's OpenAPI documents that are tools without an optional body, or without optional parts of a
/// form, that a tool cannot send.
pub fn incomplete_operations(tools: &OwnTools) -> Vec<SkippedOperationReport> {
    operation_reports(tools, OpenApiSettings::omission)
}

/// Returns a report of each operation for which `find_reason` finds a reason.
fn operation_reports(
    tools: &OwnTools,
    find_reason: impl for<'s> Fn(&'s OpenApiSettings, &str) -> Option<&'s str>,
) -> Vec<SkippedOperationReport> {
    let mut reports = Vec::new();
    for settings in
        tools.open_api.iter().filter_map(|entry| read_tool::<OpenApiSettings>(entry, &OTHER_FIELDS).ok())
    {
        for operation in &settings.operations {
            reports.extend(find_reason(&settings, operation).map(|reason| SkippedOperationReport {
                open_api_id: settings.id.clone(),
                operation: operation.clone(),
                reason: reason.to_owned(),
            }));
        }
    }
    reports
}

/// Compiles the operations that an entry of `openApi` names, and replaces its `document` by them.
///
/// # Errors
/// Fault with the field's path in the entry.
pub fn compile_open_api(entry: &mut Map<String, Value>, document: &Value) -> Result<(), ToolSettingsError> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (id, server) = (text("id"), text("server"));
    // A variable with the name of a parameter would be an argument.
    if server.contains(['{', '}']) {
        let message = "must be an address, with values in place of the document's variables";
        return Err(ToolSettingsError::new("server", message));
    }
    let document =
        OpenApiDocument::new(document).map_err(|message| ToolSettingsError::new("document", message))?;
    let keys = entry.get("operations").and_then(Value::as_array).cloned().unwrap_or_default();
    let credential = entry.get("auth").and_then(credential_parameter);
    let (mut compiled, mut skipped) = (Vec::new(), Vec::new());
    for (i, key) in keys.iter().take(MAX_OWN_TOOLS).enumerate() {
        let key = key.as_str().unwrap_or_default();
        let Some(found) = document.operation(key) else {
            let known = list_names(document.operation_names());
            let message = format!(
                "is neither an operationId of the document nor the method and path of an operation; the document has {known}"
            );
            return Err(ToolSettingsError::new(format!("operations[{i}]"), message));
        };
        let tool = found.and_then(|operation| {
            let name = grouped_name(&id, key);
            check(operation::compile(&document, &operation, (&name, &server), credential)?)
        });
        let reason = match tool {
            Ok(settings) => {
                let is_skipped = is_skipped_by_earlier_versions(&settings);
                compiled.push(Value::Object(settings));
                is_skipped.then(|| SKIPPED_BY_EARLIER_VERSIONS.to_owned())
            }
            Err(reason) => Some(reason),
        };
        skipped.extend(reason.map(|reason| json!(SkippedOperation { operation: key.to_owned(), reason })));
    }
    entry.remove("document");
    for (field, list) in [("compiled", compiled), ("skipped", skipped)] {
        match list.is_empty() {
            true => drop(entry.remove(field)),
            false => drop(entry.insert(field.to_owned(), Value::Array(list))),
        }
    }
    Ok(())
}

/// Returns true for a compiled tool whose settings earlier versions refuse.
fn is_skipped_by_earlier_versions(settings: &Map<String, Value>) -> bool {
    let content_type = settings.get("request").and_then(|request| request.get("contentType"));
    content_type.is_some_and(|content_type| content_type == MULTIPART_CONTENT_TYPE)
}

/// Returns the parameter that a credential sets.
fn credential_parameter(auth: &Value) -> Option<CredentialParameter<'_>> {
    let text = |field: &str| auth.get(field)?.as_str();
    let location = text("type").filter(|kind| matches!(*kind, "cookie" | "header" | "query"))?;
    Some((location, text("name")?))
}

/// Returns the settings of a tool that passes the checks of HTTP tools, without patterns that cannot be matched in linear
/// time.
fn check(settings: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let parse = |settings: &Map<String, Value>| {
        let tool = OwnTool { auth: None, settings: settings.clone() };
        HttpTool::parse(&tool)
            .map(drop)
            .map_err(|ToolSettingsError { path, message }| format!("{path} {message}"))
    };
    if parse(&settings).is_ok() {
        return Ok(settings);
    }
    let mut plain = settings;
    if let Some(schema) = plain.get_mut("inputSchema") {
        schemas::remove_patterns(schema);
    }
    parse(&plain).map(|()| plain)
}

/// Returns the tools of an entry, each with the entry's credential.
///
/// # Errors
/// Fault with the field's path in the entry.
pub(super) fn parse_open_api(entry: &OwnTool) -> Result<Vec<HttpTool>, ToolSettingsError> {
    let settings: OpenApiSettings = read_tool(entry, &OTHER_FIELDS)?;
    check_group_id(&settings.id)?;
    parse_server_url(&settings.server).map_err(|message| ToolSettingsError::new("server", message))?;
    if settings.operations.is_empty() || settings.operations.len() > MAX_OWN_TOOLS {
        let message = format!("must name 1 to {MAX_OWN_TOOLS} operations of the document");
        return Err(ToolSettingsError::new("operations", message));
    }
    let mut tools = Vec::new();
    for (i, key) in settings.operations.iter().enumerate() {
        let fault = |message: String| ToolSettingsError::new(format!("operations[{i}]"), message);
        let name = grouped_name(&settings.id, key);
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(fault(format!("must have 1 to {MAX_KEY_BYTES} bytes")));
        }
        if settings.operations[..i].iter().any(|other| grouped_name(&settings.id, other) == name) {
            return Err(fault("is offered under the name of another operation".to_owned()));
        }
        match settings.compiled_tool(key) {
            Some(compiled) => tools.push(parse_tool(entry, &settings, compiled).map_err(fault)?),
            None if settings.skip_reason(key).is_some() => {}
            None => return Err(fault("is not compiled; give the document or documentId again".to_owned())),
        }
    }
    Ok(tools)
}

fn parse_tool(
    entry: &OwnTool,
    settings: &OpenApiSettings,
    compiled: &Map<String, Value>,
) -> Result<HttpTool, String> {
    let request = |name: &str| compiled.get("request")?.get(name)?.as_str();
    let (method, url) = (request("method").unwrap_or_default(), request("url").unwrap_or_default());
    // The credential is bound to the server's address.
    if url.strip_prefix(settings.server.trim_end_matches('/')).is_none_or(|path| !path.starts_with('/')) {
        return Err("is not compiled for this server; give the document or documentId again".to_owned());
    }
    let annotations = annotations(method);
    let mut compiled = compiled.clone();
    compiled.insert("annotations".to_owned(), annotations);
    if let Some(identity) = &settings.identity {
        compiled.insert("identity".to_owned(), identity.clone());
    }
    let tool = OwnTool { auth: entry.auth.clone(), settings: compiled };
    HttpTool::parse(&tool)
        .map_err(|ToolSettingsError { path, message }| format!("is not valid: {path} {message}"))
}

/// Returns the hints of a tool by the method of its request. They are not a part of the compiled tool, so that the rules of
/// approvals hold alike for all roles, whenever their tools were compiled.
fn annotations(method: &str) -> Value {
    let is_read = method == "GET";
    json!({
        "readOnlyHint": is_read,
        // A document does not tell which of the others only add data; the protocol's default is the cautious one.
        "destructiveHint": !is_read,
        "idempotentHint": is_read || matches!(method, "DELETE" | "PUT"),
    })
}

#[cfg(test)]
mod tests;
