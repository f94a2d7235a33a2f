//! Tests of the bodies of chat requests: formats, validation and repaired conversations.

use agent_core::message::{Content, ContentPart, MediaSource};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::repair::{MISSING_TOOL_RESULT, repair};
use super::*;

mod formats;
mod repairs;
mod runtime_bodies;
mod validation;

const NO_QUERY: [(&str, &str); 0] = [];

fn chat(body: &Value) -> Result<ChatInput, FieldError> {
    let body = body.to_string();
    read(&JsonBody::parse(body.as_bytes(), 64)?, NO_QUERY)
}

/// Formats one line per message: the role, the content and the tool calls.
fn shape(messages: &[Arc<Message>]) -> String {
    messages.iter().map(|message| format!("{}\n", line(message))).collect()
}

fn line(message: &Message) -> String {
    let mut line = format!("{:?}", message.role).to_lowercase();
    if let Some(id) = &message.tool_call_id {
        line += &format!("({id})");
    }
    match &message.content {
        Content::Text(text) => line += &format!(" {text:?}"),
        Content::Parts(parts) => line.extend(parts.iter().map(part)),
    }
    for call in &message.tool_calls {
        line += &format!(" {}={}{}", call.id, call.function.name, call.function.arguments);
    }
    line
}

fn part(part: &ContentPart) -> String {
    let (kind, source) = match part {
        ContentPart::Text { text } => return format!(" {text:?}"),
        ContentPart::Image { source } => ("image", source),
        ContentPart::Audio { source } => ("audio", source),
        ContentPart::Video { source } => ("video", source),
        ContentPart::Document { source } => ("document", source),
    };
    match source {
        MediaSource::Data { value, mime_type } => format!(" {kind}<{mime_type}:{value}>"),
        MediaSource::Url { value, mime_type } => {
            format!(" {kind}<{value} {}>", mime_type.as_deref().unwrap_or("?"))
        }
    }
}

fn check(messages: Value, expected: Expect) {
    let chat = chat(&json!({ "messages": messages })).expect("a readable conversation");
    expected.assert_eq(&shape(&chat.turn.messages));
}

/// Checks that every body is rejected with the expected path, and that the error does not repeat the value.
fn check_faults(bodies: &[(Value, &str)]) {
    for (body, expected) in bodies {
        let error = chat(body).expect_err(&body.to_string());
        assert_eq!(error.to_string(), *expected, "for {body}");
        assert!(!error.to_string().contains("sk-"), "{error}");
    }
}
