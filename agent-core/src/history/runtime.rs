//! Parsing of the agent runtime's `POST /chat` body: ten fields that carry a whole turn.

use std::fmt;
use std::sync::Arc;

use super::json::{Fields, Value};
use super::{Body, Conversation, InvalidField, MAX_MESSAGES};
use crate::message::{Message, SharedJson};
use crate::secret::Secret;
use crate::tool::{Caller, ExecutionContext, ToolAnnotations, ToolSpec};

/// Limit on an address, in bytes.
const MAX_ADDRESS_BYTES: usize = 8192;

/// Limit on the name of a provider, model or agent, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Request to the agent runtime. An empty string counts as absent in every optional field.
#[derive(Clone)]
pub struct RuntimeRequest {
    /// The conversation, in any format that [`super::read`] accepts, repaired.
    pub messages: Vec<Message>,
    /// The complete system prompt, or empty.
    pub system_prompt: String,
    /// Provider of the model. The caller checks that it is known.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Enables or disables the model's reasoning output, where supported.
    pub enable_thinking: Option<bool>,
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
    pub fn read(body: &Body<'_>) -> Result<Self, InvalidField> {
        let body = body.fields()?;
        let messages = body.list("messages", MAX_MESSAGES)?;
        let messages = messages.ok_or_else(|| InvalidField::new("messages", "is missing"))?;
        Ok(Self {
            messages: Conversation::read(messages)?.finish(true)?.messages,
            system_prompt: body.text("systemPrompt")?.unwrap_or_default().to_owned(),
            provider: required_name(body, "provider")?,
            model: required_name(body, "model")?,
            enable_thinking: body.flag("enableThinking")?,
            tools: read_tools(body)?,
            mcp_server_url: body.line("mcpServerUrl", MAX_ADDRESS_BYTES)?.map(Secret::new),
            context: read_context(body)?,
            base_url: body.line("baseUrl", MAX_ADDRESS_BYTES)?,
            api_key: body.line("apiKey", MAX_ADDRESS_BYTES)?.map(Secret::new),
        })
    }
}

fn required_name(body: Fields<'_>, field: &'static str) -> Result<String, InvalidField> {
    body.line(field, MAX_NAME_BYTES)?.ok_or_else(|| InvalidField::new(field, "is missing"))
}

fn read_tools(body: Fields<'_>) -> Result<Vec<ToolSpec>, InvalidField> {
    let mut names = std::collections::HashSet::new();
    body.each("tools", |value| {
        let tool = read_tool(value)?;
        if !names.insert(tool.name.clone()) {
            return Err(InvalidField::new("name", "is that of an earlier tool"));
        }
        Ok(Some(tool))
    })
}

fn read_tool(value: &Value<'_>) -> Result<ToolSpec, InvalidField> {
    let tool = Fields::of(value)?;
    match tool.object("function")? {
        Some(function) => read_definition(function).map_err(|fault| fault.below("function")),
        None => read_definition(tool),
    }
}

fn read_definition(tool: Fields<'_>) -> Result<ToolSpec, InvalidField> {
    let schema = match tool.spelled("inputSchema", "input_schema") {
        "inputSchema" => tool.spelled("inputSchema", "parameters"),
        other => other,
    };
    let annotations = tool.object("annotations")?.map(read_annotations).transpose();
    Ok(ToolSpec {
        name: tool.required_id("name")?,
        description: tool.text("description")?.unwrap_or_default().to_owned(),
        input_schema: tool.json_object(schema)?.unwrap_or_else(no_arguments),
        output_schema: tool.json_object("outputSchema")?,
        annotations: annotations.map_err(|fault| fault.below("annotations"))?,
    })
}

fn read_annotations(hints: Fields<'_>) -> Result<ToolAnnotations, InvalidField> {
    Ok(ToolAnnotations {
        read_only_hint: hints.flag("readOnlyHint")?.unwrap_or_default(),
        destructive_hint: hints.flag("destructiveHint")?.unwrap_or_default(),
        idempotent_hint: hints.flag("idempotentHint")?.unwrap_or_default(),
        open_world_hint: hints.flag("openWorldHint")?.unwrap_or_default(),
    })
}

/// Returns the schema of a tool without arguments. Providers reject a schema that is not of type `object`.
fn no_arguments() -> SharedJson {
    let schema = r#"{"type":"object","properties":{}}"#;
    let schema: Box<serde_json::value::RawValue> = serde_json::from_str(schema).expect("a constant of JSON");
    Arc::from(schema)
}

fn read_context(body: Fields<'_>) -> Result<ExecutionContext, InvalidField> {
    let Some(value) = body.get("context") else { return Ok(ExecutionContext::default()) };
    let below = |fault: InvalidField| fault.below("context");
    let Value::Str(text) = value else {
        return Fields::of(value).and_then(read_identity).map_err(below);
    };
    if text.trim().is_empty() {
        return Ok(ExecutionContext::default());
    }
    let wrong = || InvalidField::new("context", "must be an object, or a string that holds one");
    let value: Value<'_> = serde_json::from_str(text).map_err(|_| wrong())?;
    let fields = Fields::of(&value).map_err(|_| wrong())?;
    read_identity(fields).map_err(below)
}

fn read_identity(context: Fields<'_>) -> Result<ExecutionContext, InvalidField> {
    Ok(ExecutionContext {
        user_id: context.id("userId")?.unwrap_or_default(),
        company_id: String::new(),
        agent_id: context.id("agentId")?.unwrap_or_default(),
        agent_name: context.line("agentName", MAX_NAME_BYTES)?,
        todo_list_id: context.id("todoListId")?,
        timezone: context.id("timezone")?,
        thread_id: context.id("threadId")?.unwrap_or_default(),
        run_id: context.id("runId")?.unwrap_or_default(),
        caller: match context.text("caller")? {
            Some("widget") => Caller::Widget,
            Some("proactive") => Caller::Proactive,
            _ => Caller::Session,
        },
        granted_tools: None,
    })
}
