//! The index of a company's documents, merged in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;
use std::sync::Arc;

use crate::doc_index::{ChunkLocation, DocIndex, Vectors, VectorsError};
use crate::document::DocumentId;
use crate::embed::EmbedderId;
use crate::part::{Corpus, DocEntry, Part, ScopedPart, Totals};
use crate::postings::{ChunkTerms, Postings};
use crate::search::{
    DenseHit, Query, Ranking, SearchOptions, VectorCheck, VectorQuery, check_vectors, nearest, rank,
};

/// Maximum number of entries of a merged segment; segments that would exceed it stay apart.
const MAX_SEGMENT_ENTRIES: usize = u32::MAX as usize / 2;

/// The documents that a search may see.
#[derive(Debug, Clone, Copy)]
pub enum SearchScope<'a> {
    /// All documents of the index.
    All,
    /// The documents with these identifiers; identifiers that the index does not have are ignored.
    Documents(&'a BTreeSet<DocumentId>),
}

/// A change of one document.
#[derive(Debug, Clone)]
pub enum DocumentChange {
    /// Adds a document, or replaces it.
    Put(DocumentId, Arc<DocIndex>),
    /// Removes a document; without effect if there is none.
    Remove(DocumentId),
}

/// The merged index of a company's documents.
///
/// Documents are kept in segments, each with its own inverted index. A change makes a new segment; small segments are
/// merged, so that their number grows with the logarithm of the number of documents and each document is merged about as
/// often. Replaced and removed documents are left out of searches at once, and of memory with the next merge, or as
/// soon as they are half of a segment.
///
/// Results depend on the documents alone, not on the order of changes or on the segments.
#[derive(Debug, Default)]
pub struct CompanyIndex {
    segments: Vec<Segment>,
    /// The documents that are alive, with their segment and position.
    positions: BTreeMap<DocumentId, (usize, usize)>,
}

#[derive(Debug, Default)]
struct Segment {
    documents: Vec<DocEntry>,
    alive: Vec<bool>,
    alive_documents: usize,
    alive_chunks: usize,
    /// Totals of all documents, including removed ones.
    totals: Totals,
    owners: Vec<u32>,
    locations: Vec<ChunkLocation>,
    lengths: Vec<u16>,
    postings: Postings,
    chunk_terms: ChunkTerms,
}

impl CompanyIndex {
    /// Returns an index without documents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies changes in their order. Many changes at once cost less than one by one.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = DocumentChange>) {
        let mut put: BTreeMap<DocumentId, Arc<DocIndex>> = BTreeMap::new();
        for change in changes {
            match change {
                DocumentChange::Put(id, index) => {
                    self.mark_deleted(&id);
                    put.insert(id, index);
                }
                DocumentChange::Remove(id) => {
                    self.mark_deleted(&id);
                    put.remove(&id);
                }
            }
        }
        self.compact(put);
    }

    /// Replaces the vectors of a document; false if there is no such document, or if they are not as
    /// many as its chunks. Costs no merge.
    pub fn set_vectors(&mut self, id: &DocumentId, vectors: Option<Arc<Vectors>>) -> bool {
        let Some(&(number, position)) = self.positions.get(id) else { return false };
        let document = &mut self.segments[number].documents[position];
        let fits = vectors.as_ref().is_none_or(|vectors| vectors.len() == document.chunks.len());
        if fits {
            document.vectors = vectors;
        }
        fits
    }

    /// Returns the vectors of a document.
    pub fn vectors(&self, id: &DocumentId) -> Option<&Arc<Vectors>> {
        let &(number, position) = self.positions.get(id)?;
        self.segments[number].documents[position].vectors.as_ref()
    }

    /// Returns the number of documents.
    pub fn document_count(&self) -> usize {
        self.positions.len()
    }

    /// Returns the number of chunks of all documents.
    pub fn chunk_count(&self) -> usize {
        self.segments.iter().map(|segment| segment.alive_chunks).sum()
    }

    /// Returns true if the index has a document.
    pub fn contains(&self, id: &str) -> bool {
        self.positions.contains_key(id)
    }

    /// Returns the bytes of heap memory that the index occupies, without allocators' overhead.
    pub fn memory_bytes(&self) -> usize {
        let positions = self.positions.len() * size_of::<(DocumentId, (usize, usize))>() * 3 / 2;
        positions + self.segments.iter().map(Segment::memory_bytes).sum::<usize>()
    }

    /// Ranks the chunks of the documents in the scope.
    pub fn search(&self, scope: SearchScope<'_>, query: &Query<'_>, options: &SearchOptions<'_>) -> Ranking {
        rank(&self.corpus(scope), query, options)
    }

    /// Finds the chunks of the documents in the scope whose vectors are most similar to the query's, for
    /// [`SearchOptions::dense`], the most similar first. Documents without vectors of the query's embedder are left out.
    ///
    /// # Errors
    /// The query's vector has components that are not finite, none, or too many, or the length 0.
    pub fn nearest(
        &self,
        scope: SearchScope<'_>,
        query: &VectorQuery<'_>,
    ) -> Result<Vec<DenseHit>, VectorsError> {
        nearest(&self.corpus(scope), query)
    }

    /// Checks whether the vectors of an embedder are related to the texts of the documents in the scope. A search by other
    /// vectors is no better than chance, and damages a ranking with which it is combined.
    ///
    /// Takes some milliseconds and a look at each chunk, regardless of the number of documents. So the result should be kept
    /// until the documents of the scope or their vectors change.
    pub fn check_vectors(&self, scope: SearchScope<'_>, embedder: &EmbedderId) -> VectorCheck {
        check_vectors(&self.corpus(scope), embedder)
    }

    fn corpus(&self, scope: SearchScope<'_>) -> Corpus<'_> {
        let parts = match scope {
            SearchScope::All => self.segments.iter().filter_map(Segment::scoped_whole).collect(),
            SearchScope::Documents(ids) => {
                let mut allowed: Vec<Vec<bool>> =
                    self.segments.iter().map(|segment| vec![false; segment.documents.len()]).collect();
                for &(number, position) in ids.iter().filter_map(|id| self.positions.get(id)) {
                    allowed[number][position] = true;
                }
                let scoped = self.segments.iter().zip(allowed);
                scoped.filter_map(|(segment, allowed)| ScopedPart::new(segment.part(), allowed)).collect()
            }
        };
        Corpus::new(parts)
    }

    /// Marks a document as deleted, so that searches leave it out.
    fn mark_deleted(&mut self, id: &DocumentId) {
        if let Some((number, position)) = self.positions.remove(id) {
            let segment = &mut self.segments[number];
            segment.alive[position] = false;
            segment.alive_documents -= 1;
            segment.alive_chunks -= segment.documents[position].chunks.len();
        }
    }

    /// Adds documents as a new segment, and merges segments that are not much larger than those after them.
    fn compact(&mut self, put: BTreeMap<DocumentId, Arc<DocIndex>>) {
        let new_chunks: usize = put.values().map(|index| index.chunk_count()).sum();
        let mut entries: usize = put.values().map(|index| index.postings.entry_count()).sum();
        let mut merged_chunks = new_chunks;
        let mut merged_from = self.segments.len();
        if !put.is_empty() {
            while let Some(segment) = merged_from.checked_sub(1).map(|number| &self.segments[number]) {
                entries += segment.postings.entry_count();
                if segment.alive_chunks > 2 * merged_chunks || entries > MAX_SEGMENT_ENTRIES {
                    break;
                }
                merged_chunks += segment.alive_chunks;
                merged_from -= 1;
            }
        }
        let merged: Vec<Segment> = self.segments.drain(merged_from..).collect();
        let mut first_changed = self.segments.len();
        for (number, segment) in self.segments.iter_mut().enumerate().rev() {
            if segment.alive_chunks * 2 < segment.locations.len() || !segment.alive.contains(&true) {
                *segment = Segment::merge(std::slice::from_ref(segment), BTreeMap::new());
                first_changed = number;
            }
        }
        if !put.is_empty() {
            self.segments.push(Segment::merge(&merged, put));
        }
        self.segments.retain(|segment| !segment.documents.is_empty());
        self.locate(first_changed);
    }

    /// Updates the positions of the documents from a segment on.
    fn locate(&mut self, first: usize) {
        for (number, segment) in self.segments.iter().enumerate().skip(first) {
            for (position, document) in segment.documents.iter().enumerate() {
                if segment.alive[position] {
                    self.positions.insert(document.id.clone(), (number, position));
                }
            }
        }
    }
}

impl Segment {
    /// Returns the documents that are alive as a part of a corpus, or `None` if there are none.
    fn scoped_whole(&self) -> Option<ScopedPart<'_>> {
        if self.alive_documents == self.documents.len() {
            return Some(ScopedPart::whole(self.part(), self.totals));
        }
        ScopedPart::new(self.part(), self.alive.clone())
    }

    fn part(&self) -> Part<'_> {
        Part {
            documents: &self.documents,
            owners: Some(&self.owners),
            locations: &self.locations,
            lengths: &self.lengths,
            postings: &self.postings,
            chunk_terms: Some(&self.chunk_terms),
        }
    }

    /// Merges the documents of segments that are alive, and further documents.
    fn merge(segments: &[Self], put: BTreeMap<DocumentId, Arc<DocIndex>>) -> Self {
        let mut merged = Self::default();
        let chunk_count = segments.iter().map(|segment| segment.alive_chunks).sum::<usize>()
            + put.values().map(|index| index.chunk_count()).sum::<usize>();
        merged.locations.reserve_exact(chunk_count);
        merged.lengths.reserve_exact(chunk_count);
        merged.owners.reserve_exact(chunk_count);
        // For each source: the first chunk in the result, and of segments the new number of each chunk.
        let mut numbers: Vec<Vec<Option<u32>>> = Vec::with_capacity(segments.len());
        for segment in segments {
            let mut of_segment = vec![None; segment.locations.len()];
            for (position, document) in segment.documents.iter().enumerate() {
                if segment.alive[position] {
                    let range = document.chunks.start as usize..document.chunks.end as usize;
                    let first = merged.locations.len() as u32;
                    for (number, slot) in (first..).zip(&mut of_segment[range.clone()]) {
                        *slot = Some(number);
                    }
                    let entry = DocEntry { chunks: first..first + range.len() as u32, ..document.clone() };
                    merged.push(entry, &segment.locations[range.clone()], &segment.lengths[range]);
                }
            }
            numbers.push(of_segment);
        }
        let mut firsts = Vec::with_capacity(put.len());
        for (id, index) in &put {
            let first = merged.locations.len() as u32;
            firsts.push(first);
            merged.push(DocEntry::new(id.clone(), index, first), &index.locations, &index.lengths);
        }
        let sources: Vec<&Postings> = segments
            .iter()
            .map(|segment| &segment.postings)
            .chain(put.values().map(|index| &index.postings))
            .collect();
        merged.postings = Postings::merge(&sources, |source, chunk| match numbers.get(source) {
            Some(of_segment) => of_segment[chunk as usize],
            None => Some(firsts[source - numbers.len()] + chunk),
        });
        merged.chunk_terms = ChunkTerms::of(&merged.postings, merged.locations.len());
        merged.documents.shrink_to_fit();
        merged.alive = vec![true; merged.documents.len()];
        merged.alive_documents = merged.documents.len();
        merged.alive_chunks = merged.locations.len();
        merged.totals = Totals::of(&merged.documents);
        merged
    }

    fn push(&mut self, entry: DocEntry, locations: &[ChunkLocation], lengths: &[u16]) {
        let position = self.documents.len() as u32;
        self.owners.resize(self.owners.len() + locations.len(), position);
        self.documents.push(entry);
        self.locations.extend_from_slice(locations);
        self.lengths.extend_from_slice(lengths);
    }

    fn memory_bytes(&self) -> usize {
        let documents: usize = self
            .documents
            .iter()
            .map(|entry| {
                let headings = entry.labels.headings.iter().map(|heading| heading.len() + 32).sum::<usize>();
                let vectors = entry.vectors.as_ref().map_or(0, |vectors| vectors.memory_bytes());
                entry.id.as_str().len() + entry.labels.title.len() + 48 + headings + vectors
            })
            .sum();
        documents
            + self.documents.capacity() * size_of::<DocEntry>()
            + self.alive.capacity()
            + self.owners.capacity() * size_of::<u32>()
            + self.locations.capacity() * size_of::<ChunkLocation>()
            + self.lengths.capacity() * size_of::<u16>()
            + self.postings.memory_bytes()
            + self.chunk_terms.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
