//! Tools, resources and prompts required by the MCP conformance suite, read from a table.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_core::tool::ExecutionContext;
use agent_mcp::server::{CallContext, Change, Features, Identity, McpServer, TokenResolver};
use agent_platform::records::StoreError;
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResultType, ServerConfig, Tool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Token of the only identity. The suite drops the URL's query, so the test server adds the token to each request.
pub const TOKEN: &str = "fixture";

/// The suite's fixtures.
pub struct Fixture {
    table: Value,
    /// The server that serves the fixtures, for change notifications.
    pub server: OnceLock<Arc<McpServer>>,
}

impl Fixture {
    pub fn new() -> Self {
        let table = serde_json::from_str(include_str!("fixtures.json")).expect("the table is JSON");
        Self { table, server: OnceLock::new() }
    }

    fn all(&self, kind: &str) -> &[Value] {
        self.table[kind].as_array().expect("the table has all kinds")
    }

    fn find(&self, kind: &str, key: &str, value: &str) -> Option<&Value> {
        self.all(kind).iter().find(|entry| entry[key] == value)
    }

    fn announce(&self, identity: &Identity) {
        let change = Change::Role {
            company_id: identity.context.company_id.clone(),
            agent_id: identity.context.agent_id.clone(),
        };
        self.server.get().expect("it is set").announce(&change);
    }
}

/// Deserializes a protocol type from the table.
fn from_table<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the table is right")
}

#[async_trait]
impl TokenResolver for Fixture {
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        let context = ExecutionContext {
            user_id: "u1".into(),
            company_id: "c1".into(),
            agent_id: "a1".into(),
            ..ExecutionContext::default()
        };
        Ok((text == TOKEN).then(|| Identity { id: "fixture".into(), context, calls: None }))
    }
}

#[async_trait]
impl Features for Fixture {
    fn info(&self) -> ServerConfig {
        from_table(json!({
            "protocolVersion": "2025-11-25",
            "serverInfo": {"name": "fixture", "version": "1.0.0"},
            "capabilities": {
                "tools": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {},
                "resources": {"listChanged": true, "subscribe": true}
            }
        }))
    }

    fn tool(&self, name: &str) -> Option<Tool> {
        let tool = self.find("tools", "name", name)?;
        let schema = tool.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"}));
        let description = tool.get("description").cloned().unwrap_or_else(|| name.into());
        Some(from_table(json!({"name": name, "description": description, "inputSchema": schema})))
    }

    async fn list_tools(&self, _: &Identity, _: Option<&str>) -> Result<ListToolsResult, ErrorData> {
        let names = self.all("tools").iter().filter_map(|tool| tool["name"].as_str());
        Ok(ListToolsResult::with_all_items(names.filter_map(|name| self.tool(name)).collect()))
    }

    async fn call_tool(
        &self,
        identity: &Identity,
        call: CallToolRequestParams,
        context: &CallContext<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.find("tools", "name", &call.name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params("Unknown tool", None))?;
        match &*call.name {
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    context.progress.report(progress, Some(100.0), None);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            "test_missing_capability" => {
                let capabilities = context.client_capabilities.clone().unwrap_or_default();
                if serde_json::to_value(capabilities).expect("JSON").get("sampling").is_none() {
                    let required: ClientCapabilities = from_table(json!({"sampling": {}}));
                    return Err(ErrorData::missing_required_client_capability(required));
                }
            }
            "test_trigger_tool_change" | "test_trigger_prompt_change" => self.announce(identity),
            _ => {}
        }
        let mut result: CallToolResult = from_table(tool["result"].clone());
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }

    async fn list_resources(&self, _: &Identity, _: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.all("resources").iter().map(|resource| {
            from_table(
                json!({"uri": resource["uri"], "name": resource["uri"], "mimeType": resource["mimeType"]}),
            )
        });
        Ok(ListResourcesResult::with_all_items(resources.collect()))
    }

    async fn list_resource_templates(&self, _: &Identity) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"});
        Ok(ListResourceTemplatesResult::with_all_items(vec![from_table(template)]))
    }

    async fn read_resource(
        &self,
        _: &Identity,
        params: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let id = params.uri.strip_prefix("test://template/").and_then(|path| path.strip_suffix("/data"));
        let contents = match (self.find("resources", "uri", &params.uri), id) {
            (Some(resource), _) => resource.clone(),
            (None, Some(id)) => {
                let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": params.uri, "mimeType": "application/json", "text": text.to_string()})
            }
            (None, None) => {
                let data = Some(json!({"uri": params.uri}));
                return Err(ErrorData::resource_not_found("resource not found", data));
            }
        };
        Ok(ReadResourceResult::new(vec![from_table(contents)]).into())
    }

    async fn has_resource(&self, _: &Identity, uri: &str) -> Result<bool, ErrorData> {
        Ok(self.find("resources", "uri", uri).is_some())
    }

    async fn list_prompts(&self, _: &Identity, _: Option<&str>) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.all("prompts").iter().map(|prompt| {
            let mut shown = json!({"name": prompt["name"], "description": prompt["name"]});
            if let Some(arguments) = prompt.get("arguments") {
                shown["arguments"] = arguments.clone();
            }
            from_table(shown)
        });
        Ok(ListPromptsResult::with_all_items(prompts.collect()))
    }

    async fn get_prompt(
        &self,
        _: &Identity,
        get: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = self.find("prompts", "name", &get.name);
        let prompt = prompt.ok_or_else(|| ErrorData::invalid_params("prompt not found", None))?;
        let mut messages = prompt["messages"].to_string();
        for (name, value) in get.arguments.iter().flatten() {
            messages = messages.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
        }
        let messages: Value = serde_json::from_str(&messages).expect("the arguments are plain");
        let result: GetPromptResult = from_table(json!({"messages": messages, "resultType": "complete"}));
        Ok(result.into())
    }
}
