//! Parsing of one element of `messages`, in the format of AG-UI, OpenAI or the AI SDK.

use super::FieldError;
use super::json::{ObjectFields, Value, empty_arguments, to_json};
use super::{media, ui_message};
use agent_core::message::{Content, FunctionCall, FunctionKind, Message, Role, ToolCall};

/// Appends the messages in `value` and returns their role; `None` for roles that are not part of the conversation.
pub(super) fn read(value: &Value<'_>, into: &mut Vec<Message>) -> Result<Option<Role>, FieldError> {
    let fields = ObjectFields::from_value(value)?;
    let role = read_role(fields)?;
    if let Some(role) = role {
        read_as(role, fields, into)?;
    }
    Ok(role)
}

/// Returns the role of a message; `None` for roles that are not part of the conversation, such as AG-UI's `reasoning` and
/// `activity`, which clients send back with the rest.
pub(super) fn read_role(message: ObjectFields<'_>) -> Result<Option<Role>, FieldError> {
    Ok(match message.required_text("role")? {
        "system" => Some(Role::System),
        "developer" => Some(Role::Developer),
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        "tool" => Some(Role::Tool),
        _ => None,
    })
}

/// Appends a message of `role`. An empty message is skipped, since models reject it.
pub(super) fn read_as(
    role: Role,
    fields: ObjectFields<'_>,
    into: &mut Vec<Message>,
) -> Result<(), FieldError> {
    if role != Role::Tool && fields.has("parts") {
        return ui_message::read(role, fields, into);
    }
    let id = fields.id("id")?;
    let mut content = read_content(role, fields)?;
    let (mut tool_calls, mut tool_call_id) = (Vec::new(), None);
    match role {
        Role::Assistant => {
            // An answer that is only a refusal has it beside its content.
            if let (true, Some(Value::Str(refusal))) = (content.is_empty(), fields.get("refusal")) {
                content = Content::Text(refusal.to_string());
            }
            let name = fields.first_present_name("toolCalls", "tool_calls");
            tool_calls = fields.read_list(name, read_call)?;
        }
        Role::Tool => {
            tool_call_id = Some(fields.required_id(fields.first_present_name("toolCallId", "tool_call_id"))?);
            if let (true, Some(error)) = (content.is_empty(), fields.text("error")?) {
                content = Content::Text(error.to_owned());
            }
        }
        Role::System | Role::Developer | Role::User => {}
    }
    if role == Role::Tool || !tool_calls.is_empty() || !content.is_empty() {
        into.push(Message { id, content, tool_calls, tool_call_id, ..Message::text(role, "") });
    }
    Ok(())
}

fn read_content(role: Role, fields: ObjectFields<'_>) -> Result<Content, FieldError> {
    match fields.get("content") {
        Some(value) => media::read(role, value).map_err(|fault| fault.with_parent_path("content")),
        // An assistant message may contain only tool calls, and a tool result may be empty.
        None if matches!(role, Role::Assistant | Role::Tool) => Ok(Content::default()),
        None => Err(FieldError::new("content", "is missing")),
    }
}

/// Reads a tool call; `None` if it is not a function call.
fn read_call(value: &Value<'_>) -> Result<Option<ToolCall>, FieldError> {
    let fields = ObjectFields::from_value(value)?;
    if fields.text("type")?.is_some_and(|kind| kind != "function") {
        return Ok(None);
    }
    let id = fields.required_id("id")?;
    let function = fields.object("function")?.ok_or_else(|| FieldError::new("function", "is missing"))?;
    let function = read_function(function).map_err(|fault| fault.with_parent_path("function"))?;
    Ok(Some(ToolCall { id, kind: FunctionKind::Function, function }))
}

fn read_function(fields: ObjectFields<'_>) -> Result<FunctionCall, FieldError> {
    let arguments = match fields.get("arguments") {
        None => empty_arguments(),
        Some(Value::Str(text)) if text.trim().is_empty() => empty_arguments(),
        Some(Value::Str(text)) => text.to_string(),
        // Some model servers return the arguments parsed, and their clients keep them as an object.
        Some(value @ Value::Object(_)) => to_json(value),
        Some(_) => return Err(FieldError::new("arguments", "must be JSON text")),
    };
    Ok(FunctionCall { name: fields.required_id("name")?, arguments })
}
