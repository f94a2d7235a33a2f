//! Reading the body of the runtime's `POST /chat`: ten fields that carry a whole turn.

use std::fmt;
use std::sync::Arc;

use super::json::{Fields, Value};
use super::{Body, Conversation, InvalidField, MAX_MESSAGES};
use crate::message::{Message, SharedJson};
use crate::secret::Secret;
use crate::tool::{Caller, ExecutionContext, ToolAnnotations, ToolSpec};

/// The longest address, in bytes.
const MAX_ADDRESS_BYTES: usize = 8192;

/// The longest name of a provider or a model, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// What the runtime is asked to do. Empty text counts as absent in every optional field.
#[derive(Clone)]
pub struct RuntimeRequest {
    /// The conversation, in any spelling that [`super::read`] takes, repaired.
    pub messages: Vec<Message>,
    /// The final system prompt; empty where there is none.
    pub system_prompt: String,
    /// Who shall run the model. Whether there is such a provider is for the caller to say.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// Whether the model should think aloud, where it can.
    pub enable_thinking: Option<bool>,
    /// The tools on offer, in the order given. Names are unique.
    pub tools: Vec<ToolSpec>,
    /// Where the tools are called. It carries the run's token, hence a secret.
    pub mcp_server_url: Option<Secret>,
    /// For whom the turn is; every field is empty or absent where the caller left it out.
    pub context: ExecutionContext,
    /// The provider's address, where it is not the operator's.
    pub base_url: Option<String>,
    /// The provider's key, where it is not the operator's.
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
    /// Tools are the Model Context Protocol's; `input_schema`, `parameters` and OpenAI's wrapping in
    /// `function` are taken too, and a tool without a schema takes no arguments. `context` is an object, or
    /// a string that holds one.
    ///
    /// # Errors
    ///
    /// The first field that is missing, of the wrong kind, or over its bounds.
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

/// Vendors refuse a schema that does not say that it is an object's.
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
