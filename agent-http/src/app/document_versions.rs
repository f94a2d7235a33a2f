//! `/api/documents/{id}/versions`: replaced versions of a document, which every user of the company may read, and those
//! who may change the document may restore.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_platform::records::ListQuery;
use agent_platform::workspace::{
    Document, DocumentVersion, DocumentVersionSummary, WorkspaceError, get_document_version,
    list_document_versions, restore_document,
};
use async_trait::async_trait;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::documents::{Documents, TAG};
use super::resource::{Listing, Resource as _};
use super::{App, response};
use crate::endpoint::{Operation, Params, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// The stored earlier versions of a document.
#[derive(Serialize, JsonSchema)]
pub(super) struct VersionList {
    /// The versions, newest first, without their texts.
    versions: Vec<DocumentVersionSummary>,
}

/// The replaced versions of a document.
pub(super) struct Versions {
    documents: Documents,
    id: String,
}

#[async_trait]
impl Listing for Versions {
    type Page = VersionList;

    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError> {
        let documents = Documents { app, principal };
        let id = params.get("id")?.to_owned();
        documents.load(&id).await?;
        Ok(Self { documents, id })
    }

    /// Returns all versions: they are fewer than a page has.
    async fn page(&self, _: ListQuery) -> Result<VersionList, HttpError> {
        let Documents { app, principal } = &self.documents;
        let versions = list_document_versions(&*app.records, &principal.company_id, &self.id).await?;
        Ok(VersionList { versions })
    }
}

pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, .. } = context;
    let Versions { documents: Documents { app, principal }, id } =
        Versions::open(state, principal, &params).await?;
    let revision = revision(&params)?;
    let version = get_document_version(&*app.records, &principal.company_id, &id, revision).await?;
    response::json(StatusCode::OK, &version.ok_or_else(HttpError::not_found)?)
}

pub(super) async fn restore(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, .. } = context;
    let Versions { documents, id } = Versions::open(state, principal, &params).await?;
    let revision = revision(&params)?;
    let editor = documents.editor().await?;
    let Documents { app, principal } = &documents;
    let may_change = |document: &Document| editor.may_change(document);
    let restored = restore_document(
        &*app.records,
        &principal.company_id,
        (&id, revision),
        &principal.user_id,
        may_change,
    );
    let (document, _) = restored.await.map_err(|error| match error {
        WorkspaceError::NotFound { .. } => HttpError::not_found(),
        WorkspaceError::Forbidden { .. } => HttpError::forbidden(error.to_string()),
        WorkspaceError::Store(error) => error.into(),
        error => HttpError::internal(error),
    })?;
    documents.announce(&id, false);
    response::json(StatusCode::OK, &document)
}

/// Returns the revision in the path; 404 for anything else.
fn revision(params: &Params) -> Result<u64, HttpError> {
    params.get("revision")?.parse().map_err(|_| HttpError::not_found())
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    let list = schemas.schema_for::<VersionList>();
    operation("listDocumentVersions", "Lists the replaced versions of a document, at most 20.").json_response(
        200,
        "The versions, newest first.",
        list,
    )
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    let version = schemas.schema_for::<DocumentVersion>();
    operation("getDocumentVersion", "Returns a replaced version of a document.").json_response(
        200,
        "The version.",
        version,
    )
}

pub(super) fn describe_restore(schemas: &mut Schemas) -> Operation {
    let document = schemas.schema_for::<Document>();
    operation("restoreDocument", "Gives a document the title and text of a replaced version.")
        .describe("The replaced text and original are stored as a version.")
        .json_response(200, "The document.", document)
        .problems(&[Code::Conflict])
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, TAG, summary).problems(&[Code::NotFound])
}
