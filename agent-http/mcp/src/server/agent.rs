//! An agent's MCP features: its tools, its documents as resources, and its prompt blocks as prompts.
//!
//! The role is loaded anew for each request, so that a permission that its owner withdraws is gone at once. Permissions
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
    async fn role(&self, who: &Identity) -> Result<Option<Arc<RoleBlock>>, ErrorData> {
        match self.roles.role(&who.context.company_id, &who.context.agent_id).await {
            Err(StoreError::Invalid(_)) => Ok(None),
            role => role.map_err(|error| failed(&error)),
        }
    }

    /// Returns the tools that the identity may use, and the execution context of its calls.
    async fn tool_access(&self, who: &Identity) -> Result<ToolAccess, ErrorData> {
        let Some(role) = self.role(who).await? else { return Ok(ToolAccess::default()) };
        let mut context = who.context.clone();
        context.agent_name = Some(role.name.clone()).filter(|name| !name.is_empty());
        if context.timezone.is_none() {
            context.timezone = self.users_time_zone(who).await?;
        }
        Ok(ToolAccess { names: allowed_tools(&role, who), context })
    }

    async fn users_time_zone(&self, who: &Identity) -> Result<Option<String>, ErrorData> {
        if who.context.caller == Caller::Widget {
            return Ok(None);
        }
        let user = workspace::get_user(&*self.records, &who.context.company_id, &who.context.user_id).await;
        Ok(user.map_err(|error| failed(&error))?.and_then(|user| user.timezone))
    }
}

/// Returns the names of the tools that the agent may use for this identity: those allowed in a run, restricted to the
/// credential's grants.
fn allowed_tools(role: &RoleBlock, who: &Identity) -> BTreeSet<String> {
    let mut names = allowed_tools_in_run(role, who.context.caller);
    names.retain(|name| has_grant(&who.context, name));
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

    async fn list_tools(&self, who: &Identity, cursor: Option<&str>) -> Result<ListToolsResult, ErrorData> {
        let reach = self.tool_access(who).await?;
        let mut specs = self.tools.list(&reach.context).await.map_err(|error| failed(&error))?;
        specs.retain(|spec| reach.allows(&spec.name));
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        let (page, next) = page(&specs, cursor, |spec| &spec.name)?;
        let tools = page.iter().map(|spec| convert::tool(spec)).collect::<Result<_, _>>()?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        Ok(result)
    }

    async fn call_tool(
        &self,
        who: &Identity,
        call: CallToolRequestParams,
        context: &CallContext<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut reach = self.tool_access(who).await?;
        reach.context.idempotency_key.clone_from(&context.idempotency_key);
        // A caller that has not proved who it is begins a trace.
        let trace = context.trace.clone().filter(|_| who.is_authenticated());
        reach.context.trace = Some(trace.unwrap_or_else(begin_trace));
        if !reach.allows(&call.name) {
            return Err(unknown_tool(&call.name));
        }
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        match self.tools.call(&reach.context, &call.name, arguments, context.progress).await {
            Ok(output) => {
                if let Some(change) = documents::document_change(&call.name, &reach.context, &output) {
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
        who: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListResourcesResult, ErrorData> {
        documents::list(&*self.tools, &self.tool_access(who).await?, cursor).await
    }

    async fn list_resource_templates(
        &self,
        who: &Identity,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(documents::templates(&self.tool_access(who).await?))
    }

    async fn read_resource(
        &self,
        who: &Identity,
        read: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData> {
        documents::read(&*self.tools, &self.tool_access(who).await?, read.uri).await.map(Into::into)
    }

    async fn has_resource(&self, who: &Identity, uri: &str) -> Result<bool, ErrorData> {
        documents::exists(&*self.tools, &self.tool_access(who).await?, uri).await
    }

    async fn list_prompts(
        &self,
        who: &Identity,
        cursor: Option<&str>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let blocks = prompts::visible_prompts(self.role(who).await?.as_deref(), who.context.caller);
        let (page, next) = page(&blocks, cursor, |block| &block.name)?;
        let mut result =
            ListPromptsResult::with_all_items(page.iter().map(prompts::PromptEntry::prompt).collect());
        result.next_cursor = next;
        Ok(result)
    }

    async fn get_prompt(
        &self,
        who: &Identity,
        get: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, ErrorData> {
        let blocks = prompts::visible_prompts(self.role(who).await?.as_deref(), who.context.caller);
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
    let begin = match cursor {
        None => 0,
        Some(cursor) => {
            let place = all.iter().position(|element| name(element) == cursor);
            place.ok_or_else(|| ErrorData::invalid_params("the cursor is invalid", None))? + 1
        }
    };
    let end = all.len().min(begin + DEFAULT_PAGE_RECORDS);
    let page = &all[begin..end];
    let next = page.last().filter(|_| end < all.len()).map(|last| name(last).to_owned());
    Ok((page, next))
}

/// Error for an unknown or forbidden tool, which the caller cannot distinguish.
fn unknown_tool(name: &str) -> ErrorData {
    let shown = &name[..name.floor_char_boundary(MAX_ERROR_NAME_BYTES)];
    ErrorData::invalid_params(format!("Unknown tool: {shown}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_give_each_element_once() {
        let all: Vec<String> = (0..120).map(|i| format!("{i:03}")).collect();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let (one, next) = page(&all, cursor.as_deref(), |name| name).expect("a page");
            seen.extend_from_slice(one);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
        assert!(page(&all, Some("none"), |name| name).is_err());
        assert_eq!(page(&all[..50], None, |name| name).expect("a page"), (&all[..50], None));
    }
}
