//! What is served: the protocol's three features of a server, for whoever asks.

use async_trait::async_trait;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;

use super::identity::Identity;

/// Tools, resources and prompts. An identity is given with everything, and what it may not use is answered as what is
/// not there.
#[async_trait]
pub trait Features: Send + Sync + 'static {
    /// What the server says of itself.
    fn info(&self) -> ServerConfig;

    /// A tool whose schema says that arguments are repeated in headers, where there is such a one.
    fn tool(&self, _name: &str) -> Option<Tool> {
        None
    }

    /// One page of the tools.
    async fn list_tools(&self, who: &Identity, cursor: Option<&str>) -> Result<ListToolsResult, ErrorData>;

    /// Calls a tool. Dropping the future cancels the call.
    async fn call_tool(
        &self,
        who: &Identity,
        call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData>;

    /// One page of the resources.
    async fn list_resources(
        &self,
        who: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, ErrorData>;

    /// The forms of resources' addresses.
    async fn list_resource_templates(&self, who: &Identity)
    -> Result<ListResourceTemplatesResult, ErrorData>;

    /// Reads a resource.
    async fn read_resource(
        &self,
        who: &Identity,
        read: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData>;

    /// Whether there is such a resource for this identity, so that it may be told of its changes.
    async fn has_resource(&self, who: &Identity, uri: &str) -> Result<bool, ErrorData>;

    /// One page of the prompts.
    async fn list_prompts(
        &self,
        who: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, ErrorData>;

    /// A prompt.
    async fn get_prompt(
        &self,
        who: &Identity,
        get: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, ErrorData>;

    /// How an argument may go on; nothing, where nothing is known.
    async fn complete(
        &self,
        _who: &Identity,
        _complete: CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }
}
