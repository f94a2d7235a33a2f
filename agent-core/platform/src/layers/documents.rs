//! Context layer for the agent's documents: those that are in the prompt, and fragments of those that are searched.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, future, stream, try_join};

use super::stored::{cut_to_tokens, delimit, share_tokens};
use crate::records::{Record, Records, StoreError};
use crate::retrieval::{
    BoundaryKey, DocumentSearch, RetrievalReport, Retriever, RoleDocumentIds, SearchResult, SkipReason,
    SkippedDocument, find_outdated, present_versions,
};
use crate::workspace::{self, Document};
use agent_core::budget::EstimateCounter;
use agent_core::context::{ContextLayer, LayerError, TurnInput};
use agent_core::ids::CompanyId;
use agent_core::message::Role;
use agent_core::prompt::{Fragment, Part, PartCache, RETRIEVAL_SOURCE, Stability, StoredOrigin};
use agent_core::role::RoleSource;
use agent_core::tool::Caller;
use agent_retrieval::pack::PackedFragments;
use agent_retrieval::prompt::prompt_block;
use agent_retrieval::search::{Query, SearchOptions, query_ends};

/// Maximum number of documents read concurrently.
const MAX_CONCURRENT_READS: usize = 8;
/// Share of the prompt's tokens that the documents may take: one part in this many.
const PROMPT_SHARE_DIVISOR: usize = 2;
/// Share of the prompt's tokens that retrieved fragments may take: one part in this many.
const FRAGMENT_SHARE_DIVISOR: usize = 4;
/// Maximum number of hits from which fragments are chosen.
const MAX_HITS: usize = 20;

/// Context layer for the documents that the role names.
///
/// The documents of `documentIds` are in the prompt in their order, as far as they take at most half of it. Those that do not fit
/// are searched instead. With `enableAutoRag`, the documents in `ragDocumentIds` (in `documentIds` if that list is empty) are
/// searched too, except those that are in the prompt. The fragments that answer the latest message are added to the prompt of the
/// turn. Nothing is searched for a user who has switched that off, or without a message: then documents beyond their share are
/// cut at their ends.
///
/// Documents that the company does not have are skipped with a log entry: deleting a document must not stop every agent
/// that refers to it.
///
/// A search may wait for an index or a model. Documents that are deleted or changed meanwhile, or that the role names no
/// longer, are noticed after it: everything is read and searched once more, and what has changed again is left out.
#[derive(Clone)]
pub struct DocumentsLayer {
    records: Arc<dyn Records>,
    cache: Arc<PartCache>,
    retrieval: Option<RetrievalSettings>,
}

impl std::fmt::Debug for DocumentsLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentsLayer").finish_non_exhaustive()
    }
}

/// Settings of the retrieval for turns.
#[derive(Clone)]
pub struct RetrievalSettings {
    /// Searches the documents.
    pub retriever: Arc<dyn Retriever>,
    /// The platform's roles. A turn's role is read again after its search.
    pub roles: Arc<dyn RoleSource>,
    /// Key of the suffixes that delimit quotations.
    pub boundary_key: Arc<BoundaryKey>,
    /// Maximum number of tokens of a turn's fragments. A small prompt has room for fewer.
    pub max_tokens: usize,
    /// Relevance that a fragment must reach, between 0 and 1.
    pub min_relevance: f32,
}

impl std::fmt::Debug for RetrievalSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetrievalSettings")
            .field("max_tokens", &self.max_tokens)
            .field("min_relevance", &self.min_relevance)
            .finish_non_exhaustive()
    }
}

/// The documents of a turn: those that are in the prompt, and those that do not fit.
struct DocumentPlan {
    documents: Vec<Record<Document>>,
    /// The fragment of each document as a whole.
    whole: Vec<Fragment>,
    /// Size of each document in tokens; empty if all of them fit.
    sizes: Vec<usize>,
    /// True for each document that is in the prompt.
    fits: Vec<bool>,
    /// Documents whose texts are too long for any prompt, and are not read.
    long: Vec<Record<Document>>,
}

/// The documents of a turn, and the search of those that are not in the prompt.
struct GatheredDocuments {
    plan: DocumentPlan,
    /// `None` if nothing is searched.
    result: Option<SearchResult>,
    /// The fragments that were chosen from the result.
    packed: PackedFragments,
}

impl DocumentsLayer {
    /// Creates a layer that reads from `records` and takes its parts from `cache`, without retrieval.
    pub fn new(records: Arc<dyn Records>, cache: Arc<PartCache>) -> Self {
        Self { records, cache, retrieval: None }
    }

    /// Adds retrieval.
    pub fn with_retrieval(self, settings: RetrievalSettings) -> Self {
        Self { retrieval: Some(settings), ..self }
    }

    /// Indexes and embeds documents that were written in the background, until the future is dropped. Without retrieval,
    /// it does nothing.
    pub async fn run(&self) {
        if let Some(settings) = &self.retrieval {
            settings.retriever.run().await;
        }
    }

    /// Returns the search over documents.
    pub fn retriever(&self) -> Option<&Arc<dyn Retriever>> {
        self.retrieval.as_ref().map(|settings| &settings.retriever)
    }

    /// Retrieves fragments as a turn does, for an agent without `enableAutoRag` and for every user as well. Returns `None`
    /// if nothing can be searched: the layer is without retrieval, no document is named, or there is no message.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn retrieve(
        &self,
        turn: &TurnInput,
        limit: usize,
    ) -> Result<Option<RetrievalReport>, LayerError> {
        let gathered = self.gather(turn, limit, true).await?;
        Ok(gathered.into_report(turn).1)
    }

    /// Reads the documents of a turn and searches them. Repeats both once if a document changes in between. An explicit search
    /// does not depend on the settings of role and user.
    async fn gather(
        &self,
        turn: &TurnInput,
        limit: usize,
        is_explicit: bool,
    ) -> Result<GatheredDocuments, LayerError> {
        let mut gathered = self.read_and_search(turn, limit, is_explicit).await?;
        // The fragments are chosen while the store reads.
        let pack = future::lazy(|_| self.pack(turn, gathered.result.as_ref()));
        let (outdated, packed) = future::join(self.outdated(turn, &gathered), pack).await;
        if outdated?.is_empty() {
            gathered.packed = packed;
            return Ok(gathered);
        }
        let mut gathered = self.read_and_search(turn, limit, is_explicit).await?;
        let outdated = self.outdated(turn, &gathered).await?;
        gathered.leave_out(outdated);
        gathered.packed = self.pack(turn, gathered.result.as_ref());
        Ok(gathered)
    }

    async fn read_and_search(
        &self,
        turn: &TurnInput,
        limit: usize,
        is_explicit: bool,
    ) -> Result<GatheredDocuments, LayerError> {
        let plan = self.plan(turn).await?;
        let scope = plan.scope(turn, is_explicit || turn.role.content.enable_auto_rag);
        let result = match !scope.is_empty() && (is_explicit || self.is_allowed(turn).await?) {
            true => self.search(turn, &scope, limit).await?,
            false => None,
        };
        Ok(GatheredDocuments { plan, result, packed: PackedFragments::default() })
    }

    /// Returns the documents that have changed since they were read, or that the role names no longer. Without a search,
    /// nothing has waited.
    async fn outdated(
        &self,
        turn: &TurnInput,
        gathered: &GatheredDocuments,
    ) -> Result<Vec<SkippedDocument>, LayerError> {
        let Some((settings, result)) = self.retrieval.as_ref().zip(gathered.result.as_ref()) else {
            return Ok(Vec::new());
        };
        let company_id = &turn.role.company_id;
        let role = match turn.request.role {
            // The role of a preview comes with the request and may not be stored.
            Some(_) => Some(turn.role.clone()),
            None => settings.roles.role(company_id, &turn.role.id).await?,
        };
        let named = RoleDocumentIds::new(role.as_deref());
        let included: Vec<_> =
            gathered.plan.included().map(|record| (record.id.as_str(), Some(record.version))).collect();
        let ids: Vec<&str> = included.iter().map(|(id, _)| *id).collect();
        let (present, outdated_hits) = try_join!(
            present_versions(&*self.records, company_id, &ids),
            find_outdated(&*settings.retriever, company_id, result, &named),
        )?;
        Ok(named.outdated(&included, &present).into_iter().chain(outdated_hits).collect())
    }

    async fn read(&self, company_id: &CompanyId, id: &str) -> Result<Option<Record<Document>>, StoreError> {
        let document = match workspace::get_document(&*self.records, company_id, id).await {
            // An invalid identifier cannot name a stored document.
            Err(StoreError::Invalid(_)) => None,
            found => found?,
        };
        if document.is_none() {
            tracing::warn!(document = ?id, "the role references a document that does not exist in the company");
        }
        let has_text =
            |found: &Record<Document>| found.value.has_long_text() || !found.value.text.trim().is_empty();
        Ok(document.filter(has_text))
    }

    /// Creates the fragment of a document with the text `shown`.
    fn fragment(&self, document: &Document, shown: &str) -> Fragment {
        let id = &document.id;
        let title = match document.title.trim() {
            "" => id,
            title => title,
        };
        let omitted = document.text.trim().len().saturating_sub(shown.len());
        let origin = StoredOrigin {
            kind: "document",
            id: Some(id.clone()),
            title: Some(title.to_owned()),
            owner: document.owner_id.clone(),
            omitted_bytes: Some(omitted).filter(|bytes| *bytes > 0),
            ..StoredOrigin::default()
        };
        let (text, origin) = delimit("Document", Some(("title", title)), shown, origin);
        let part = self.cache.part(text);
        Fragment::new(format!("doc:{id}"), self.name(), Stability::Agent, part).with_origin(origin)
    }

    /// Cuts the documents, which have these sizes in tokens, to `max_tokens` by the rule of the layer.
    fn cut(&self, plan: DocumentPlan, max_tokens: usize) -> Vec<Fragment> {
        let DocumentPlan { documents, whole, sizes, long, .. } = plan;
        let mut left_out: Vec<usize> = long.iter().map(|record| record.value.text_bytes()).collect();
        // Without sizes, all documents that were read fit.
        let shares = if sizes.is_empty() { Vec::new() } else { share_tokens(&sizes, max_tokens) };
        let mut shown = Vec::with_capacity(whole.len());
        for (i, fragment) in whole.into_iter().enumerate() {
            let document = &documents[i].value;
            let text = document.text.trim();
            match shares.get(i) {
                Some(0) => left_out.push(text.len()),
                Some(share) if *share < sizes[i] => {
                    let cut = cut_to_tokens(text, sizes[i], *share).trim_end();
                    shown.push(self.fragment(document, cut));
                }
                _ => shown.push(fragment),
            }
        }
        shown.extend((!left_out.is_empty()).then(|| self.left_out(&left_out)));
        shown
    }

    /// Creates the fragment that names the documents without shown text, with their sizes in bytes.
    fn left_out(&self, sizes: &[usize]) -> Fragment {
        let text = format!("## More documents\n\n{} more documents are left out here.", sizes.len());
        self.omission_note("docs-left-out", text, sizes)
    }

    /// Reads the documents of the role and decides which of them are in the prompt: in their order, as far as
    /// there is room.
    async fn plan(&self, turn: &TurnInput) -> Result<DocumentPlan, StoreError> {
        let ids = &turn.role.content.document_ids;
        let reads: Vec<_> = ids.iter().map(|id| self.read(&turn.role.company_id, id)).collect();
        let found: Vec<_> = stream::iter(reads).buffered(MAX_CONCURRENT_READS).try_collect().await?;
        let (long, documents): (Vec<_>, Vec<_>) =
            found.into_iter().flatten().partition(|record| record.value.has_long_text());
        let fragment = |record: &Record<Document>| self.fragment(&record.value, record.value.text.trim());
        let whole: Vec<Fragment> = documents.iter().map(fragment).collect();
        let max_tokens = turn.max_prompt_tokens / PROMPT_SHARE_DIVISOR;
        let mut fits = vec![true; documents.len()];
        // A token has at least one byte, so short documents fit without being counted.
        if whole.iter().map(|fragment| fragment.part.text().len()).sum::<usize>() <= max_tokens {
            return Ok(DocumentPlan { documents, whole, sizes: Vec::new(), fits, long });
        }
        let sizes: Vec<usize> = whole.iter().map(|fragment| fragment.part.tokens(&EstimateCounter)).collect();
        let mut free_tokens = max_tokens;
        for (fits, size) in fits.iter_mut().zip(&sizes) {
            *fits = *size <= free_tokens;
            free_tokens -= if *fits { *size } else { 0 };
        }
        Ok(DocumentPlan { documents, whole, sizes, fits, long })
    }

    /// Returns true if the turn's user allows searches. Visitors have no settings.
    async fn is_allowed(&self, turn: &TurnInput) -> Result<bool, StoreError> {
        let context = &turn.context;
        if context.caller == Caller::Widget {
            return Ok(true);
        }
        let user = match workspace::get_user(&*self.records, &context.company_id, &context.user_id).await {
            // An invalid identifier belongs to no user.
            Err(StoreError::Invalid(_)) => None,
            user => user?,
        };
        Ok(user.is_none_or(|user| user.allows_rag()))
    }

    /// Searches documents for the latest message, with the message before it for questions that leave out their subject.
    async fn search(
        &self,
        turn: &TurnInput,
        scope: &[String],
        limit: usize,
    ) -> Result<Option<SearchResult>, LayerError> {
        let Some(settings) = &self.retrieval else { return Ok(None) };
        let messages = turn.request.messages.iter().rev().filter(|message| message.role == Role::User);
        let mut texts =
            messages.map(|message| message.content.to_text()).filter(|text| !text.trim().is_empty());
        let Some(text) = texts.next() else { return Ok(None) };
        let previous = texts.next();
        let (text, previous) = (query_ends(&text), previous.as_deref().map(query_ends));
        let query = Query { text: &text, previous: previous.as_deref() };
        let options =
            SearchOptions { limit, min_relevance: settings.min_relevance, ..SearchOptions::default() };
        let search = DocumentSearch { company_id: &turn.role.company_id, documents: scope, query, options };
        Ok(Some(settings.retriever.search(search).await?))
    }

    /// Chooses fragments of a search result.
    fn pack(&self, turn: &TurnInput, result: Option<&SearchResult>) -> PackedFragments {
        let Some((settings, result)) = self.retrieval.as_ref().zip(result) else {
            return PackedFragments::default();
        };
        let max_tokens = settings.max_tokens.min(turn.max_prompt_tokens / FRAGMENT_SHARE_DIVISOR);
        result.pack(max_tokens, &EstimateCounter)
    }

    /// Creates the fragment that names documents that are searched because they do not fit.
    fn search_notice(&self, plan: &DocumentPlan) -> Option<Fragment> {
        let sizes: Vec<usize> = plan.not_included().map(|record| record.value.text_bytes()).collect();
        let text = match sizes.len() {
            0 => return None,
            1 => "## More documents\n\nOne document is too long to stand here. It is searched for each message.".to_owned(),
            count => format!(
                "## More documents\n\n{count} documents are too long to stand here. They are searched for each message."
            ),
        };
        Some(self.omission_note("docs-searched", text, &sizes))
    }

    /// Creates a fragment about documents without shown text, with their sizes in bytes.
    fn omission_note(&self, id: &'static str, text: String, sizes: &[usize]) -> Fragment {
        let omitted_bytes = Some(sizes.iter().sum());
        let origin = StoredOrigin { kind: "document", omitted_bytes, ..StoredOrigin::default() };
        Fragment::new(id, self.name(), Stability::Agent, self.cache.part(text)).with_origin(origin)
    }
}

impl DocumentPlan {
    fn included(&self) -> impl Iterator<Item = &Record<Document>> {
        self.documents.iter().zip(&self.fits).filter(|(_, fits)| **fits).map(|(document, _)| document)
    }

    fn remove(&mut self, ids: &HashSet<&str>) {
        let keep_flags: Vec<bool> =
            self.documents.iter().map(|record| !ids.contains(record.id.as_str())).collect();
        retain(&mut self.documents, &keep_flags);
        retain(&mut self.whole, &keep_flags);
        retain(&mut self.sizes, &keep_flags);
        retain(&mut self.fits, &keep_flags);
        self.long.retain(|record| !ids.contains(record.id.as_str()));
    }

    fn not_included(&self) -> impl Iterator<Item = &Record<Document>> {
        let short = self.documents.iter().zip(&self.fits).filter(|(_, fits)| !**fits);
        short.map(|(document, _)| document).chain(&self.long)
    }

    /// Returns the documents to search: documents that do not fit into the prompt and, with `is_enabled`, the role's other
    /// documents that are not in the prompt.
    fn scope(&self, turn: &TurnInput, is_enabled: bool) -> Vec<String> {
        let content = &turn.role.content;
        let named = match &content.rag_document_ids[..] {
            [] => &content.document_ids[..],
            named => named,
        };
        let included: HashSet<&String> = self.included().map(|record| &record.id).collect();
        let named = named.iter().filter(|id| is_enabled && !included.contains(id));
        let not_included = self.not_included().map(|record| &record.id);
        let mut seen = HashSet::new();
        named.chain(not_included).filter(|id| seen.insert(*id)).cloned().collect()
    }

    /// Returns the fragments of the documents that are in the prompt.
    fn into_included(self) -> impl Iterator<Item = Fragment> {
        self.whole.into_iter().zip(self.fits).filter(|(_, fits)| *fits).map(|(fragment, _)| fragment)
    }
}

/// Keeps the items whose flag is set.
fn retain<T>(items: &mut Vec<T>, flags: &[bool]) {
    let mut flags = flags.iter();
    items.retain(|_| flags.next().is_some_and(|flag| *flag));
}

impl GatheredDocuments {
    /// Returns the documents of the turn, and the report of their search.
    fn into_report(self, turn: &TurnInput) -> (DocumentPlan, Option<RetrievalReport>) {
        let Self { plan, result, packed } = self;
        let in_prompt = |record: &Record<Document>| SkippedDocument {
            id: record.id.clone(),
            reason: SkipReason::InPrompt,
        };
        let report = result.map(|mut result| {
            result.skipped.extend(plan.included().map(in_prompt));
            RetrievalReport { result, packed, shows_sources: turn.role.content.show_sources }
        });
        (plan, report)
    }

    /// Removes documents that changed again while they were searched once more. One that is in the prompt stays as it
    /// was read, unless it was deleted or is named no longer.
    fn leave_out(&mut self, mut outdated: Vec<SkippedDocument>) {
        let included: HashSet<String> = self.plan.included().map(|record| record.id.clone()).collect();
        outdated.retain(|found| found.reason != SkipReason::Changed || !included.contains(&found.id));
        let removed = outdated.iter().filter(|found| found.reason != SkipReason::Changed);
        self.plan.remove(&removed.map(|found| &*found.id).collect());
        if let Some(result) = &mut self.result {
            result.leave_out(outdated);
        }
    }
}

/// Returns the fragments that quote the retrieved chunks.
fn quote(turn: &TurnInput, settings: &RetrievalSettings, report: RetrievalReport) -> Vec<Fragment> {
    let fragments = &report.packed.fragments;
    let texts = fragments.iter().map(|fragment| fragment.text.as_str());
    let boundary = settings.boundary_key.suffix(turn.role.company_id.as_str(), texts);
    let block = prompt_block(fragments, &boundary);
    let origin = StoredOrigin { kind: "document", ..StoredOrigin::default() };
    let introduction = turn_fragment("retrieval".to_owned(), block.introduction, origin);
    let quotations: Vec<Fragment> = (1..)
        .zip(fragments.iter().zip(block.quotations))
        .map(|(number, (fragment, quotation))| {
            let origin = StoredOrigin {
                kind: "document",
                id: Some(fragment.document.to_string()),
                title: Some(fragment.title.to_string()).filter(|title| !title.is_empty()),
                text: quotation.content,
                ..StoredOrigin::default()
            };
            turn_fragment(format!("retrieval:{number}"), quotation.text, origin)
        })
        .collect();
    [introduction.with_report(Arc::new(report))].into_iter().chain(quotations).collect()
}

/// Creates a fragment of the turn, whose text is not worth caching.
fn turn_fragment(id: String, text: String, origin: StoredOrigin) -> Fragment {
    Fragment::new(id, RETRIEVAL_SOURCE, Stability::Turn, Part::new(text)).with_origin(origin)
}

#[async_trait]
impl ContextLayer for DocumentsLayer {
    fn name(&self) -> &'static str {
        "documents"
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        let (plan, report) = self.gather(turn, MAX_HITS, false).await?.into_report(turn);
        let Some((settings, report)) = self.retrieval.as_ref().zip(report) else {
            if plan.not_included().next().is_none() {
                return Ok(plan.whole);
            }
            return Ok(self.cut(plan, turn.max_prompt_tokens / PROMPT_SHARE_DIVISOR));
        };
        let searched = self.search_notice(&plan);
        let retrieved = quote(turn, settings, report);
        Ok(plan.into_included().chain(searched).chain(retrieved).collect())
    }
}

#[cfg(test)]
mod tests;
