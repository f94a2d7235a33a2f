//! `/api/documents`: the documents of the caller's company, which all its users may read and change.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_platform::records::{Collection, Key, ListQuery, Precondition, Record, RecordsExt, StoreError};
use agent_platform::workspace::{
    Document, DocumentSummary, MAX_DOCUMENT_BYTES, MAX_TITLE_BYTES, collection, list_document_summaries,
};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::App;
use super::resource::{self, IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use crate::endpoint::{Operation, Params, Schemas};
use crate::error::{Code, HttpError};
use agent_mcp::server::Change;

/// Tag of the operations on documents.
const TAG: &str = "documents";

/// One page of documents without their texts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DocumentPage {
    /// The documents' metadata, by id.
    documents: Vec<DocumentSummary>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The documents of the caller's company.
pub(super) struct Documents {
    app: Arc<App>,
    company_id: CompanyId,
}

#[async_trait]
impl Listing for Documents {
    type Page = DocumentPage;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        Ok(Self { app, company_id: principal.company_id })
    }

    async fn page(&self, list: ListQuery) -> Result<DocumentPage, HttpError> {
        let page = list_document_summaries(&*self.app.records, &self.company_id, &list).await?;
        Ok(DocumentPage { documents: page.items, next_cursor: page.next_cursor })
    }
}

#[async_trait]
impl Resource for Documents {
    type Input = Document;
    type View = Document;

    async fn load(&self, id: &str) -> Result<Versioned<Document>, HttpError> {
        let found: Option<Record<Document>> = self.app.records.get_as(&self.existing_key(id)?).await?;
        Ok(found.ok_or_else(HttpError::not_found)?.into())
    }

    async fn validate(&self, id: &str, mut document: Map<String, Value>) -> Result<Document, HttpError> {
        set_or_check_id(&mut document, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut document, "companyId", &self.company_id, IdOrigin::Session)?;
        let file = resource::validate_as_import("documents", document)?;
        let document = file.documents.into_iter().next();
        let document = document.ok_or_else(|| HttpError::internal("the validated import has no document"))?;
        for (name, text, limit) in
            [("title", &document.title, MAX_TITLE_BYTES), ("text", &document.text, MAX_DOCUMENT_BYTES)]
        {
            if text.len() > limit {
                let fault = format!("has {} bytes; the limit is {limit}", text.len());
                return Err(HttpError::invalid(name, fault));
            }
        }
        Ok(document)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        Ok(self.app.records.get(&self.existing_key(id)?).await?.map(|record| record.version))
    }

    async fn prepare_create(&self, _: &str) -> Result<(), HttpError> {
        let documents = Collection::new(&self.company_id, collection::DOCUMENTS)?;
        let count = self.app.records.count(&documents).await?;
        resource::check_quota("documents", count, self.app.quotas.documents)
    }

    async fn store(&self, id: &str, document: &Document, condition: Precondition) -> Result<u64, StoreError> {
        self.app.records.put_as(&self.key(id)?, document, condition).await
    }

    async fn stored(
        &self,
        id: &str,
        value: Document,
        version: u64,
        is_new: bool,
    ) -> Result<Versioned<Document>, HttpError> {
        self.notify_mcp_clients(id, is_new);
        Ok(Versioned { version, value })
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.app.records.delete(&self.key(id)?, condition).await
    }

    async fn removed(&self, id: &str) -> Result<(), HttpError> {
        self.notify_mcp_clients(id, true);
        Ok(())
    }
}

impl Documents {
    fn key(&self, id: &str) -> Result<Key, StoreError> {
        Key::new(&*self.company_id, collection::DOCUMENTS, id)
    }

    /// Returns a document's record key; 404 for an invalid id.
    fn existing_key(&self, id: &str) -> Result<Key, HttpError> {
        self.key(id).map_err(|_| HttpError::not_found())
    }

    /// Notifies MCP clients that a document has changed, and that the resource list has if `list_changed`.
    fn notify_mcp_clients(&self, id: &str, list_changed: bool) {
        let server = &self.app.tools.server;
        if list_changed {
            server.announce(&Change::Resources { company_id: self.company_id.clone() });
        }
        // Subscribers of the document are also notified when it is deleted or created again.
        server.announce(&Change::document(&self.company_id, id));
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listDocuments", TAG, "Lists the company's documents, without their texts.")
        .paged()
        .json_response(200, "One page of documents.", schemas.schema_for::<DocumentPage>())
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    Operation::new("getDocument", TAG, "Returns a document of the company.")
        .conditional_read()
        .versioned_response(200, "The document.", schemas.schema_for::<Document>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let document = schemas.schema_for::<Document>();
    Operation::new("putDocument", TAG, "Creates or replaces a document.")
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<Document>(&["id", "companyId"]))
        .versioned_response(200, "The document was replaced.", document.clone())
        .versioned_response(201, "The document was created.", document)
        .problems(&[Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteDocument", TAG, "Deletes a document.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "The document was deleted.")
        .problems(&[Code::NotFound])
}
