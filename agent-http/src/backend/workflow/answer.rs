//! An answer that came in one piece: JSON of many shapes, or text.
//!
//! What the last node of a workflow gives is sent as it is, so the shapes are those of n8n's nodes: an agent's
//! `{"output": …}`, a chain's `{"text": …}` or `{"response": …}`, a model's `{"message": {"content": …}}`,
//! one of them or a list of them, with or without the `json` and `data` that wrap items. JSON that has none
//! of these fields is not shown: a workflow that ends at its trigger echoes the whole request, credentials
//! included.

use agent_core::error::Failure;
use serde_json::{Map, Value};

use super::{Announced, failure};

/// Where an answer is looked for, in this order, and what stands between the texts of a list there.
const FIELDS: [(&str, &str); 8] = [
    ("output", PARAGRAPHS),
    ("text", PARAGRAPHS),
    ("response", PARAGRAPHS),
    ("message", PARAGRAPHS),
    ("content", PIECES),
    ("parts", PIECES),
    ("data", PARAGRAPHS),
    ("json", PARAGRAPHS),
];
const PARAGRAPHS: &str = "\n\n";
const PIECES: &str = "";

/// What n8n says, in several versions, in place of an answer that it does not wait for.
const STARTED: [&str; 3] = ["Workflow was started", "Workflow got started", "Webhook call received"];
/// What n8n says where there was nothing to give.
const NOTHING: [&str; 2] = [
    "Workflow executed successfully but no data was returned",
    "Workflow executed successfully but the last node did not return any data",
];
/// How pages begin that nobody's last node has written.
const PAGES: [&[u8]; 4] = [b"<!doctype", b"<html", b"<head", b"<body"];

/// The text of an answer.
///
/// # Errors
/// `Failed` where it says nothing, is an error or the notice that the workflow was started, or has no text
/// in any place that is known.
pub(super) fn text(body: &[u8], announced: Announced) -> Result<String, Failure> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
    let text = match serde_json::from_slice(body) {
        Ok(Value::String(text)) => said(text)?,
        Ok(value) => match find(&value, PARAGRAPHS)? {
            Some(text) => text,
            None if is_hollow(&value) => return Err(failure::empty()),
            None if announced == Announced::Text => plain(body)?,
            None => return Err(failure::no_answer()),
        },
        Err(error) if announced == Announced::Json && matches!(body.first(), Some(b'{' | b'[' | b'"')) => {
            return Err(failure::bad_json(&error));
        }
        Err(_) => plain(body)?,
    };
    if text.trim().is_empty() { Err(failure::empty()) } else { Ok(text) }
}

fn plain(body: &[u8]) -> Result<String, Failure> {
    let begins = |page: &&[u8]| body.get(..page.len()).is_some_and(|start| start.eq_ignore_ascii_case(page));
    if PAGES.iter().any(begins) {
        return Err(failure::web_page());
    }
    let text = std::str::from_utf8(body).map_err(|_| failure::unreadable("it is not UTF-8"))?;
    said(text.to_owned())
}

/// The text, unless it is one of the engine's own notices.
fn said(text: String) -> Result<String, Failure> {
    let is_one_of = |notices: &[&str]| {
        let said = text.trim().trim_end_matches('.');
        notices.iter().any(|notice| said.eq_ignore_ascii_case(notice))
    };
    match () {
        () if is_one_of(&STARTED) => Err(failure::started()),
        () if is_one_of(&NOTHING) => Err(failure::empty()),
        () => Ok(text),
    }
}

/// The text in a value, if it is in any place that is known.
fn find(value: &Value, between: &str) -> Result<Option<String>, Failure> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(items) => {
            let found: Result<Vec<_>, _> = items.iter().map(|item| find(item, between)).collect();
            let texts: Vec<_> = found?.into_iter().flatten().collect();
            Ok((!texts.is_empty()).then(|| texts.join(between)))
        }
        Value::Object(object) => find_in(object),
    }
}

fn find_in(object: &Map<String, Value>) -> Result<Option<String>, Failure> {
    if object.get("executionStarted") == Some(&Value::Bool(true)) {
        return Err(failure::started());
    }
    if is_error(object) {
        return Err(failure::reported());
    }
    for (name, between) in FIELDS {
        let Some(value) = object.get(name) else { continue };
        let found = match find(value, between)? {
            Some(text) if name == "message" => Some(said(text)?),
            // An output that a parser has given a structure of its own.
            None if name == "output" && !is_hollow(value) => Some(value.to_string()),
            found => found,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    if object.get("error").is_some_and(|error| !is_hollow(error)) {
        return Err(failure::reported());
    }
    Ok(None)
}

/// Whether it is the form of n8n's own errors.
fn is_error(object: &Map<String, Value>) -> bool {
    object.get("code").is_some_and(Value::is_number)
        && object.get("message").is_some_and(Value::is_string)
        && !["output", "text", "response"].iter().any(|name| object.contains_key(*name))
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_hollow),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
