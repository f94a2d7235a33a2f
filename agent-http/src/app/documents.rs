//! `/api/documents`: the documents of the caller's company, which all its users may read and change.

use agent_core::request::Principal;
use agent_mcp::server::Change;
use agent_platform::records::{Key, Record, RecordsExt, StoreError};
use agent_platform::workspace::{
    Document, DocumentSummary, MAX_DOCUMENT_BYTES, MAX_TITLE_BYTES, collection, list_document_summaries,
};
use http::{StatusCode, request};
use schemars::JsonSchema;
use serde::Serialize;

use super::resource::{self, MAX_WRITE_ATTEMPTS, Route};
use super::{App, answer};
use crate::endpoint::{LimitedBody, Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Tag of the operations on documents.
const TAG: &str = "documents";

/// One page of documents without their texts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DocumentPage {
    /// The documents' metadata, by id.
    documents: Vec<DocumentSummary>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(super) async fn handle(
    context: RequestContext<App>,
    principal: Principal,
    route: Route,
) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let app = &*app;
    let query = Query::from_uri(&head.uri);
    match route {
        Route::List => {
            let listed = list_document_summaries(
                &*app.records,
                &principal.company_id,
                &resource::page_params(&query)?,
            )
            .await?;
            let page = DocumentPage { documents: listed.items, next_cursor: listed.next_cursor };
            answer::json(StatusCode::OK, &page)
        }
        Route::Get => {
            let found = existing(app, &key(&principal, params.get("id")?)?).await?;
            resource::get_response(&head.headers, found.version, &found.value)
        }
        Route::Put => put(app, &principal, params.get("id")?, &head, body).await,
        Route::Delete => delete(app, &key(&principal, params.get("id")?)?, &head).await,
    }
}

/// Returns a document's record key; 404 for an invalid id.
fn key(principal: &Principal, id: &str) -> Result<Key, HttpError> {
    Key::new(&*principal.company_id, collection::DOCUMENTS, id).map_err(|_| HttpError::not_found())
}

async fn existing(app: &App, key: &Key) -> Result<Record<Document>, HttpError> {
    app.records.get_as(key).await?.ok_or_else(HttpError::not_found)
}

async fn put(
    app: &App,
    principal: &Principal,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> HandlerResult {
    let document = read(principal, id, head, body).await?;
    let key = key(principal, id)?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found = app.records.get(&key).await?.map(|record| record.version);
        let precondition = resource::check_conditions(&head.headers, found)?;
        match app.records.put_as(&key, &document, precondition).await {
            Ok(version) => {
                notify_mcp_clients(app, &key, found.is_none());
                return resource::put_response(&head.uri, found.is_none(), version, &document);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

async fn read(
    principal: &Principal,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> Result<Document, HttpError> {
    let mut document = resource::read_object(&head.headers, body).await?;
    resource::set_or_check_id(&mut document, "id", id, || {
        HttpError::invalid("id", "must be the one in the path")
    })?;
    resource::set_or_check_id(&mut document, "companyId", &principal.company_id, || {
        HttpError::forbidden("companyId must be the caller's own")
    })?;
    let file = resource::validate_as_import("documents", document)?;
    let document = file.documents.into_iter().next();
    let document = document.ok_or_else(|| HttpError::internal("a document is gone from its file"))?;
    for (name, text, limit) in
        [("title", &document.title, MAX_TITLE_BYTES), ("text", &document.text, MAX_DOCUMENT_BYTES)]
    {
        if text.len() > limit {
            let fault = format!("has {} bytes, and at most {limit} are taken", text.len());
            return Err(HttpError::invalid(name, fault));
        }
    }
    Ok(document)
}

async fn delete(app: &App, key: &Key, head: &request::Parts) -> HandlerResult {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found = app.records.get(key).await?.ok_or_else(HttpError::not_found)?;
        let precondition = resource::check_conditions(&head.headers, Some(found.version))?;
        match app.records.delete(key, precondition).await {
            Ok(_) => {
                notify_mcp_clients(app, key, true);
                return Ok(resource::no_content());
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

/// Notifies MCP clients that a document has changed, and that the resource list has if `list_changed`.
fn notify_mcp_clients(app: &App, key: &Key, list_changed: bool) {
    let server = &app.tools.server;
    let company_id = key.company();
    if list_changed {
        server.announce(&Change::Resources { company_id: company_id.to_owned() });
    }
    // Subscribers of the document are also notified when it is deleted or created again.
    server.announce(&Change::document(company_id, key.id()));
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listDocuments", TAG, "The company's documents, without their texts.")
        .paged()
        .json_response(200, "One page.", schemas.schema_for::<DocumentPage>())
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    Operation::new("getDocument", TAG, "A document of the company.")
        .conditional_read()
        .versioned_response(200, "The document.", schemas.schema_for::<Document>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let document = schemas.schema_for::<Document>();
    Operation::new("putDocument", TAG, "Makes a document, or replaces one.")
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<Document>(&["id", "companyId"]))
        .versioned_response(200, "It is replaced.", document.clone())
        .versioned_response(201, "It is made.", document)
        .problems(&[Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteDocument", TAG, "Deletes a document.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "It is gone.")
        .problems(&[Code::NotFound])
}
