//! Encoder of AG-UI events as chunks of the AI SDK's UI message stream, version 1 (its `uiMessageChunkSchema`).
//!
//! A turn is one UI message, whose id is that of the turn's first run. Its texts, reasoning, tool calls and steps are the message's
//! parts; our extensions are transient `data-…` parts, which reach a client's `onData` and are not sent back with its
//! history.

use std::borrow::Cow;

use agent_core::event::{Event, Id, Interrupt, RunOutcome, RunResult};
use agent_core::ids::{RunId, ThreadId};
use agent_core::message::{FinishReason, Usage};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::write_frame;

/// Maximum size in bytes of a call's arguments that are buffered for parsing at the end of the call.
const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// Encoder state between events.
#[derive(Debug, Default)]
pub(super) struct UiMessageEncoder {
    texts: OpenParts,
    thoughts: OpenParts,
    calls: Vec<PendingToolCall>,
    /// Value of the event `agent.sources`, to which citations refer.
    sources: Option<Value>,
    /// Id of the run's turn, if it is known.
    turn_id: Option<RunId>,
}

/// Parts of one kind that are open at the client.
///
/// The end of a step closes them all at the client, but not in AG-UI. A part that continues after a step is reopened,
/// because a client fails on a delta of a part that is not open.
#[derive(Debug, Default)]
struct OpenParts(Vec<Id>);

impl OpenParts {
    /// Opens the part; returns true if it was not open.
    fn open(&mut self, id: &Id) -> bool {
        let new = !self.0.contains(id);
        if new {
            self.0.push(id.clone());
        }
        new
    }

    /// Closes the part; returns true if it was open.
    fn close(&mut self, id: &Id) -> bool {
        let before = self.0.len();
        self.0.retain(|open| open != id);
        self.0.len() < before
    }
}

/// Tool call whose arguments are still streaming.
#[derive(Debug)]
struct PendingToolCall {
    id: Id,
    name: String,
    /// `None` once they exceed [`MAX_INPUT_BYTES`].
    arguments: Option<String>,
}

/// Chunk of the stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum UiMessageChunk<'a> {
    Start {
        message_id: &'a str,
        message_metadata: RunMetadata<'a>,
    },
    StartStep,
    FinishStep,
    TextStart {
        id: &'a str,
    },
    TextDelta {
        id: &'a str,
        delta: &'a str,
    },
    TextEnd {
        id: &'a str,
    },
    ReasoningStart {
        id: &'a str,
    },
    ReasoningDelta {
        id: &'a str,
        delta: &'a str,
    },
    ReasoningEnd {
        id: &'a str,
    },
    ToolInputStart {
        tool_call_id: &'a str,
        tool_name: &'a str,
    },
    ToolInputDelta {
        tool_call_id: &'a str,
        input_text_delta: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a RawValue,
    },
    ToolInputError {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a str,
        error_text: &'a str,
    },
    ToolApprovalRequest {
        approval_id: &'a str,
        tool_call_id: &'a str,
    },
    ToolOutputAvailable {
        tool_call_id: &'a str,
        output: Output<'a>,
    },
    ToolOutputError {
        tool_call_id: &'a str,
        error_text: &'a str,
    },
    SourceDocument {
        source_id: &'a str,
        media_type: &'a str,
        title: &'a str,
        provider_metadata: SourceMetadata<'a>,
    },
    MessageMetadata {
        message_metadata: UsageMetadata<'a>,
    },
    Error {
        error_text: &'a str,
    },
    Abort,
    Finish {
        finish_reason: &'static str,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunMetadata<'a> {
    thread_id: &'a ThreadId,
    run_id: &'a RunId,
}

/// Position of a source, below the name of this platform.
#[derive(Debug, Serialize)]
struct SourceMetadata<'a> {
    agentd: SourceLocation<'a>,
}

/// The document of a source and the position in its text, in characters. Visitors get the page only.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SourceLocation<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    document_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
}

#[derive(Debug, Serialize)]
struct UsageMetadata<'a> {
    usage: &'a [Usage],
}

/// Chunk whose type is derived from the name of a custom event.
#[derive(Debug, Serialize)]
struct DataChunk<'a> {
    #[serde(rename = "type")]
    kind: String,
    data: &'a Value,
    transient: bool,
}

/// Tool output: structured if its content is a JSON object or array, otherwise text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Structured(&'a RawValue),
    Text(&'a str),
}

impl UiMessageEncoder {
    /// Creates an encoder for a run of a turn, which is one message of the AI SDK. Without a turn, the run is one.
    pub(super) fn new(turn_id: Option<RunId>) -> Self {
        Self { turn_id, ..Self::default() }
    }

    /// Appends the chunks of an event.
    pub(super) fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        match event {
            Event::RunStarted { thread_id, run_id } => {
                let message_metadata = RunMetadata { thread_id, run_id };
                let message_id = self.turn_id.as_ref().unwrap_or(run_id);
                write_frame(out, &UiMessageChunk::Start { message_id, message_metadata });
            }
            Event::StepStarted { .. } => write_frame(out, &UiMessageChunk::StartStep),
            Event::StepFinished { .. } => self.finish_step(out),
            Event::TextMessageStart { message_id, .. } => self.open_text(message_id, out),
            Event::TextMessageContent { message_id, delta } => {
                self.open_text(message_id, out);
                write_frame(out, &UiMessageChunk::TextDelta { id: message_id, delta });
            }
            Event::TextMessageEnd { message_id } if self.texts.close(message_id) => {
                write_frame(out, &UiMessageChunk::TextEnd { id: message_id });
            }
            Event::ReasoningMessageStart { message_id, .. } => self.open_thought(message_id, out),
            Event::ReasoningMessageContent { message_id, delta } => {
                self.open_thought(message_id, out);
                write_frame(out, &UiMessageChunk::ReasoningDelta { id: message_id, delta });
            }
            Event::ReasoningMessageEnd { message_id } if self.thoughts.close(message_id) => {
                write_frame(out, &UiMessageChunk::ReasoningEnd { id: message_id });
            }
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => {
                self.start_call(tool_call_id, tool_call_name, out);
            }
            Event::ToolCallArgs { tool_call_id, delta } if !delta.is_empty() => {
                self.continue_call(tool_call_id, delta, out);
            }
            Event::ToolCallEnd { tool_call_id } => self.end_call(tool_call_id, out),
            Event::ToolCallResult { tool_call_id, content, metadata, .. } => {
                let json = one_line(content);
                let chunk = match metadata {
                    Some(metadata) if metadata.is_error => {
                        UiMessageChunk::ToolOutputError { tool_call_id, error_text: content }
                    }
                    _ => UiMessageChunk::ToolOutputAvailable {
                        tool_call_id,
                        output: Output::new(content, &json),
                    },
                };
                write_frame(out, &chunk);
            }
            Event::Custom { name, value } => self.write_extension(name, value, out),
            Event::RunFinished { result, outcome, usage, .. } => {
                finish(result.as_ref(), outcome.as_ref(), usage, out)
            }
            Event::RunError { message, usage, .. } => {
                write_usage(usage, out);
                write_frame(out, &UiMessageChunk::Error { error_text: message });
                write_frame(out, &UiMessageChunk::Finish { finish_reason: "error" });
            }
            // Not sent to this client: the events that enclose a reasoning message, the end of a part that its step
            // has closed, and an empty delta.
            _ => {}
        }
    }

    fn write_extension(&mut self, name: &str, value: &Value, out: &mut Vec<u8>) {
        write_frame(out, &DataChunk::new(name, value));
        match name {
            "agent.sources" => self.sources = Some(value.clone()),
            "agent.citations" => self.write_source_documents(value, out),
            _ => {}
        }
    }

    /// Appends a part for each source that an answer cites, in the order of the sources.
    fn write_source_documents(&self, citations: &Value, out: &mut Vec<u8>) {
        let cited = |id: &Value| {
            let citations = citations["citations"].as_array().into_iter().flatten();
            citations.into_iter().any(|citation| citation["fragment"] == *id)
        };
        let sources = self.sources.as_ref().and_then(|sources| sources["fragments"].as_array());
        for source in sources.into_iter().flatten().filter(|source| cited(&source["id"])) {
            write_frame(out, &UiMessageChunk::source_document(source));
        }
    }

    fn open_text(&mut self, id: &Id, out: &mut Vec<u8>) {
        if self.texts.open(id) {
            write_frame(out, &UiMessageChunk::TextStart { id });
        }
    }

    fn open_thought(&mut self, id: &Id, out: &mut Vec<u8>) {
        if self.thoughts.open(id) {
            write_frame(out, &UiMessageChunk::ReasoningStart { id });
        }
    }

    fn finish_step(&mut self, out: &mut Vec<u8>) {
        for id in self.thoughts.0.drain(..) {
            write_frame(out, &UiMessageChunk::ReasoningEnd { id: &id });
        }
        for id in self.texts.0.drain(..) {
            write_frame(out, &UiMessageChunk::TextEnd { id: &id });
        }
        write_frame(out, &UiMessageChunk::FinishStep);
    }

    fn start_call(&mut self, id: &Id, name: &str, out: &mut Vec<u8>) {
        self.calls.push(PendingToolCall {
            id: id.clone(),
            name: name.to_owned(),
            arguments: Some(String::new()),
        });
        write_frame(out, &UiMessageChunk::ToolInputStart { tool_call_id: id, tool_name: name });
    }

    fn continue_call(&mut self, id: &Id, delta: &str, out: &mut Vec<u8>) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id) {
            call.arguments =
                call.arguments.take().filter(|so_far| so_far.len() + delta.len() <= MAX_INPUT_BYTES);
            if let Some(arguments) = &mut call.arguments {
                arguments.push_str(delta);
            }
        }
        write_frame(out, &UiMessageChunk::ToolInputDelta { tool_call_id: id, input_text_delta: delta });
    }

    fn end_call(&mut self, id: &Id, out: &mut Vec<u8>) {
        let Some(index) = self.calls.iter().position(|call| call.id == *id) else { return };
        let PendingToolCall { id, name, arguments } = self.calls.swap_remove(index);
        let failed = |input, error_text| UiMessageChunk::ToolInputError {
            tool_call_id: &id,
            tool_name: &name,
            input,
            error_text,
        };
        let Some(arguments) = arguments else {
            return write_frame(out, &failed("", "the arguments exceed the size limit"));
        };
        // Tools without parameters are often called with empty arguments.
        let text = if arguments.trim_ascii().is_empty() { "{}".into() } else { one_line(&arguments) };
        match serde_json::from_str(&text) {
            Ok(input) => {
                let chunk = UiMessageChunk::ToolInputAvailable { tool_call_id: &id, tool_name: &name, input };
                write_frame(out, &chunk);
            }
            Err(_) => write_frame(out, &failed(&arguments, "the arguments are not valid JSON")),
        }
    }
}

impl<'a> UiMessageChunk<'a> {
    /// Creates the part of a source of the event `agent.sources`.
    fn source_document(source: &'a Value) -> Self {
        let position = SourceLocation {
            document_id: source["documentId"].as_str(),
            start: source["start"].as_u64(),
            end: source["end"].as_u64(),
            page: source["page"].as_u64(),
        };
        Self::SourceDocument {
            source_id: source["id"].as_str().unwrap_or_default(),
            media_type: source["mediaType"].as_str().unwrap_or("text/plain"),
            title: source["title"].as_str().unwrap_or_default(),
            provider_metadata: SourceMetadata { agentd: position },
        }
    }
}

impl<'a> Output<'a> {
    /// Creates an output; `json` is `content` on one line.
    fn new(content: &'a str, json: &'a str) -> Self {
        let structured = json.trim_ascii_start().starts_with(['{', '[']);
        match structured.then(|| serde_json::from_str(json)) {
            Some(Ok(json)) => Self::Structured(json),
            _ => Self::Text(content),
        }
    }
}

impl<'a> DataChunk<'a> {
    /// Creates a chunk; `agent.prompt` becomes `data-agent-prompt`.
    fn new(name: &str, data: &'a Value) -> Self {
        let to_type_character = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let kind = "data-".chars().chain(name.chars().map(to_type_character)).collect();
        Self { kind, data, transient: true }
    }
}

/// Replaces line breaks, which would end an SSE line. In valid JSON they occur only between tokens.
fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}

fn finish(result: Option<&RunResult>, outcome: Option<&RunOutcome>, usage: &[Usage], out: &mut Vec<u8>) {
    if let Some(data) = result.and_then(|result| result.object.as_ref()) {
        // A part of the message, unlike the extensions.
        write_frame(out, &DataChunk { kind: "data-object".to_owned(), data, transient: false });
    }
    write_usage(usage, out);
    if let Some(RunOutcome::Interrupt { interrupts, .. }) = outcome {
        for Interrupt { id, tool_call_id, .. } in interrupts {
            let Some(tool_call_id) = tool_call_id else { continue };
            write_frame(out, &UiMessageChunk::ToolApprovalRequest { approval_id: id, tool_call_id });
        }
    }
    let chunk = match (outcome, result.map(|result| result.finish_reason)) {
        (Some(RunOutcome::Cancelled), _) => UiMessageChunk::Abort,
        (_, None | Some(FinishReason::Stop)) => UiMessageChunk::Finish { finish_reason: "stop" },
        (_, Some(FinishReason::Length)) => UiMessageChunk::Finish { finish_reason: "length" },
        (_, Some(FinishReason::ToolCalls)) => UiMessageChunk::Finish { finish_reason: "tool-calls" },
        (_, Some(FinishReason::ContentFilter)) => UiMessageChunk::Finish { finish_reason: "content-filter" },
    };
    write_frame(out, &chunk);
}

fn write_usage(usage: &[Usage], out: &mut Vec<u8>) {
    if !usage.is_empty() {
        write_frame(out, &UiMessageChunk::MessageMetadata { message_metadata: UsageMetadata { usage } });
    }
}
