//! The generic resource of the management endpoints: paging, validated bodies, versions as entity tags, and writes
//! under conditions.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_platform::json::{objects_only, redact_serde_message};
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, Precondition, Record, StoreError};
use agent_platform::workspace::{WorkspaceFile, WorkspaceFileError};
use async_trait::async_trait;
use headers::{ETag, HeaderMapExt, IfMatch, IfNoneMatch};
use http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use http::{HeaderMap, Response, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{App, response};
use crate::body::{ResponseBody, empty};
use crate::endpoint::{Params, RequestContext};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Maximum number of attempts of a write that conflicts with concurrent writes.
pub(super) const MAX_WRITE_ATTEMPTS: usize = 32;

/// Checks that a company with `count` items may create another one. The write that creates it checks the quota again, since
/// concurrent requests could exceed it together otherwise.
///
/// # Errors
/// 409 with the quota in `limit`.
pub(super) fn check_quota(items: &str, count: u64, quota: u64) -> Result<(), HttpError> {
    if count < quota {
        return Ok(());
    }
    let detail = format!("the company has {count} {items}, and at most {quota} can be created");
    Err(HttpError::conflict(detail).with_member("limit", quota.into()))
}

/// A list of the management API, opened for the request of one user.
#[async_trait]
pub(super) trait Listing: Sized + Send + Sync + 'static {
    /// One page.
    type Page: Serialize + Send + Sync;

    /// Opens the list.
    ///
    /// # Errors
    /// 404 or 403 if the user may not access it.
    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError>;

    /// Returns one page.
    async fn page(&self, list: ListQuery) -> Result<Self::Page, HttpError>;
}

/// A list whose items have versions. [`get`], [`put`] and [`delete`] implement the protocol of conditional requests
/// and retry writes that conflict with concurrent ones; an implementation provides what differs between resources.
#[async_trait]
pub(super) trait Resource: Listing {
    /// Path parameter with an item's id.
    const ID_PARAMETER: &'static str = "id";

    /// Validated body of a `PUT`.
    type Input: Send + Sync;
    /// Item as responses contain it.
    type View: Serialize + Send + Sync;

    /// Returns an item; 404 if it does not exist.
    async fn load(&self, id: &str) -> Result<Versioned<Self::View>, HttpError>;

    /// Checks that the user may write the item, before the body is read.
    async fn authorize_put(&self, _id: &str) -> Result<(), HttpError> {
        Ok(())
    }

    /// Checks rules that need the text of a body, which is valid JSON.
    fn check_text(_text: &[u8]) -> Result<(), HttpError> {
        Ok(())
    }

    /// Validates the body of a `PUT`.
    async fn validate(&self, id: &str, body: Map<String, Value>) -> Result<Self::Input, HttpError>;

    /// Returns the version of the item to replace, which the user may write; `None` if it does not exist.
    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError>;

    /// Prepares the creation of an item.
    async fn prepare_create(&self, _id: &str) -> Result<(), HttpError> {
        Ok(())
    }

    /// Writes the item and returns its version. A [`StoreError::Conflict`] is retried.
    async fn store(&self, id: &str, input: &Self::Input, condition: Precondition) -> Result<u64, StoreError>;

    /// Completes a write, and returns the item as it is stored.
    async fn stored(
        &self,
        id: &str,
        input: Self::Input,
        version: u64,
        is_new: bool,
    ) -> Result<Versioned<Self::View>, HttpError>;

    /// Returns the version of the item to delete, which the user may delete; 404 if it does not exist.
    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        Ok(self.load(id).await?.version)
    }

    /// Deletes the item; false if it did not exist. A [`StoreError::Conflict`] is retried.
    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError>;

    /// Completes a deletion.
    async fn removed(&self, id: &str) -> Result<(), HttpError>;
}

/// An item and its version.
pub(super) struct Versioned<T> {
    pub(super) version: u64,
    pub(super) value: T,
}

impl<T> From<Record<T>> for Versioned<T> {
    fn from(record: Record<T>) -> Self {
        Self { version: record.version, value: record.value }
    }
}

/// Handles `GET` of a list.
pub(super) async fn list<L: Listing>(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let listing = L::open(context.state, principal, &context.params).await?;
    let list = page_params(&Query::from_uri(&context.head.uri))?;
    response::json(StatusCode::OK, &listing.page(list).await?)
}

/// Handles `GET` of an item.
pub(super) async fn get<R: Resource>(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let item = R::open(state, principal, &params).await?.load(params.get(R::ID_PARAMETER)?).await?;
    get_response(&head.headers, &item)
}

/// Handles `PUT` of an item.
pub(super) async fn put<R: Resource>(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let resource = R::open(state, principal, &params).await?;
    let id = params.get(R::ID_PARAMETER)?;
    resource.authorize_put(id).await?;
    let (fields, text) = body.read_json_with_bytes::<Map<String, Value>>(&head.headers).await?;
    R::check_text(&text)?;
    let input = resource.validate(id, fields).await?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let current = resource.version_for_put(id).await?;
        let condition = check_conditions(&head.headers, current)?;
        if current.is_none() {
            // An item with an id from before the rule can still be read, replaced and deleted.
            params.id(R::ID_PARAMETER)?;
            resource.prepare_create(id).await?;
        }
        match resource.store(id, &input, condition).await {
            Ok(version) => {
                let stored = resource.stored(id, input, version, current.is_none()).await?;
                return put_response(&head.uri, current.is_none(), &stored);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

/// Handles `DELETE` of an item.
pub(super) async fn delete<R: Resource>(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let resource = R::open(state, principal, &params).await?;
    let id = params.get(R::ID_PARAMETER)?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let version = resource.version_for_delete(id).await?;
        let condition = check_conditions(&head.headers, Some(version))?;
        match resource.remove(id, condition).await {
            Ok(true) => {
                resource.removed(id).await?;
                return Ok(no_content());
            }
            Ok(false) => return Err(HttpError::not_found()),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

/// Parses the paging parameters.
pub(super) fn page_params(query: &Query<'_>) -> Result<ListQuery, HttpError> {
    let invalid =
        || HttpError::invalid("limit", format_args!("must be a whole number from 1 to {MAX_PAGE_RECORDS}"));
    let limit = |text: &str| {
        text.parse().ok().filter(|limit| (1..=MAX_PAGE_RECORDS).contains(limit)).ok_or_else(invalid)
    };
    Ok(ListQuery {
        limit: query.get("limit")?.map(limit).transpose()?,
        cursor: query.get("cursor")?.map(str::to_owned),
        ..ListQuery::default()
    })
}

/// Origin of an id that a body may repeat.
#[derive(Clone, Copy)]
pub(super) enum IdOrigin {
    /// The path; another id in the body is a 400.
    Path,
    /// The session; another id in the body is a 403.
    Session,
}

/// Sets an id in the body. The body may omit it, but must not have a different one.
pub(super) fn set_or_check_id(
    body: &mut Map<String, Value>,
    name: &str,
    id: &str,
    origin: IdOrigin,
) -> Result<(), HttpError> {
    match body.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) if text == id => {}
        Some(Value::String(_)) => {
            return Err(match origin {
                IdOrigin::Path => HttpError::invalid(name, "must equal the id in the path"),
                IdOrigin::Session => HttpError::forbidden(format!("{name} must be the caller's own")),
            });
        }
        Some(_) => return Err(HttpError::invalid(name, "must be a string")),
    }
    body.insert(name.to_owned(), id.into());
    Ok(())
}

/// Parses and validates a resource as an import does, as the only element of the workspace file's list `list`.
///
/// # Errors
/// 400 that names each invalid field.
pub(super) fn validate_as_import(
    list: &str,
    item: Map<String, Value>,
    own_tools: &[String],
) -> Result<WorkspaceFile, HttpError> {
    let text = json!({ list: [item] }).to_string();
    WorkspaceFile::parse_with_tools(&text, own_tools).map_err(|mut error| {
        // Messages of the deserializer may quote the input, so values are removed from them.
        let mut reader = serde_json::Deserializer::from_str(&text);
        if WorkspaceFile::deserialize(objects_only(&mut reader)).is_err() {
            for fault in &mut error.faults {
                fault.message = redact_serde_message(&fault.message);
            }
        }
        import_problem(list, &error)
    })
}

/// Returns 400 for the faults of the only element of the workspace file's list `list`, with their paths in it.
pub(super) fn import_problem(list: &str, error: &WorkspaceFileError) -> HttpError {
    let root = format!("{list}[0]");
    let messages = error.faults.iter().map(|fault| {
        let path = fault.path.strip_prefix(&root).unwrap_or(&fault.path).trim_start_matches('.');
        let path = if path.is_empty() { "the body" } else { path };
        format!("{path} {}", fault.message)
    });
    HttpError::new(Code::InvalidRequest, messages.collect::<Vec<_>>().join("; "))
}

/// Checks `If-Match` and `If-None-Match` (RFC 9110, section 13) against the current version, and returns the
/// precondition for the write.
///
/// # Errors
/// 412 if a condition is false.
pub(super) fn check_conditions(headers: &HeaderMap, version: Option<u64>) -> Result<Precondition, HttpError> {
    check_tags(headers, version.map(entity_tag).as_slice())?;
    Ok(Precondition::unchanged_since(version))
}

/// Checks `If-Match` and `If-None-Match` against the current entity tags of a resource; without tags, it does not exist.
///
/// # Errors
/// 412 if a condition is false.
pub(super) fn check_tags(headers: &HeaderMap, tags: &[ETag]) -> Result<(), HttpError> {
    let if_match = headers.typed_get::<IfMatch>();
    let if_none_match = headers.typed_get::<IfNoneMatch>();
    let matched = if_match.is_none_or(|condition| tags.iter().any(|tag| condition.precondition_passes(tag)));
    let fresh =
        if_none_match.is_none_or(|condition| tags.iter().all(|tag| condition.precondition_passes(tag)));
    if matched && fresh {
        return Ok(());
    }
    let reason =
        if tags.is_empty() { "the resource does not exist" } else { "the resource has another version" };
    let reason = if matched { "the resource already exists" } else { reason };
    Err(HttpError::new(Code::PreconditionFailed, format!("precondition failed: {reason}")))
}

/// Returns 409 for a write that still conflicted after all attempts.
pub(super) fn write_contention() -> HttpError {
    HttpError::conflict("concurrent modification of the same resource; retry")
}

/// Returns a version's entity tag: the number in quotation marks.
pub(super) fn entity_tag(version: u64) -> ETag {
    format!("\"{version}\"").parse().expect("digits in quotation marks are an entity tag")
}

/// Returns the response to `GET`: the value and its entity tag, or 304 if `If-None-Match` matches.
pub(super) fn get_response(headers: &HeaderMap, item: &Versioned<impl Serialize>) -> HandlerResult {
    get_tagged(headers, &[entity_tag(item.version)], &item.value)
}

/// Returns the response to `GET`: the value and the first of its entity tags, or 304 if `If-None-Match` matches any of them.
pub(super) fn get_tagged(headers: &HeaderMap, tags: &[ETag], value: &impl Serialize) -> HandlerResult {
    let unchanged = headers
        .typed_get::<IfNoneMatch>()
        .is_some_and(|condition| !tags.iter().all(|tag| condition.precondition_passes(tag)));
    let response = match unchanged {
        true => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => response::json(StatusCode::OK, value)?,
    };
    Ok(with_tag(response, tags.first().cloned()))
}

/// Returns the response to `PUT`: 201 with `Location`, or 200, and the stored value.
fn put_response(uri: &Uri, is_new: bool, stored: &Versioned<impl Serialize>) -> HandlerResult {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = with_entity_tag(response::json(status, &stored.value)?, stored.version);
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

pub(super) fn with_entity_tag(response: Response<ResponseBody>, version: u64) -> Response<ResponseBody> {
    with_tag(response, Some(entity_tag(version)))
}

/// Adds an entity tag to a response.
pub(super) fn with_tag(mut response: Response<ResponseBody>, tag: Option<ETag>) -> Response<ResponseBody> {
    if let Some(tag) = tag {
        response.headers_mut().typed_insert(tag);
    }
    // Versions are small numbers, and ids are unique within a company only: a browser that stores the response would ask with its
    // tag for another user too, and show the first one's object after a 304.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
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
            (json!({}), "the body is missing the field `id`"),
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
                json!({"id": "a", "companyId": "c", "content": {"tools": ["sk-1"], "agentServerProvider": "sk-1"}, "name_": 1}),
                "name_ is not a field of a role; content.tools[0] is not the name of a tool; content.agentServerProvider is not a provider: expected one of anthropic, ollama, openai",
            ),
            (
                json!({"id": "a", "companyId": "c", "content": {"mcpPreset": "sk-1"}}),
                "content.mcpPreset must be an array of tool names, \"base\" or \"none\"",
            ),
            (
                json!({"id": "a", "companyId": "c", "content": {"ragPlacement": 5}}),
                "content.ragPlacement must be a string",
            ),
            (
                json!({"id": "a", "companyId": "c", "content": {"approvals": [{"by": [1]}]}}),
                "content.approvals[0].by must be a string",
            ),
            (
                json!({"id": "a", "companyId": "c", "children": [{"name": 5}]}),
                "children[0].name must be a string",
            ),
        ] {
            let Value::Object(members) = body else { panic!("an object") };
            let error = validate_as_import("agents", members, &[]).expect_err("a fault");
            assert_eq!(error.detail(), expected);
        }
    }
}
