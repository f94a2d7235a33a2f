//! Tools of the client in a chat request: AG-UI's `tools`.

use std::sync::Arc;

use agent_core::tool::ToolSpec;

use super::FieldError;
use super::json::ObjectFields;
use super::runtime::read_tools;

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
    let tools = read_tools(body)?;
    if tools.len() > MAX_TOOLS {
        return Err(FieldError::new("tools", format!("has more than {MAX_TOOLS} elements")));
    }
    for (index, tool) in tools.iter().enumerate() {
        check(tool).map_err(|fault| fault.with_index(index).with_parent_path("tools"))?;
    }
    Ok(tools.into_iter().map(Arc::new).collect())
}

fn check(tool: &ToolSpec) -> Result<(), FieldError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if tool.name.len() > MAX_NAME_CHARS || !tool.name.chars().all(is_letter) {
        let problem = format!("must have at most {MAX_NAME_CHARS} letters, digits, underscores and hyphens");
        return Err(FieldError::new("name", problem));
    }
    if tool.input_schema.get().len() > MAX_SCHEMA_BYTES {
        return Err(FieldError::new("parameters", format!("has more than {MAX_SCHEMA_BYTES} bytes")));
    }
    Ok(())
}
