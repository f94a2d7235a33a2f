//! Tools that a role defines without code: calls of an HTTP API, operations of OpenAPI documents, and tools of tool servers (MCP).
//!
//! - [`faults`] checks the definitions where a role is saved. A stored definition that fails the checks is not offered.
//! - [`OwnToolRegistry`] offers an agent's tools in addition to the others, and calls them. Nothing is sent before the model's
//!   first call.
//! - A model's arguments fill placeholders only: they cannot change scheme, host, port or the names of headers, and a value
//!   in the path cannot leave its segment.
//! - The requests are sent by an [`HttpToolClient`], which applies the operator's address policy.
//! - The operations of an OpenAPI document are compiled to HTTP tools where the role is saved.
//! - The definitions of a tool server's tools are those that the agent's owner has pinned. The server's list is compared with
//!   them before a run's first call, and a tool whose definition differs is not called, which the run's stream reports.

mod answer;
mod body;
mod changes;
mod credential;
mod definition;
mod file_parts;
mod fingerprint;
mod form;
mod inspection;
mod limits;
mod offered_schema;
mod open_api;
mod pins;
mod redact;
mod registry;
mod request;
mod schema;
mod server_calls;
mod settings;
mod template;
mod tool_server;

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::role::{OwnTool, OwnTools, ToolAuth, grouped_name};
use agent_core::secret::Secret;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use url::Url;

use credential::Credential;
use definition::HttpTool;
use tool_server::ToolServer;

pub use changes::{ReportedToolChanges, ToolChanges};
pub use file_parts::{ToolFile, ToolFiles, sends_files};
pub use inspection::{
    DiscoveredTool, Discovery, InspectionError, OwnToolReport, ToolSource, spec_fingerprint,
};
pub use limits::{MAX_DEFINITION_BYTES, MAX_NAME_BYTES, MAX_OWN_TOOLS};
pub use open_api::{SkippedOperationReport, compile_open_api, incomplete_operations, skipped_operations};
pub use pins::ToolStatus;
pub use registry::{OwnToolRegistry, PreviewedRole};
pub use schema::{missing_argument, nonconforming_path, unusable_argument};
pub use server_calls::{CallMeta, ToolServerAddress, ToolServerClient, ToolServerConnection};
pub use settings::ToolSettingsError;
pub use tool_server::ToolDefinition;

/// Request of a tool call. It is complete except for the headers that the client adds to every request.
#[derive(Debug, Clone)]
pub struct HttpToolRequest {
    /// Company on whose behalf the tool is called.
    pub company_id: CompanyId,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The address, without the parameter of `secret_query`.
    pub url: Url,
    /// Parameter with a secret that the client appends to the query.
    pub secret_query: Option<(String, Secret)>,
    /// Headers, whose values may be secret.
    pub headers: Vec<(String, Secret)>,
    /// Body of the type `content_type`, in pieces that are sent one after the other.
    pub body: Option<Vec<Bytes>>,
    /// Media type of the body; empty without one.
    pub content_type: String,
    /// Time limit of the request and its response together.
    pub timeout: Duration,
    /// Limit on the response's body, in bytes.
    pub max_response_bytes: usize,
}

/// Response to a tool call.
#[derive(Debug, Clone)]
pub struct HttpToolResponse {
    /// The status, never a redirection.
    pub status: u16,
    /// True if the response has `Retry-After`.
    pub has_retry_after: bool,
    /// Media type in lower case, without parameters.
    pub media_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Error of a request without a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpToolError {
    /// Message for the model, without an address or text of the server.
    pub message: String,
    /// True unless the request was certainly not sent, so that the server may have processed it.
    pub was_sent: bool,
    /// True if there was no connection or it broke, so that the same request may succeed.
    pub is_transient: bool,
}

/// HTTP client of tool calls, which applies the operator's address policy and follows no redirect.
#[async_trait]
pub trait HttpToolClient: Send + Sync + 'static {
    /// Sends a request and reads its response.
    ///
    /// # Errors
    /// Fails without a response, and for one that is a redirect, is compressed, or exceeds the limit on its body.
    async fn send(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, HttpToolError>;
}

/// Returns the faults of a role's own tools. `is_taken` returns true for the names of other tools.
pub fn faults(tools: &OwnTools, is_taken: impl Fn(&str) -> bool) -> Vec<ToolSettingsError> {
    let mut check = FaultCheck { is_taken, found: Vec::new(), names: Vec::new(), ids: Vec::new(), bytes: 0 };
    for (index, tool) in tools.http_tools.iter().enumerate() {
        check.http_tool(&format!("httpTools[{index}]"), tool);
    }
    for (index, entry) in tools.open_api.iter().enumerate() {
        check.open_api(&format!("openApi[{index}]"), entry);
    }
    for (index, server) in tools.tool_servers.iter().enumerate() {
        check.tool_server(&format!("toolServers[{index}]"), server);
    }
    let FaultCheck { mut found, names, bytes, .. } = check;
    let path = match tools {
        tools if tools.http_tools.len() > MAX_OWN_TOOLS => "httpTools",
        tools if tools.open_api.is_empty() => "toolServers",
        _ => "openApi",
    };
    if names.len() > MAX_OWN_TOOLS {
        let message = format!("makes more than {MAX_OWN_TOOLS} tools of the agent's own");
        found.push(ToolSettingsError::new(path, message));
    }
    if bytes > MAX_DEFINITION_BYTES {
        let path = if tools.open_api.is_empty() { "httpTools" } else { "openApi" };
        let message = format!("makes more than {MAX_DEFINITION_BYTES} bytes of definitions");
        found.push(ToolSettingsError::new(path, message));
    }
    found
}

/// Search for the faults of a role's own tools.
struct FaultCheck<F> {
    is_taken: F,
    found: Vec<ToolSettingsError>,
    /// Names of the tools so far, and ids of the groups.
    names: Vec<String>,
    ids: Vec<String>,
    /// Size of the definitions so far.
    bytes: usize,
}

impl<F: Fn(&str) -> bool> FaultCheck<F> {
    /// Returns true if the tools so far exceed a limit, so that the others need not be compiled.
    fn is_over_limit(&self) -> bool {
        self.names.len() > MAX_OWN_TOOLS || self.bytes > MAX_DEFINITION_BYTES
    }

    fn http_tool(&mut self, at: &str, tool: &OwnTool) {
        if self.is_over_limit() {
            return;
        }
        match HttpTool::parse(tool) {
            Ok(parsed) => {
                self.bytes += parsed.definition_bytes();
                self.name(format!("{at}.name"), &parsed.spec.name);
                self.secret(at, tool.auth.as_ref());
            }
            Err(fault) => self.add(at, fault),
        }
    }

    fn open_api(&mut self, at: &str, entry: &OwnTool) {
        if self.is_over_limit() {
            return;
        }
        match open_api::parse_open_api(entry) {
            Ok(tools) => {
                self.id(at, entry.settings.get("id").and_then(Value::as_str).unwrap_or_default());
                for tool in tools {
                    self.bytes += tool.definition_bytes();
                    self.name(format!("{at}.operations"), &tool.spec.name);
                }
                self.secret(at, entry.auth.as_ref());
            }
            Err(fault) => self.add(at, fault),
        }
    }

    fn tool_server(&mut self, at: &str, server: &OwnTool) {
        match ToolServer::parse(server) {
            Ok(parsed) => {
                self.id(at, &parsed.id);
                for (i, tool) in parsed.tools.iter().enumerate() {
                    self.name(format!("{at}.tools[{i}]"), &grouped_name(&parsed.id, tool));
                }
                self.secret(at, server.auth.as_ref());
            }
            Err(fault) => self.add(at, fault),
        }
    }

    /// Checks the secret of a tool, or of a group of tools, whose other settings have no fault.
    fn secret(&mut self, at: &str, auth: Option<&ToolAuth>) {
        if let Err(fault) = Credential::parse_new(auth).and_then(|credential| credential.check_secret()) {
            self.add(at, fault);
        }
    }

    fn add(&mut self, at: &str, ToolSettingsError { path, message }: ToolSettingsError) {
        let path = if path.is_empty() { at.to_owned() } else { format!("{at}.{path}") };
        self.found.push(ToolSettingsError { path, message });
    }

    fn id(&mut self, at: &str, id: &str) {
        if self.ids.iter().any(|other| other == id) {
            self.found
                .push(ToolSettingsError::new(format!("{at}.id"), "is the id of another group of tools"));
        }
        self.ids.push(id.to_owned());
    }

    fn name(&mut self, path: String, name: &str) {
        if (self.is_taken)(name) {
            self.found.push(ToolSettingsError::new(path, "is the name of a built-in tool"));
        } else if self.names.iter().any(|other| other == name) {
            self.found.push(ToolSettingsError::new(path, "is the name of another tool"));
        }
        self.names.push(name.to_owned());
    }
}

/// Returns the HTTP tools of a role that pass the checks, those of OpenAPI documents among them.
fn parse_http_tools(tools: &OwnTools) -> Vec<Arc<HttpTool>> {
    let report = |ToolSettingsError { path, message }| {
        tracing::warn!(path, message, "a tool of a role is invalid and is not offered");
    };
    let http = tools.http_tools.iter().filter_map(|tool| HttpTool::parse(tool).map_err(report).ok());
    let compiled =
        tools.open_api.iter().filter_map(|entry| open_api::parse_open_api(entry).map_err(report).ok());
    http.chain(compiled.flatten()).take(MAX_OWN_TOOLS).map(Arc::new).collect()
}

/// Returns the tool servers of a role that pass the checks; of several with one id, the first.
fn parse_servers(tools: &OwnTools) -> Vec<Arc<ToolServer>> {
    let mut all: Vec<Arc<ToolServer>> = Vec::new();
    for server in tools.tool_servers.iter().take(MAX_OWN_TOOLS) {
        match ToolServer::parse(server) {
            Ok(server) if all.iter().all(|other| other.id != server.id) => all.push(Arc::new(server)),
            Ok(_) => {}
            Err(ToolSettingsError { path, message }) => {
                tracing::warn!(path, message, "a tool server of a role is invalid and is not used");
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
