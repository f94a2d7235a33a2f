//! Execution of one tool call, from the model's arguments to the result for the model.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::task::AtomicWaker;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::{LoopLimits, ToolLoop};
use crate::event::Event;
use crate::message::ToolCall;
use crate::model::ModelRequest;
use crate::tool::{ExecutionContext, Progress, Suspension, ToolError, ToolOutput, ToolRegistry};

/// Limit on unread progress reports; the oldest are dropped, since only the latest matter.
const MAX_UNREAD_PROGRESS_REPORTS: usize = 64;

/// Result of a call for the model.
pub(super) struct CallOutcome {
    pub call_index: usize,
    pub content: String,
    pub is_error: bool,
    /// Present if the call has no result.
    pub suspension: Option<Suspension>,
}

/// Runs a call; errors, timeouts and panics become error results. Arguments that are not a JSON object are replaced by `{}` in
/// `call`: model servers parse the calls that are sent back to them, and some reject a conversation with invalid arguments.
pub(super) fn run_tool_call(
    call_index: usize,
    call: &mut ToolCall,
    deps: &ToolLoop,
    request: &ModelRequest,
    mut context: ExecutionContext,
    queue: &Arc<ProgressQueue>,
) -> BoxFuture<'static, CallOutcome> {
    // Some models call tools even if the tool choice forbids it.
    let offered = request.tool_choice.offered(&request.tools);
    let offered = offered.iter().find(|spec| spec.name == call.function.name);
    let is_client_side = offered.map(|spec| spec.is_client_side);
    let (tools, limits) = (deps.tools.clone(), deps.limits);
    let timeout = deps.clock.sleep(limits.tool_timeout);
    context.idempotency_key.get_or_insert_default().push_str(&format!("/{call_index}"));
    let progress = CallProgress { call_id: call.id.clone(), queue: queue.clone() };
    let name = call.function.name.clone();
    let arguments = parse_arguments(&mut call.function.arguments);
    context.arguments_text = Some(call.function.arguments.as_str().into());
    async move {
        let arguments =
            if is_client_side.is_some() { arguments } else { Err(ToolError::Unknown(name.clone())) };
        let output = match (is_client_side, arguments) {
            (Some(true), Ok(_)) => Suspension::ClientSide.into(),
            (_, arguments) => {
                call_tool(&*tools, &context, &name, arguments, &progress, timeout, limits).await
            }
        };
        let ToolOutput { text: content, is_error, suspension, .. } = output;
        CallOutcome { call_index, content, is_error, suspension }
    }
    .boxed()
}

/// Calls a tool, unless its arguments are invalid. Errors, panics and the timeout become error results; a long one is cut.
pub async fn call_tool(
    tools: &dyn ToolRegistry,
    context: &ExecutionContext,
    name: &str,
    arguments: Result<Value, ToolError>,
    progress: &dyn Progress,
    timeout: BoxFuture<'static, ()>,
    limits: LoopLimits,
) -> ToolOutput {
    let work = async { tools.call(context, name, arguments?, progress).await };
    let guarded = AssertUnwindSafe(work).catch_unwind();
    let output = match select(Box::pin(guarded), timeout).await {
        Either::Left((Ok(output), _)) => output.unwrap_or_else(|error| {
            if let ToolError::Internal(source) = &error {
                warn!(tool = name, error = %source, "tool failed");
            }
            ToolOutput::error(error.to_string())
        }),
        Either::Left((Err(_panic), _)) => {
            warn!(tool = name, "tool panicked");
            ToolOutput::error("the tool failed")
        }
        Either::Right(((), _)) => {
            let limit = limits.tool_timeout.as_millis();
            ToolOutput::error(format!("the tool call timed out after {limit} ms"))
        }
    };
    ToolOutput { text: truncate_result(output.text, limits.max_result_bytes), ..output }
}

/// Parses the arguments as a JSON object. Empty text and `null` count as `{}`, since models send them for tools without arguments.
fn parse_arguments(text: &mut String) -> Result<Value, ToolError> {
    let problem = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => return Ok(Value::Object(object)),
        _ if ["", "null"].contains(&text.trim()) => None,
        Ok(_) => Some("they must be a JSON object".to_owned()),
        Err(error) => Some(format!("they are not JSON: {error}")),
    };
    "{}".clone_into(text);
    match problem {
        None => Ok(Value::Object(Map::new())),
        Some(problem) => Err(ToolError::InvalidArguments(problem)),
    }
}

fn truncate_result(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let total = text.len();
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!("\n[truncated: {total} bytes in total]"));
    }
    text
}

/// Queue of progress reports from the calls of a round, read by the event stream.
#[derive(Default)]
pub(super) struct ProgressQueue {
    reports: Mutex<VecDeque<Value>>,
    reader: AtomicWaker,
}

impl ProgressQueue {
    /// Moves the reports into events, and registers the waker for the next report.
    pub(super) fn drain(&self, waker: &Waker, out: &mut VecDeque<Event>) {
        self.reader.register(waker);
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        out.extend(reports.drain(..).map(|value| Event::Custom { name: "agent.debug".into(), value }));
    }
}

struct CallProgress {
    call_id: String,
    queue: Arc<ProgressQueue>,
}

impl Progress for CallProgress {
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let mut report = json!({"kind": "toolProgress", "toolCallId": self.call_id, "progress": progress});
        if let Some(total) = total {
            report["total"] = total.into();
        }
        if let Some(message) = message {
            report["message"] = message.into();
        }
        let mut reports = self.queue.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() >= MAX_UNREAD_PROGRESS_REPORTS {
            reports.pop_front();
        }
        reports.push_back(report);
        drop(reports);
        self.queue.reader.wake();
    }
}
