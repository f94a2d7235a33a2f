//! Tools that a role defines without code: calls of an HTTP API.
//!
//! - [`faults`] checks the definitions where a role is saved. A stored definition that fails the checks is not offered.
//! - [`OwnToolRegistry`] offers an agent's tools beside the others and calls them. Nothing is sent before the model's first
//!   call.
//! - A model's arguments fill placeholders only: they cannot change scheme, host, port or the names of headers, and a value
//!   in the path cannot leave its segment.
//! - The requests are sent by an [`HttpToolClient`], which applies the operator's address policy.

mod answer;
mod credential;
mod definition;
mod redact;
mod registry;
mod request;
mod schema;
mod template;

use std::sync::Arc;
use std::time::Duration;

use agent_core::role::{OwnTool, OwnTools};
use agent_core::secret::Secret;
use async_trait::async_trait;
use url::Url;

use definition::HttpTool;

pub use registry::OwnToolRegistry;

/// Maximum number of tools that a role defines.
pub const MAX_OWN_TOOLS: usize = 64;
/// Maximum size of their definitions, as the model receives them, in bytes.
pub const MAX_DEFINITION_BYTES: usize = 32 * 1024;
/// Maximum length of a tool's name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Fault of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFault {
    /// Path of the field in the role's content, such as `httpTools[1].request.url`.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl SettingsFault {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Request of a tool call, complete but for the headers that every request of the client has.
#[derive(Debug, Clone)]
pub struct HttpToolRequest {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The address.
    pub url: Url,
    /// Headers, whose values may be secret.
    pub headers: Vec<(String, Secret)>,
    /// JSON body.
    pub body: Option<Vec<u8>>,
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
    /// True unless the request was certainly not sent.
    pub was_sent: bool,
    /// True if there was no connection or it broke, so that the same request may succeed.
    pub is_transient: bool,
    /// True if the server may have processed the request, and its response is not known.
    pub is_outcome_unknown: bool,
}

/// HTTP client of tool calls, which applies the operator's address policy and follows no redirect.
#[async_trait]
pub trait HttpToolClient: Send + Sync + 'static {
    /// Sends a request and reads its response.
    ///
    /// # Errors
    /// There is no response, it is a redirect, it is compressed, or its body exceeds the limit.
    async fn send(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, HttpToolError>;
}

/// Returns the faults of a role's own tools. `is_taken` returns true for the names of other tools.
pub fn faults(tools: &OwnTools, is_taken: impl Fn(&str) -> bool) -> Vec<SettingsFault> {
    let mut found = Vec::new();
    let mut names = Vec::new();
    let mut bytes = 0;
    for (index, tool) in tools.http_tools.iter().enumerate() {
        let at = format!("httpTools[{index}]");
        match HttpTool::parse(tool) {
            Ok(parsed) => {
                let name = parsed.spec.name.clone();
                if is_taken(&name) {
                    found.push(SettingsFault::new(format!("{at}.name"), "is the name of a built-in tool"));
                } else if names.contains(&name) {
                    found.push(SettingsFault::new(format!("{at}.name"), "is the name of another tool"));
                }
                bytes += parsed.definition_bytes();
                names.push(name);
            }
            Err(SettingsFault { path, message }) => {
                let path = if path.is_empty() { at } else { format!("{at}.{path}") };
                found.push(SettingsFault { path, message });
            }
        }
    }
    if tools.http_tools.len() > MAX_OWN_TOOLS {
        let message = format!("has {} tools; the limit is {MAX_OWN_TOOLS}", tools.http_tools.len());
        found.push(SettingsFault::new("httpTools", message));
    }
    if bytes > MAX_DEFINITION_BYTES {
        let message = format!("has {bytes} bytes of definitions; the limit is {MAX_DEFINITION_BYTES}");
        found.push(SettingsFault::new("httpTools", message));
    }
    found
}

/// Returns the tools of a role that pass the checks, in the order of their names; of several with one name, the first.
fn parse_valid(tools: &OwnTools) -> Vec<Arc<HttpTool>> {
    let parse = |tool: &OwnTool| match HttpTool::parse(tool) {
        Ok(tool) => Some(Arc::new(tool)),
        Err(SettingsFault { path, message }) => {
            tracing::warn!(path, message, "a tool of a role is invalid and is not offered");
            None
        }
    };
    let mut all: Vec<_> = tools.http_tools.iter().take(MAX_OWN_TOOLS).filter_map(parse).collect();
    all.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
    all.dedup_by(|later, earlier| later.spec.name == earlier.spec.name);
    all
}

#[cfg(test)]
mod tests;
