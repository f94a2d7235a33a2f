//! Sample of the chunks with vectors.

use std::collections::HashSet;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::analysis::term_hash;
use crate::doc_index::VectorRow;
use crate::embed::EmbedderId;
use crate::part::{Corpus, Part};
use crate::search::score::{BestCandidates, Candidate};

/// Maximum number of chunks.
const MAX_CHUNKS: usize = 512;
/// Maximum number of terms of a chunk that are compared, those with the smallest hashes.
const MAX_TERMS: usize = 512;

/// A chunk with its terms and its vector.
pub(super) struct SampledChunk<'a> {
    /// The hashes of the terms, ascending.
    pub(super) terms: Vec<u64>,
    pub(super) vector: VectorRow<'a>,
}

/// Selects chunks with vectors of an embedder by the hashes of their positions, so that a change of a document changes little
/// of the sample. Adjacent chunks, which are related, are drawn together. Chunks with equal words count once: they have equal
/// vectors regardless of the model. All vectors have as many components as the first.
pub(super) fn draw<'a>(corpus: &Corpus<'a>, embedder: &EmbedderId) -> Vec<SampledChunk<'a>> {
    let mut selected = BestCandidates::new(corpus, MAX_CHUNKS);
    for (number, part) in corpus.parts.iter().enumerate() {
        for document in part.documents() {
            let vectors = document.vectors.as_deref();
            let Some(vectors) = vectors.filter(|vectors| vectors.embedder() == embedder.as_str()) else {
                continue;
            };
            let seed = term_hash(document.id.as_str());
            for (position, is_present) in (0_u32..).zip(vectors.presence()) {
                if is_present {
                    let score = priority(seed, position / 2);
                    selected.add(Candidate { score, part: number, chunk: document.chunks.start + position });
                }
            }
        }
    }
    let mut digests = HashSet::new();
    let mut sample: Vec<SampledChunk<'a>> = Vec::new();
    for candidate in selected.finish() {
        let part = corpus.parts[candidate.part].part;
        let document = part.document_of(candidate.chunk);
        let position = (candidate.chunk - document.chunks.start) as usize;
        let Some(vector) = document.vectors.as_deref().and_then(|vectors| vectors.row(position)) else {
            continue;
        };
        let dimensions =
            sample.first().map_or(vector.components.len(), |first| first.vector.components.len());
        let (terms, digest) = terms_of(&part, candidate.chunk);
        if vector.components.len() == dimensions && digests.insert(digest) {
            sample.push(SampledChunk { terms, vector });
        }
    }
    sample
}

/// Returns a number of 24 bits, which a score has exactly: the finalizer of SplitMix64 of a document's hash and a
/// position in it.
fn priority(seed: u64, position: u32) -> f32 {
    let mut mixed = seed.wrapping_add(u64::from(position).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) >> 40) as f32
}

/// Returns the hashes of a chunk's terms, and a digest of all of them with their counts.
fn terms_of(part: &Part<'_>, chunk: u32) -> (Vec<u64>, u64) {
    let (mut terms, mut digest) = (Vec::new(), SipHasher13::new());
    part.for_each_term_of(chunk, |term, count| {
        let hash = part.postings.hash(term);
        digest.write_u64(hash);
        digest.write_u8(count);
        if terms.len() < MAX_TERMS {
            terms.push(hash);
        }
    });
    (terms, digest.finish())
}
