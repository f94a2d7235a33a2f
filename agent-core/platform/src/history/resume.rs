//! Decisions about tool calls in a chat request: AG-UI's `resume`, and the parts with which the AI SDK answers requests
//! for approval.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::ObjectFields;
use super::sources::FieldSources;
use super::{FieldError, MAX_MESSAGES};
use crate::conversation::{MAX_REASON_CHARS, Verdict};
use crate::exact_object::ExactObject;

/// Maximum number of decisions.
const MAX_ENTRIES: usize = 64;
/// Maximum length of an interrupt's id, in bytes.
const MAX_INTERRUPT_ID_BYTES: usize = 512;

/// Decision about an interrupt.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeEntry {
    /// Id of the interrupt.
    pub interrupt_id: String,
    /// The decision.
    pub verdict: Verdict,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryBody {
    interrupt_id: String,
    status: Status,
    #[serde(default)]
    payload: Option<Payload>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Resolved,
    Cancelled,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Payload {
    Flag(bool),
    #[serde(rename_all = "camelCase")]
    Answer {
        approved: bool,
        #[serde(default)]
        edited_args: Option<Map<String, Value>>,
        #[serde(default)]
        reason: Option<String>,
    },
}

/// Answer of the AI SDK to a request for approval.
#[derive(Deserialize)]
struct Answer {
    id: String,
    approved: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// Reads the decisions.
///
/// # Errors
/// The first invalid entry of `resume`. Parts that do not answer a request for approval are not examined.
pub(super) fn read(sources: &FieldSources<'_>) -> Result<Vec<ResumeEntry>, FieldError> {
    let Some((path, value)) = sources.get("resume") else { return parts(sources) };
    let Value::Array(entries) = Value::from(value) else {
        return Err(FieldError::new(path, "must be a list"));
    };
    if entries.len() > MAX_ENTRIES {
        return Err(FieldError::new(path, format!("has more than {MAX_ENTRIES} elements")));
    }
    let read = entries.into_iter().enumerate().map(|(index, entry)| {
        let wrong = |problem| FieldError::new(format!("{path}[{index}]"), problem);
        let entry: EntryBody = serde_json::from_value(entry).map_err(|_| {
            wrong(
                "must have interruptId, a status that is resolved or cancelled, and a payload with approved",
            )
        })?;
        if entry.interrupt_id.len() > MAX_INTERRUPT_ID_BYTES {
            return Err(wrong("has an interruptId that is too long"));
        }
        let verdict = match (entry.status, entry.payload) {
            (Status::Cancelled, _) => Verdict::Cancel,
            (Status::Resolved, None) => return Err(wrong("needs a payload with approved")),
            (Status::Resolved, Some(Payload::Flag(approved))) => verdict(approved, None, None),
            (Status::Resolved, Some(Payload::Answer { approved, edited_args, reason })) => {
                verdict(approved, edited_args, reason)
            }
        };
        Ok(ResumeEntry { interrupt_id: entry.interrupt_id, verdict })
    });
    read.collect()
}

fn verdict(approved: bool, arguments: Option<Map<String, Value>>, reason: Option<String>) -> Verdict {
    match approved {
        true => Verdict::Approve { arguments: arguments.map(ExactObject::from) },
        false => {
            let reason = reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect());
            Verdict::Deny { reason }
        }
    }
}

/// Returns the answers to requests for approval in the last message of the AI SDK.
fn parts(sources: &FieldSources<'_>) -> Result<Vec<ResumeEntry>, FieldError> {
    let messages = sources.body.list("messages", MAX_MESSAGES)?;
    let last = messages.and_then(<[_]>::last).and_then(|message| ObjectFields::from_value(message).ok());
    let parts = last.and_then(|message| message.list("parts", usize::MAX).ok()).flatten().unwrap_or_default();
    // Only the answers are copied: other parts may be large files.
    let answer = |part| {
        let part = ObjectFields::from_value(part).ok()?;
        let is_answer = part.text("state").is_ok_and(|state| state == Some("approval-responded"));
        let answer = part.get("approval").filter(|_| is_answer)?;
        let Answer { id, approved, reason } = serde_json::from_value(Value::from(answer)).ok()?;
        Some(ResumeEntry { interrupt_id: id, verdict: verdict(approved, None, reason) })
    };
    Ok(parts.iter().filter_map(answer).take(MAX_ENTRIES).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{JsonBody, read};
    use super::*;

    fn entries(body: &Value) -> Result<Vec<ResumeEntry>, FieldError> {
        let text = body.to_string();
        let body = JsonBody::parse(text.as_bytes(), 64).expect("JSON");
        let input = read(&body, std::iter::empty::<(&str, &str)>()).expect("it may be right");
        input.thread_fields().map(|fields| fields.resume.clone())
    }

    #[test]
    fn decisions_are_read_from_both_forms() {
        let entry = |payload: Value| json!({"interruptId": "i", "status": "resolved", "payload": payload});
        let edited = json!({"to": "eve"});
        let arguments = edited.as_object().cloned().map(ExactObject::from);
        for (request_json, expected) in [
            (entry(json!(true)), Verdict::Approve { arguments: None }),
            (entry(json!({"approved": true, "editedArgs": edited})), Verdict::Approve { arguments }),
            (entry(json!(false)), Verdict::Deny { reason: None }),
            (
                entry(json!({"approved": false, "reason": "no"})),
                Verdict::Deny { reason: Some("no".to_owned()) },
            ),
            (json!({"interruptId": "i", "status": "cancelled"}), Verdict::Cancel),
        ] {
            let read = entries(&json!({"messages": [], "resume": [request_json]})).expect("valid input");
            assert_eq!(read, [ResumeEntry { interrupt_id: "i".to_owned(), verdict: expected }]);
        }
        let part = |state: &str| {
            json!({"type": "tool-send", "toolCallId": "c", "state": state, "input": {},
                "approval": {"id": "i", "approved": true}})
        };
        let messages = json!([{"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]},
            {"id": "a", "role": "assistant", "parts": [part("approval-responded"), part("approval-requested")]}]);
        let read = entries(&json!({"messages": messages})).expect("valid input");
        let verdict = Verdict::Approve { arguments: None };
        assert_eq!(read, [ResumeEntry { interrupt_id: "i".to_owned(), verdict }]);
    }

    #[test]
    fn an_invalid_decision_is_named() {
        for decision_json in
            [json!({}), json!({"interruptId": "i", "status": "resolved"}), json!([]), json!("i")]
        {
            let fault =
                entries(&json!({"message": "x", "resume": [decision_json]})).expect_err("it is wrong");
            assert_eq!(fault.path, "resume[0]");
        }
        assert_eq!(entries(&json!({"message": "x", "resume": {}})).expect_err("it is wrong").path, "resume");
    }
}
