//! `GET /api/threads/{id}/export` and `GET /api/threads/export`: threads with all that is stored of them.

use agent_core::request::Principal;
use agent_platform::company_permits::CompanyPermit;
use agent_platform::conversation::{ConversationError, ExportFormat, OwnerExport, ThreadExport};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Response};
use serde_json::json;

use super::App;
use super::services::hold_while_read;
use super::thread_docs::{TAG, object, thread_schema, words};
use super::threads::{OwnConversations, private};
use crate::body::{ResponseBody, streaming};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Handles `GET /api/threads/{id}/export`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let query = Query::from_uri(&head.uri);
    let conversations = OwnConversations::open(state, &principal)?.named(&principal, &query)?;
    let key = conversations.key(params.get("id")?)?;
    let (format, media_type, file) = match query.get("format")? {
        None | Some("json") => (ExportFormat::Json, "application/json", "thread.json"),
        Some("markdown") => (ExportFormat::Markdown, "text/markdown; charset=utf-8", "thread.md"),
        Some(_) => return Err(HttpError::invalid("format", "must be json or markdown")),
    };
    let now = conversations.app.conversations.now();
    let export =
        ThreadExport::open(conversations.store.clone(), key, format, conversations.audience, now).await?;
    let export = export.ok_or_else(HttpError::not_found)?;
    conversations.check_agent(&export.thread().agent_id).await?;
    let permit = conversations.app.bounds.admit_thread_download(&principal)?;
    let pieces = stream::try_unfold(export, |mut export| async move {
        Ok::<_, ConversationError>(export.next().await?.map(|piece| (piece, export)))
    });
    private(Ok(download(permit, pieces, media_type, file)))
}

/// Handles `GET /api/threads/export`.
pub(super) async fn get_all(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let conversations = OwnConversations::open(context.state, &principal)?;
    let permit = conversations.app.bounds.admit_thread_download(&principal)?;
    let now = conversations.app.conversations.now();
    let export = OwnerExport::new(
        conversations.store.clone(),
        conversations.owner.clone(),
        conversations.audience,
        now,
    );
    let pieces = stream::try_unfold(export, |mut export| async move {
        Ok::<_, ConversationError>(export.next().await?.map(|piece| (piece, export)))
    });
    private(Ok(download(permit, pieces, "application/x-ndjson", "threads.ndjson")))
}

/// Creates a response whose body is made of pieces as the client reads it. An error cuts it.
fn download(
    permit: CompanyPermit,
    pieces: impl Stream<Item = Result<String, ConversationError>> + Send + 'static,
    media_type: &'static str,
    file: &str,
) -> Response<ResponseBody> {
    let mut response = Response::new(streaming(hold_while_read(permit, pieces.map_ok(Bytes::from))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{file}\""));
    response.headers_mut().extend(disposition.ok().map(|value| (CONTENT_DISPOSITION, value)));
    response
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    let list = json!({"type": "array", "items": {"type": "object"}});
    let export = object(
        &["thread", "nodes", "runs", "approvals", "feedback"],
        json!({"thread": thread_schema(), "nodes": list, "runs": list, "approvals": list, "feedback": list}),
    );
    let content = json!({
        "application/json": {"schema": export}, "text/markdown": {"schema": string_schema()},
    });
    let answer = json!({"description": "The thread.", "content": content});
    Operation::new("exportThread", TAG, "Returns a thread with all of its stored data.")
        .describe("As Markdown, the path to the head.")
        .parameter("query", "format", "The format; `json` by default.", words(&["json", "markdown"]))
        .parameter("query", "owner", "A visitor of an agent that the caller owns.", string_schema())
        .response(200, answer)
        .problems(&[Code::NotFound, Code::InvalidRequest, Code::RateLimited])
}

pub(super) fn describe_get_all(_: &mut Schemas) -> Operation {
    let content = json!({"application/x-ndjson": {"schema": string_schema()}});
    let answer =
        json!({"description": "One JSON object per line, as `exportThread` returns it.", "content": content});
    Operation::new("exportThreads", TAG, "Returns all threads of the caller with all of their stored data.")
        .response(200, answer)
        .problems(&[Code::RateLimited])
}
