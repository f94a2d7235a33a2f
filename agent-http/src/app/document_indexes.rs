//! `GET /api/documents/{id}`, with the status of the document's index, and `POST /api/documents/reindex`, which embeds the
//! company's documents again after the embedding model was changed or repaired, or extracts their texts again after the extractor
//! was changed.

use agent_core::request::Principal;
use agent_platform::workspace::{Document, IndexStatus, document_index_status, list_document_summaries};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::App;
use super::documents::{Documents, TAG};
use super::ownership::check_admin;
use super::resource::{Resource as _, Versioned, get_response, page_params};
use super::response;
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// A document with the status of its index.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IndexedDocument {
    /// The document.
    #[serde(flatten)]
    document: Document,
    /// The document's index; absent until it is indexed.
    #[serde(skip_serializing_if = "Option::is_none")]
    indexed: Option<IndexStatus>,
}

/// One page of documents that are embedded or extracted again.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AnnouncedDocuments {
    /// Identifiers of the documents that wait to be embedded or extracted.
    documents: Vec<String>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let documents = Documents { app: state, principal };
    let id = params.get("id")?;
    let Versioned { version, value: document } = documents.load(id).await?;
    let company_id = &documents.principal.company_id;
    let indexed = document_index_status(&*documents.app.records, company_id, id, version).await?;
    get_response(&head.headers, &Versioned { version, value: IndexedDocument { document, indexed } })
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    Operation::new("getDocument", TAG, "Returns a document of the company.")
        .describe("The entity tag is that of the document. It does not change when the document is embedded.")
        .conditional_read()
        .versioned_response(200, "The document.", schemas.schema_for::<IndexedDocument>())
        .problems(&[Code::NotFound])
}

pub(super) async fn reindex(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, .. } = context;
    check_admin(&app, &principal).await?;
    let query = Query::from_uri(&head.uri);
    match query.get("texts")? {
        None => {}
        Some("outdated") => return reindex_texts(&app, &principal, &query).await,
        Some(_) => return Err(HttpError::invalid("texts", "is not \"outdated\"")),
    }
    let retriever = app.documents.retriever();
    let embedder = retriever.and_then(|retriever| Some((retriever, retriever.embedder_id()?)));
    let Some((retriever, embedder)) = embedder else {
        return Err(HttpError::new(Code::NotConfigured, "no embedding model is configured"));
    };
    let wanted_embedder = query.get("embedder")?;
    let is_anew = match query.get("embeddings")? {
        None | Some("missing") => false,
        Some("all") => true,
        Some(_) => return Err(HttpError::invalid("embeddings", "is neither \"missing\" nor \"all\"")),
    };
    let page = list_document_summaries(&*app.records, &principal.company_id, &page_params(&query)?).await?;
    let mut announced = Vec::new();
    for document in page.items {
        let (company_id, id) = (&principal.company_id, &document.id);
        let index = document_index_status(&*app.records, company_id, id, document.version).await?;
        let current_embedder = index.as_ref().and_then(|index| index.embedder.as_deref());
        let is_complete = index.as_ref().is_some_and(|index| {
            current_embedder == Some(embedder.as_str()) && index.embedded == index.chunks
        });
        let is_wanted =
            wanted_embedder.is_none_or(|embedder| embedder == current_embedder.unwrap_or_default());
        if is_wanted && (is_anew || !is_complete) {
            if is_anew {
                retriever.drop_vectors(company_id, id).await?;
            }
            retriever.embed_again(company_id, id);
            announced.push(document.id);
        }
    }
    let announced = AnnouncedDocuments { documents: announced, next_cursor: page.next_cursor };
    response::json(StatusCode::ACCEPTED, &announced)
}

/// Queues the documents of a page whose texts were extracted by another version of the extractor for a new extraction.
async fn reindex_texts(app: &App, principal: &Principal, query: &Query<'_>) -> HandlerResult {
    for name in ["embedder", "embeddings"] {
        if query.get(name)?.is_some() {
            return Err(HttpError::invalid(name, "cannot be combined with texts"));
        }
    }
    let company_id = &principal.company_id;
    let page = list_document_summaries(&*app.records, company_id, &page_params(query)?).await?;
    let mut documents = Vec::new();
    for document in page.items.into_iter().filter(|document| document.status.is_some()) {
        if app.uploads.ingestion.extract_outdated(company_id, &document.id).await? {
            documents.push(document.id);
        }
    }
    response::json(StatusCode::ACCEPTED, &AnnouncedDocuments { documents, next_cursor: page.next_cursor })
}

pub(super) fn describe_reindex(schemas: &mut Schemas) -> Operation {
    let embedder = json!({"type": "string", "maxLength": 512});
    let embeddings = json!({"type": "string", "enum": ["missing", "all"], "default": "missing"});
    let texts = json!({"type": "string", "enum": ["outdated"]});
    let summary = "Embeds documents of the company that lack vectors of the embedding model; for admins of the company.";
    Operation::new("reindexDocuments", TAG, summary)
        .describe("Processes one page of the documents. Until they are embedded, searches find them by their words.")
        .paged()
        .parameter(
            "query",
            "embedder",
            "Embeds only documents with vectors of this model; an empty text selects documents without vectors.",
            embedder,
        )
        .parameter(
            "query",
            "embeddings",
            "With `all`, drops the vectors of the documents and embeds them again, for example after a repair of the model's server.",
            embeddings,
        )
        .parameter(
            "query",
            "texts",
            "With `outdated`, extracts the originals again whose texts come from another version of the extractor. They are embedded after that.",
            texts,
        )
        .json_response(202, "The documents that wait to be embedded or extracted.", schemas.schema_for::<AnnouncedDocuments>())
        .problems(&[Code::NotConfigured])
}
