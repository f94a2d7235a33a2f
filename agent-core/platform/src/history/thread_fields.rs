//! Fields of a chat request that concern its thread.

use std::borrow::Cow;

use agent_core::message::Message;
use agent_core::role::{OnBusy, OnDisconnect};
use serde_json::{Map, Value};

use super::json::{self, check_single_line};
use super::resume::{self, ResumeEntry};
use super::sources::{FieldSources, is_of_ai_sdk};
use super::{FieldError, MAX_ID_BYTES, MAX_LIST_ITEMS, MAX_MESSAGES};
use crate::conversation::{MAX_METADATA_BYTES, MAX_TITLE_CHARS, ParentChoice, RequestFormat, UiTrigger};

/// Fields of a chat request that concern its thread. They have no effect on a run that is not stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadFields {
    /// Field `store`: true to store the run, false not to store it.
    pub store: Option<bool>,
    /// Field `history`.
    pub history: HistorySource,
    /// Field `parentId`.
    pub parent: ParentChoice,
    /// Format of the request, with the AI SDK's `trigger` and `messageId`.
    pub format: RequestFormat,
    /// Title of a thread that the request creates.
    pub title: Option<String>,
    /// Metadata of a thread that the request creates.
    pub metadata: Map<String, Value>,
    /// Field `onDisconnect`.
    pub on_disconnect: Option<OnDisconnect>,
    /// Field `graceMs`: time without a client after which the run is cancelled.
    pub grace_ms: Option<u32>,
    /// Field `onBusy`.
    pub on_busy: Option<OnBusy>,
    /// Results of tool calls that the request's messages do not have: a client may send them alone.
    pub results: Vec<Message>,
    /// True if the request's messages end with such a result.
    pub ends_with_results: bool,
    /// Field `resume`, or the answers to approvals in the AI SDK's last message.
    pub resume: Vec<ResumeEntry>,
    /// Field `background`: the request is answered at once, and the run continues without a client.
    pub is_background: bool,
}

/// Maximum of `graceMs`: ten minutes.
pub const MAX_GRACE_MS: u32 = 600_000;

/// Source of the prompt's history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HistorySource {
    /// The stored path.
    #[default]
    Server,
    /// The request's messages.
    Client,
}

impl ThreadFields {
    /// Returns true if a request with these fields needs no message: it asks for another answer.
    pub(super) fn allows_no_message(&self) -> bool {
        let is_regeneration =
            matches!(&self.format, RequestFormat::UiMessages { trigger: UiTrigger::Regenerate, .. });
        is_regeneration || matches!(self.parent, ParentChoice::Node(_)) || !self.resume.is_empty()
    }
}

/// Reads the fields.
///
/// # Errors
/// The first invalid field, or one with a value that the server does not support.
pub(super) fn read(sources: &FieldSources<'_>) -> Result<ThreadFields, FieldError> {
    Ok(ThreadFields {
        store: flag(sources, "store")?,
        history: match word(sources, "history")?.as_deref() {
            None | Some("server") => HistorySource::Server,
            Some("client") => HistorySource::Client,
            Some(_) => return Err(FieldError::new("history", "must be server or client")),
        },
        parent: parent(sources)?,
        format: request_format(sources)?,
        title: title(sources)?,
        metadata: metadata(sources)?,
        on_disconnect: match word(sources, "onDisconnect")?.as_deref() {
            None => None,
            Some("cancel") => Some(OnDisconnect::Cancel),
            Some("continue") => Some(OnDisconnect::Continue),
            Some(_) => return Err(FieldError::new("onDisconnect", "must be cancel or continue")),
        },
        grace_ms: grace_ms(sources)?,
        on_busy: match word(sources, "onBusy")?.as_deref() {
            None => None,
            Some("reject") => Some(OnBusy::Reject),
            Some("interrupt") => Some(OnBusy::Interrupt),
            Some("queue") => Some(OnBusy::Queue),
            Some(_) => return Err(FieldError::new("onBusy", "must be reject, interrupt or queue")),
        },
        results: Vec::new(),
        ends_with_results: false,
        resume: resume::read(sources)?,
        is_background: flag(sources, "background")?.unwrap_or_default(),
    })
}

/// Reads `store`, for a request with another invalid field.
pub(super) fn store_alone(sources: &FieldSources<'_>) -> ThreadFields {
    ThreadFields { store: flag(sources, "store").unwrap_or_default(), ..ThreadFields::default() }
}

fn grace_ms(sources: &FieldSources<'_>) -> Result<Option<u32>, FieldError> {
    let wrong = |path| FieldError::new(path, format!("must be a whole number up to {MAX_GRACE_MS}"));
    let parsed = match (sources.get("graceMs"), sources.query_word("graceMs")) {
        (Some((path, value)), _) => Some((path, value.as_u64())),
        (None, Some(text)) => Some((Cow::Borrowed("graceMs"), text.parse().ok())),
        (None, None) => None,
    };
    let Some((path, number)) = parsed else { return Ok(None) };
    let number = number.and_then(|number| u32::try_from(number).ok()).filter(|grace| *grace <= MAX_GRACE_MS);
    number.map(Some).ok_or_else(|| wrong(path))
}

/// Returns a word or an identifier from the body, `forwardedProps` or the query.
fn word(sources: &FieldSources<'_>, name: &'static str) -> Result<Option<String>, FieldError> {
    let found = match sources.get(name) {
        Some((path, json::Value::Str(text))) => Some((path, Cow::Borrowed(text.as_ref()))),
        Some((path, _)) => return Err(FieldError::new(path, "must be a string")),
        None => sources.query_word(name).map(|text| (Cow::Borrowed(name), Cow::Borrowed(text))),
    };
    let Some((path, text)) = found.filter(|(_, text)| !text.is_empty()) else { return Ok(None) };
    check_single_line(&text, MAX_ID_BYTES).map_err(|fault| fault.with_parent_path(&path))?;
    Ok(Some(text.into_owned()))
}

fn flag(sources: &FieldSources<'_>, name: &'static str) -> Result<Option<bool>, FieldError> {
    match sources.get(name) {
        Some((_, json::Value::Bool(flag))) => Ok(Some(*flag)),
        Some((path, _)) => Err(FieldError::new(path, "must be true or false")),
        None => match sources.query_word(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(FieldError::new(name, "must be true or false")),
        },
    }
}

/// Returns `parentId`, whose `null` is a new root.
fn parent(sources: &FieldSources<'_>) -> Result<ParentChoice, FieldError> {
    if sources.is_null("parentId") {
        return Ok(ParentChoice::Root);
    }
    let id = word(sources, "parentId")?;
    Ok(id.map_or(ParentChoice::Unspecified, |id| ParentChoice::Node(id.into())))
}

fn title(sources: &FieldSources<'_>) -> Result<Option<String>, FieldError> {
    match sources.get("title") {
        None => Ok(None),
        Some((path, json::Value::Str(text))) if text.contains('\0') => {
            Err(FieldError::new(path, "has a NUL character"))
        }
        Some((path, json::Value::Str(text))) => match text.chars().nth(MAX_TITLE_CHARS) {
            Some(_) => Err(FieldError::new(path, "has more than 200 characters")),
            None => Ok(Some(text.clone().into_owned()).filter(|text| !text.is_empty())),
        },
        Some((path, _)) => Err(FieldError::new(path, "must be a string")),
    }
}

pub(super) fn metadata(sources: &FieldSources<'_>) -> Result<Map<String, Value>, FieldError> {
    match sources.get("metadata").map(|(path, value)| (path, Value::from(value))) {
        None => Ok(Map::new()),
        Some((path, Value::Object(metadata))) => match json_bytes(&metadata) > MAX_METADATA_BYTES {
            true => Err(FieldError::new(path, "has more than 16 KiB")),
            false => Ok(metadata),
        },
        Some((path, _)) => Err(FieldError::new(path, "must be an object")),
    }
}

fn json_bytes(metadata: &Map<String, Value>) -> usize {
    serde_json::to_vec(metadata).map_or(usize::MAX, |json| json.len())
}

/// Detects the format of the request.
fn request_format(sources: &FieldSources<'_>) -> Result<RequestFormat, FieldError> {
    if is_of_ai_sdk(sources)? || sources.query_word("trigger").is_some() {
        let trigger = match word(sources, "trigger")?.as_deref() {
            Some("regenerate-message") => UiTrigger::Regenerate,
            // Other values belong to other applications.
            _ => UiTrigger::Submit,
        };
        return Ok(RequestFormat::UiMessages { trigger, message_id: word(sources, "messageId")? });
    }
    let has_list = sources.body.list("messages", MAX_MESSAGES)?.is_some_and(|list| !list.is_empty());
    if !has_list {
        return Ok(RequestFormat::Message);
    }
    let is_list = |name: &str| sources.body.list(name, MAX_LIST_ITEMS).is_ok_and(|list| list.is_some());
    let has_ids = sources.body.has("threadId") && sources.body.has("runId");
    match has_ids && is_list("tools") && is_list("context") {
        true => Ok(RequestFormat::AgUi),
        false => Ok(RequestFormat::Messages),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ChatInput, JsonBody, read};
    use super::*;

    fn input(body: &Value, query: &[(&str, &str)]) -> Result<ChatInput, FieldError> {
        let text = body.to_string();
        let body = JsonBody::parse(text.as_bytes(), 64).expect("JSON");
        read(&body, query.iter().copied())
    }

    fn fields(body: &Value) -> ThreadFields {
        input(body, &[]).expect("valid input").thread_fields().expect("valid fields").clone()
    }

    #[test]
    fn the_request_format_is_detected_by_its_fields() {
        let user = json!({"role": "user", "content": "Hello"});
        let ui = json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hello"}]});
        let of_ui = |trigger, message_id: Option<&str>| RequestFormat::UiMessages {
            trigger,
            message_id: message_id.map(str::to_owned),
        };
        let ag_ui = json!({"threadId": "t", "runId": "r", "messages": [user], "tools": [], "context": [],
            "forwardedProps": {}});
        for (body, expected) in [
            (json!({"message": "Hello"}), RequestFormat::Message),
            (json!({"message": user, "messages": []}), RequestFormat::Message),
            (json!({"messages": [user]}), RequestFormat::Messages),
            (json!({"messages": [user], "threadId": "t", "runId": "r"}), RequestFormat::Messages),
            (ag_ui, RequestFormat::AgUi),
            (json!({"messages": [ui]}), of_ui(UiTrigger::Submit, None)),
            (json!({"message": ui}), of_ui(UiTrigger::Submit, None)),
            (
                json!({"messages": [ui], "trigger": "regenerate-message", "messageId": "m"}),
                of_ui(UiTrigger::Regenerate, Some("m")),
            ),
            (json!({"messages": [user], "trigger": "other"}), of_ui(UiTrigger::Submit, None)),
        ] {
            assert_eq!(fields(&body).format, expected, "{body}");
        }
    }

    #[test]
    fn fields_may_stand_in_three_places() {
        let expected = ThreadFields {
            store: Some(false),
            history: HistorySource::Client,
            parent: ParentChoice::Node("n".into()),
            format: RequestFormat::Message,
            ..ThreadFields::default()
        };
        let request_fields = json!({"store": false, "history": "client", "parentId": "n"});
        let mut body = request_fields.clone();
        body["message"] = json!("Hello");
        assert_eq!(fields(&body), expected);
        assert_eq!(fields(&json!({"message": "Hello", "forwardedProps": request_fields})), expected);
        let query = [("store", "false"), ("history", "client"), ("parentId", "n")];
        let read = input(&json!({"message": "Hello"}), &query).expect("valid input");
        assert_eq!(read.thread_fields(), Ok(&expected));
        assert_eq!(fields(&json!({"message": "Hello", "parentId": null})).parent, ParentChoice::Root);
        let forwarded = json!({"message": "Hello", "forwardedProps": {"parentId": null}});
        assert_eq!(fields(&forwarded).parent, ParentChoice::Root);
    }

    #[test]
    fn the_course_of_a_run_is_read() {
        let request_fields = json!({"onDisconnect": "continue", "graceMs": 600_000, "onBusy": "interrupt", "background": true});
        let expected = ThreadFields {
            on_disconnect: Some(OnDisconnect::Continue),
            grace_ms: Some(600_000),
            on_busy: Some(OnBusy::Interrupt),
            is_background: true,
            format: RequestFormat::Message,
            ..ThreadFields::default()
        };
        assert_eq!(fields(&json!({"message": "Hello", "forwardedProps": request_fields})), expected);
        let query = [
            ("onDisconnect", "continue"),
            ("graceMs", "600000"),
            ("onBusy", "interrupt"),
            ("background", "true"),
        ];
        let read = input(&json!({"message": "Hello"}), &query).expect("valid input");
        assert_eq!(read.thread_fields(), Ok(&expected));
    }

    #[test]
    fn an_invalid_field_is_reported_if_requested() {
        for (name, value) in [
            ("store", json!("yes")),
            ("history", json!("both")),
            ("parentId", json!(5)),
            ("parentId", json!("a\nb")),
            ("title", json!("x".repeat(201))),
            ("metadata", json!([])),
            ("metadata", json!({"x": "y".repeat(17_000)})),
            ("title", json!("a\0b")),
            ("onBusy", json!(true)),
            ("graceMs", json!(-1)),
            ("graceMs", json!(1.5)),
            ("graceMs", json!(600_001)),
            ("background", json!("yes")),
            ("onDisconnect", json!("stop")),
        ] {
            let mut body = json!({"message": "Hello"});
            body[name] = value;
            let read = input(&body, &[]).expect("the message is right");
            assert_eq!(read.thread_fields().expect_err(name).path, name);
            assert!(!read.asks_for_storage(), "{name}");
            if name != "store" {
                body["store"] = json!(true);
                let read = input(&body, &[]).expect("the message is right");
                assert_eq!(read.thread_fields().expect_err(name).path, name);
                assert!(read.asks_for_storage(), "{name}");
            }
        }
    }

    #[test]
    fn only_another_answer_needs_no_message() {
        for body in [
            json!({"trigger": "regenerate-message", "messageId": "m"}),
            json!({"parentId": "n"}),
            json!({"parentId": "n", "messages": [{"role": "assistant", "content": "Hello"}]}),
        ] {
            let read = input(&body, &[]).expect("it may be right");
            assert!(read.reject_missing_message().is_err(), "{body}");
        }
        for body in [json!({}), json!({"trigger": "submit-message"}), json!({"parentId": null})] {
            assert!(input(&body, &[]).is_err(), "{body}");
        }
        let read = input(&json!({"message": "Hello", "parentId": "n"}), &[]).expect("valid input");
        assert_eq!(read.reject_missing_message(), Ok(()));
    }
}
