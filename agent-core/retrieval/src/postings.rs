//! The inverted index that one document's index and the merged index of a company have in common.

use std::collections::HashMap;
use std::ops::Range;

use crate::analysis::term_hash;

/// Number in place of a chunk or term that is left out.
const ABSENT: u32 = u32::MAX;

/// Terms with the chunks that contain them.
///
/// Terms are sorted by their hash. The chunks of a term ascend. Ends are cumulative: the range of item `n` begins at the
/// end of item `n - 1`. Two terms with the same hash are one term, named as the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Postings {
    hashes: Vec<u64>,
    names: String,
    name_ends: Vec<u32>,
    ends: Vec<u32>,
    chunks: Vec<u32>,
    counts: Vec<u8>,
}

/// The chunks that contain a term, and how often, at most 255.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    pub(crate) chunks: &'a [u32],
    pub(crate) counts: &'a [u8],
}

/// One occurrence of a term in a chunk, while an index is built.
#[derive(Clone, Copy)]
pub(crate) struct Occurrence {
    pub(crate) term: u32,
    pub(crate) chunk: u32,
    pub(crate) count: u8,
}

impl Postings {
    /// Builds the index of named terms from occurrences, whose chunks ascend for each term.
    pub(crate) fn build(names: &[Box<str>], occurrences: &[Occurrence]) -> Self {
        let mut occurs = vec![false; names.len()];
        for occurrence in occurrences {
            occurs[occurrence.term as usize] = true;
        }
        let named = (0_u32..).zip(names).filter(|&(term, _)| occurs[term as usize]);
        let mut ranks: Vec<(u64, u32)> = named.map(|(term, name)| (term_hash(name), term)).collect();
        ranks.sort_unstable();
        let mut postings = Self::default();
        let mut position_of = vec![0_u32; names.len()];
        for (hash, term) in ranks {
            if postings.hashes.last() != Some(&hash) {
                postings.push_name(hash, &names[term as usize]);
            }
            position_of[term as usize] = (postings.hashes.len() - 1) as u32;
        }
        let mut cursors = vec![0_u32; postings.hashes.len()];
        for occurrence in occurrences {
            cursors[position_of[occurrence.term as usize] as usize] += 1;
        }
        postings.allocate(&mut cursors);
        for occurrence in occurrences {
            let cursor = &mut cursors[position_of[occurrence.term as usize] as usize];
            postings.chunks[*cursor as usize] = occurrence.chunk;
            postings.counts[*cursor as usize] = occurrence.count;
            *cursor += 1;
        }
        postings
    }

    /// Merges indexes. `chunk_numbers` maps a chunk of the source with the given position to its number in the result,
    /// or to `None` if the chunk is left out; the numbers ascend over all sources.
    pub(crate) fn merge(sources: &[&Self], chunk_numbers: impl Fn(usize, u32) -> Option<u32>) -> Self {
        let mut identifiers: HashMap<u64, u32> = HashMap::new();
        // (source, term of the source) that names each term, and the number of its chunks.
        let mut origins: Vec<(usize, usize)> = Vec::new();
        let mut sizes: Vec<u32> = Vec::new();
        let mut term_numbers: Vec<u32> =
            Vec::with_capacity(sources.iter().map(|source| source.hashes.len()).sum());
        for (number, source) in sources.iter().enumerate() {
            for term in 0..source.hashes.len() {
                let chunks = source.entries(term).chunks;
                let size =
                    chunks.iter().filter(|&&chunk| chunk_numbers(number, chunk).is_some()).count() as u32;
                if size == 0 {
                    term_numbers.push(ABSENT);
                    continue;
                }
                let identifier = *identifiers.entry(source.hashes[term]).or_insert_with(|| {
                    origins.push((number, term));
                    sizes.push(0);
                    (sizes.len() - 1) as u32
                });
                sizes[identifier as usize] += size;
                term_numbers.push(identifier);
            }
        }
        drop(identifiers);
        let mut order: Vec<u32> = (0..origins.len() as u32).collect();
        let hash_of = |identifier: u32| {
            let (source, term) = origins[identifier as usize];
            sources[source].hashes[term]
        };
        order.sort_unstable_by_key(|&identifier| hash_of(identifier));
        let mut merged = Self::default();
        let mut position_of = vec![0_u32; origins.len()];
        let mut cursors = Vec::with_capacity(origins.len());
        for (position, &identifier) in (0..).zip(&order) {
            let (source, term) = origins[identifier as usize];
            merged.push_name(hash_of(identifier), sources[source].name(term));
            position_of[identifier as usize] = position;
            cursors.push(sizes[identifier as usize]);
        }
        merged.allocate(&mut cursors);
        let mut numbers = term_numbers.into_iter();
        for (number, source) in sources.iter().enumerate() {
            for (term, identifier) in (0..source.hashes.len()).zip(&mut numbers) {
                if identifier != ABSENT {
                    let cursor = &mut cursors[position_of[identifier as usize] as usize];
                    merged.copy_entries(source.entries(term), cursor, |chunk| chunk_numbers(number, chunk));
                }
            }
        }
        merged.shrink();
        merged
    }

    /// Returns the index from its parts, or `None` if they contradict each other.
    pub(crate) fn from_parts(
        names: impl IntoIterator<Item = Box<str>>,
        ends: Vec<u32>,
        chunks: Vec<u32>,
        counts: Vec<u8>,
    ) -> Option<Self> {
        let mut postings = Self { ends, chunks, counts, ..Self::default() };
        for name in names {
            let hash = term_hash(&name);
            if postings.hashes.last().is_some_and(|&last| last >= hash) {
                return None;
            }
            postings.push_name(hash, &name);
        }
        let is_whole = postings.ends.len() == postings.hashes.len()
            && postings.ends.last().copied().unwrap_or(0) as usize == postings.chunks.len()
            && postings.chunks.len() == postings.counts.len();
        is_whole.then_some(postings)
    }

    /// Returns the number of distinct terms.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the number of (term, chunk) pairs.
    pub(crate) fn entry_count(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn hash(&self, term: usize) -> u64 {
        self.hashes[term]
    }

    pub(crate) fn name(&self, term: usize) -> &str {
        &self.names[cumulative_range(&self.name_ends, term)]
    }

    pub(crate) fn find(&self, hash: u64) -> Option<usize> {
        self.hashes.binary_search(&hash).ok()
    }

    pub(crate) fn entries(&self, term: usize) -> Entries<'_> {
        let range = cumulative_range(&self.ends, term);
        Entries { chunks: &self.chunks[range.clone()], counts: &self.counts[range] }
    }

    /// Returns the bytes of heap memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * 8
            + self.names.capacity()
            + (self.name_ends.capacity() + self.ends.capacity() + self.chunks.capacity()) * 4
            + self.counts.capacity()
    }

    fn push_name(&mut self, hash: u64, name: &str) {
        self.hashes.push(hash);
        self.names.push_str(name);
        self.name_ends.push(self.names.len() as u32);
    }

    /// Makes room for the entries of each term, and replaces the numbers of entries by the terms' first positions.
    fn allocate(&mut self, sizes: &mut [u32]) {
        let mut end = 0;
        for size in sizes {
            let start = end;
            end += *size;
            self.ends.push(end);
            *size = start;
        }
        self.chunks = vec![0; end as usize];
        self.counts = vec![0; end as usize];
    }

    fn copy_entries(&mut self, entries: Entries<'_>, cursor: &mut u32, number: impl Fn(u32) -> Option<u32>) {
        for (&chunk, &count) in entries.chunks.iter().zip(entries.counts) {
            if let Some(chunk) = number(chunk) {
                self.chunks[*cursor as usize] = chunk;
                self.counts[*cursor as usize] = count;
                *cursor += 1;
            }
        }
    }

    fn shrink(&mut self) {
        self.hashes.shrink_to_fit();
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl Entries<'_> {
    /// Returns the entries with chunks of a range.
    pub(crate) fn within(self, range: &Range<u32>) -> Self {
        let start = self.chunks.partition_point(|&chunk| chunk < range.start);
        let end = start + self.chunks[start..].partition_point(|&chunk| chunk < range.end);
        Self { chunks: &self.chunks[start..end], counts: &self.counts[start..end] }
    }

    /// Returns the number of occurrences of the term in a chunk.
    pub(crate) fn count_in(self, chunk: u32) -> u8 {
        self.chunks.binary_search(&chunk).map_or(0, |position| self.counts[position])
    }
}

/// The terms of each chunk: the inverse of [`Postings`], for relevance feedback.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkTerms {
    ends: Vec<u32>,
    terms: Vec<u32>,
    counts: Vec<u8>,
}

impl ChunkTerms {
    pub(crate) fn of(postings: &Postings, chunk_count: usize) -> Self {
        let mut cursors = vec![0_u32; chunk_count];
        for &chunk in &postings.chunks {
            cursors[chunk as usize] += 1;
        }
        let mut end = 0;
        let mut ends = Vec::with_capacity(chunk_count);
        for cursor in &mut cursors {
            let start = end;
            end += *cursor;
            ends.push(end);
            *cursor = start;
        }
        let mut terms = vec![0; end as usize];
        let mut counts = vec![0; end as usize];
        for term in 0..postings.len() {
            let entries = postings.entries(term);
            for (&chunk, &count) in entries.chunks.iter().zip(entries.counts) {
                let cursor = &mut cursors[chunk as usize];
                terms[*cursor as usize] = term as u32;
                counts[*cursor as usize] = count;
                *cursor += 1;
            }
        }
        Self { ends, terms, counts }
    }

    /// Returns the terms of a chunk with their counts, sorted by the terms' hashes.
    pub(crate) fn terms_of(&self, chunk: u32) -> impl Iterator<Item = (usize, u8)> {
        let range = cumulative_range(&self.ends, chunk as usize);
        self.terms[range.clone()].iter().map(|&term| term as usize).zip(self.counts[range].iter().copied())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.ends.capacity() + self.terms.capacity()) * 4 + self.counts.capacity()
    }
}

/// Returns the range of an item whose ends are cumulative.
fn cumulative_range(ends: &[u32], item: usize) -> Range<usize> {
    let start = if item == 0 { 0 } else { ends[item - 1] };
    start as usize..ends[item] as usize
}
