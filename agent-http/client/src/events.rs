//! Decoder of another service's NDJSON event stream.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{AssistantRole, Event, Id, ReasoningRole, ResultMetadata, RunOutcome, ToolRole};
use agent_core::message::{FinishReason, Usage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::borrowed_text::BorrowedText;
use crate::token_count::whole_count;

/// Decodes the AG-UI events of one run, line by line.
///
/// It caches the latest ids, because the deltas of one message share theirs.
#[derive(Debug, Default)]
pub struct EventDecoder {
    message_id: Id,
    tool_call_id: Id,
}

/// All members of all events, borrowed from the line. An internally tagged enum would make serde buffer every line
/// before it knows the event type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: BorrowedText<'a>,
    #[serde(borrow)]
    message_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    delta: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_call_name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    parent_message_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    step_name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    thread_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    run_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    code: Option<BorrowedText<'a>>,
}

/// The event type alone, for a line whose other members have unexpected shapes.
#[derive(Deserialize)]
struct EventTypeOnly<'a> {
    #[serde(borrow, rename = "type")]
    kind: BorrowedText<'a>,
}

/// Event types that [`EventDecoder`] decodes. Others are skipped.
const KNOWN_EVENT_TYPES: [&str; 18] = [
    "RUN_STARTED",
    "STEP_STARTED",
    "STEP_FINISHED",
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_END",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    "CUSTOM",
    "RUN_FINISHED",
    "RUN_ERROR",
];

impl EventDecoder {
    /// Creates a decoder for a new run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes one line, with or without its line break.
    ///
    /// Returns `None` for a line without relevant content: a blank line, an event of an unknown type, or an empty
    /// text delta.
    ///
    /// # Errors
    /// Returns [`AgentErrorKind::Failed`] if the line is not a JSON object, or lacks a member that its type requires.
    /// Neither the message nor the cause repeats any content of the line.
    pub fn decode(&mut self, line: &[u8]) -> Result<Option<Event>, AgentError> {
        let line = line.trim_ascii();
        match line.first() {
            None => return Ok(None),
            // Serde would accept an array whose elements are the members in order.
            Some(b'{') => {}
            Some(_) => return Err(decode_error("the line is not a JSON object".into())),
        }
        match serde_json::from_slice::<RawEvent<'_>>(line) {
            Ok(line) => self.event(line),
            // Other event types may have members of the same name but of another shape, such as the delta of
            // STATE_DELTA.
            Err(error) => match serde_json::from_slice::<EventTypeOnly<'_>>(line) {
                Ok(EventTypeOnly { kind }) if !KNOWN_EVENT_TYPES.contains(&&*kind.0) => Ok(None),
                _ => Err(malformed_line(&error)),
            },
        }
    }

    fn event(&mut self, line: RawEvent<'_>) -> Result<Option<Event>, AgentError> {
        Ok(Some(match &*line.kind.0 {
            "TEXT_MESSAGE_CONTENT" => match required(line.delta, "delta")? {
                BorrowedText(delta) if delta.is_empty() => return Ok(None),
                BorrowedText(delta) => Event::TextMessageContent {
                    message_id: self.message(line.message_id)?,
                    delta: delta.into_owned(),
                },
            },
            "REASONING_MESSAGE_CONTENT" => match required(line.delta, "delta")? {
                BorrowedText(delta) if delta.is_empty() => return Ok(None),
                BorrowedText(delta) => Event::ReasoningMessageContent {
                    message_id: self.message(line.message_id)?,
                    delta: delta.into_owned(),
                },
            },
            "TOOL_CALL_ARGS" => Event::ToolCallArgs {
                tool_call_id: self.call(line.tool_call_id)?,
                delta: text(line.delta, "delta")?,
            },
            "RUN_STARTED" => Event::RunStarted {
                thread_id: text(line.thread_id, "threadId")?.into(),
                run_id: text(line.run_id, "runId")?.into(),
            },
            "STEP_STARTED" => Event::StepStarted { step_name: text(line.step_name, "stepName")?.into() },
            "STEP_FINISHED" => Event::StepFinished { step_name: text(line.step_name, "stepName")?.into() },
            "REASONING_START" => Event::ReasoningStart { message_id: self.message(line.message_id)? },
            "REASONING_MESSAGE_START" => Event::ReasoningMessageStart {
                message_id: self.message(line.message_id)?,
                role: ReasoningRole::Reasoning,
            },
            "REASONING_MESSAGE_END" => {
                Event::ReasoningMessageEnd { message_id: self.message(line.message_id)? }
            }
            "REASONING_END" => Event::ReasoningEnd { message_id: self.message(line.message_id)? },
            "TEXT_MESSAGE_START" => Event::TextMessageStart {
                message_id: self.message(line.message_id)?,
                role: AssistantRole::Assistant,
            },
            "TEXT_MESSAGE_END" => Event::TextMessageEnd { message_id: self.message(line.message_id)? },
            "TOOL_CALL_START" => Event::ToolCallStart {
                tool_call_id: self.call(line.tool_call_id)?,
                tool_call_name: text(line.tool_call_name, "toolCallName")?,
                parent_message_id: line.parent_message_id.map(|BorrowedText(id)| id.into()),
            },
            "TOOL_CALL_END" => Event::ToolCallEnd { tool_call_id: self.call(line.tool_call_id)? },
            "TOOL_CALL_RESULT" => Event::ToolCallResult {
                message_id: text(line.message_id, "messageId")?.into(),
                tool_call_id: self.call(line.tool_call_id)?,
                content: content(required(line.content, "content")?)?,
                role: ToolRole::Tool,
                metadata: lenient::<Metadata>(line.metadata)
                    .and_then(|metadata| metadata.is_error)
                    .map(|is_error| ResultMetadata { is_error }),
            },
            _ => return run_event(line),
        }))
    }

    fn message(&mut self, id: Option<BorrowedText<'_>>) -> Result<Id, AgentError> {
        required(id, "messageId").map(|id| intern_id(&mut self.message_id, id))
    }

    fn call(&mut self, id: Option<BorrowedText<'_>>) -> Result<Id, AgentError> {
        required(id, "toolCallId").map(|id| intern_id(&mut self.tool_call_id, id))
    }
}

/// Decodes the events that concern the run as a whole, and extension events.
fn run_event(line: RawEvent<'_>) -> Result<Option<Event>, AgentError> {
    Ok(Some(match &*line.kind.0 {
        "CUSTOM" => Event::Custom {
            name: text(line.name, "name")?,
            value: match line.value {
                Some(value) => serde_json::from_str(value.get()).map_err(|error| malformed_line(&error))?,
                None => serde_json::Value::Null,
            },
        },
        "RUN_FINISHED" => Event::RunFinished {
            thread_id: line.thread_id.map(|BorrowedText(id)| id.into()).unwrap_or_default(),
            run_id: line.run_id.map(|BorrowedText(id)| id.into()).unwrap_or_default(),
            // An object that another service has validated is not one of ours.
            result: lenient::<Reason>(line.result).map(|reason| reason.finish_reason.into()),
            outcome: lenient::<RunOutcome>(line.outcome),
            usage: read_usage(line.usage),
        },
        "RUN_ERROR" => Event::RunError {
            message: text(line.message, "message")?,
            code: line
                .code
                .map_or_else(|| AgentErrorKind::Failed.code().into(), |BorrowedText(code)| code.into()),
            usage: read_usage(line.usage),
        },
        _ => return Ok(None),
    }))
}

/// Reads the usage of a run: a list, or the only entry of one. Another shape counts as not reported, and does not fail
/// the run.
fn read_usage(json: Option<&RawValue>) -> Vec<Usage> {
    let entries = match lenient::<Value>(json) {
        Some(Value::Array(entries)) => entries,
        entry => entry.into_iter().collect(),
    };
    let read = |entry: &Value| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
        let count = |name: &str| entry.get(name).and_then(whole_count);
        Usage {
            model: text("model"),
            provider: text("provider"),
            input_tokens: count("inputTokens"),
            output_tokens: count("outputTokens"),
            reasoning_tokens: count("reasoningTokens"),
            cached_input_tokens: count("cachedInputTokens"),
            cache_write_tokens: count("cacheWriteTokens"),
        }
    };
    entries.iter().map(read).filter(|usage| *usage != Usage::default()).collect()
}

/// The relevant parts of open members. AG-UI leaves the shape of these members open, so other shapes are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    is_error: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reason {
    finish_reason: FinishReason,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ResultContent {
    Text(String),
    Parts(Vec<ResultPart>),
}

#[derive(Deserialize)]
struct ResultPart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Returns a tool's result as text; of AG-UI content parts only the text parts, as AG-UI clients read it.
fn content(json: &RawValue) -> Result<String, AgentError> {
    let content = serde_json::from_str(json.get()).map_err(|error| malformed_line(&error))?;
    Ok(match content {
        ResultContent::Text(text) => text,
        ResultContent::Parts(parts) => {
            parts.into_iter().filter(|part| part.kind == "text").map(|part| part.text).collect()
        }
    })
}

fn lenient<T: DeserializeOwned>(json: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// Returns the id, without an allocation if it equals the previous one.
fn intern_id(latest: &mut Id, BorrowedText(id): BorrowedText<'_>) -> Id {
    if **latest != *id {
        *latest = id.into();
    }
    latest.clone()
}

fn text(member: Option<BorrowedText<'_>>, name: &'static str) -> Result<String, AgentError> {
    required(member, name).map(|BorrowedText(text)| text.into_owned())
}

fn required<T>(member: Option<T>, name: &'static str) -> Result<T, AgentError> {
    member.ok_or_else(|| decode_error(format!("the event has no {name}")))
}

/// Creates an error with the location of the fault only: serde's messages quote the input.
fn malformed_line(error: &serde_json::Error) -> AgentError {
    decode_error(format!("{:?} fault at column {}", error.classify(), error.column()))
}

fn decode_error(cause: String) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the backend sent a line that is not a valid event")
        .with_source(cause)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::Arc;

    use super::*;

    fn decode(line: &str) -> Result<Option<Event>, AgentError> {
        EventDecoder::new().decode(line.as_bytes())
    }

    #[test]
    fn lines_without_content_are_skipped() {
        let lines = [
            "",
            " \r\n",
            r#"{"type":"STATE_DELTA","delta":[{"op":"add"}]}"#,
            r#"{"type":"STATE_SNAPSHOT","snapshot":{"message":1}}"#,
            r#"{"type":"MESSAGES_SNAPSHOT","messages":[]}"#,
            r#"{"type":"SOMETHING_NEW","content":{"a":1},"usage":"much"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""}"#,
            r#"{"type":"REASONING_MESSAGE_CONTENT","messageId":"m","delta":""}"#,
        ];
        for line in lines {
            assert_eq!(decode(line).expect(line), None, "{line}");
        }
    }

    #[test]
    fn errors_of_malformed_lines_do_not_repeat_them() {
        let lines = [
            "secret",
            "\"secret\"",
            "[\"secret\"]",
            "{\"type\":\"secret",
            "{}",
            r#"{"type":7,"delta":"secret"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","delta":"secret"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":["secret"]}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","messageId":"n","delta":"secret"}"#,
            r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"secret"} secret"#,
            r#"{"type":"TOOL_CALL_START","toolCallId":"secret"}"#,
            r#"{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":{"secret":1}}"#,
            r#"{"type":"RUN_ERROR","code":"secret"}"#,
            "{\"type\":\"CUSTOM\",\"name\":\"secret\",\"value\":{\"a\":secret}}",
        ];
        for line in lines {
            let failure = decode(line).expect_err(line);
            assert_eq!(failure.kind(), AgentErrorKind::Failed, "{line}");
            assert!(!format!("{failure} {failure:?}").contains("secret"), "{failure:?}");
            assert!(failure.source().is_some(), "{line}");
        }
        let deep = format!(r#"{{"type":"CUSTOM","name":"n","value":{}"#, "[".repeat(100_000));
        assert!(decode(&deep).is_err());
        assert!(EventDecoder::new().decode(b"{\"type\":\"\xff\"}").is_err());
    }

    #[test]
    fn open_members_are_read_leniently() {
        let cases = [
            (
                r#"{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","metadata":{"trace":"x"},
                    "content":[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"text","text":"b"}]}"#,
                Event::ToolCallResult {
                    message_id: "m".into(),
                    tool_call_id: "c".into(),
                    content: "ab".into(),
                    role: ToolRole::Tool,
                    metadata: None,
                },
            ),
            (
                r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":"done","outcome":{"type":"success"},
                    "usage":null,"timestamp":1}"#,
                Event::RunFinished {
                    thread_id: "t".into(),
                    run_id: "r".into(),
                    result: None,
                    outcome: None,
                    usage: vec![],
                },
            ),
            (
                r#"{"type":"RUN_ERROR","message":"no"}"#,
                Event::RunError { message: "no".into(), code: "BACKEND_FAILED".into(), usage: vec![] },
            ),
            (
                r#"{"type":"CUSTOM","name":"n","value":null}"#,
                Event::Custom { name: "n".into(), value: serde_json::Value::Null },
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(decode(line).expect(line), Some(expected));
        }
    }

    #[test]
    fn usage_is_read_as_far_as_it_is_understood() {
        let usage = |json: &str| {
            let line = format!(r#"{{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":{json}}}"#);
            match decode(&line).expect("the run has finished") {
                Some(Event::RunFinished { usage, .. }) => usage,
                other => panic!("{other:?}"),
            }
        };
        let counts = |input, output| Usage {
            model: Some("m".into()),
            input_tokens: input,
            output_tokens: output,
            ..Usage::default()
        };
        for (json, expected) in [
            (r#"[{"model":"m","inputTokens":9,"outputTokens":2}]"#, vec![counts(Some(9), Some(2))]),
            (r#"[{"model":"m","inputTokens":9.0,"outputTokens":-1}]"#, vec![counts(Some(9), None)]),
            (r#"{"model":"m","inputTokens":"9","outputTokens":2}"#, vec![counts(None, Some(2))]),
            (r#"[{"total":11},7,null]"#, vec![]),
            ("[]", vec![]),
            ("null", vec![]),
            ("11", vec![]),
        ] {
            assert_eq!(usage(json), expected, "{json}");
        }
    }

    #[test]
    fn the_pieces_of_a_message_share_its_identifier() {
        let mut decoder = EventDecoder::new();
        let mut id = |line: &str| match decoder.decode(line.as_bytes()) {
            Ok(Some(Event::TextMessageContent { message_id, .. })) => message_id,
            other => panic!("{other:?}"),
        };
        let first = id(r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}"#);
        let second = id(r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"b"}"#);
        let third = id(r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"n","delta":"c"}"#);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(&*third, "n");
    }
}
