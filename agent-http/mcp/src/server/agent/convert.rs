//! Converts tool definitions and results to their MCP types.

use std::sync::Arc;

use agent_core::message::SharedJson;
use agent_core::tool::{ToolOutput, ToolSpec};
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, JsonObject, Tool, ToolAnnotations};

use super::failed;

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

pub(super) fn output(output: ToolOutput) -> CallToolResult {
    let content = vec![ContentBlock::text(output.text)];
    let mut result =
        if output.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = output.structured;
    result
}
