//! Tools of the client in a chat request: AG-UI's list `tools`, or assistant-ui's object of tools by their names.

use std::sync::Arc;

use agent_core::tool::ToolSpec;

use super::FieldError;
use super::json::{ObjectFields, Value};
use super::runtime::{read_named_tool, read_tools};

/// Maximum number of tools.
const MAX_TOOLS: usize = 64;
/// Maximum size of a tool's schema as JSON text, in bytes.
const MAX_SCHEMA_BYTES: usize = 16 * 1024;
/// Maximum length of a tool's name, in characters, as models' servers have it.
const MAX_NAME_CHARS: usize = 64;

/// Reads the tools.
///
/// # Errors
/// The first invalid tool.
pub(super) fn read(body: ObjectFields<'_>) -> Result<Vec<Arc<ToolSpec>>, FieldError> {
    let by_name = body.get("tools").filter(|tools| matches!(tools, Value::Object(_)));
    let tools = match by_name {
        Some(tools) => read_by_name(tools).map_err(|fault| fault.with_parent_path("tools"))?,
        None => read_tools(body)?,
    };
    if tools.len() > MAX_TOOLS {
        return Err(FieldError::new("tools", format!("has more than {MAX_TOOLS} elements")));
    }
    for (index, tool) in tools.iter().enumerate() {
        let with_path = |fault: FieldError| match by_name {
            Some(_) => fault.with_parent_path(&tool.name),
            None => fault.with_index(index),
        };
        check(tool).map_err(|fault| with_path(fault).with_parent_path("tools"))?;
    }
    Ok(tools.into_iter().map(Arc::new).collect())
}

fn read_by_name(tools: &Value<'_>) -> Result<Vec<ToolSpec>, FieldError> {
    let tools = ObjectFields::from_value(tools)?;
    let read = |name: &str| {
        // Checked before the definition, since the paths of its errors have the name.
        check_name(name).map_err(|problem| FieldError::new("", format!("has a name that {problem}")))?;
        let tool = tools.object(name)?.ok_or_else(|| FieldError::new(name, "must be an object"))?;
        read_named_tool(name.to_owned(), tool).map_err(|fault| fault.with_parent_path(name))
    };
    tools.names().map(read).collect()
}

fn check(tool: &ToolSpec) -> Result<(), FieldError> {
    check_name(&tool.name).map_err(|problem| FieldError::new("name", problem))?;
    if tool.input_schema.get().len() > MAX_SCHEMA_BYTES {
        return Err(FieldError::new("parameters", format!("has more than {MAX_SCHEMA_BYTES} bytes")));
    }
    Ok(())
}

/// Checks the name of a tool. The error states the rule.
fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_letter) {
        return Ok(());
    }
    Err(format!("must have 1 to {MAX_NAME_CHARS} letters, digits, underscores and hyphens"))
}
