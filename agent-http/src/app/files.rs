//! `/api/files`: files that a user uploads to send them in messages. They are the user's alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_platform::conversation::ThreadKey;
use agent_platform::ingestion::Ingestion;
use agent_platform::media_type::essence;
use agent_platform::records::{ListQuery, Record, StoreError};
use agent_platform::workspace::{
    MAX_FILE_NAME_BYTES, NewUserFile, UserFile, delete_expired_file, delete_user_file, get_user_files,
    list_expired_files, list_user_files,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use http::header::{HeaderValue, LOCATION};
use http::{HeaderMap, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::attachment::Attachment;
use super::resource::Listing;
use super::services::{hold_while_read, run_blocking};
use super::upload_checks::{line_parameter, upload_error};
use super::{App, response};
use crate::body::empty;
use crate::endpoint::{Operation, Params, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::content_type;
use crate::service::HandlerResult;

/// Tag of the operations.
const TAG: &str = "files";
/// Media types of pictures and recordings that models read. SVG, which may contain scripts, is not among them.
const MEDIA_TYPES: [&str; 6] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "audio/mpeg", "audio/x-wav"];

/// A file of the caller.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FileView {
    /// Identifier of the file.
    file_id: String,
    /// Name of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Media type, by the content.
    mime_type: String,
    /// Size in bytes.
    bytes: u64,
    /// SHA-256 in hexadecimal.
    sha256: String,
    /// Time after which the file is deleted unless a thread refers to it, RFC 3339.
    expires_at: String,
}

impl From<UserFile> for FileView {
    fn from(file: UserFile) -> Self {
        let UserFile { id, name, media_type, bytes, sha256, expires_at, .. } = file;
        let expires_at = agent_platform::workspace::utc_time(expires_at);
        Self { file_id: id, name, mime_type: media_type, bytes, sha256, expires_at }
    }
}

/// One page of the caller's files.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilePage {
    /// The files, oldest first.
    files: Vec<FileView>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The caller's files.
pub(super) struct OwnFiles {
    app: Arc<App>,
    principal: Principal,
}

#[async_trait]
impl Listing for OwnFiles {
    type Page = FilePage;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        Ok(Self { app, principal })
    }

    async fn page(&self, list: ListQuery) -> Result<FilePage, HttpError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        let page = list_user_files(&*self.app.records, (company_id, user_id), &list).await?;
        let files = page.items.into_iter().map(FileView::from).collect();
        Ok(FilePage { files, next_cursor: page.next_cursor })
    }
}

/// Handles `POST`.
pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let owner = (&principal.company_id, &principal.user_id);
    let declared = declared_type(&head.headers)?;
    let name = line_parameter(&head.uri, "name", MAX_FILE_NAME_BYTES)?;
    let permit = app.uploads.admit(&principal.company_id)?;
    let bytes = body.read_bytes(&head.headers).await?;
    if bytes.is_empty() {
        return Err(HttpError::invalid("the body", "is empty"));
    }
    // The upload is read and hashed.
    let (ingestion, quota) = (app.uploads.ingestion.clone(), app.quotas.uploaded_bytes);
    let reading = run_blocking(permit, move || {
        let media_type = detect(&ingestion, &declared, &bytes)?;
        Some(NewUserFile::new(name, media_type, bytes).with_quota(quota))
    });
    let (file, _permit) = reading.await?;
    let file = file.ok_or_else(|| {
        let detail =
            "the content is not a supported picture (PNG, JPEG, GIF, WebP), recording (MP3, WAV) or document";
        HttpError::new(Code::UnsupportedMediaType, detail)
    })?;
    let now = app.uploads.ingestion.now();
    let expires_at = now.saturating_add(app.quotas.file_ttl).map_err(HttpError::internal)?;
    let stored = file.store(&*app.records, owner, now, expires_at).await;
    let file = FileView::from(stored.map_err(upload_error)?);
    let mut response = response::json(StatusCode::CREATED, &file)?;
    let location = HeaderValue::try_from(format!("/api/files/{}", file.file_id));
    response.headers_mut().insert(LOCATION, location.map_err(HttpError::internal)?);
    Ok(response)
}

/// Returns the media type of a file by its content; `None` if no model and no extractor reads it.
fn detect(ingestion: &Ingestion, declared: &str, bytes: &[u8]) -> Option<String> {
    let detected = infer::get(bytes).map(|detected| detected.mime_type());
    let media_type = detected.filter(|detected| MEDIA_TYPES.contains(detected)).map(str::to_owned);
    // A file that is declared as a picture but not detected as one, such as an SVG, is not stored as text.
    let is_media = ["image/", "audio/", "video/"].iter().any(|kind| declared.starts_with(kind));
    media_type.or_else(|| ingestion.detect(declared, bytes).filter(|_| !is_media))
}

/// Returns the media type that the request declares, without parameters.
fn declared_type(headers: &HeaderMap) -> Result<String, HttpError> {
    let missing = || HttpError::new(Code::UnsupportedMediaType, "the request needs one Content-Type header");
    let declared = essence(content_type(headers).ok_or_else(missing)?);
    if declared == "multipart/form-data" {
        // The parts of a form whose files are texts would be stored as one text, with their heads.
        let detail = "a file is the body itself, without a form around it";
        return Err(HttpError::new(Code::UnsupportedMediaType, detail));
    }
    Ok(declared)
}

/// Returns the caller's file in the path.
async fn find(app: &App, principal: &Principal, id: &str) -> Result<UserFile, HttpError> {
    find_file(app, principal, id).await?.ok_or_else(HttpError::not_found)
}

/// Returns a file of a user; `None` if it does not exist.
pub(super) async fn find_file(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<Option<UserFile>, StoreError> {
    let Principal { company_id, user_id, .. } = principal;
    let records = get_user_files(&*app.records, (company_id, user_id), &[id]).await;
    match records {
        Ok(records) => Ok(records.into_iter().flatten().next().map(|record| record.value)),
        // An invalid id belongs to no file.
        Err(StoreError::Invalid(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Handles `GET` of a file.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, .. } = context;
    let file = find(&app, &principal, params.get("id")?).await?;
    let attachment = Attachment {
        name: file.name.clone().unwrap_or_else(|| file.id.clone()),
        media_type: file.media_type.clone(),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
    };
    let company_id = principal.company_id;
    let permit = app.bounds.readers.admit_download(&company_id)?;
    let pieces =
        stream::try_unfold((app, company_id, file, 0), |(app, company_id, file, piece)| async move {
            let bytes = file.read_piece(&*app.records, &company_id, piece).await?;
            Ok::<_, StoreError>(bytes.map(|bytes: Bytes| (bytes, (app, company_id, file, piece + 1))))
        });
    attachment.response(&head.headers, hold_while_read(permit, pieces))
}

/// Handles `DELETE`.
pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, params, .. } = context;
    let file = find(&app, &principal, params.get("id")?).await?;
    let Principal { company_id, user_id, .. } = &principal;
    if !delete_user_file(&*app.records, (company_id, user_id), &file.id).await? {
        return Err(HttpError::not_found());
    }
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Deletes the expired files without threads on one page of a company's files; returns the cursor of the next page.
pub(super) async fn sweep_page(
    app: &App,
    company_id: &CompanyId,
    cursor: Option<String>,
) -> Result<Option<String>, StoreError> {
    let page = list_expired_files(&*app.records, company_id, cursor, app.pulse.now()).await?;
    for file in page.files {
        if let Some(threads) = existing_threads(app, company_id, &file).await {
            delete_expired_file(&*app.records, company_id, &file, &threads).await?;
        }
    }
    Ok(page.next_cursor)
}

/// Returns the threads of a file that exist; `None` if they cannot be read now.
async fn existing_threads(
    app: &App,
    company_id: &CompanyId,
    file: &Record<UserFile>,
) -> Option<BTreeSet<agent_core::ids::ThreadId>> {
    let mut existing = BTreeSet::new();
    let Some(store) = app.conversations.store() else { return Some(existing) };
    for id in &file.value.threads {
        let key = ThreadKey::new(company_id.clone(), file.value.user_id.clone(), id.clone());
        match store.thread(&key).await {
            Ok(None) => {}
            Ok(Some(_)) => {
                existing.insert(id.clone());
                break;
            }
            Err(error) => {
                tracing::warn!(%error, thread = %id, "failed to read a file's thread; the file is kept");
                return None;
            }
        }
    }
    Some(existing)
}

pub(super) fn describe_post(schemas: &mut Schemas) -> Operation {
    Operation::new("createFile", TAG, "Uploads a file for messages.")
        .describe(
            "The body is the file: a picture (PNG, JPEG, GIF, WebP), a recording (MP3, WAV), or a document whose text can be \
             extracted. The content decides the type, not the header; anything else is 415. A message names the file in a part \
             such as `{\"type\": \"image\", \"source\": {\"type\": \"file\", \"value\": \"<fileId>\"}}`.",
        )
        .parameter("query", "name", "Name of the file.", string_schema())
        .raw_body(json!({"*/*": {"schema": {"type": "string", "format": "binary"}}}))
        .json_response(201, "The file.", schemas.schema_for::<FileView>())
        .problems(&[Code::InvalidRequest, Code::Conflict, Code::RateLimited])
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listFiles", TAG, "Lists the caller's files.").paged().json_response(
        200,
        "A page of files.",
        schemas.schema_for::<FilePage>(),
    )
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    let binary = json!({"schema": {"type": "string", "format": "binary"}});
    Operation::new("getFile", TAG, "Returns the content of a file of the caller.")
        .conditional_read()
        .response(200, json!({"description": "The content.", "content": {"*/*": binary}}))
        .problems(&[Code::NotFound, Code::RateLimited])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteFile", TAG, "Deletes a file of the caller, also if a thread refers to it.")
        .empty_response(204, "Deleted.")
        .problems(&[Code::NotFound])
}
