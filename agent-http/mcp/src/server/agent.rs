//! An agent's MCP features: its tools, its documents as resources, and its prompt blocks as prompts.
//!
//! The role is loaded again for each request, so that a permission that its owner withdraws is gone at once. Permissions
//! are decided by the core's rule alone; resources are read by calling the document tools, so that they never show more
//! than those tools would.

mod access;
mod convert;
mod documents;
mod observed;
mod prompts;

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ToolError, ToolRegistry};
use agent_platform::records::{DEFAULT_PAGE_RECORDS, Records, StoreError};
use agent_platform::roles::RoleStore;
use agent_platform::run_tools::{allowed_tools_in_run, has_grant};
use agent_platform::trace::begin_trace;
use agent_platform::workspace;
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PromptsCapability, ReadResourceRequestParams, ReadResourceResponse, ResourcesCapability,
    ServerCapabilities, ServerConfig, ToolsCapability,
};
use serde_json::Value;

use self::access::{ToolAccess, failed};
use super::changes::ChangeNotifier;
use super::features::{CallContext, Features};
use super::identity::Identity;

pub(super) use observed::ObservedTools;

/// Maximum length of a name that an error repeats, in bytes.
const MAX_ERROR_NAME_BYTES: usize = 128;

/// The features of all agents.
pub struct AgentFeatures {
    roles: Arc<dyn RoleStore>,
    records: Arc<dyn Records>,
    tools: Arc<dyn ToolRegistry>,
    changes: Arc<ChangeNotifier>,
}

impl std::fmt::Debug for AgentFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentFeatures").finish_non_exhaustive()
    }
}

impl AgentFeatures {
    pub(super) fn new(
        roles: Arc<dyn RoleStore>,
        records: Arc<dyn Records>,
        tools: Arc<dyn ToolRegistry>,
        changes: Arc<ChangeNotifier>,
    ) -> Self {
        Self { roles, records, tools, changes }
    }

    /// Returns the agent's role; `None` for a deleted agent, which has no features.
    async fn role(&self, identity: &Identity) -> Result<Option<Arc<RoleBlock>>, ErrorData> {
        match self.roles.role(&identity.context.company_id, &identity.context.agent_id).await {
            Err(StoreError::Invalid(_)) => Ok(None),
            role => role.map_err(|error| failed(&error)),
        }
    }

    /// Returns the tools that the identity may use, and the execution context of its calls.
    async fn tool_access(&self, identity: &Identity) -> Result<ToolAccess, ErrorData> {
        let Some(role) = self.role(identity).await? else { return Ok(ToolAccess::default()) };
        let mut context = identity.context.clone();
        context.agent_name = Some(role.name.clone()).filter(|name| !name.is_empty());
        if context.timezone.is_none() {
            context.timezone = self.users_time_zone(identity).await?;
        }
        Ok(ToolAccess { names: allowed_tools(&role, identity), context })
    }

    async fn users_time_zone(&self, identity: &Identity) -> Result<Option<String>, ErrorData> {
        if identity.context.caller == Caller::Widget {
            return Ok(None);
        }
        let user =
            workspace::get_user(&*self.records, &identity.context.company_id, &identity.context.user_id)
                .await;
        Ok(user.map_err(|error| failed(&error))?.and_then(|user| user.timezone))
    }
}

/// Returns the names of the tools that the agent may use for this identity: those allowed in a run, restricted to the
/// credential's grants.
fn allowed_tools(role: &RoleBlock, identity: &Identity) -> BTreeSet<String> {
    let mut names = allowed_tools_in_run(role, identity.context.caller);
    names.retain(|name| has_grant(&identity.context, name));
    names
}

#[async_trait]
impl Features for AgentFeatures {
    fn info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        let mut tools = ToolsCapability::default();
        tools.list_changed = Some(true);
        let mut prompts = PromptsCapability::default();
        prompts.list_changed = Some(true);
        let mut resources = ResourcesCapability::default();
        resources.list_changed = Some(true);
        resources.subscribe = Some(true);
        capabilities.tools = Some(tools);
        capabilities.prompts = Some(prompts);
        capabilities.resources = Some(resources);
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agentd", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListToolsResult, ErrorData> {
        let access = self.tool_access(identity).await?;
        let mut specs = self.tools.list(&access.context).await.map_err(|error| failed(&error))?;
        specs.retain(|spec| access.allows(&spec.name));
        specs.sort_by(|left, right| left.name.cmp(&right.name));
        let (page, next) = page(&specs, cursor, |spec| &spec.name)?;
        let tools = page.iter().map(|spec| convert::tool(spec)).collect::<Result<_, _>>()?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        Ok(result)
    }

    async fn call_tool(
        &self,
        identity: &Identity,
        call: CallToolRequestParams,
        context: &CallContext<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut access = self.tool_access(identity).await?;
        access.context.idempotency_key.clone_from(&context.idempotency_key);
        access.context.arguments_text.clone_from(&context.arguments_text);
        // A caller that is not authenticated begins a trace.
        let trace = context.trace.clone().filter(|_| identity.is_authenticated());
        access.context.trace = Some(trace.unwrap_or_else(begin_trace));
        if !access.allows(&call.name) {
            return Err(unknown_tool(&call.name));
        }
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        match self.tools.call(&access.context, &call.name, arguments, context.progress).await {
            Ok(output) => {
                if let Some(change) = documents::document_change(&call.name, &access.context, &output) {
                    self.changes.announce(&change);
                }
                Ok(convert::output(output).into())
            }
            Err(ToolError::Unknown(_)) => Err(unknown_tool(&call.name)),
            Err(error) => {
                if let ToolError::Internal(source) = &error {
                    tracing::error!(tool = %call.name, error = %source, "a tool failed");
                }
                Ok(CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into())
            }
        }
    }

    async fn list_resources(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, ErrorData> {
        documents::list(&*self.tools, &self.tool_access(identity).await?, cursor).await
    }

    async fn list_resource_templates(
        &self,
        identity: &Identity,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(documents::templates(&self.tool_access(identity).await?))
    }

    async fn read_resource(
        &self,
        identity: &Identity,
        read: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData> {
        documents::read(&*self.tools, &self.tool_access(identity).await?, read.uri).await.map(Into::into)
    }

    async fn has_resource(&self, identity: &Identity, uri: &str) -> Result<bool, ErrorData> {
        documents::exists(&*self.tools, &self.tool_access(identity).await?, uri).await
    }

    async fn list_prompts(
        &self,
        identity: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let blocks = prompts::visible_prompts(self.role(identity).await?.as_deref(), identity.context.caller);
        let (page, next) = page(&blocks, cursor, |block| &block.name)?;
        let mut result =
            ListPromptsResult::with_all_items(page.iter().map(prompts::PromptEntry::prompt).collect());
        result.next_cursor = next;
        Ok(result)
    }

    async fn get_prompt(
        &self,
        identity: &Identity,
        get: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, ErrorData> {
        let blocks = prompts::visible_prompts(self.role(identity).await?.as_deref(), identity.context.caller);
        let block = blocks.into_iter().find(|block| block.name == get.name);
        let block = block.ok_or_else(|| ErrorData::invalid_params("prompt not found", None))?;
        Ok(block.result().into())
    }
}

/// Returns the page after the element named by `cursor`, and the cursor of the next page.
fn page<'a, T>(
    all: &'a [T],
    cursor: Option<&str>,
    name: impl Fn(&T) -> &str,
) -> Result<(&'a [T], Option<String>), ErrorData> {
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let position = all.iter().position(|element| name(element) == cursor);
            position.ok_or_else(|| ErrorData::invalid_params("the cursor is invalid", None))? + 1
        }
    };
    let end = all.len().min(start + DEFAULT_PAGE_RECORDS);
    let page = &all[start..end];
    let next = page.last().filter(|_| end < all.len()).map(|element| name(element).to_owned());
    Ok((page, next))
}

/// Returns the error for an unknown or forbidden tool, which the caller cannot distinguish.
fn unknown_tool(name: &str) -> ErrorData {
    let excerpt = &name[..name.floor_char_boundary(MAX_ERROR_NAME_BYTES)];
    ErrorData::invalid_params(format!("Unknown tool: {excerpt}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_give_each_element_once() {
        let all: Vec<String> = (0..120).map(|i| format!("{i:03}")).collect();
        let (mut elements, mut cursor) = (Vec::new(), None);
        loop {
            let (page_elements, next) = page(&all, cursor.as_deref(), |name| name).expect("a page");
            elements.extend_from_slice(page_elements);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(elements, all);
        assert!(page(&all, Some("none"), |name| name).is_err());
        assert_eq!(page(&all[..50], None, |name| name).expect("a page"), (&all[..50], None));
    }
}
