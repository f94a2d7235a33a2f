//! Parser of a non-streamed answer: JSON of many shapes, or text.
//!
//! n8n returns the output of a workflow's last node unchanged, so the shapes are those of n8n's nodes: an agent's
//! `{"output": …}`, a chain's `{"text": …}` or `{"response": …}`, a model's `{"message": {"content": …}}`, one of them
//! or a list of them, with or without the `json` and `data` wrappers of items. JSON without any of these fields is not
//! shown: a workflow that ends at its trigger echoes the whole request, credentials included.

use agent_core::error::AgentError;
use serde_json::{Map, Value};

use super::error;

/// Fields searched for the answer, in this order, with the separator that joins texts of a list in that field.
const ANSWER_FIELDS: [(&str, &str); 8] = [
    ("output", PARAGRAPH_SEPARATOR),
    ("text", PARAGRAPH_SEPARATOR),
    ("response", PARAGRAPH_SEPARATOR),
    ("message", PARAGRAPH_SEPARATOR),
    ("content", NO_SEPARATOR),
    ("parts", NO_SEPARATOR),
    ("data", PARAGRAPH_SEPARATOR),
    ("json", PARAGRAPH_SEPARATOR),
];
const PARAGRAPH_SEPARATOR: &str = "\n\n";
const NO_SEPARATOR: &str = "";

/// n8n's messages, in several versions, for a workflow that it does not wait for.
const STARTED_NOTICES: [&str; 3] = ["Workflow was started", "Workflow got started", "Webhook call received"];
/// n8n's messages for a workflow without output.
const NO_DATA_NOTICES: [&str; 2] = [
    "Workflow executed successfully but no data was returned",
    "Workflow executed successfully but the last node did not return any data",
];
/// Prefixes of HTML pages, which are not answers of a workflow.
const HTML_PREFIXES: [&[u8]; 4] = [b"<!doctype", b"<html", b"<head", b"<body"];

/// Extracts the text of an answer.
///
/// # Errors
/// `Failed` if the answer is empty, an error, or the notice that the workflow was started, or has no text in any known
/// field.
pub(super) fn extract_text(body: &[u8], declared_format: AnswerFormat) -> Result<String, AgentError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
    let text = match serde_json::from_slice(body) {
        Ok(Value::String(text)) => reject_engine_notices(text)?,
        Ok(value) => match find_text(&value, PARAGRAPH_SEPARATOR)? {
            Some(text) => text,
            None if is_empty_value(&value) => return Err(error::empty()),
            None if declared_format == AnswerFormat::Text => plain(body)?,
            None => return Err(error::no_answer()),
        },
        Err(error)
            if declared_format == AnswerFormat::Json && matches!(body.first(), Some(b'{' | b'[' | b'"')) =>
        {
            return Err(error::bad_json(&error));
        }
        Err(_) => plain(body)?,
    };
    if text.trim().is_empty() { Err(error::empty()) } else { Ok(text) }
}

fn plain(body: &[u8]) -> Result<String, AgentError> {
    let is_prefix = |prefix: &&[u8]| {
        body.get(..prefix.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
    };
    if HTML_PREFIXES.iter().any(is_prefix) {
        return Err(error::web_page());
    }
    let text = std::str::from_utf8(body).map_err(|_| error::unreadable("it is not UTF-8"))?;
    reject_engine_notices(text.to_owned())
}

/// Returns the text, unless it is one of the engine's own notices.
fn reject_engine_notices(text: String) -> Result<String, AgentError> {
    let is_one_of = |notices: &[&str]| {
        let message = text.trim().trim_end_matches('.');
        notices.iter().any(|notice| message.eq_ignore_ascii_case(notice))
    };
    match () {
        () if is_one_of(&STARTED_NOTICES) => Err(error::started()),
        () if is_one_of(&NO_DATA_NOTICES) => Err(error::empty()),
        () => Ok(text),
    }
}

/// Finds the text in a value, if it is in any known field.
fn find_text(value: &Value, separator: &str) -> Result<Option<String>, AgentError> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(items) => {
            let texts: Result<Vec<_>, _> = items.iter().map(|item| find_text(item, separator)).collect();
            let texts: Vec<_> = texts?.into_iter().flatten().collect();
            Ok((!texts.is_empty()).then(|| texts.join(separator)))
        }
        Value::Object(object) => find_in(object),
    }
}

fn find_in(object: &Map<String, Value>) -> Result<Option<String>, AgentError> {
    if object.get("executionStarted") == Some(&Value::Bool(true)) {
        return Err(error::started());
    }
    if is_error(object) {
        return Err(error::reported());
    }
    for (name, separator) in ANSWER_FIELDS {
        let Some(value) = object.get(name) else { continue };
        let text = match find_text(value, separator)? {
            Some(text) if name == "message" => Some(reject_engine_notices(text)?),
            // An output that an output parser has structured.
            None if name == "output" && !is_empty_value(value) => Some(value.to_string()),
            text => text,
        };
        if text.is_some() {
            return Ok(text);
        }
    }
    if object.get("error").is_some_and(|error| !is_empty_value(error)) {
        return Err(error::reported());
    }
    Ok(None)
}

/// Returns true if the object has the shape of n8n's own errors.
fn is_error(object: &Map<String, Value>) -> bool {
    object.get("code").is_some_and(Value::is_number)
        && object.get("message").is_some_and(Value::is_string)
        && !["output", "text", "response"].iter().any(|name| object.contains_key(*name))
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty_value),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Form of the answer according to its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerFormat {
    /// JSON: a single value or NDJSON.
    Json,
    /// Text, which may still contain JSON.
    Text,
}

impl AnswerFormat {
    pub(super) fn from_media_type(media_type: &str) -> Result<Self, AgentError> {
        match media_type.split_once('/') {
            Some(("text", "event-stream")) => Err(error::unreadable("server-sent events")),
            None | Some(("text", _)) => Ok(Self::Text),
            Some((_, subtype)) if subtype.contains("json") => Ok(Self::Json),
            Some(_) => Err(error::unreadable("neither text nor JSON")),
        }
    }
}
