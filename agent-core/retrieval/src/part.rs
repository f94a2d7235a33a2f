//! Parts of a corpus: the common view of one document's index and of a merged index.
//!
//! A search runs over any number of parts. The scores of a chunk depend on the scope, not on the division into parts.
//! Statistics are sums of integers over the parts, and the contributions to a score are added in the order of the
//! terms' hashes.

use std::ops::Range;
use std::sync::Arc;

use crate::analysis::Language;
use crate::doc_index::{ChunkLocation, DocIndex, Labels, Vectors};
use crate::document::DocumentId;
use crate::postings::{ChunkTerms, Entries, Postings};

/// A term in this many times more chunks than documents are allowed is looked up document by document.
const LOOKUP_RATIO: usize = 16;

/// Maximum number of languages in the analysis of a query.
const MAX_LANGUAGES: usize = 8;

/// A document within a part.
#[derive(Debug, Clone)]
pub(crate) struct DocEntry {
    pub(crate) id: DocumentId,
    pub(crate) labels: Labels,
    pub(crate) language: Language,
    /// The document's chunks in the part.
    pub(crate) chunks: Range<u32>,
    /// The sum of the chunks' lengths.
    pub(crate) length: u64,
    pub(crate) vectors: Option<Arc<Vectors>>,
}

impl DocEntry {
    pub(crate) fn new(id: DocumentId, index: &DocIndex, first_chunk: u32) -> Self {
        Self {
            id,
            labels: index.labels.clone(),
            language: index.language,
            chunks: first_chunk..first_chunk + index.locations.len() as u32,
            length: index.lengths.iter().map(|&length| u64::from(length)).sum(),
            vectors: index.vectors.clone(),
        }
    }
}

/// A view of an index over one or several documents.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) documents: &'a [DocEntry],
    /// Position of each chunk's document; `None` if the part has one document.
    pub(crate) owners: Option<&'a [u32]>,
    pub(crate) locations: &'a [ChunkLocation],
    pub(crate) lengths: &'a [u16],
    pub(crate) postings: &'a Postings,
    pub(crate) chunk_terms: Option<&'a ChunkTerms>,
}

impl<'a> Part<'a> {
    pub(crate) fn document_of(&self, chunk: u32) -> &'a DocEntry {
        &self.documents[self.owners.map_or(0, |owners| owners[chunk as usize] as usize)]
    }

    /// Calls `visit` with each term of a chunk and its count.
    pub(crate) fn for_each_term_of(&self, chunk: u32, mut visit: impl FnMut(usize, u8)) {
        if let Some(chunk_terms) = self.chunk_terms {
            chunk_terms.terms_of(chunk).for_each(|(term, count)| visit(term, count));
            return;
        }
        for term in 0..self.postings.len() {
            let count = self.postings.entries(term).count_in(chunk);
            if count > 0 {
                visit(term, count);
            }
        }
    }
}

/// Sums over documents.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) documents: usize,
    pub(crate) chunks: u64,
    /// Sum of the lengths of all chunks.
    pub(crate) length: u64,
    chunks_by_language: [u64; Language::ALL.len()],
}

impl Totals {
    pub(crate) fn of<'a>(documents: impl IntoIterator<Item = &'a DocEntry>) -> Self {
        let mut totals = Self::default();
        for document in documents {
            let chunks = u64::from(document.chunks.end - document.chunks.start);
            totals.documents += 1;
            totals.chunks += chunks;
            totals.length += document.length;
            totals.chunks_by_language[document.language as usize] += chunks;
        }
        totals
    }

    fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.chunks += other.chunks;
        self.length += other.length;
        for (sum, addend) in self.chunks_by_language.iter_mut().zip(other.chunks_by_language) {
            *sum += addend;
        }
    }

    /// Returns the bits of all languages.
    pub(crate) fn language_bits(&self) -> u32 {
        let languages =
            Language::ALL.iter().filter(|&&language| self.chunks_by_language[language as usize] > 0);
        languages.map(|language| language.bit()).sum()
    }

    /// Returns the languages, those with the most chunks first, at most [`MAX_LANGUAGES`].
    fn languages(&self) -> Vec<Language> {
        let chunks = |language: Language| self.chunks_by_language[language as usize];
        let mut languages = Language::ALL.to_vec();
        languages.retain(|&language| chunks(language) > 0);
        languages.sort_by_key(|&language| std::cmp::Reverse(chunks(language)));
        languages.truncate(MAX_LANGUAGES);
        languages
    }
}

/// A part with the documents of it that a search may see.
pub(crate) struct ScopedPart<'a> {
    pub(crate) part: Part<'a>,
    totals: Totals,
    allowed: AllowedDocuments,
}

/// The documents of a part that are in the scope.
enum AllowedDocuments {
    All,
    Some {
        /// Flags of each document of the part.
        flags: Vec<bool>,
        /// The positions of the allowed documents, ascending.
        positions: Vec<u32>,
    },
}

impl<'a> ScopedPart<'a> {
    /// Returns the part with all of its documents, whose totals are known.
    pub(crate) fn whole(part: Part<'a>, totals: Totals) -> Self {
        Self { part, totals, allowed: AllowedDocuments::All }
    }

    /// Returns the part with the documents that are allowed, by a flag for each, or `None` if there are none.
    pub(crate) fn new(part: Part<'a>, flags: Vec<bool>) -> Option<Self> {
        let positions: Vec<u32> =
            (0..).zip(&flags).filter(|(_, allowed)| **allowed).map(|(position, _)| position).collect();
        if positions.is_empty() {
            return None;
        }
        if positions.len() == flags.len() {
            return Some(Self::whole(part, Totals::of(part.documents)));
        }
        let totals = Totals::of(positions.iter().map(|&position| &part.documents[position as usize]));
        Some(Self { part, totals, allowed: AllowedDocuments::Some { flags, positions } })
    }

    /// Returns the documents in the scope.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &'a DocEntry> {
        let documents = self.part.documents;
        let (all, some) = match &self.allowed {
            AllowedDocuments::All => (Some(documents.iter()), None),
            AllowedDocuments::Some { positions, .. } => {
                (None, Some(positions.iter().map(|&position| &documents[position as usize])))
            }
        };
        all.into_iter().flatten().chain(some.into_iter().flatten())
    }

    /// Calls `visit` with the entries of a term in runs that are all in the scope, their chunks ascending.
    pub(crate) fn for_each_run(&self, term: usize, mut visit: impl FnMut(Entries<'a>)) {
        let entries = self.part.postings.entries(term);
        match &self.allowed {
            AllowedDocuments::All => visit(entries),
            AllowedDocuments::Some { positions, .. }
                if positions.len() * LOOKUP_RATIO < entries.chunks.len() =>
            {
                for &position in positions {
                    let run = entries.within(&self.part.documents[position as usize].chunks);
                    if !run.chunks.is_empty() {
                        visit(run);
                    }
                }
            }
            AllowedDocuments::Some { flags, .. } => {
                let owner = |chunk: u32| self.part.owners.map_or(0, |owners| owners[chunk as usize] as usize);
                let mut start = 0;
                for run in entries.chunks.chunk_by(|&left, &right| flags[owner(left)] == flags[owner(right)])
                {
                    let end = start + run.len();
                    if flags[owner(run[0])] {
                        visit(Entries { chunks: run, counts: &entries.counts[start..end] });
                    }
                    start = end;
                }
            }
        }
    }
}

/// The documents that a search sees, in parts without empty ones.
pub(crate) struct Corpus<'a> {
    pub(crate) parts: Vec<ScopedPart<'a>>,
    pub(crate) totals: Totals,
    /// The languages of the documents, those with the most chunks first, at most [`MAX_LANGUAGES`].
    pub(crate) languages: Vec<Language>,
}

impl<'a> Corpus<'a> {
    pub(crate) fn new(parts: Vec<ScopedPart<'a>>) -> Self {
        let mut totals = Totals::default();
        for part in &parts {
            totals.add(&part.totals);
        }
        Self { parts, totals, languages: totals.languages() }
    }

    /// Returns the number of chunks that contain a term.
    pub(crate) fn chunks_with(&self, hash: u64) -> u64 {
        self.count_chunks(|_, postings| postings.find(hash))
    }

    /// Returns the number of chunks that contain a term, which has this position in a part.
    pub(crate) fn chunks_with_found(&self, hash: u64, (known_part, term): (usize, usize)) -> u64 {
        self.count_chunks(|part, postings| if part == known_part { Some(term) } else { postings.find(hash) })
    }

    /// Returns the number of chunks with the terms that `find` returns for the parts.
    fn count_chunks(&self, find: impl Fn(usize, &Postings) -> Option<usize>) -> u64 {
        let mut total = 0;
        for (number, part) in self.parts.iter().enumerate() {
            if let Some(term) = find(number, part.part.postings) {
                part.for_each_run(term, |entries| total += entries.chunks.len() as u64);
            }
        }
        total
    }
}
