//! The search over a company's documents.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::budget::TokenCounter;
use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::company::Scope;
use agent_retrieval::document::DocumentId;
use agent_retrieval::embed::EmbedderId;
use agent_retrieval::pack::{Packed, pack};
use agent_retrieval::search::{Dense, Query, Ranking, SearchOptions, VectorQuery};
use futures_util::future::{Either, select};
use futures_util::lock::Mutex as AsyncMutex;
use serde::Serialize;

use super::blocking::BlockingPool;
use super::cache::{CompanyEntry, DocumentState, IndexCache, IndexState};
use super::load::WantedDocuments;
use super::query_vector::{EmbedderSkip, EmbedderUse, QueryEmbedder, RetrievalEmbedder};
use super::queue::DocumentQueue;
use super::texts::{DocumentTexts, NamedDocuments};
use crate::records::{Records, StoreError};
use crate::workspace::index_key;

/// Default limit on the indexes in memory, in bytes.
pub const DEFAULT_CACHE_BYTES: usize = 256 << 20;
/// Maximum time that a search waits for documents that are not indexed yet. It goes without those that are not by then.
const INDEXING_TIMEOUT: Duration = Duration::from_secs(2);

/// Configuration of a [`DocumentRetriever`].
pub struct RetrieverConfig {
    /// Store of the documents and of their indexes.
    pub records: Arc<dyn Records>,
    /// Pool in which texts are analyzed.
    pub pool: Arc<dyn BlockingPool>,
    /// Clock of the deadlines.
    pub clock: Arc<dyn Clock>,
    /// Limit on the indexes in memory, in bytes. A company gets half of it, and a quarter of that for texts.
    pub cache_bytes: usize,
    /// Embedding model by which documents are found in addition to their words.
    pub embedder: Option<RetrievalEmbedder>,
}

/// Searches the documents of companies; see the [module](super).
pub struct DocumentRetriever {
    pub(super) config: RetrieverConfig,
    pub(super) cache: IndexCache,
    pub(super) texts: DocumentTexts,
    /// Held while documents are analyzed.
    pub(super) analysis: Arc<AsyncMutex<()>>,
    pub(super) query_embedder: Option<QueryEmbedder>,
    /// Documents to index in the background.
    pub(super) written: DocumentQueue,
    /// Documents to embed in the background.
    pub(super) unembedded: DocumentQueue,
    /// Identity of this process in leases.
    pub(super) owner: String,
}

/// A search of one company's documents.
#[derive(Debug, Clone)]
pub struct DocumentSearch<'a> {
    /// The company.
    pub company_id: &'a CompanyId,
    /// Identifiers of the documents to search.
    pub documents: &'a [String],
    /// The texts to search for.
    pub query: Query<'a>,
    /// Number of hits, and relevance that they must reach.
    pub options: SearchOptions<'a>,
}

impl<'a> DocumentSearch<'a> {
    /// Returns a search for a text with the default options.
    pub fn new(company_id: &'a CompanyId, documents: &'a [String], text: &'a str) -> Self {
        let query = Query { text, previous: None };
        Self { company_id, documents, query, options: SearchOptions::default() }
    }
}

/// Result of a search.
pub struct SearchResult {
    /// The ranking of the chunks.
    pub ranking: Ranking,
    /// Identifiers of the documents that were searched, in their order.
    pub scope: Vec<String>,
    /// The documents that were not searched.
    pub skipped: Vec<SkippedDocument>,
    /// The documents of the hits.
    pub documents: HashMap<DocumentId, FoundDocument>,
    /// Use of the embedding model; `None` if there is none.
    pub embedder: Option<EmbedderUse>,
    /// Duration of the search.
    pub duration: Duration,
}

/// A document with hits.
#[derive(Clone)]
pub struct FoundDocument {
    /// Version of the document's record.
    pub version: u64,
    /// The text, to which the positions of the hits refer.
    pub text: Arc<str>,
}

/// A document that was not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedDocument {
    /// Identifier of the document.
    pub id: String,
    /// The reason.
    #[serde(rename = "why")]
    pub reason: SkipReason,
}

/// Reason for which a document was not searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SkipReason {
    /// The company does not have the document.
    NotFound,
    /// The document is being indexed.
    Indexing,
    /// The company's documents together need more memory than a company may take.
    TooLarge,
    /// The document cannot be indexed.
    Failed,
    /// The index of an application's own did not answer.
    Unavailable,
    /// The whole document is part of the prompt.
    InPrompt,
    /// The document was changed while it was searched.
    Changed,
    /// The role ceased to name the document while it was searched.
    NotNamed,
}

impl DocumentRetriever {
    /// Creates a retriever without indexes in memory.
    pub fn new(config: RetrieverConfig) -> Self {
        Self {
            cache: IndexCache::new(config.cache_bytes),
            texts: DocumentTexts { records: config.records.clone(), clock: config.clock.clone() },
            analysis: Arc::default(),
            query_embedder: config
                .embedder
                .clone()
                .map(|embedder| QueryEmbedder::new(embedder, config.clock.clone())),
            written: DocumentQueue::default(),
            unembedded: DocumentQueue::default(),
            owner: agent_core::new_id(),
            config,
        }
    }

    /// Returns the identifier of the embedding model.
    pub(super) fn embedder(&self) -> Option<&EmbedderId> {
        self.query_embedder.as_ref().map(QueryEmbedder::id)
    }

    /// Searches documents; see [`Retriever`](super::Retriever).
    pub(super) async fn search_documents(
        &self,
        search: DocumentSearch<'_>,
    ) -> Result<SearchResult, StoreError> {
        let began = self.config.clock.monotonic();
        let DocumentSearch { company_id, documents, query, options } = search;
        let entry = self.cache.entry(company_id);
        let wanted = self.find(company_id, &entry, documents).await?;
        if !is_loaded(&entry, &wanted) {
            let load = pin!(self.load(company_id, &entry, &wanted));
            match select(load, self.config.clock.sleep(INDEXING_TIMEOUT)).await {
                Either::Left((loaded, _)) => loaded?,
                Either::Right(_) => {
                    tracing::warn!("a search goes without documents that are not indexed yet")
                }
            }
        }
        self.announce_unembedded(company_id, &entry, &wanted);
        let (vector, embedder) = self.query_vector(&entry, &wanted, &query).await;
        let (ranking, versions, scope, mut skipped) = loop {
            let found = entry.try_read(|state| rank(state, &wanted, (&query, vector.as_ref()), &options));
            match found {
                Some(found) => break found,
                // The index is being changed by another search.
                None => drop(entry.loading.lock().await),
            }
        };
        let not_found =
            |id: &DocumentId| SkippedDocument { id: id.to_string(), reason: SkipReason::NotFound };
        skipped.extend(wanted.absent.iter().map(not_found));
        let documents = self.read_texts(company_id, &entry, &ranking, &versions).await?;
        let duration = self.config.clock.monotonic().saturating_duration_since(began);
        Ok(SearchResult { ranking, scope, skipped, documents, embedder, duration })
    }

    /// Indexes a document that was written, so that the next search need not.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn index(&self, company_id: &CompanyId, id: &str) -> Result<(), StoreError> {
        let entry = self.cache.entry(company_id);
        let wanted = self.find(company_id, &entry, &[id.to_owned()]).await?;
        self.load(company_id, &entry, &wanted).await?;
        self.announce_unembedded(company_id, &entry, &wanted);
        Ok(())
    }

    /// Lets [`run`](Self::run) embed documents of a search that lack vectors.
    fn announce_unembedded(&self, company_id: &CompanyId, entry: &CompanyEntry, wanted: &WantedDocuments) {
        if self.query_embedder.is_none() {
            return;
        }
        let ids = wanted.present.iter().map(|(id, _)| id);
        entry.try_read(|state| {
            let waiting = state.unembedded(ids).filter(|(_, unembedded)| !unembedded.is_rejected);
            waiting.for_each(|(id, _)| self.unembedded.push(company_id, id.as_str()));
        });
    }

    /// Returns the vector of a query, if some document of the search has one to compare it with.
    async fn query_vector(
        &self,
        entry: &CompanyEntry,
        wanted: &WantedDocuments,
        query: &Query<'_>,
    ) -> (Option<QueryVector<'_>>, Option<EmbedderUse>) {
        let Some(query_embedder) = &self.query_embedder else { return (None, None) };
        let ids = wanted.present.iter().map(|(id, _)| id);
        let has_vectors = entry.try_read(|state| state.has_vectors(ids)).unwrap_or(false);
        let embedded = match has_vectors {
            true => query_embedder.embed(query).await,
            false => Err(EmbedderSkip::NoVectors),
        };
        let embedder = query_embedder.id().clone();
        match embedded {
            Ok(vector) => {
                let settings = &query_embedder.settings;
                (Some(QueryVector { vector, settings }), Some(EmbedderUse { embedder, skipped: None }))
            }
            Err(skip) => (None, Some(EmbedderUse { embedder, skipped: Some(skip) })),
        }
    }

    /// Returns the versions of documents, and those of the stored indexes of documents that lack vectors in memory.
    /// Identifiers that occur several times count once.
    pub(super) async fn find(
        &self,
        company_id: &CompanyId,
        entry: &CompanyEntry,
        ids: &[String],
    ) -> Result<WantedDocuments, StoreError> {
        let named = NamedDocuments::new(company_id, ids);
        let mut keys = named.keys.clone();
        if self.query_embedder.is_some() {
            let ids: Vec<DocumentId> = keys.iter().map(|key| DocumentId::from(key.id())).collect();
            let lacking = entry.try_read(|state| {
                state.unembedded(&ids).map(|(id, _)| index_key(company_id, id.as_str())).collect()
            });
            keys.extend(lacking.unwrap_or_else(|| Ok(Vec::new()))?);
        }
        let versions = self.config.records.versions(&keys).await?;
        let (documents, indexes) = versions.split_at(named.keys.len());
        let index_keys = keys[documents.len()..].iter().zip(indexes);
        let index_versions =
            index_keys.filter_map(|(key, version)| Some((DocumentId::from(key.id()), (*version)?))).collect();
        let (present, absent) = named.split(documents);
        Ok(WantedDocuments { present, absent, index_versions })
    }

    /// Returns the documents of the hits whose texts are still those that were searched.
    async fn read_texts(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        ranking: &Ranking,
        versions: &HashMap<DocumentId, u64>,
    ) -> Result<HashMap<DocumentId, FoundDocument>, StoreError> {
        let mut found = HashMap::new();
        for hit in &ranking.hits {
            let Some(&version) = versions.get(&hit.document).filter(|_| !found.contains_key(&hit.document))
            else {
                continue;
            };
            if let Some(text) = entry.text(&hit.document, version) {
                found.insert(hit.document.clone(), FoundDocument { version, text });
                continue;
            }
            let read = self.texts.read_document(company_id, &hit.document, version).await?;
            let Some(read) = read.filter(|read| read.version == version) else { continue };
            let Some(text) = self.texts.read_text(company_id, read.value).await? else { continue };
            let text: Arc<str> = text.into();
            self.cache.keep_text(company_id, entry, (&hit.document, version), &text);
            found.insert(hit.document.clone(), FoundDocument { version, text });
        }
        Ok(found)
    }
}

/// Returns true if the index has all wanted documents, and none that does not exist.
fn is_loaded(entry: &CompanyEntry, wanted: &WantedDocuments) -> bool {
    let is_loaded = entry.try_read(|state| {
        let is_outdated =
            |(id, version): &(DocumentId, u64)| state.state_of(id, *version) == DocumentState::Outdated;
        !wanted.present.iter().any(is_outdated)
            && !state.may_retry(&wanted.ids())
            && !wanted.absent.iter().any(|id| state.versions.contains_key(id))
            && !wanted.index_versions.iter().any(|(id, version)| state.has_new_vectors(id, *version))
    });
    is_loaded.unwrap_or(false)
}

/// The vector of a query with the settings of its model.
struct QueryVector<'a> {
    vector: Vec<f32>,
    settings: &'a RetrievalEmbedder,
}

type Ranked = (Ranking, HashMap<DocumentId, u64>, Vec<String>, Vec<SkippedDocument>);

/// Ranks the chunks of the wanted documents. Returns with the ranking the versions of the documents with hits, the
/// documents that were searched, and those that were not.
fn rank(
    state: &IndexState,
    wanted: &WantedDocuments,
    (query, vector): (&Query<'_>, Option<&QueryVector<'_>>),
    options: &SearchOptions<'_>,
) -> Ranked {
    let (mut ids, mut scope, mut skipped) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (id, version) in &wanted.present {
        let reason = match state.state_of(id, *version) {
            DocumentState::Current => {
                ids.insert(id.clone());
                scope.push(id.to_string());
                continue;
            }
            DocumentState::Outdated => SkipReason::Indexing,
            DocumentState::Unusable(reason) => reason,
        };
        skipped.push(SkippedDocument { id: id.to_string(), reason });
    }
    let scoped = Scope::Documents(&ids);
    let similar = vector.and_then(|QueryVector { vector, settings }| {
        // A vector that cannot be compared, such as the sum of two opposite ones, finds nothing.
        let hits = state.index.nearest(scoped, &VectorQuery::new(settings.embedder.id(), vector)).ok()?;
        Some((hits, settings))
    });
    let dense = similar.as_ref().map(|(hits, settings)| Dense {
        hits,
        weight: settings.weight,
        min_similarity: settings.min_similarity,
    });
    let ranking = state.index.search(scoped, query, &SearchOptions { dense, ..options.clone() });
    let version = |id: &DocumentId| Some((id.clone(), *state.versions.get(id)?));
    let versions = ranking.hits.iter().filter_map(|hit| version(&hit.document)).collect();
    (ranking, versions, scope, skipped)
}

impl SearchResult {
    /// Chooses fragments of the hits: at most `max_tokens` in all.
    pub fn pack(&self, max_tokens: usize, counter: &dyn TokenCounter) -> Packed {
        let text_of =
            |id: &DocumentId, range: Range<usize>| self.documents.get(id)?.text.get(range).map(str::to_owned);
        pack(&self.ranking, max_tokens, text_of, |text| counter.count(text))
    }
}

impl fmt::Debug for DocumentRetriever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentRetriever")
            .field("cache_bytes", &self.config.cache_bytes)
            .finish_non_exhaustive()
    }
}
