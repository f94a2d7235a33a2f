//! Converts tool definitions and results to their MCP types.

use std::sync::Arc;

use agent_core::message::SharedJson;
use agent_core::tool::{Suspension, ToolOutput, ToolSpec};
use agent_platform::exact_json;
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, JsonObject, MetaObject, Tool, ToolAnnotations};

use super::failed;
use crate::suspension::suspension_meta;

pub(super) fn tool(spec: &ToolSpec) -> Result<Tool, ErrorData> {
    let mut tool = Tool::new(spec.name.clone(), spec.description.clone(), object(&spec.input_schema)?);
    tool.output_schema = spec.output_schema.as_ref().map(object).transpose()?;
    tool.annotations = spec.annotations.map(|hints| {
        ToolAnnotations::new()
            .read_only(hints.read_only_hint)
            .destructive(hints.destructive_hint)
            .idempotent(hints.idempotent_hint)
            .open_world(hints.open_world_hint)
    });
    Ok(tool)
}

fn object(schema: &SharedJson) -> Result<Arc<JsonObject>, ErrorData> {
    serde_json::from_str(schema.get()).map(Arc::new).map_err(|error| failed(&error))
}

/// Converts the result of a tool. Numbers of its structured content whose digits its text has, and a [`Value`] has not, are
/// [marked texts](exact_json).
///
/// [`Value`]: serde_json::Value
pub(super) fn output(output: ToolOutput) -> CallToolResult {
    if let Some(suspension) = output.suspension {
        return suspended(&suspension);
    }
    let structured = output.structured.map(|value| exact_json::with_digits_of(value, &output.text));
    // The text itself must not be taken for a marked one.
    let is_plain = exact_json::text(&output.text).len() == output.text.len();
    let text = if is_plain { output.text } else { exact_json::text(&output.text).to_owned() };
    let content = vec![ContentBlock::text(text)];
    let mut result =
        if output.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = structured;
    result
}

/// Returns the result of a call that waits, which the platform's own runtime reads from its metadata.
fn suspended(suspension: &Suspension) -> CallToolResult {
    let text = "the call was not made yet: it waits for a person's approval";
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.meta = Some(MetaObject(suspension_meta(suspension)));
    result
}
