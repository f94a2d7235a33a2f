//! Reports tool calls made with a run token to the run's event stream.

use agent_platform::call_reports::{ToolCallGuard, ToolCallReporter};
use rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData};

use crate::output;

/// Reports the start of a call.
pub(super) fn begin_report(calls: &ToolCallReporter, call: &CallToolRequestParams) -> ToolCallGuard {
    let arguments = call.arguments.as_ref();
    calls.start_call(&call.name, || match arguments.map(serde_json::to_string) {
        Some(Ok(json)) => json,
        _ => "{}".to_owned(),
    })
}

/// Returns the text of a call's result as the model receives it, and true if the call failed.
pub(super) fn report_result(answer: &Result<CallToolResponse, ErrorData>) -> (String, bool) {
    match answer {
        Ok(CallToolResponse::Complete(result)) => {
            let output = output::to_tool_output(result.clone());
            (output.text, output.is_error)
        }
        Ok(_) => ("the tool requires additional input, which is not supported".to_owned(), false),
        Err(error) => (error.message.to_string(), true),
    }
}
