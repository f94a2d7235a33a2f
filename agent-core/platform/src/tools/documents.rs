//! Tools over documents. The company's own users reach all of the company's documents; a widget's visitor reaches
//! those that the role names and cannot create any. The search is over the documents that the role names, for all.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::builtin::{ADDITIVE, READ_ONLY, Stores, tool};
use super::page;
use crate::records::MAX_PAGE_RECORDS;
use crate::retrieval::{
    DocumentSearch, RoleDocumentIds, SearchResult, SkipReason, SkippedDocument, find_outdated,
};
use crate::workspace::{
    self, ContentStatus, Document, DocumentEditor, DocumentSummary, MAX_DOCUMENT_BYTES, MAX_TITLE_BYTES,
    WorkspaceError,
};
use agent_core::budget::EstimateCounter;
use agent_core::tool::{Caller, ExecutionContext, LocalToolRegistry, ToolError};
use agent_retrieval::search::{Query, SearchOptions};

/// Page size of a document's text, in bytes.
const TEXT_PAGE_BYTES: usize = 64 * 1024;
/// Maximum length of a search query, in bytes.
const MAX_QUERY_BYTES: usize = 1_000;
/// Default and maximum number of fragments that a search returns.
const DEFAULT_FRAGMENTS: usize = 5;
const MAX_FRAGMENTS: usize = 20;
/// Maximum number of tokens of all fragments that a search returns.
const MAX_FRAGMENT_TOKENS: usize = 16_000;

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "listDocs",
            "Lists the documents: their ids and titles.",
            READ_ONLY,
            list_docs,
        ))
        .with_tool(tool(
            stores,
            "getDoc",
            "Reads a document, from its beginning or from a position. A long document is returned in pages: pass nextCursor as cursor for the next one.",
            READ_ONLY,
            get_doc,
        ))
        .with_tool(tool(
            stores,
            "searchDocs",
            "Searches the agent's documents by words and returns the passages that match best.",
            READ_ONLY,
            search_docs,
        ))
        .with_tool(tool(stores, "createDoc", "Creates a document and returns its id.", ADDITIVE, create_doc))
        .with_tool(tool(
            stores,
            "appendDoc",
            "Appends text to a document on a new line.",
            ADDITIVE,
            append_doc,
        ))
}

/// Set of documents that the caller may access.
enum DocumentAccess {
    /// All documents of the company.
    Company,
    /// Documents with these identifiers.
    Named(Vec<String>),
}

impl DocumentAccess {
    async fn of(stores: &Stores, context: &ExecutionContext) -> Result<Self, ToolError> {
        if context.caller != Caller::Widget {
            return Ok(Self::Company);
        }
        Ok(Self::Named(named_documents(stores, context).await?))
    }

    /// Returns the error for an absent document if the caller may not access it.
    fn check(&self, id: &str) -> Result<(), WorkspaceError> {
        match self {
            Self::Named(ids) if ids.iter().all(|named| named != id) => {
                Err(WorkspaceError::NotFound { what: "document", id: id.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the ids of the documents that the agent's role names.
async fn named_documents(stores: &Stores, context: &ExecutionContext) -> Result<Vec<String>, ToolError> {
    let role = stores.role(context).await?;
    let content = &role.content;
    let mut seen = HashSet::new();
    let ids = content.document_ids.iter().chain(&content.rag_document_ids);
    Ok(ids.filter(|id| seen.insert(*id)).cloned().collect())
}

/// Rights to append to a document: those of the user, and those of the agent's owner if the role names the document.
struct AppendRights {
    editors: Vec<DocumentEditor>,
    /// True if the role names the document and has no owner, so that an operator or an admin has named it.
    is_named_by_operator: bool,
}

impl AppendRights {
    async fn of(stores: &Stores, context: &ExecutionContext, id: &str) -> Result<Self, ToolError> {
        let (records, company) = (&*stores.records, &context.company_id);
        let mut rights = Self { editors: Vec::new(), is_named_by_operator: false };
        if context.caller != Caller::Widget {
            rights.editors.push(DocumentEditor::load(records, company, &context.user_id).await?);
        }
        // A user's rights do not depend on a role.
        let Ok(role) = stores.role(context).await else { return Ok(rights) };
        let mut named = role.content.document_ids.iter().chain(&role.content.rag_document_ids);
        if named.any(|named| named == id) {
            rights.is_named_by_operator = role.owner_id.is_empty();
            if !role.owner_id.is_empty() {
                rights.editors.push(DocumentEditor::load(records, company, &role.owner_id).await?);
            }
        }
        Ok(rights)
    }

    fn may_change(&self, document: &Document) -> bool {
        self.is_named_by_operator || self.editors.iter().any(|editor| editor.may_change(document))
    }
}

#[derive(Deserialize, JsonSchema)]
struct ListDocsArguments {
    /// Maximum number of documents; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
    /// The nextCursor of the previous page.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListDocsResult {
    /// The documents.
    docs: Vec<DocumentSummary>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

async fn list_docs(
    stores: &Stores,
    context: &ExecutionContext,
    arguments: ListDocsArguments,
) -> Result<ListDocsResult, ToolError> {
    let (records, company) = (&*stores.records, &context.company_id);
    let (docs, next_cursor) = match DocumentAccess::of(stores, context).await? {
        DocumentAccess::Company => {
            let list = page::parse_page(arguments.limit, arguments.cursor)?;
            let listed = workspace::list_document_summaries(records, company, &list).await?;
            (listed.items, listed.next_cursor)
        }
        DocumentAccess::Named(ids) => {
            let (ids, next_cursor) = page::slice_page(ids, arguments.limit, arguments.cursor.as_deref())?;
            (workspace::get_document_summaries(records, company, &ids).await?, next_cursor)
        }
    };
    Ok(ListDocsResult { docs, next_cursor })
}

#[derive(Deserialize, JsonSchema)]
struct GetDocArguments {
    /// The document's id.
    id: String,
    /// Position in the text, in bytes, at which to begin, such as the start of a fragment; 0 if omitted.
    start: Option<usize>,
    /// The nextCursor of the previous page, which takes the place of start.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct GetDocResult {
    /// The document.
    doc: DocText,
    /// The cursor of the rest of the text; absent at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DocText {
    /// The document's id.
    id: String,
    /// The title.
    title: String,
    /// The text, or one page of it.
    text: String,
    /// The document's version.
    version: u64,
    /// State of the extraction of an upload's text, which is empty until it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ContentStatus>,
    /// Reason why an upload has no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

async fn get_doc(
    stores: &Stores,
    context: &ExecutionContext,
    get: GetDocArguments,
) -> Result<GetDocResult, ToolError> {
    DocumentAccess::of(stores, context).await?.check(&get.id)?;
    let document = workspace::require_document(&*stores.records, &context.company_id, &get.id).await?;
    let begin = match &get.cursor {
        Some(cursor) => page::parse_offset(Some(cursor))?,
        None => get.start.unwrap_or_default(),
    };
    // The text may have changed since the position was returned, so it may be inside a character.
    let range = begin..begin.saturating_add(TEXT_PAGE_BYTES);
    let (records, company) = (&*stores.records, &context.company_id);
    let part = workspace::read_document_text(records, company, &document.value, range).await?;
    let next_cursor = (part.end() < document.value.text_bytes()).then(|| part.end().to_string());
    let (title, text) = (document.value.title, part.text);
    let (status, error) =
        document.value.content.map_or((None, None), |upload| (Some(upload.status), upload.error));
    Ok(GetDocResult {
        doc: DocText { id: document.id, title, text, version: document.version, status, error },
        next_cursor,
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SearchDocsArguments {
    /// The words to search for.
    #[schemars(length(min = 1, max = MAX_QUERY_BYTES))]
    query: String,
    /// Maximum number of fragments; 5 if omitted.
    #[schemars(range(min = 1, max = MAX_FRAGMENTS))]
    limit: Option<usize>,
    /// Ids of the documents to search in; all documents of the agent if omitted.
    document_ids: Option<Vec<String>>,
}

#[derive(Serialize, JsonSchema)]
struct SearchDocsResult {
    /// The fragments, the best first.
    fragments: Vec<DocFragment>,
    /// Number of documents that were not searched, because they are being indexed or are too large in total; absent if
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct DocFragment {
    /// The document's id.
    document: String,
    /// The document's title.
    title: String,
    /// The headings above the fragment, the outermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    heading: Option<String>,
    /// The page on which the fragment begins, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u32>,
    /// The fragment's text.
    text: String,
    /// Position of the fragment's first byte in the document's text.
    start: usize,
    /// Position after the fragment's last byte.
    end: usize,
    /// Score of the match; comparable within one search.
    score: f64,
}

/// Searches the documents that the role names.
async fn search_docs(
    stores: &Stores,
    context: &ExecutionContext,
    search: SearchDocsArguments,
) -> Result<SearchDocsResult, ToolError> {
    let SearchDocsArguments { query, limit, document_ids } = search;
    let invalid = |field, fault| WorkspaceError::Invalid { field, fault };
    let query = query.trim();
    if query.is_empty() || query.len() > MAX_QUERY_BYTES {
        let fault = format!("must have between 1 and {MAX_QUERY_BYTES} bytes");
        return Err(invalid("query", fault).into());
    }
    let limit = limit.unwrap_or(DEFAULT_FRAGMENTS);
    if !(1..=MAX_FRAGMENTS).contains(&limit) {
        return Err(invalid("limit", format!("must be between 1 and {MAX_FRAGMENTS}")).into());
    }
    let mut ids = named_documents(stores, context).await?;
    if let Some(requested_ids) = document_ids {
        ids.retain(|id| requested_ids.contains(id));
    }
    // Neighbouring hits become one fragment. The model has asked, so it sees weak hits too.
    let options = SearchOptions { limit: 2 * limit, min_relevance: 0.0, ..SearchOptions::default() };
    let query = Query { text: query, previous: None };
    let search = DocumentSearch { company_id: &context.company_id, documents: &ids, query, options };
    let search_result = search_current(stores, context, search).await?;
    let is_told = |reason| !matches!(reason, SkipReason::NotFound | SkipReason::NotNamed);
    let skipped = search_result.skipped.iter().filter(|skipped| is_told(skipped.reason)).count();
    let mut packed = search_result.pack(MAX_FRAGMENT_TOKENS, &EstimateCounter);
    packed.fragments.truncate(limit);
    let fragments = packed.fragments.into_iter().map(|fragment| DocFragment {
        document: fragment.document.to_string(),
        title: fragment.title.to_string(),
        heading: fragment.heading.map(|heading| heading.to_string()),
        page: fragment.page,
        text: fragment.text,
        start: fragment.range.start,
        end: fragment.range.end,
        score: (f64::from(fragment.score) * 1_000.0).round() / 1_000.0,
    });
    let skipped = Some(skipped).filter(|skipped| *skipped > 0);
    Ok(SearchDocsResult { fragments: fragments.collect(), skipped })
}

/// Searches documents, once more if one of them changes meanwhile. Documents that change again are left out.
async fn search_current(
    stores: &Stores,
    context: &ExecutionContext,
    search: DocumentSearch<'_>,
) -> Result<SearchResult, ToolError> {
    let search_result = stores.retriever.search(search.clone()).await?;
    if outdated(stores, context, &search_result).await?.is_empty() {
        return Ok(search_result);
    }
    let mut search_result = stores.retriever.search(search).await?;
    let outdated = outdated(stores, context, &search_result).await?;
    search_result.leave_out(outdated);
    Ok(search_result)
}

/// Returns the documents with hits that have changed since they were searched, or that the role names no longer.
async fn outdated(
    stores: &Stores,
    context: &ExecutionContext,
    search_result: &SearchResult,
) -> Result<Vec<SkippedDocument>, ToolError> {
    let role = stores.role(context).await?;
    let named = RoleDocumentIds::new(Some(&role));
    Ok(find_outdated(&*stores.retriever, &context.company_id, search_result, &named).await?)
}

#[derive(Deserialize, JsonSchema)]
struct CreateDocArguments {
    /// The title, in one line.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: String,
    /// The text, in Markdown.
    #[schemars(length(min = 1, max = MAX_DOCUMENT_BYTES))]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct ChangedDoc {
    /// The document.
    doc: DocumentSummary,
}

async fn create_doc(
    stores: &Stores,
    context: &ExecutionContext,
    new: CreateDocArguments,
) -> Result<ChangedDoc, ToolError> {
    if context.caller == Caller::Widget {
        return Err(ToolError::Unavailable("visitors cannot create documents".to_owned()));
    }
    let CreateDocArguments { title, text } = new;
    let (records, company, user) = (&*stores.records, &context.company_id, &context.user_id);
    if !DocumentEditor::load(records, company, user).await?.may_create() {
        return Err(ToolError::Unavailable("viewers of the company cannot create documents".to_owned()));
    }
    let (document, version) = workspace::create_document(records, company, user, (&title, &text)).await?;
    stores.retriever.announce(company, &document.id);
    Ok(ChangedDoc { doc: DocumentSummary::new(document, version) })
}

#[derive(Deserialize, JsonSchema)]
struct AppendDocArguments {
    /// The document's id.
    id: String,
    /// The text to add, in Markdown.
    #[schemars(length(min = 1, max = MAX_DOCUMENT_BYTES))]
    text: String,
    /// The document's version as read: the call fails if it has changed since. If omitted, the text is added in any
    /// case.
    version: Option<u64>,
}

async fn append_doc(
    stores: &Stores,
    context: &ExecutionContext,
    append: AppendDocArguments,
) -> Result<ChangedDoc, ToolError> {
    let AppendDocArguments { id, text, version } = append;
    DocumentAccess::of(stores, context).await?.check(&id)?;
    let (company, user) = (&context.company_id, &context.user_id);
    let rights = AppendRights::of(stores, context, &id).await?;
    let may_change = |document: &Document| rights.may_change(document);
    let append =
        workspace::append_document(&*stores.records, company, &id, (&text, version), (user, may_change));
    let (longer, version) = append.await?;
    stores.retriever.announce(company, &longer.id);
    Ok(ChangedDoc { doc: DocumentSummary::new(longer, version) })
}
