//! A [`SearchIndex`] in memory: the search of this crate for programs without the platform, and for tests.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

use crate::chunk::StructuralChunker;
use crate::company::{CompanyIndex, DocumentChange, SearchScope};
use crate::doc_index::DocIndex;
use crate::document::{DocumentId, ExtractedText};
use crate::index::{IndexError, IndexHit, IndexQuery, IndexResponse, SearchIndex};
use crate::search::SearchOptions;

/// An index of companies' documents in memory. It grows with the documents that are put into it.
#[derive(Debug, Default)]
pub struct MemoryIndex {
    companies: RwLock<HashMap<String, Company>>,
}

#[derive(Debug, Default)]
struct Company {
    index: CompanyIndex,
    versions: HashMap<DocumentId, u64>,
}

impl MemoryIndex {
    /// Creates an index without documents.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl SearchIndex for MemoryIndex {
    async fn put(
        &self,
        company: &str,
        document: &DocumentId,
        version: u64,
        content: &ExtractedText,
    ) -> Result<(), IndexError> {
        let index = DocIndex::build(content, &StructuralChunker::default());
        let index = index.map_err(|error| IndexError::Rejected(error.to_string()))?;
        let mut companies = self.companies.write().unwrap_or_else(PoisonError::into_inner);
        let company = companies.entry(company.to_owned()).or_default();
        company.index.apply([DocumentChange::Put(document.clone(), Arc::new(index))]);
        company.versions.insert(document.clone(), version);
        Ok(())
    }

    async fn remove(&self, company: &str, document: &DocumentId) -> Result<(), IndexError> {
        let mut companies = self.companies.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(company) = companies.get_mut(company) {
            company.index.apply([DocumentChange::Remove(document.clone())]);
            company.versions.remove(document);
        }
        Ok(())
    }

    async fn search(&self, search: &IndexQuery<'_>) -> Result<IndexResponse, IndexError> {
        let companies = self.companies.read().unwrap_or_else(PoisonError::into_inner);
        let Some(company) = companies.get(search.company) else {
            let missing = search.documents.iter().map(|(id, _)| id.clone()).collect();
            return Ok(IndexResponse { hits: Vec::new(), missing });
        };
        let (current, missing): (Vec<_>, Vec<_>) =
            search.documents.iter().partition(|(id, version)| company.versions.get(id) == Some(version));
        let versions: HashMap<&DocumentId, u64> =
            current.iter().map(|(id, version)| (id, *version)).collect();
        let documents: BTreeSet<DocumentId> = current.iter().map(|(id, _)| id.clone()).collect();
        let options = SearchOptions { limit: search.limit, min_relevance: 0.0, ..SearchOptions::default() };
        let ranking = company.index.search(SearchScope::Documents(&documents), &search.query, &options);
        let hits = ranking.hits.into_iter().filter_map(|hit| {
            Some(IndexHit {
                version: *versions.get(&hit.document)?,
                document: hit.document,
                chunk: hit.chunk,
                range: hit.range,
                heading: hit.heading.map(|heading| heading.to_string()),
                page: hit.page,
                score: hit.score,
                relevance: hit.relevance,
            })
        });
        Ok(IndexResponse {
            hits: hits.collect(),
            missing: missing.into_iter().map(|(id, _)| id.clone()).collect(),
        })
    }
}
