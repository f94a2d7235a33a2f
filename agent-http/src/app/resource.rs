//! Shared code of the management endpoints: paging, validated bodies, and versions as entity tags.

use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, Precondition};
use agent_platform::workspace::WorkspaceFile;
use headers::{ETag, HeaderMapExt, IfMatch, IfNoneMatch};
use http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use http::{HeaderMap, Response, StatusCode, Uri};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer;
use crate::body::{ResponseBody, empty};
use crate::endpoint::LimitedBody;
use crate::error::{Code, HttpError};
use crate::request::{Query, redact_serde_message};
use crate::service::HandlerResult;

/// Maximum number of attempts of a write that conflicts with concurrent writes.
pub(super) const MAX_WRITE_ATTEMPTS: usize = 32;

/// The operations on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    List,
    Get,
    Put,
    Delete,
}

/// Parses the paging parameters.
pub(super) fn page_params(query: &Query<'_>) -> Result<ListQuery, HttpError> {
    let wrong =
        || HttpError::invalid("limit", format_args!("must be a whole number from 1 to {MAX_PAGE_RECORDS}"));
    let limit = |text: &str| {
        text.parse().ok().filter(|limit| (1..=MAX_PAGE_RECORDS).contains(limit)).ok_or_else(wrong)
    };
    Ok(ListQuery {
        limit: query.get("limit")?.map(limit).transpose()?,
        cursor: query.get("cursor")?.map(str::to_owned),
        ..ListQuery::default()
    })
}

/// Reads a body that is a JSON object.
pub(super) async fn read_object(
    headers: &HeaderMap,
    body: LimitedBody,
) -> Result<Map<String, Value>, HttpError> {
    body.read_json(headers).await
}

/// Sets an id in the body. The body may omit it; a different value is rejected with `refuse`.
pub(super) fn set_or_check_id(
    body: &mut Map<String, Value>,
    name: &str,
    id: &str,
    refuse: impl FnOnce() -> HttpError,
) -> Result<(), HttpError> {
    match body.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::String(said)) if said == id => {}
        Some(Value::String(_)) => return Err(refuse()),
        Some(_) => return Err(HttpError::invalid(name, "must be a string")),
    }
    body.insert(name.to_owned(), id.into());
    Ok(())
}

/// Parses and validates a resource as an import does, as the only element of the workspace file's list `list`.
///
/// # Errors
/// 400 that names each invalid field.
pub(super) fn validate_as_import(list: &str, thing: Map<String, Value>) -> Result<WorkspaceFile, HttpError> {
    let text = json!({ list: [thing] }).to_string();
    WorkspaceFile::parse(&text).map_err(|error| {
        // Messages of the deserializer may quote the input, so values are removed from them.
        let has_shape = serde_json::from_str::<WorkspaceFile>(&text).is_ok();
        let root = format!("{list}[0]");
        let told = error.faults.iter().map(|fault| {
            let path = fault.path.strip_prefix(&root).unwrap_or(&fault.path).trim_start_matches('.');
            let path = if path.is_empty() { "the body" } else { path };
            match has_shape {
                true => format!("{path} {}", fault.message),
                false => format!("{path} {}", redact_serde_message(&fault.message)),
            }
        });
        HttpError::new(Code::InvalidRequest, told.collect::<Vec<_>>().join("; "))
    })
}

/// Checks `If-Match` and `If-None-Match` (RFC 9110, section 13) against the current version, and returns the
/// precondition for the write.
///
/// # Errors
/// 412 if a condition is false.
pub(super) fn check_conditions(headers: &HeaderMap, found: Option<u64>) -> Result<Precondition, HttpError> {
    let tag = found.map(entity_tag);
    let holds = |passes: &dyn Fn(&ETag) -> bool, absent: bool| tag.as_ref().map_or(absent, passes);
    let if_match = headers.typed_get::<IfMatch>();
    let if_none_match = headers.typed_get::<IfNoneMatch>();
    let matched = if_match.is_none_or(|condition| holds(&|tag| condition.precondition_passes(tag), false));
    let fresh = if_none_match.is_none_or(|condition| holds(&|tag| condition.precondition_passes(tag), true));
    if matched && fresh {
        return Ok(found.map_or(Precondition::Absent, Precondition::Version));
    }
    let what = if found.is_some() { "it is there at another version" } else { "it is not there" };
    let what = if matched { "it is there already" } else { what };
    Err(HttpError::new(Code::PreconditionFailed, format!("the request's condition does not hold: {what}")))
}

/// Returns 409 for a write that still conflicted after all attempts.
pub(super) fn write_contention() -> HttpError {
    HttpError::conflict("others are changing it at this moment; try again")
}

/// Returns a version's entity tag: the number in quotation marks.
fn entity_tag(version: u64) -> ETag {
    format!("\"{version}\"").parse().expect("digits in quotation marks are an entity tag")
}

/// Returns the response to `GET`: the value and its entity tag, or 304 if `If-None-Match` matches.
pub(super) fn get_response(headers: &HeaderMap, version: u64, value: &impl Serialize) -> HandlerResult {
    let unchanged = headers
        .typed_get::<IfNoneMatch>()
        .is_some_and(|condition| !condition.precondition_passes(&entity_tag(version)));
    if unchanged {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(with_entity_tag(response, version));
    }
    Ok(with_entity_tag(answer::json(StatusCode::OK, value)?, version))
}

/// Returns the response to `PUT`: 201 with `Location`, or 200, and the stored value.
pub(super) fn put_response(uri: &Uri, is_new: bool, version: u64, value: &impl Serialize) -> HandlerResult {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = with_entity_tag(answer::json(status, value)?, version);
    if is_new && let Ok(path) = HeaderValue::from_str(uri.path()) {
        response.headers_mut().insert(LOCATION, path);
    }
    Ok(response)
}

/// Returns a 204 response.
pub(super) fn no_content() -> Response<ResponseBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn with_entity_tag(mut response: Response<ResponseBody>, version: u64) -> Response<ResponseBody> {
    response.headers_mut().typed_insert(entity_tag(version));
    // Only the client may cache it, and revalidates it on each use.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use http::header::{IF_MATCH, IF_NONE_MATCH};

    use super::*;

    #[test]
    fn conditions_follow_the_standard() {
        /// `If-Match`, `If-None-Match`, the current version, and the expected result of the check.
        type Case = (Option<&'static str>, Option<&'static str>, Option<u64>, bool);
        let cases: &[Case] = &[
            (None, None, None, true),
            (None, None, Some(7), true),
            (Some("\"7\""), None, Some(7), true),
            (Some("\"6\", \"7\""), None, Some(7), true),
            (Some("\"6\""), None, Some(7), false),
            // Weak tags never match in `If-Match` (section 13.1.1).
            (Some("W/\"7\""), None, Some(7), false),
            (Some("7"), None, Some(7), false),
            (Some("nonsense"), None, Some(7), false),
            (Some("\"7\""), None, None, false),
            (Some("*"), None, Some(7), true),
            (Some("*"), None, None, false),
            (None, Some("*"), None, true),
            (None, Some("*"), Some(7), false),
            (None, Some("\"7\""), Some(7), false),
            (None, Some("W/\"7\""), Some(7), false),
            (None, Some("\"6\""), Some(7), true),
            (Some("\"7\""), Some("*"), Some(7), false),
        ];
        for (if_match, if_none_match, found, holds) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in [(IF_MATCH, if_match), (IF_NONE_MATCH, if_none_match)] {
                headers.extend(value.map(|value| (name, HeaderValue::from_static(value))));
            }
            let checked = check_conditions(&headers, *found);
            let case = format!("{headers:?} {found:?}");
            match checked {
                Ok(precondition) => {
                    assert!(holds, "{case}");
                    assert!(precondition.check(*found).is_ok(), "{case}");
                }
                Err(error) => {
                    assert!(!holds, "{case}: {error}");
                    assert_eq!(error.code(), Code::PreconditionFailed);
                }
            }
        }
    }

    #[test]
    fn faults_name_the_field_and_not_the_value() {
        for (body, expected) in [
            (json!({}), "the body lacks the field `id`"),
            (json!({"id": "a", "companyId": "c", "content": "sk-1"}), "content must be an object"),
            (json!({"id": "", "companyId": "c"}), "id is empty"),
            (
                json!({"id": "a", "companyId": "c", "content": {"agentServerUrl": ["sk-1"]}}),
                "content.agentServerUrl must be a string",
            ),
            (
                json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI", "content": {"model": {"sk-1": 1}}}]}),
                "children[0].content.model must be a string",
            ),
            (
                json!({"id": "a", "companyId": "c", "content": {"mcpPreset": "sk-1"}}),
                "content.mcpPreset is not a valid value",
            ),
        ] {
            let Value::Object(thing) = body else { panic!("an object") };
            let error = validate_as_import("agents", thing).expect_err("a fault");
            assert_eq!(error.detail(), expected);
        }
    }
}
