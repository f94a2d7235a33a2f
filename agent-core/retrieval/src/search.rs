//! Ranking of chunks for a query.
//!
//! 1. The scope is fixed first: statistics are those of the documents that the search may see.
//! 2. The words of the query, and with less weight those of the query before, become weighted terms (module `terms`).
//! 3. Each chunk with one of the terms is scored by BM25 (module `score`).
//! 4. Terms that distinguish the best chunks are added with less weight: relevance feedback by RM3 (module `feedback`).
//! 5. With vectors, the scores are combined with those of the chunks that are similar (module `fusion`). Vectors that have no
//!    relation to the texts are detected beforehand, once for a state of the documents (module `vector_check`).
//! 6. The relevance of a chunk is its BM25 score without feedback over the best score that a chunk could have. A ranking
//!    whose best chunk has less than a minimum answers nothing.

mod bm25;
mod feedback;
mod fusion;
mod nearest;
mod query;
mod score;
mod terms;
mod vector_check;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub use fusion::{DenseHit, DenseRanking};
pub use nearest::VectorQuery;
pub(crate) use nearest::nearest;
pub use query::{Query, QueryTerm, TermOrigin, query_ends};
pub(crate) use vector_check::check_vectors;
pub use vector_check::{VectorCheck, VectorQuality};

use crate::doc_index::{DocIndex, VectorsError};
use crate::document::DocumentId;
use crate::part::{Corpus, DocEntry, Part, ScopedPart};
use fusion::FUSION_CANDIDATES;
use score::{Candidate, Scores};
use terms::QueryTerms;

/// Maximum number of hits that a search returns.
pub const MAX_HITS: usize = 1000;

/// The settings of a search.
#[derive(Debug, Clone)]
pub struct SearchOptions<'a> {
    /// Number of hits to return, at most [`MAX_HITS`].
    pub limit: usize,
    /// Relevance that a hit must reach, between 0 and 1. Queries in scripts without spaces need half of it.
    pub min_relevance: f32,
    /// True if the best hits add terms to the query (relevance feedback).
    pub uses_feedback: bool,
    /// The chunks that are most similar by vectors.
    pub dense: Option<DenseRanking<'a>>,
}

impl Default for SearchOptions<'_> {
    /// Returns 20 hits with feedback, from a relevance of 0.08, without vectors.
    fn default() -> Self {
        Self { limit: 20, min_relevance: 0.08, uses_feedback: true, dense: None }
    }
}

/// A chunk of a ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The document.
    pub document: DocumentId,
    /// The document's title.
    pub title: Arc<str>,
    /// The number of the chunk within the document, from 0.
    pub chunk: u32,
    /// Byte range in the document's text.
    pub range: Range<usize>,
    /// The headings above the chunk.
    pub heading: Option<Arc<str>>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<u32>,
    /// The score that ranks hits.
    pub score: f32,
    /// The BM25 score, with feedback; 0 for a chunk that vectors alone found.
    pub lexical: f32,
    /// The similarity by vectors.
    pub dense: Option<f32>,
    /// Score without feedback over the best possible one.
    pub relevance: f32,
    /// True if the hit reaches the minimum of relevance.
    pub is_relevant: bool,
    /// Positions in [`Ranking::terms`] of the terms that the chunk contains.
    pub matched: Vec<usize>,
}

/// The result of a search: the best chunks, and the terms that determined their scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// The terms, the heaviest first.
    pub terms: Vec<QueryTerm>,
    /// The hits, the best first; ties by document, then by position.
    pub hits: Vec<Hit>,
    /// The greatest relevance of a hit: of all that were scored, without feedback.
    pub relevance: f32,
    /// Number of documents in the scope.
    pub documents: usize,
}

impl Ranking {
    /// Returns true if a hit reaches the minimum of relevance.
    pub fn is_relevant(&self) -> bool {
        self.hits.iter().any(|hit| hit.is_relevant)
    }
}

/// Ranks the chunks of documents whose indexes were not merged.
///
/// The result is exactly that of a [`CompanyIndex`](crate::company::CompanyIndex) with the same documents in its scope.
/// Of two documents with the same identifier, the first counts.
pub fn search_documents<'d>(
    documents: impl IntoIterator<Item = (DocumentId, &'d DocIndex)>,
    query: &Query<'_>,
    options: &SearchOptions<'_>,
) -> Ranking {
    rank(&corpus_of(&unique(documents)), query, options)
}

/// Finds the chunks whose vectors are most similar to the query's, in documents whose indexes were not merged.
///
/// The result is exactly that of [`CompanyIndex::nearest`](crate::company::CompanyIndex::nearest) with the same documents
/// in its scope. Of two documents with the same identifier, the first counts.
///
/// # Errors
/// The query's vector has components that are not finite, none, or too many, or the length 0.
pub fn nearest_in_documents<'d>(
    documents: impl IntoIterator<Item = (DocumentId, &'d DocIndex)>,
    query: &VectorQuery<'_>,
) -> Result<Vec<DenseHit>, VectorsError> {
    nearest(&corpus_of(&unique(documents)), query)
}

/// Returns the first document of each identifier.
fn unique<'d>(
    documents: impl IntoIterator<Item = (DocumentId, &'d DocIndex)>,
) -> Vec<(DocEntry, &'d DocIndex)> {
    let mut ids = BTreeSet::new();
    let documents = documents.into_iter().filter(|(id, _)| ids.insert(id.clone()));
    documents.map(|(id, index)| (DocEntry::new(id, index, 0), index)).collect()
}

/// Returns the corpus of documents that are each a part.
fn corpus_of<'d>(documents: &'d [(DocEntry, &'d DocIndex)]) -> Corpus<'d> {
    let parts = documents.iter().filter_map(|(entry, index)| {
        let part = Part {
            documents: std::slice::from_ref(entry),
            owners: None,
            locations: &index.locations,
            lengths: &index.lengths,
            postings: &index.postings,
            chunk_terms: None,
        };
        ScopedPart::new(part, vec![true])
    });
    Corpus::new(parts.collect())
}

/// Ranks the chunks of a corpus.
pub(crate) fn rank(corpus: &Corpus<'_>, query: &Query<'_>, options: &SearchOptions<'_>) -> Ranking {
    let mut terms = QueryTerms::new(corpus, query);
    let feedback_share = if options.uses_feedback { feedback::SHARE } else { 0.0 };
    terms.normalize(1.0 - feedback_share);
    let mut scores = Scores::new(corpus);
    scores.add(corpus, &terms.weighted);
    let limit = options.limit.min(MAX_HITS);
    let best = scores.best(corpus, feedback::BEST_CHUNKS);
    let best_relevance = best.first().map_or(0.0, |best| terms.relevance(best.score));
    let query_terms = terms.weighted.len();
    if options.uses_feedback && !best.is_empty() {
        let feedback_terms = feedback::terms(corpus, &best);
        scores.add(corpus, &feedback_terms);
        terms.weighted.extend(feedback_terms);
    }
    let candidate_limit = if options.dense.is_some() { FUSION_CANDIDATES.max(limit) } else { limit };
    let ranked = scores.best(corpus, candidate_limit);
    let min_relevance = if terms.is_unspaced { options.min_relevance / 2.0 } else { options.min_relevance };
    let mut candidates: Vec<fusion::FusedHit> = ranked.into_iter().map(fusion::FusedHit::lexical).collect();
    if let Some(dense) = &options.dense {
        candidates = fusion::fuse(corpus, candidates, dense, limit);
    }
    let mut hits: Vec<Hit> = Vec::with_capacity(candidates.len());
    let mut positions = TermPositions::default();
    for candidate in candidates {
        let mut hit = describe(corpus, &candidate);
        let terms_in_part = positions.of_part(corpus, candidate.chunk.part, &terms.weighted);
        let of_terms = terms.weighted.iter().zip(terms_in_part.iter().copied());
        let (matched, base_score) = matched(corpus, &scores, of_terms, query_terms, &candidate.chunk);
        hit.matched = matched;
        hit.relevance = terms.relevance(base_score);
        let is_similar = options
            .dense
            .as_ref()
            .zip(hit.dense)
            .is_some_and(|(dense, similarity)| similarity >= dense.min_similarity);
        hit.is_relevant = hit.relevance >= min_relevance || is_similar;
        hits.push(hit);
    }
    let order = terms.display_order();
    let mut position_of = vec![0; order.len()];
    for (position, &term) in order.iter().enumerate() {
        position_of[term] = position;
    }
    for hit in &mut hits {
        for term in &mut hit.matched {
            *term = position_of[*term];
        }
        hit.matched.sort_unstable();
    }
    let total: f32 = terms.weighted.iter().map(|term| term.weight).sum();
    let terms = order.iter().map(|&term| terms.weighted[term].describe(total)).collect();
    Ranking { terms, hits, relevance: best_relevance, documents: corpus.totals.documents }
}

/// The positions of a query's terms in parts, each found once.
#[derive(Default)]
struct TermPositions(BTreeMap<usize, Vec<Option<usize>>>);

impl TermPositions {
    /// Returns the position of each term in a part of the corpus.
    fn of_part(
        &mut self,
        corpus: &Corpus<'_>,
        number: usize,
        terms: &[terms::WeightedTerm],
    ) -> &[Option<usize>] {
        let postings = corpus.parts[number].part.postings;
        self.0.entry(number).or_insert_with(|| terms.iter().map(|term| postings.find(term.hash)).collect())
    }
}

/// Returns the terms that a chunk contains, and its score by the first `query_terms` of them. Each term comes with its position
/// in the part of the chunk.
fn matched<'t>(
    corpus: &Corpus<'_>,
    scores: &Scores,
    terms: impl Iterator<Item = (&'t terms::WeightedTerm, Option<usize>)>,
    query_terms: usize,
    candidate: &Candidate,
) -> (Vec<usize>, f32) {
    let part = &corpus.parts[candidate.part].part;
    let language = part.document_of(candidate.chunk).language;
    let mut matched = Vec::new();
    let mut base_score = 0.0;
    for (number, (term, term_position)) in terms.enumerate().filter(|(_, (term, _))| term.is_for(language)) {
        let Some(term_position) = term_position else { continue };
        let count = part.postings.entries(term_position).count_in(candidate.chunk);
        if count > 0 {
            matched.push(number);
            if number < query_terms {
                base_score += scores.contribution(term, count, part.lengths[candidate.chunk as usize]);
            }
        }
    }
    (matched, base_score)
}

fn describe(corpus: &Corpus<'_>, candidate: &fusion::FusedHit) -> Hit {
    let part = &corpus.parts[candidate.chunk.part].part;
    let document = part.document_of(candidate.chunk.chunk);
    let location = part.locations[candidate.chunk.chunk as usize];
    let heading =
        (location.heading as usize).checked_sub(1).map(|heading| document.labels.headings[heading].clone());
    Hit {
        document: document.id.clone(),
        title: document.labels.title.clone(),
        chunk: candidate.chunk.chunk - document.chunks.start,
        range: location.start as usize..location.end as usize,
        heading,
        page: (location.page > 0).then_some(location.page),
        score: candidate.score,
        lexical: candidate.chunk.score,
        dense: candidate.dense,
        relevance: 0.0,
        is_relevant: false,
        matched: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
