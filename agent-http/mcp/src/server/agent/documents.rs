//! Documents as MCP resources, `doc://{id}`, read through the document tools.
//!
//! The permissions of the tools apply here: reading needs `getDoc`, listing needs `listDocs` too. So a resource never
//! shows a document that the caller could not have read with a tool.

use agent_core::ids::CompanyId;
use agent_core::tool::{ExecutionContext, NoProgress, ToolError, ToolOutput, ToolRegistry};
use agent_platform::ids::encode_segment;
use percent_encoding::percent_decode_str;
use rmcp::model::{
    ErrorCode, ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::changes::Change;
use super::{ToolAccess, failed};

const SCHEME: &str = "doc://";
const MARKDOWN: &str = "text/markdown";

const LIST_TOOL: &str = "listDocs";
const GET_TOOL: &str = "getDoc";

/// Maximum number of pages that are joined to one document: 4 MiB. The texts of some uploads are longer.
const MAX_PAGES: usize = 64;
/// Maximum number of attempts to read a document that is modified meanwhile.
const MAX_READ_ATTEMPTS: usize = 3;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListDocsOutput {
    docs: Vec<DocHead>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct DocHead {
    id: String,
    #[serde(default)]
    title: String,
    bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GetDocOutput {
    doc: DocText,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct DocText {
    text: String,
    version: Option<u64>,
}

fn document_uri(id: &str) -> String {
    format!("{SCHEME}{}", encode_segment(id))
}

fn document_id(uri: &str) -> Option<String> {
    let id = uri.strip_prefix(SCHEME).filter(|id| !id.is_empty())?;
    percent_decode_str(id).decode_utf8().ok().map(Into::into)
}

fn not_found() -> ErrorData {
    ErrorData::resource_not_found("resource not found", None)
}

/// Adds the URI to the error for a resource that does not exist, as the specification shows it.
fn with_uri(mut error: ErrorData, uri: &str) -> ErrorData {
    if error.code == not_found().code {
        error.data = Some(json!({"uri": uri}));
    }
    error
}

/// Calls a tool and deserializes its structured result.
async fn call_structured<T: DeserializeOwned>(
    tools: &dyn ToolRegistry,
    context: &ExecutionContext,
    name: &str,
    arguments: Value,
) -> Result<T, ErrorData> {
    match tools.call(context, name, arguments, &NoProgress).await {
        Ok(ToolOutput { structured: Some(value), is_error: false, .. }) => {
            serde_json::from_value(value).map_err(|error| failed(&error))
        }
        Ok(_) | Err(ToolError::Unknown(_) | ToolError::NotFound(_)) => Err(not_found()),
        Err(error @ ToolError::InvalidArguments(_)) => {
            Err(ErrorData::invalid_params(error.to_string(), None))
        }
        Err(
            error @ (ToolError::Unavailable(_) | ToolError::StoreUnavailable(_) | ToolError::Conflict(_)),
        ) => Err(ErrorData::internal_error(error.to_string(), None)),
        Err(error) => Err(failed(&error)),
    }
}

pub(super) async fn list(
    tools: &dyn ToolRegistry,
    access: &ToolAccess,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    if !(access.allows(LIST_TOOL) && access.allows(GET_TOOL)) {
        return Ok(ListResourcesResult::default());
    }
    let arguments = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
    let output: ListDocsOutput = call_structured(tools, &access.context, LIST_TOOL, arguments).await?;
    let resources = output.docs.into_iter().map(|head| {
        let mut resource = Resource::new(document_uri(&head.id), head.id).with_mime_type(MARKDOWN);
        resource.title = Some(head.title).filter(|title| !title.is_empty());
        resource.size = head.bytes;
        resource
    });
    let mut result = ListResourcesResult::with_all_items(resources.collect());
    result.next_cursor = output.next_cursor;
    Ok(result)
}

pub(super) fn templates(access: &ToolAccess) -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new("doc://{id}", "document")
        .with_description("A document, by its id")
        .with_mime_type(MARKDOWN);
    ListResourceTemplatesResult::with_all_items(
        access.allows(GET_TOOL).then_some(template).into_iter().collect(),
    )
}

pub(super) async fn read(
    tools: &dyn ToolRegistry,
    access: &ToolAccess,
    uri: String,
) -> Result<ReadResourceResult, ErrorData> {
    let add_uri = |error| with_uri(error, &uri);
    let id = document_id(&uri).filter(|_| access.allows(GET_TOOL)).ok_or_else(|| add_uri(not_found()))?;
    for _ in 0..MAX_READ_ATTEMPTS {
        if let Some(text) = read_text(tools, access, &id).await.map_err(add_uri)? {
            let contents = ResourceContents::text(text, uri).with_mime_type(MARKDOWN);
            return Ok(ReadResourceResult::new(vec![contents]));
        }
    }
    Err(ErrorData::internal_error("concurrent modification of the document; retry", None))
}

/// Reads the whole text; returns `None` if the document changed between two pages.
async fn read_text(
    tools: &dyn ToolRegistry,
    access: &ToolAccess,
    id: &str,
) -> Result<Option<String>, ErrorData> {
    let (mut text, mut arguments, mut version) = (String::new(), json!({"id": id}), None);
    for page in 0..MAX_PAGES {
        let output: GetDocOutput = call_structured(tools, &access.context, GET_TOOL, arguments).await?;
        if page > 0 && version != output.doc.version {
            return Ok(None);
        }
        version = output.doc.version;
        text.push_str(&output.doc.text);
        let Some(cursor) = output.next_cursor else { return Ok(Some(text)) };
        arguments = json!({"id": id, "cursor": cursor});
    }
    let message = "the document is too long for a resource: read it from a position by the tool getDoc";
    Err(ErrorData::internal_error(message, None))
}

pub(super) async fn exists(
    tools: &dyn ToolRegistry,
    access: &ToolAccess,
    uri: &str,
) -> Result<bool, ErrorData> {
    let Some(id) = document_id(uri).filter(|_| access.allows(GET_TOOL)) else { return Ok(false) };
    match call_structured::<GetDocOutput>(tools, &access.context, GET_TOOL, json!({"id": id})).await {
        Ok(_) => Ok(true),
        // No document has an invalid id.
        Err(error) if [not_found().code, ErrorCode::INVALID_PARAMS].contains(&error.code) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Change {
    /// Returns the change of a document's text or title.
    pub fn document(company_id: &CompanyId, id: &str) -> Self {
        Self::Resource { company_id: company_id.to_owned(), uri: document_uri(id) }
    }
}

/// Returns the document change that a tool call has made, if any.
pub(super) fn document_change(tool: &str, context: &ExecutionContext, output: &ToolOutput) -> Option<Change> {
    if output.is_error {
        return None;
    }
    match tool {
        "createDoc" => Some(Change::Resources { company_id: context.company_id.clone() }),
        "appendDoc" => {
            let id = output.structured.as_ref()?.pointer("/doc/id")?.as_str()?;
            Some(Change::document(&context.company_id, id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_documents_are_parsed() {
        for name in ["handbook", "a b/c?d#e%", "ü", "..", "."] {
            assert_eq!(document_id(&document_uri(name)).as_deref(), Some(name));
        }
        assert_eq!(document_uri("a/b c"), "doc://a%2Fb%20c");
        for other in ["", "doc://", "doc:x", "file:///etc/passwd", "doc://%ff"] {
            assert_eq!(document_id(other), None, "{other}");
        }
    }
}
