//! Parsing of the AI SDK's UI messages (v5 and v6, and the tool invocations of v4). One message with `parts` becomes an
//! assistant message, its tool calls, their results, and further assistant messages.

use super::FieldError;
use super::json::{ObjectFields, Value, empty_arguments, to_json};
use super::media;
use agent_core::message::{ContentPart, Message, Role, ToolCall};

/// Appends the messages that result from the parts of one UI message.
pub(super) fn read(role: Role, fields: ObjectFields<'_>, into: &mut Vec<Message>) -> Result<(), FieldError> {
    let mut step = UiMessageStep { role, id: fields.id("id")?, ..UiMessageStep::default() };
    fields.read_list("parts", |value| -> Result<Option<()>, FieldError> {
        step.read_part(ObjectFields::from_value(value)?, into)?;
        Ok(None)
    })?;
    step.finish(into);
    Ok(())
}

/// The content and tool calls of one model response, and the tool results.
struct UiMessageStep {
    role: Role,
    id: Option<String>,
    parts: Vec<ContentPart>,
    calls: Vec<ToolCall>,
    results: Vec<Message>,
}

impl Default for UiMessageStep {
    fn default() -> Self {
        Self { role: Role::User, id: None, parts: Vec::new(), calls: Vec::new(), results: Vec::new() }
    }
}

impl UiMessageStep {
    fn read_part(&mut self, part: ObjectFields<'_>, into: &mut Vec<Message>) -> Result<(), FieldError> {
        match part.required_text("type")? {
            "step-start" => self.finish(into),
            "tool-invocation" if part.has("toolInvocation") => {
                let invocation = part.object("toolInvocation")?;
                if let Some(fields) = invocation {
                    let name = fields.required_id("toolName");
                    name.and_then(|name| self.read_call(&name, fields))
                        .map_err(|fault| fault.with_parent_path("toolInvocation"))?;
                }
            }
            "dynamic-tool" => self.read_call(&part.required_id("toolName")?, part)?,
            kind if kind.starts_with("tool-") => self.read_call(&kind["tool-".len()..], part)?,
            _ => {
                if let Some(part) = media::read_part(self.role, part)? {
                    // Content after a tool result belongs to the next model response.
                    if !self.results.is_empty() {
                        self.finish(into);
                    }
                    self.parts.push(part);
                }
            }
        }
        Ok(())
    }

    fn read_call(&mut self, name: &str, part: ObjectFields<'_>) -> Result<(), FieldError> {
        let state = part.text("state")?.unwrap_or_default();
        // A call whose arguments were still streaming was never executed.
        if self.role != Role::Assistant || matches!(state, "input-streaming" | "partial-call") {
            return Ok(());
        }
        if name.is_empty() || name.len() > super::MAX_ID_BYTES {
            return Err(FieldError::new("type", "must end with the tool's name"));
        }
        let id = part.required_id("toolCallId")?;
        self.results.extend(read_result(state, part)?.map(|text| Message::tool_result(&id, text)));
        self.calls.push(ToolCall::new(id, name, read_arguments(part)));
        Ok(())
    }

    /// Appends the step's message and its results, and starts the next step.
    fn finish(&mut self, into: &mut Vec<Message>) {
        let content = media::content_from_parts(std::mem::take(&mut self.parts));
        let tool_calls = std::mem::take(&mut self.calls);
        if !content.is_empty() || !tool_calls.is_empty() {
            let id = self.id.take();
            into.push(Message { id, content, tool_calls, ..Message::text(self.role, "") });
        }
        into.append(&mut self.results);
    }
}

fn read_arguments(part: ObjectFields<'_>) -> String {
    match ["input", "rawInput", "args"].iter().find_map(|name| part.get(name)) {
        None => empty_arguments(),
        Some(Value::Str(text)) => text.to_string(),
        Some(value) => to_json(value),
    }
}

/// Returns the tool's result as text for the model; `None` if there is none yet.
fn read_result(state: &str, part: ObjectFields<'_>) -> Result<Option<String>, FieldError> {
    match state {
        "output-available" => Ok(Some(as_text(part.get("output")))),
        "result" => Ok(Some(as_text(part.get("result")))),
        "output-error" => Ok(Some(part.text("errorText")?.unwrap_or("the tool failed").to_owned())),
        "output-denied" => Ok(Some("the user denied the tool call".to_owned())),
        _ => Ok(None),
    }
}

fn as_text(value: Option<&Value<'_>>) -> String {
    match value {
        None => String::new(),
        Some(Value::Str(text)) => text.to_string(),
        Some(value) => to_json(value),
    }
}
