//! `/api/documents/{id}/content`, `…/text` and `…/reindex`: uploaded originals and the texts that are extracted from
//! them. Every user of the company may read them; those who may change the document may upload and extract again.

use std::time::Duration;

use agent_core::request::Principal;
use agent_platform::company_permits::CompanyPermit;
use agent_platform::ids::encode_segment;
use agent_platform::records::{Record, StoreError};
use agent_platform::workspace::{
    ContentStatus, Document, MAX_TITLE_BYTES, NewUpload, StagedUpload, UploadQuotas, get_document,
    read_document_text, read_original_piece, reindex_document, rename_upload,
};
use bytes::Bytes;
use futures_util::stream;
use http::header::{HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode, request};
use mediatype::MediaType;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::App;
use super::attachment::Attachment;
use super::documents::{Documents, TAG};
use super::files::find_file;
use super::resource::{
    self, MAX_WRITE_ATTEMPTS, Resource as _, Versioned, check_conditions, with_entity_tag, write_contention,
};
use super::response;
use super::services::{hold_while_read, run_blocking};
use super::upload_checks::{line_parameter, upload_error};
use crate::endpoint::{LimitedBody, Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::{Query, content_type};
use crate::service::HandlerResult;

/// `Prefer` (RFC 7240, section 2) and `Preference-Applied` (section 3).
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Query parameter with a file of the user that becomes the original.
const FILE: &str = "fileId";
/// Maximum time for which a response waits for the end of an extraction.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval at which a waiting response reads the document.
const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Default and maximum size of the text in a response, in bytes.
const DEFAULT_TEXT_BYTES: usize = 64 * 1024;
const MAX_TEXT_RESPONSE_BYTES: usize = 1024 * 1024;

/// State of an upload.
#[derive(Serialize, JsonSchema)]
struct UploadStatus {
    /// Identifier of the document.
    id: String,
    /// Version of the document.
    version: u64,
    /// State of the extraction.
    status: ContentStatus,
}

/// Part of a document's text.
#[derive(Serialize, JsonSchema)]
struct TextPart {
    /// Position of the part in the text, in bytes.
    start: usize,
    /// Position after the part, in bytes.
    end: usize,
    /// Size of the whole text, in bytes.
    bytes: usize,
    /// Version of the document.
    version: u64,
    /// The part.
    text: String,
}

/// Handles `PUT` of a document's content.
pub(super) async fn put(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let documents = Documents { app: state.clone(), principal };
    let id = params.get("id")?;
    let version = documents.version_for_put(id).await?;
    check_conditions(&head.headers, version)?;
    if version.is_none() {
        params.id("id")?;
        documents.prepare_create(id).await?;
    }
    let title = line_parameter(&head.uri, "title", MAX_TITLE_BYTES)?;
    let permit = state.uploads.admit(&documents.principal.company_id)?;
    let (declared, bytes) = read_content(&documents, &head, body).await?;
    let (upload, permit) = new_upload(&state, (id.to_owned(), title), (declared, bytes), permit).await?;
    let stored = store(&documents, &head.headers, upload, permit).await?;
    documents.announce(id, version.is_none());
    respond(&documents, &head.headers, id, stored).await
}

/// Returns the declared media type and the content of an upload: the body, or a file of the user.
async fn read_content(
    documents: &Documents,
    head: &request::Parts,
    body: LimitedBody,
) -> Result<(String, Bytes), HttpError> {
    let (declared, bytes) = match Query::from_uri(&head.uri).get(FILE)? {
        Some(file) => file_content(documents, file).await?,
        None => (media_type(&head.headers, &documents.app)?, body.read_bytes(&head.headers).await?),
    };
    if bytes.is_empty() {
        return Err(HttpError::invalid("the body", "is empty"));
    }
    Ok((declared, bytes))
}

/// Returns the media type and the content of a file of the user.
///
/// # Errors
/// 400 if there is none.
async fn file_content(documents: &Documents, file: &str) -> Result<(String, Bytes), HttpError> {
    let (app, principal) = (&documents.app, &documents.principal);
    let missing = || HttpError::invalid(FILE, "is not the id of a file of the user");
    let file = find_file(app, principal, file).await?.ok_or_else(missing)?;
    let bytes = file.read(&*app.records, &principal.company_id).await?.ok_or_else(missing)?;
    Ok((file.media_type, bytes))
}

/// Detects the media type of an original by its content, for which a JSON document is parsed, and hashes it. Returns the upload
/// with its permit.
///
/// # Errors
/// 415 if the extractor does not read it.
async fn new_upload(
    app: &App,
    (id, title): (String, Option<String>),
    (declared, bytes): (String, Bytes),
    permit: CompanyPermit,
) -> Result<(NewUpload, CompanyPermit), HttpError> {
    let ingestion = app.uploads.ingestion.clone();
    let quotas = UploadQuotas { documents: app.quotas.documents, bytes: app.quotas.uploaded_bytes };
    let work = run_blocking(permit, move || {
        let media_type = ingestion.detect(&declared, &bytes)?;
        Some(NewUpload::new(id, title, media_type, bytes).with_quotas(quotas))
    });
    let (upload, permit) = work.await?;
    Ok((upload.ok_or_else(unsupported)?, permit))
}

/// Stores an upload, unless the document has the same original with its text or an extraction that has not ended, and returns
/// the document.
async fn store(
    documents: &Documents,
    headers: &HeaderMap,
    upload: NewUpload,
    _permit: CompanyPermit,
) -> Result<Versioned<Document>, HttpError> {
    let (app, company_id) = (&documents.app, &documents.principal.company_id);
    let id = upload.document_id.clone();
    if let Some(stored) = find_stored(documents, headers, &upload).await? {
        return Ok(stored);
    }
    let staged = upload.stage(&*app.records, company_id, app.uploads.ingestion.now()).await;
    let staged = staged.map_err(upload_error)?;
    let attached = attach(documents, headers, &id, &staged).await;
    match &attached {
        Ok(_) => app.uploads.ingestion.wake(),
        Err(_) => staged.discard(&*app.records).await,
    }
    attached
}

/// Returns the document if it has the original of an upload, and its text by the same extractor or an extraction that has not
/// ended. It gets the title of the upload.
async fn find_stored(
    documents: &Documents,
    headers: &HeaderMap,
    upload: &NewUpload,
) -> Result<Option<Versioned<Document>>, HttpError> {
    let (app, user_id) = (&documents.app, &documents.principal.user_id);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let condition = check_conditions(headers, documents.version_for_put(&upload.document_id).await?)?;
        let Some(document) = documents.find(&upload.document_id).await? else { return Ok(None) };
        let extractor = app.uploads.ingestion.extractor_id();
        if !upload.is_extracted_in(&document.value, extractor) && !upload.is_waiting_in(&document.value) {
            return Ok(None);
        }
        match rename_upload(&*app.records, &document, (upload.title.as_deref(), condition), user_id).await {
            Ok((value, version)) => return Ok(Some(Versioned { version, value })),
            // Another process may have replaced the document just now.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

/// Sets a staged upload as the content of the document.
async fn attach(
    documents: &Documents,
    headers: &HeaderMap,
    id: &str,
    staged: &StagedUpload,
) -> Result<Versioned<Document>, HttpError> {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let version = documents.version_for_put(id).await?;
        let condition = check_conditions(headers, version)?;
        if version.is_none() {
            documents.prepare_create(id).await?;
        }
        match staged.attach(&*documents.app.records, condition, &documents.principal.user_id).await {
            Ok((value, version)) => return Ok(Versioned { version, value }),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

/// Handles `POST …/reindex`.
pub(super) async fn reindex(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let documents = Documents { app: state.clone(), principal };
    let id = params.get("id")?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let document = documents.find(id).await?.ok_or_else(HttpError::not_found)?;
        documents.check_may_change(&document.value).await?;
        let condition = check_conditions(&head.headers, Some(document.version))?;
        if document.value.content.is_none() {
            return Err(HttpError::conflict("the document has no uploaded original"));
        }
        match reindex_document(&*state.records, document, condition).await {
            Ok((value, version)) => {
                state.uploads.ingestion.wake();
                // Its permit is not held while the response waits.
                drop(body);
                return respond(&documents, &head.headers, id, Versioned { version, value }).await;
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

/// Returns the response to an upload, which waits for the end of the extraction if the client prefers so and not too many
/// responses wait.
async fn respond(
    documents: &Documents,
    headers: &HeaderMap,
    id: &str,
    stored: Versioned<Document>,
) -> HandlerResult {
    let company_id = &documents.principal.company_id;
    let admitted =
        preferred_wait(headers).and_then(|wait| Some((wait, documents.app.uploads.admit_wait(company_id)?)));
    let (stored, applied_wait) = match admitted {
        Some((wait, _permit)) => (wait_for_end(documents, id, stored, wait).await?, Some(wait)),
        None => (stored, None),
    };
    let content = stored.value.content.clone().unwrap_or_default();
    let mut response = match content.status {
        ContentStatus::Ready => {
            with_entity_tag(response::json(StatusCode::OK, &stored.value)?, stored.version)
        }
        ContentStatus::Failed => {
            let detail = content.error.unwrap_or_else(|| "the text could not be extracted".to_owned());
            let error = HttpError::new(Code::ExtractionFailed, detail);
            return Err(error.with_member("version", stored.version.into()));
        }
        status => {
            let status = UploadStatus { id: id.to_owned(), version: stored.version, status };
            with_entity_tag(response::json(StatusCode::ACCEPTED, &status)?, stored.version)
        }
    };
    let path = format!("/api/documents/{}", encode_segment(id));
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(path).map_err(HttpError::internal)?);
    if let Some(wait) = applied_wait {
        let applied = HeaderValue::try_from(format!("wait={}", wait.as_secs()));
        response.headers_mut().insert(PREFERENCE_APPLIED, applied.map_err(HttpError::internal)?);
    }
    Ok(response)
}

/// Waits until the extraction of a document's upload has ended, or the time has passed.
///
/// # Errors
/// 409 if the document is deleted or its upload is replaced meanwhile.
async fn wait_for_end(
    documents: &Documents,
    id: &str,
    stored: Versioned<Document>,
    wait: Duration,
) -> Result<Versioned<Document>, HttpError> {
    let generation =
        |document: &Document| document.content.as_ref().map(|content| content.generation.clone());
    let (expected, mut latest) = (generation(&stored.value), stored);
    let deadline = tokio::time::Instant::now() + wait;
    while latest.value.content.as_ref().is_some_and(|content| !content.status.is_final()) {
        let now = tokio::time::Instant::now();
        if now >= deadline {
            break;
        }
        tokio::time::sleep(WAIT_POLL_INTERVAL.min(deadline - now)).await;
        let (app, company_id) = (&documents.app, &documents.principal.company_id);
        let document = get_document(&*app.records, company_id, id).await?;
        let document = document.filter(|document| generation(&document.value) == expected);
        latest = document.map(Versioned::from).ok_or_else(|| {
            HttpError::conflict("the document was deleted or replaced during its extraction")
        })?;
    }
    Ok(latest)
}

/// Returns the time for which the client prefers to wait: `wait` of `Prefer`, in seconds (RFC 7240, section 4.3).
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';'])).map(str::trim);
    let seconds = preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim_end().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').to_owned())
    });
    let seconds = seconds?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_WAIT)).filter(|wait| !wait.is_zero())
}

fn unsupported() -> HttpError {
    let detail = "the text of this content type cannot be extracted; upload PDF, Office, HTML, Markdown, CSV, JSON or plain text";
    HttpError::new(Code::UnsupportedMediaType, detail)
}

/// Returns the media type of the body without its parameters. The content decides on the encoding of a text, whatever `charset` says.
///
/// # Errors
/// 415 if the extractor does not read it.
fn media_type(headers: &HeaderMap, app: &App) -> Result<String, HttpError> {
    let value = content_type(headers).ok_or_else(unsupported)?;
    let media_type = MediaType::parse(value).map_err(|_| unsupported())?;
    let essence = media_type.essence().to_string().to_ascii_lowercase();
    if app.uploads.ingestion.supports(&essence) { Ok(essence) } else { Err(unsupported()) }
}

/// Handles `GET` of a document's original.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let documents = Documents { app: state, principal };
    let record = documents.find(params.get("id")?).await?.ok_or_else(HttpError::not_found)?;
    let Record { value: Document { id, title, content, .. }, .. } = record;
    let content = content.ok_or_else(HttpError::not_found)?;
    let attachment = Attachment {
        name: if title.is_empty() { id.clone() } else { title },
        media_type: content.media_type.clone(),
        bytes: content.bytes,
        sha256: content.sha256.clone(),
    };
    let permit = documents.app.bounds.readers.admit_download(&documents.principal.company_id)?;
    // The response ends early if the original is replaced meanwhile.
    let pieces =
        stream::try_unfold((documents, id, content, 0), |(documents, id, content, piece)| async move {
            let (app, company_id) = (&documents.app, &documents.principal.company_id);
            let bytes = read_original_piece(&*app.records, company_id, &id, &content, piece).await?;
            Ok::<_, StoreError>(bytes.map(|bytes| (bytes, (documents, id, content, piece + 1))))
        });
    attachment.response(&head.headers, hold_while_read(permit, pieces))
}

/// Handles `GET` of a part of a document's text.
pub(super) async fn get_text(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let documents = Documents { app: state, principal };
    let document = documents.find(params.get("id")?).await?.ok_or_else(HttpError::not_found)?;
    let query = Query::from_uri(&head.uri);
    let position = |name: &str| {
        let invalid = || HttpError::invalid(name, "must be a position in bytes");
        query.get(name)?.map(|text| text.parse::<usize>().map_err(|_| invalid())).transpose()
    };
    let start = position("start")?.unwrap_or_default();
    let end = position("end")?.unwrap_or_else(|| start.saturating_add(DEFAULT_TEXT_BYTES));
    if end < start || end - start > MAX_TEXT_RESPONSE_BYTES {
        let detail = format!("must be from start to {MAX_TEXT_RESPONSE_BYTES} bytes after it");
        return Err(HttpError::invalid("end", detail));
    }
    let (app, company_id) = (&documents.app, &documents.principal.company_id);
    let part = read_document_text(&*app.records, company_id, &document.value, start..end).await?;
    let (end, bytes, version) = (part.end(), document.value.text_bytes(), document.version);
    let part = TextPart { start: part.start, end, bytes, version, text: part.text };
    resource::get_response(&head.headers, &Versioned { version, value: part })
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let operation = Operation::new("putDocumentContent", TAG, "Uploads the original of a document.").describe(
        "Creates the document, or replaces its text and its original. The media type is one whose text can be extracted, \
         such as plain text; any other is 415. The text is extracted in the background; `GET` of the document has the \
         state. The same original is not extracted again by the same extractor, and an extraction of it that has not ended continues.",
    );
    operation
        .parameter("query", "title", "Title of the document.", string_schema())
        .parameter("query", FILE, "A file of the caller, in place of a body.", string_schema())
        .conditional_write(&["If-Match", "If-None-Match"])
        .raw_body(json!({"text/plain": {"schema": {"type": "string", "minLength": 1}}}))
        .upload_responses(schemas.schema_for::<UploadStatus>(), schemas.schema_for::<Document>())
        .problems(&[Code::NotFound, Code::RateLimited])
}

pub(super) fn describe_reindex(schemas: &mut Schemas) -> Operation {
    Operation::new("reindexDocument", TAG, "Extracts the text of a document's original again.")
        .describe("The current text is used until the new one is extracted.")
        .conditional_write(&["If-Match"])
        .upload_responses(schemas.schema_for::<UploadStatus>(), schemas.schema_for::<Document>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    let binary = json!({"schema": {"type": "string", "format": "binary"}});
    Operation::new("getDocumentContent", TAG, "Returns the original of a document.")
        .conditional_read()
        .response(200, json!({"description": "The original.", "content": {"*/*": binary}}))
        .problems(&[Code::NotFound, Code::RateLimited])
}

pub(super) fn describe_get_text(schemas: &mut Schemas) -> Operation {
    let position = json!({"type": "integer", "minimum": 0});
    Operation::new("getDocumentText", TAG, "Returns a part of a document's text.")
        .describe("Positions inside of a character are moved to its beginning.")
        .parameter("query", "start", "Position of the first byte; 0 by default.", position.clone())
        .parameter("query", "end", "Position after the last byte; 64 KiB after `start` by default.", position)
        .conditional_read()
        .versioned_response(200, "The part.", schemas.schema_for::<TextPart>())
        .problems(&[Code::InvalidRequest, Code::NotFound, Code::Conflict])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_to_wait_is_read_and_bounded() {
        let cases: &[(&[&str], Option<u64>)] = &[
            (&[], None),
            (&["wait=30"], Some(30)),
            (&["respond-async, Wait = \"5\""], Some(5)),
            (&["respond-async", "wait=7; x=1"], Some(7)),
            (&["wait=100000"], Some(60)),
            (&["wait=0"], None),
            (&["wait"], None),
            (&["wait=-1"], None),
            (&["waiting=3"], None),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in *values {
                headers.append(PREFER, HeaderValue::from_static(value));
            }
            assert_eq!(preferred_wait(&headers).map(|wait| wait.as_secs()), *expected, "{values:?}");
        }
    }
}
