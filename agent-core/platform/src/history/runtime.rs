//! Parsing of the agent runtime's `POST /chat` body: ten fields that carry a whole turn, and the parameters of the
//! model's calls.

use std::fmt;
use std::sync::Arc;

use super::json::{ObjectFields, Value};
use super::{Conversation, FieldError, JsonBody, MAX_MESSAGES};
use agent_core::ids::CompanyId;
use agent_core::message::{Message, SharedJson};
use agent_core::secret::Secret;
use agent_core::tool::{Caller, ExecutionContext, ToolAnnotations, ToolSpec};
use serde_json::{Map, Value as Json};

use crate::parameters::ModelParameters;
use crate::roles::MAX_NAME_BYTES;

/// Limit on an address, in bytes.
const MAX_URL_BYTES: usize = 8192;

/// Request to the agent runtime. An empty string counts as absent in every optional field.
#[derive(Clone)]
pub struct RuntimeRequest {
    /// The conversation, in any format that [`super::read`] accepts, repaired.
    pub messages: Vec<Arc<Message>>,
    /// The complete system prompt, or empty.
    pub system_prompt: String,
    /// Provider of the model. The caller checks that it is known.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Enables or disables the model's reasoning output, where supported.
    pub enable_thinking: Option<bool>,
    /// Parameters of the model's calls, which [`ModelParameters::read`] accepts, without those of unknown names. Their
    /// limit on an answer overrides the operator's.
    pub parameters: Map<String, Json>,
    /// The tools offered to the model, in the order of the request. Names are unique.
    pub tools: Vec<ToolSpec>,
    /// Address of the MCP server for the tools. It contains the run token and is therefore secret.
    pub mcp_server_url: Option<Secret>,
    /// Identity and conversation of the turn; fields that the caller omitted are empty or `None`.
    pub context: ExecutionContext,
    /// Address of the provider, to override the operator's.
    pub base_url: Option<String>,
    /// API key for the provider, to override the operator's.
    pub api_key: Option<Secret>,
}

impl fmt::Debug for RuntimeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeRequest")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

impl RuntimeRequest {
    /// Reads the body.
    ///
    /// Tools have the format of the Model Context Protocol; `input_schema`, `parameters` and OpenAI's wrapper object
    /// `function` are accepted too, and a tool without a schema takes no arguments. `context` is an object, or a
    /// string that contains one as JSON.
    ///
    /// # Errors
    ///
    /// The first field that is missing, of the wrong type, or over its limits.
    pub fn read(body: &JsonBody<'_>) -> Result<Self, FieldError> {
        let body = body.fields()?;
        let messages = body.list("messages", MAX_MESSAGES)?;
        let messages = messages.ok_or_else(|| FieldError::new("messages", "is missing"))?;
        Ok(Self {
            messages: Conversation::read(messages)?.finish(true)?.messages,
            system_prompt: body.text("systemPrompt")?.unwrap_or_default().to_owned(),
            provider: required_name(body, "provider")?,
            model: required_name(body, "model")?,
            enable_thinking: body.boolean("enableThinking")?,
            parameters: read_parameters(body)?,
            tools: read_tools(body)?,
            mcp_server_url: body.bounded_text("mcpServerUrl", MAX_URL_BYTES)?.map(Secret::new),
            context: read_context(body)?,
            base_url: body.bounded_text("baseUrl", MAX_URL_BYTES)?,
            api_key: body.bounded_text("apiKey", MAX_URL_BYTES)?.map(Secret::new),
        })
    }
}

fn required_name(body: ObjectFields<'_>, field: &'static str) -> Result<String, FieldError> {
    body.bounded_text(field, MAX_NAME_BYTES)?.ok_or_else(|| FieldError::new(field, "is missing"))
}

fn read_parameters(body: ObjectFields<'_>) -> Result<Map<String, Json>, FieldError> {
    let Some(parameters) = body.json_object("parameters")? else { return Ok(Map::new()) };
    let mut parameters: Map<String, Json> = serde_json::from_str(parameters.get())
        .map_err(|_| FieldError::new("parameters", "must be an object"))?;
    // A newer application may know more of them.
    parameters.retain(|name, _| ModelParameters::NAMES.contains(&name.as_str()));
    match ModelParameters::read(&parameters).err().and_then(|faults| faults.into_iter().next()) {
        Some(fault) => Err(FieldError::new(fault.name, fault.message).with_parent_path("parameters")),
        None => Ok(parameters),
    }
}

pub(super) fn read_tools(body: ObjectFields<'_>) -> Result<Vec<ToolSpec>, FieldError> {
    let mut names = std::collections::HashSet::new();
    body.read_list("tools", |value| {
        let tool = read_tool(value)?;
        if !names.insert(tool.name.clone()) {
            return Err(FieldError::new("name", "is the name of an earlier tool: tool names must be unique"));
        }
        Ok(Some(tool))
    })
}

fn read_tool(value: &Value<'_>) -> Result<ToolSpec, FieldError> {
    let tool = ObjectFields::from_value(value)?;
    match tool.object("function")? {
        Some(function) => read_definition(function).map_err(|fault| fault.with_parent_path("function")),
        None => read_definition(tool),
    }
}

fn read_definition(tool: ObjectFields<'_>) -> Result<ToolSpec, FieldError> {
    read_named_tool(tool.required_id("name")?, tool)
}

/// Reads the definition of a tool whose name is elsewhere.
pub(super) fn read_named_tool(name: String, tool: ObjectFields<'_>) -> Result<ToolSpec, FieldError> {
    let schema = match tool.first_present_name("inputSchema", "input_schema") {
        "inputSchema" => tool.first_present_name("inputSchema", "parameters"),
        other => other,
    };
    let annotations = tool.object("annotations")?.map(read_annotations).transpose();
    Ok(ToolSpec {
        name,
        description: tool.text("description")?.unwrap_or_default().to_owned(),
        input_schema: tool.json_object(schema)?.unwrap_or_else(empty_object_schema),
        output_schema: tool.json_object("outputSchema")?,
        annotations: annotations.map_err(|fault| fault.with_parent_path("annotations"))?,
        is_client_side: false,
    })
}

fn read_annotations(hints: ObjectFields<'_>) -> Result<ToolAnnotations, FieldError> {
    Ok(ToolAnnotations {
        read_only_hint: hints.boolean("readOnlyHint")?.unwrap_or_default(),
        destructive_hint: hints.boolean("destructiveHint")?.unwrap_or_default(),
        idempotent_hint: hints.boolean("idempotentHint")?.unwrap_or_default(),
        open_world_hint: hints.boolean("openWorldHint")?.unwrap_or_default(),
    })
}

/// Returns the schema of a tool without arguments. Providers reject a schema that is not of type `object`.
fn empty_object_schema() -> SharedJson {
    let schema = r#"{"type":"object","properties":{}}"#;
    let schema: Box<serde_json::value::RawValue> = serde_json::from_str(schema).expect("a constant of JSON");
    Arc::from(schema)
}

fn read_context(body: ObjectFields<'_>) -> Result<ExecutionContext, FieldError> {
    let Some(value) = body.get("context") else { return Ok(ExecutionContext::default()) };
    let under_context = |fault: FieldError| fault.with_parent_path("context");
    let Value::Str(text) = value else {
        return ObjectFields::from_value(value).and_then(read_identity).map_err(under_context);
    };
    if text.trim().is_empty() {
        return Ok(ExecutionContext::default());
    }
    let wrong = || FieldError::new("context", "must be an object, or a string with the JSON of one");
    let value: Value<'_> = serde_json::from_str(text).map_err(|_| wrong())?;
    let fields = ObjectFields::from_value(&value).map_err(|_| wrong())?;
    read_identity(fields).map_err(under_context)
}

fn read_identity(context: ObjectFields<'_>) -> Result<ExecutionContext, FieldError> {
    Ok(ExecutionContext {
        user_id: context.id("userId")?.unwrap_or_default().into(),
        company_id: CompanyId::default(),
        agent_id: context.id("agentId")?.unwrap_or_default().into(),
        agent_name: context.bounded_text("agentName", MAX_NAME_BYTES)?,
        todo_list_id: context.id("todoListId")?,
        timezone: context.id("timezone")?,
        thread_id: context.id("threadId")?.unwrap_or_default().into(),
        run_id: context.id("runId")?.unwrap_or_default().into(),
        caller: match context.text("caller")? {
            Some("legacy") => Caller::Legacy,
            Some("widget") => Caller::Widget,
            Some("proactive") => Caller::Proactive,
            Some("api") => Caller::Api,
            _ => Caller::Session,
        },
        ..ExecutionContext::default()
    })
}
