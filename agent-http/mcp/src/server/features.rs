//! The features of an MCP server (tools, resources, prompts) as a trait.

use std::sync::Arc;

use agent_core::ids::TraceContext;
use agent_core::tool::Progress;
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
    Tool,
};

use super::identity::Identity;

/// Capabilities of the calling client, and the receiver of its progress reports.
pub struct CallContext<'a> {
    /// Capabilities that the client has declared, if any.
    pub client_capabilities: Option<ClientCapabilities>,
    /// Idempotency key of the call, from its `_meta`.
    pub idempotency_key: Option<String>,
    /// Trace that the call continues, from its `_meta`.
    pub trace: Option<TraceContext>,
    /// Arguments of the call as the client has written them, if they are known.
    pub arguments_text: Option<Arc<str>>,
    /// Receiver of progress reports; discards them if the client did not request any.
    pub progress: &'a dyn Progress,
}

impl std::fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").finish_non_exhaustive()
    }
}

/// Implements tools, resources and prompts. Every method receives the caller's identity, and responds to a forbidden
/// item as to a missing one.
#[async_trait]
pub trait Features: Send + Sync + 'static {
    /// Returns the server's capabilities and implementation info.
    fn info(&self) -> ServerConfig;

    /// Returns a tool whose schema requires arguments to be repeated in headers, if there is one of this name.
    fn tool(&self, _name: &str) -> Option<Tool> {
        None
    }

    /// Lists one page of the tools.
    async fn list_tools(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListToolsResult, ErrorData>;

    /// Calls a tool. Dropping the future cancels the call.
    async fn call_tool(
        &self,
        identity: &Identity,
        call: CallToolRequestParams,
        context: &CallContext<'_>,
    ) -> Result<CallToolResponse, ErrorData>;

    /// Lists one page of the resources.
    async fn list_resources(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, ErrorData>;

    /// Lists the URI templates of resources.
    async fn list_resource_templates(
        &self,
        identity: &Identity,
    ) -> Result<ListResourceTemplatesResult, ErrorData>;

    /// Reads a resource.
    async fn read_resource(
        &self,
        identity: &Identity,
        read: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData>;

    /// Returns true if the identity can see the resource, and so may subscribe to its changes.
    async fn has_resource(&self, identity: &Identity, uri: &str) -> Result<bool, ErrorData>;

    /// Lists one page of the prompts.
    async fn list_prompts(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, ErrorData>;

    /// Returns a prompt.
    async fn get_prompt(
        &self,
        identity: &Identity,
        get: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, ErrorData>;

    /// Completes an argument. The default implementation returns no completions.
    async fn complete(
        &self,
        _identity: &Identity,
        _complete: CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }
}
