//! `/api/documents`: the documents of the caller's company. Every user of the company may read them; a document's owner
//! or an admin of the company may change it, and every editor one without an owner.

use std::sync::Arc;

use agent_core::ids::AgentId;
use agent_core::request::Principal;
use agent_platform::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError,
};
use agent_platform::workspace::{
    Document, DocumentContent, DocumentEditor, DocumentSummary, MAX_DOCUMENT_BYTES, MAX_TITLE_BYTES,
    collection, delete_document, list_document_summaries, save_document, save_new_document,
};
use async_trait::async_trait;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::App;
use super::ownership::{check_admin, check_creator, new_owner, new_owner_schema};
use super::resource::{self, IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use super::response;
use crate::endpoint::{Operation, Params, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;
use agent_mcp::server::Change;

/// Tag of the operations on documents.
pub(super) const TAG: &str = "documents";
/// Maximum number of agents that a refused deletion names.
const MAX_NAMED_AGENTS: usize = 100;

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
    pub(super) app: Arc<App>,
    pub(super) principal: Principal,
}

#[async_trait]
impl Listing for Documents {
    type Page = DocumentPage;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        Ok(Self { app, principal })
    }

    async fn page(&self, list: ListQuery) -> Result<DocumentPage, HttpError> {
        let page = list_document_summaries(&*self.app.records, &self.principal.company_id, &list).await?;
        Ok(DocumentPage { documents: page.items, next_cursor: page.next_cursor })
    }
}

#[async_trait]
impl Resource for Documents {
    type Input = Document;
    type View = Document;

    async fn load(&self, id: &str) -> Result<Versioned<Document>, HttpError> {
        Ok(self.find(id).await?.ok_or_else(HttpError::not_found)?.into())
    }

    /// Checks the rights, so that other users learn nothing from validation errors.
    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        self.version_for_put(id).await.map(drop)
    }

    async fn validate(&self, id: &str, mut document: Map<String, Value>) -> Result<Document, HttpError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        set_or_check_id(&mut document, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut document, "companyId", company_id, IdOrigin::Session)?;
        let existing = self.find(id).await?;
        match existing.as_ref().map(|existing| &existing.value.owner_id) {
            Some(Some(owner_id)) => set_or_check_id(&mut document, "ownerId", owner_id, IdOrigin::Session)?,
            // A document without an owner stays so, unless the caller becomes its owner.
            Some(None) if document.get("ownerId").is_none_or(Value::is_null) => {}
            _ => set_or_check_id(&mut document, "ownerId", user_id, IdOrigin::Session)?,
        }
        // Set by the server, and part of what a client has read. An upload that the client names by its generation
        // stays if the text is the same.
        document.retain(|name, _| !matches!(name.as_str(), "revision" | "updatedBy" | "indexed"));
        let generation =
            document.remove("content").and_then(|mut content| match content.get_mut("generation")?.take() {
                Value::String(generation) => Some(generation),
                _ => None,
            });
        let file = resource::validate_as_import("documents", document, &self.app.own_tools)?;
        let document = file.documents.into_iter().next();
        let mut document =
            document.ok_or_else(|| HttpError::internal("the validated import has no document"))?;
        document.content =
            generation.map(|generation| DocumentContent { generation, ..DocumentContent::default() });
        for (name, text, limit) in
            [("title", &document.title, MAX_TITLE_BYTES), ("text", &document.text, MAX_DOCUMENT_BYTES)]
        {
            if text.len() > limit {
                let detail = format!("has {} bytes; the limit is {limit}", text.len());
                return Err(HttpError::invalid(name, detail));
            }
        }
        Ok(document)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        let existing = self.find(id).await?;
        match &existing {
            Some(existing) => self.check_may_change(&existing.value).await?,
            None => check_creator(&self.app, &self.principal).await?,
        }
        Ok(existing.map(|existing| existing.version))
    }

    async fn prepare_create(&self, _: &str) -> Result<(), HttpError> {
        let documents = Collection::new(&self.principal.company_id, collection::DOCUMENTS)?;
        let count = self.app.records.count(&documents).await?;
        resource::check_quota("documents", count, self.app.quotas.documents)
    }

    async fn store(&self, _: &str, document: &Document, condition: Precondition) -> Result<u64, StoreError> {
        let (records, user_id) = (&*self.app.records, &self.principal.user_id);
        if condition == Precondition::Absent {
            return save_new_document(records, document, self.app.quotas.documents, user_id).await;
        }
        save_document(records, document, condition, user_id).await
    }

    async fn stored(
        &self,
        id: &str,
        _: Document,
        _: u64,
        is_new: bool,
    ) -> Result<Versioned<Document>, HttpError> {
        self.announce(id, is_new);
        let stored = self.find(id).await?.ok_or_else(|| {
            HttpError::conflict("the document was saved and then deleted by a concurrent request")
        })?;
        Ok(stored.into())
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        let document = self.load(id).await?;
        self.check_may_change(&document.value).await?;
        Ok(document.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        delete_document(&*self.app.records, &self.principal.company_id, id, condition).await
    }

    async fn removed(&self, id: &str) -> Result<(), HttpError> {
        self.announce(id, true);
        Ok(())
    }
}

impl Documents {
    /// Returns a document, if it exists; 404 for an invalid id.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Record<Document>>, HttpError> {
        let key = Key::new(&self.principal.company_id, collection::DOCUMENTS, id);
        Ok(self.app.records.get_as(&key.map_err(|_| HttpError::not_found())?).await?)
    }

    /// Returns the caller with the rights to documents.
    pub(super) async fn editor(&self) -> Result<DocumentEditor, StoreError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        DocumentEditor::load(&*self.app.records, company_id, user_id).await
    }

    pub(super) async fn check_may_change(&self, document: &Document) -> Result<(), HttpError> {
        match self.editor().await?.may_change(document) {
            true => Ok(()),
            false => Err(HttpError::forbidden(
                "only the document's owner or an admin of the company is allowed to do this",
            )),
        }
    }

    /// Returns the ids of the agents whose roles name a document.
    async fn agents_naming(&self, id: &str) -> Result<Vec<AgentId>, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut agents = Vec::new();
        loop {
            let page = self.app.roles.masked_roles(&self.principal.company_id, &list).await?;
            let roles = page.records.into_iter().map(|record| record.value);
            let naming = roles.filter(|role| {
                let content = &role.content;
                content.document_ids.iter().chain(&content.rag_document_ids).any(|named| named == id)
            });
            agents.extend(naming.map(|role| role.id));
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(agents);
            }
        }
    }

    /// Notifies the search index and the MCP clients of a changed document; with `list_changed`, also of a changed
    /// resource list.
    pub(super) fn announce(&self, id: &str, list_changed: bool) {
        if let Some(retriever) = self.app.documents.retriever() {
            retriever.announce(&self.principal.company_id, id);
        }
        let server = &self.app.tools.server;
        if list_changed {
            server.announce(&Change::Resources { company_id: self.principal.company_id.clone() });
        }
        // Subscribers of the document are also notified when it is deleted or created again.
        server.announce(&Change::document(&self.principal.company_id, id));
    }
}

/// Handles `DELETE` of a document: 409 with the ids of the agents that name it, unless the query has `force=true`.
pub(super) async fn delete(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let documents = Documents::open(context.state.clone(), principal.clone(), &context.params).await?;
    let id = context.params.get("id")?;
    documents.version_for_delete(id).await?;
    let is_forced = match Query::from_uri(&context.head.uri).get("force")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(HttpError::invalid("force", "must be true or false")),
    };
    if !is_forced {
        let mut agents = documents.agents_naming(id).await?;
        if !agents.is_empty() {
            agents.truncate(MAX_NAMED_AGENTS);
            let detail = "agents name this document: remove it from them, or delete it with force=true";
            return Err(HttpError::conflict(detail).with_member("agentIds", json!(agents)));
        }
    }
    resource::delete::<Documents>(context, principal).await
}

/// Handles `PUT /api/documents/{id}/owner`, the hand-over to another owner.
pub(super) async fn put_owner(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, body } = context;
    let documents = Documents::open(state, principal, &params).await?;
    let id = params.get("id")?;
    documents.load(id).await?;
    check_admin(&documents.app, &documents.principal).await?;
    let owner_id = new_owner(&body.read_json(&head.headers).await?)?;
    let key = Key::new(&documents.principal.company_id, collection::DOCUMENTS, id)?;
    let hand_over = |record: Option<Record<Document>>| {
        let document = record.ok_or_else(HttpError::not_found)?.value;
        Ok::<_, HttpError>(Document { owner_id: Some(owner_id.clone()), ..document })
    };
    let (document, _) = documents.app.records.update(&key, hand_over).await?;
    response::json(StatusCode::OK, &document)
}

pub(super) fn describe_put_owner(schemas: &mut Schemas) -> Operation {
    let summary = "Hands a document over to another owner; for admins of the company.";
    Operation::new("putDocumentOwner", TAG, summary)
        .body(new_owner_schema())
        .json_response(200, "The document.", schemas.schema_for::<Document>())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listDocuments", TAG, "Lists the company's documents, without their texts.")
        .paged()
        .json_response(200, "One page of documents.", schemas.schema_for::<DocumentPage>())
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
    let force = json!({"type": "string", "enum": ["true", "false"]});
    Operation::new("deleteDocument", TAG, "Deletes a document with its versions.")
        .describe("A document that agents name is 409 with their ids as `agentIds`, unless `force` is true.")
        .parameter("query", "force", "Set to true to delete a document that agents name.", force)
        .conditional_write(&["If-Match"])
        .empty_response(204, "The document was deleted.")
        .problems(&[Code::NotFound, Code::Conflict])
}
