//! The search over a company's documents.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_retrieval::company::SearchScope;
use agent_retrieval::document::DocumentId;
use agent_retrieval::embed::EmbedderId;
use agent_retrieval::search::{DenseRanking, Query, Ranking, SearchOptions, VectorQuality, VectorQuery};
use futures_util::future::{Either, select};

use super::blocking::run_blocking;
use super::cache::{CompanyEntry, DocumentState, IndexState};
use super::document_reader::{NamedDocuments, upload_media_type};
use super::document_retriever::DocumentRetriever;
use super::load::RequestedDocuments;
use super::query_vector::{EmbedderSkip, EmbedderUse, RetrievalEmbedder};
use super::search_result::{FoundDocument, SearchResult, SkipReason, SkippedDocument};
use crate::records::StoreError;
use crate::workspace::{index_key, vector_drops_key};

/// Maximum time that a search waits for documents that are not indexed yet. Documents that are not indexed by then are left
/// out.
const INDEXING_TIMEOUT: Duration = Duration::from_secs(2);

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
        Self { company_id, documents, query: Query::new(text), options: SearchOptions::default() }
    }
}

impl DocumentRetriever {
    /// Searches documents; see [`Retriever`](super::Retriever).
    pub(super) async fn search_documents(
        &self,
        search: DocumentSearch<'_>,
    ) -> Result<SearchResult, StoreError> {
        let began = self.config.clock.monotonic();
        let DocumentSearch { company_id, documents, query, options } = search;
        let entry = self.cache.entry(company_id);
        let requested = self.find(company_id, &entry, documents).await?;
        if !is_loaded(&entry, &requested) {
            let load = pin!(self.load(company_id, &entry, &requested));
            match select(load, self.config.clock.sleep(INDEXING_TIMEOUT)).await {
                Either::Left((loaded, _)) => loaded?,
                Either::Right(_) => {
                    tracing::warn!("a search omits documents that are not indexed yet")
                }
            }
        }
        self.announce_unembedded(company_id, &entry, &requested);
        let (vector, embedder) = self.query_vector(company_id, &entry, &requested, &query).await;
        let (ranking, versions, scope, mut skipped) = loop {
            let found = entry.try_read(|state| rank(state, &requested, (&query, vector.as_ref()), &options));
            match found {
                Some(found) => break found,
                // The index is being changed by another search.
                None => drop(entry.loading.lock().await),
            }
        };
        let not_found =
            |id: &DocumentId| SkippedDocument { id: id.to_string(), reason: SkipReason::NotFound };
        skipped.extend(requested.absent.iter().map(not_found));
        let documents = self.read_texts(company_id, &entry, &ranking, &versions).await?;
        let duration = self.config.clock.monotonic().saturating_duration_since(began);
        Ok(SearchResult { ranking, scope, skipped, documents, embedder, duration })
    }

    /// Indexes a document that was written, so that the next search does not have to.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn index(&self, company_id: &CompanyId, id: &str) -> Result<(), StoreError> {
        let entry = self.cache.entry(company_id);
        let requested = self.find(company_id, &entry, &[id.to_owned()]).await?;
        self.load(company_id, &entry, &requested).await?;
        self.announce_unembedded(company_id, &entry, &requested);
        Ok(())
    }

    /// Queues the documents of a search that lack vectors, for [`run`](Self::run).
    fn announce_unembedded(
        &self,
        company_id: &CompanyId,
        entry: &CompanyEntry,
        requested: &RequestedDocuments,
    ) {
        if self.query_embedder.is_none() {
            return;
        }
        entry.try_read(|state| {
            for (id, version) in &requested.present {
                if state.unembedded([id]).any(|(_, unembedded)| !unembedded.is_left_out) {
                    self.unembedded.push(company_id, id.as_str(), *version);
                }
            }
        });
    }

    /// Returns the vector of a query, if the documents of the search have some to compare it with that mean something.
    async fn query_vector(
        &self,
        company_id: &CompanyId,
        entry: &Arc<CompanyEntry>,
        requested: &RequestedDocuments,
        query: &Query<'_>,
    ) -> (Option<QueryVector<'_>>, Option<EmbedderUse>) {
        let Some(query_embedder) = &self.query_embedder else { return (None, None) };
        let ids = requested.present.iter().map(|(id, _)| id);
        let has_vectors = entry.try_read(|state| state.has_vectors(ids)).unwrap_or(false);
        let embedder = query_embedder.id().clone();
        let embedded = if !has_vectors {
            Err(EmbedderSkip::NoVectors)
        } else if !self.vectors_have_meaning(entry, requested, &embedder).await {
            Err(EmbedderSkip::MeaninglessVectors)
        } else {
            query_embedder.embed(company_id, query).await
        };
        match embedded {
            Ok(vector) => {
                let settings = &query_embedder.settings;
                (Some(QueryVector { vector, settings }), Some(EmbedderUse { embedder, skipped: None }))
            }
            Err(skip) => (None, Some(EmbedderUse { embedder, skipped: Some(skip) })),
        }
    }

    /// Returns false if the vectors of the documents of a search are known to have no relation to their texts. They are checked once
    /// for each state of the documents and their vectors.
    async fn vectors_have_meaning(
        &self,
        entry: &Arc<CompanyEntry>,
        requested: &RequestedDocuments,
        embedder: &EmbedderId,
    ) -> bool {
        let mut checks = entry.vector_checks.lock().await;
        loop {
            let known = entry.try_read(|state| checks.get(state.vector_digest(&requested.present)));
            if let Some(quality) = known.flatten() {
                return quality != VectorQuality::Uninformative;
            }
            let (entry_to_check, present, id) = (entry.clone(), requested.present.clone(), embedder.clone());
            let work = move || {
                entry_to_check.try_read(|state| {
                    let scope: BTreeSet<DocumentId> = state.current(&present).cloned().collect();
                    (
                        state.vector_digest(&present),
                        state.index.check_vectors(SearchScope::Documents(&scope), &id),
                    )
                })
            };
            match run_blocking(&self.config.pool, work).await {
                Some(Some((digest, check))) => {
                    if check.quality == VectorQuality::Uninformative {
                        let (pairs, score) = (check.pairs, check.standard_score);
                        tracing::warn!(%embedder, pairs, score, "the embedder's vectors have no relation to the texts");
                    }
                    checks.insert(digest, check.quality);
                    return check.quality != VectorQuality::Uninformative;
                }
                // The index is being changed by another search.
                Some(None) => drop(entry.loading.lock().await),
                None => {
                    tracing::error!("the check of vectors was interrupted");
                    return true;
                }
            }
        }
    }

    /// Returns the versions of documents. With an embedder, it also returns the versions of the record of dropped vectors, and of
    /// the stored indexes of documents that lack vectors in memory. Identifiers that occur several times count once.
    pub(super) async fn find(
        &self,
        company_id: &CompanyId,
        entry: &CompanyEntry,
        ids: &[String],
    ) -> Result<RequestedDocuments, StoreError> {
        let NamedDocuments { mut keys, invalid } = NamedDocuments::new(company_id, ids);
        let document_count = keys.len();
        let ids: Vec<DocumentId> = keys.iter().map(|key| DocumentId::from(key.id())).collect();
        // Before the versions are read, since another search may put newer ones meanwhile.
        let known = entry.try_read(|state| ids.iter().map(|id| state.known_version(id)).collect::<Vec<_>>());
        if self.query_embedder.is_some() {
            let lacking = entry.try_read(|state| {
                state.unembedded(&ids).map(|(id, _)| index_key(company_id, id.as_str())).collect()
            });
            keys.push(vector_drops_key(company_id)?);
            keys.extend(lacking.unwrap_or_else(|| Ok(Vec::new()))?);
        }
        let versions = self.config.records.versions(&keys).await?;
        let (documents, others) = versions.split_at(document_count);
        let other_keys = keys.split_off(document_count);
        let mut others = other_keys.iter().zip(others);
        // Without an embedder, there are no others.
        let vector_drops = others.next().and_then(|(_, version)| *version);
        let index_versions =
            others.filter_map(|(key, version)| Some((DocumentId::from(key.id()), (*version)?))).collect();
        let reverted = reverted(&ids, &known.unwrap_or_default(), documents);
        let (present, absent) = NamedDocuments { keys, invalid }.split(documents);
        Ok(RequestedDocuments { present, absent, reverted, index_versions, vector_drops })
    }

    /// Returns the documents of the hits whose texts have not changed since they were searched.
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
            if let Some(document) = entry.document(&hit.document, version) {
                found.insert(hit.document.clone(), document);
                continue;
            }
            let read = self.texts.read_document(company_id, &hit.document, version).await?;
            let Some(read) = read.filter(|read| read.version == version) else { continue };
            let media_type = upload_media_type(&read.value);
            let Some(text) = self.texts.read_text(company_id, read.value).await? else { continue };
            let document = FoundDocument { version, text: text.into(), media_type };
            self.cache.keep_text(company_id, entry, &hit.document, &document);
            found.insert(hit.document.clone(), document);
        }
        Ok(found)
    }
}

/// Returns the documents, with their versions, that were known at a newer version before the versions were read.
fn reverted(ids: &[DocumentId], known: &[Option<u64>], versions: &[Option<u64>]) -> Vec<(DocumentId, u64)> {
    let versions = known.iter().zip(versions);
    let found = ids.iter().zip(versions).filter_map(|(id, (known, version))| {
        let version = version.filter(|version| *known > Some(*version))?;
        Some((id.clone(), version))
    });
    found.collect()
}

/// Returns true if the index has all requested documents, and none that does not exist or whose version the store has lost.
fn is_loaded(entry: &CompanyEntry, requested: &RequestedDocuments) -> bool {
    let is_loaded = entry.try_read(|state| {
        let is_outdated =
            |(id, version): &(DocumentId, u64)| state.state_of(id, *version) == DocumentState::Outdated;
        let may_retry = state.has_too_large() && state.may_retry(&requested.ids());
        !may_retry
            && !requested.present.iter().any(is_outdated)
            && !state.has_dropped_vectors(requested.vector_drops)
            && !requested.absent.iter().any(|id| state.versions.contains_key(id))
            && requested.lost(state).next().is_none()
            && !requested.index_versions.iter().any(|(id, version)| state.has_new_vectors(id, *version))
    });
    is_loaded.unwrap_or(false)
}

/// The vector of a query with the settings of its model.
struct QueryVector<'a> {
    vector: Vec<f32>,
    settings: &'a RetrievalEmbedder,
}

type Ranked = (Ranking, HashMap<DocumentId, u64>, Vec<String>, Vec<SkippedDocument>);

/// Ranks the chunks of the requested documents. Returns with the ranking the versions of the documents with hits, the
/// documents that were searched, and those that were not.
fn rank(
    state: &IndexState,
    requested: &RequestedDocuments,
    (query, vector): (&Query<'_>, Option<&QueryVector<'_>>),
    options: &SearchOptions<'_>,
) -> Ranked {
    let (mut ids, mut scope, mut skipped) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (id, version) in &requested.present {
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
    let scoped = SearchScope::Documents(&ids);
    let similar = vector.and_then(|QueryVector { vector, settings }| {
        // A vector that cannot be compared, such as the sum of two opposite ones, finds nothing.
        let hits = state.index.nearest(scoped, &VectorQuery::new(settings.embedder.id(), vector)).ok()?;
        Some((hits, settings))
    });
    let dense = similar.as_ref().map(|(hits, settings)| DenseRanking {
        hits,
        weight: settings.weight,
        min_similarity: settings.min_similarity,
    });
    let ranking = state.index.search(scoped, query, &SearchOptions { dense, ..options.clone() });
    let version = |id: &DocumentId| Some((id.clone(), *state.versions.get(id)?));
    let versions = ranking.hits.iter().filter_map(|hit| version(&hit.document)).collect();
    (ranking, versions, scope, skipped)
}
