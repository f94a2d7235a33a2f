//! Packing: the choice of fragments that fit a budget of tokens, from a ranking.
//!
//! Hits are taken in their order. Adjacent chunks become one fragment. Each hit gets a [`PackOutcome`], so that an
//! explanation shows every hit and why it was left out.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::{Finder, find};

use crate::document::DocumentId;
use crate::search::{Hit, Ranking};

/// Maximum number of fragments of one document, unless it is the only one in the scope.
const MAX_FRAGMENTS_OF_DOCUMENT: usize = 3;
/// Number of bytes of a text that are searched before the whole text is compared.
const PROBE_BYTES: usize = 32;
/// Maximum number of positions at which the whole text is compared before it is searched by an algorithm with a linear bound.
const MAX_PROBED_POSITIONS: usize = 8;
/// Maximum number of characters of a cut word that are left out at the end of a fragment.
const MAX_CUT_CHARACTERS: usize = 40;

/// The outcome of packing for a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackOutcome {
    /// The hit is in a fragment.
    Kept,
    /// The hit has less than the minimum of relevance.
    Irrelevant,
    /// The hit's document has as many fragments as one document may have.
    PerDocument,
    /// The text of the hit is in a fragment already.
    Duplicate,
    /// The hit does not fit the budget.
    Budget,
    /// The text is not there: the document was changed or deleted after the search.
    Unavailable,
}

/// A part of a document's text that was chosen for a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Fragment {
    /// The document.
    pub document: DocumentId,
    /// The document's title.
    pub title: Arc<str>,
    /// The headings above the fragment.
    pub heading: Option<Arc<str>>,
    /// The page on which the fragment begins, from 1.
    pub page: Option<u32>,
    /// Byte range in the document's text.
    pub range: Range<usize>,
    /// The text.
    pub text: String,
    /// The score of the best hit.
    pub score: f32,
    /// Positions in the ranking of the hits that the fragment covers.
    pub hits: Vec<usize>,
    /// The first and the last chunk.
    chunks: (u32, u32),
    tokens: usize,
}

/// The fragments of a ranking that fit a budget.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackedFragments {
    /// The fragments, the best first.
    pub fragments: Vec<Fragment>,
    /// The outcome for each hit of the ranking.
    pub outcomes: Vec<PackOutcome>,
    /// Tokens of all fragments, with their titles and headings.
    pub tokens: usize,
}

/// Chooses fragments of a ranking: at most `max_tokens` in all with their titles and headings, as `count_tokens` counts them. If
/// none of the hits fits, the fragment is the beginning of the best one.
///
/// `text_of` returns a range of a document's text, or `None` if the document does not have it any more.
pub fn pack(
    ranking: &Ranking,
    max_tokens: usize,
    text_of: impl Fn(&DocumentId, Range<usize>) -> Option<String>,
    count_tokens: impl Fn(&str) -> usize,
) -> PackedFragments {
    let max_of_document = if ranking.documents == 1 { usize::MAX } else { MAX_FRAGMENTS_OF_DOCUMENT };
    let mut packer =
        Packer { max_tokens, max_of_document, text_of, count_tokens, fragments: Vec::new(), tokens: 0 };
    let hits = ranking.hits.iter().enumerate();
    let mut outcomes: Vec<PackOutcome> = hits.map(|(number, hit)| packer.add(number, hit)).collect();
    let best = outcomes.iter().position(|outcome| *outcome == PackOutcome::Budget);
    if let Some(number) = best.filter(|_| packer.fragments.is_empty()) {
        outcomes[number] = packer.add_beginning(number, &ranking.hits[number]);
    }
    PackedFragments { fragments: packer.fragments, outcomes, tokens: packer.tokens }
}

struct Packer<T, C> {
    max_tokens: usize,
    max_of_document: usize,
    text_of: T,
    count_tokens: C,
    fragments: Vec<Fragment>,
    tokens: usize,
}

impl<T: Fn(&DocumentId, Range<usize>) -> Option<String>, C: Fn(&str) -> usize> Packer<T, C> {
    fn add(&mut self, number: usize, hit: &Hit) -> PackOutcome {
        if !hit.is_relevant {
            return PackOutcome::Irrelevant;
        }
        let is_covered = |fragment: &Fragment| {
            fragment.document == hit.document
                && fragment.range.start <= hit.range.start
                && hit.range.end <= fragment.range.end
        };
        if self.fragments.iter().any(is_covered) {
            return PackOutcome::Duplicate;
        }
        let (neighbours, others): (Vec<usize>, Vec<usize>) =
            (0..self.fragments.len()).partition(|&position| self.fragments[position].is_next_to(hit));
        if neighbours.is_empty() {
            let of_document = others.iter().filter(|&&other| self.fragments[other].document == hit.document);
            if of_document.count() >= self.max_of_document {
                return PackOutcome::PerDocument;
            }
        }
        let Some(mut fragment) = self.merge_neighbours(number, hit, &neighbours) else {
            return PackOutcome::Unavailable;
        };
        if neighbours.is_empty() && self.is_repeated(&fragment.text) {
            return PackOutcome::Duplicate;
        }
        fragment.tokens = self.label_tokens(&fragment) + (self.count_tokens)(&fragment.text);
        let replaced: usize = neighbours.iter().map(|&position| self.fragments[position].tokens).sum();
        let tokens = self.tokens - replaced + fragment.tokens;
        if tokens > self.max_tokens {
            return PackOutcome::Budget;
        }
        self.tokens = tokens;
        match neighbours.split_first() {
            // The fragment keeps the best rank of the fragments that it replaces.
            Some((&first, rest)) => {
                self.fragments[first] = fragment;
                for &position in rest.iter().rev() {
                    self.fragments.remove(position);
                }
            }
            None => self.fragments.push(fragment),
        }
        PackOutcome::Kept
    }

    /// Adds as much of the beginning of a hit as fits the budget: a prompt without fragments would say that no document answers.
    fn add_beginning(&mut self, number: usize, hit: &Hit) -> PackOutcome {
        let Some(mut fragment) = self.merge_neighbours(number, hit, &[]) else {
            return PackOutcome::Unavailable;
        };
        let labels = self.label_tokens(&fragment);
        let fits = |end: &usize| labels + (self.count_tokens)(&fragment.text[..*end]) <= self.max_tokens;
        let ends: Vec<usize> = fragment.text.char_indices().map(|(offset, _)| offset).collect();
        let Some(end) = ends.partition_point(fits).checked_sub(1).map(|last| ends[last]) else {
            return PackOutcome::Budget;
        };
        let cut = &fragment.text[..end];
        let words = cut.char_indices().rev().take(MAX_CUT_CHARACTERS);
        let end =
            words.into_iter().find(|(_, character)| character.is_whitespace()).map_or(end, |(end, _)| end);
        let length = cut[..end].trim_end().len();
        if length == 0 {
            return PackOutcome::Budget;
        }
        fragment.text.truncate(length);
        fragment.range.end = fragment.range.start + length;
        fragment.tokens = labels + (self.count_tokens)(&fragment.text);
        self.tokens = fragment.tokens;
        self.fragments.push(fragment);
        PackOutcome::Kept
    }

    /// Returns the tokens of the title and the headings of a fragment.
    fn label_tokens(&self, fragment: &Fragment) -> usize {
        let labels = [Some(&*fragment.title), fragment.heading.as_deref()];
        labels.into_iter().flatten().map(&self.count_tokens).sum()
    }

    /// Returns true if a text is part of a fragment.
    fn is_repeated(&self, text: &str) -> bool {
        let searched = SearchedText::new(text);
        self.fragments.iter().any(|fragment| searched.is_part_of(&fragment.text))
    }

    /// Returns the fragment of a hit and the fragments next to it, whose tokens are not counted yet, or `None` if its text is not
    /// there.
    fn merge_neighbours(&self, number: usize, hit: &Hit, neighbours: &[usize]) -> Option<Fragment> {
        let mut fragment = Fragment {
            document: hit.document.clone(),
            title: hit.title.clone(),
            heading: hit.heading.clone(),
            page: hit.page,
            range: hit.range.clone(),
            text: String::new(),
            score: hit.score,
            hits: vec![number],
            chunks: (hit.chunk, hit.chunk),
            tokens: 0,
        };
        for neighbour in neighbours.iter().map(|&position| &self.fragments[position]) {
            if neighbour.range.start < fragment.range.start {
                fragment.heading = neighbour.heading.clone();
                fragment.page = neighbour.page;
            }
            fragment.range =
                fragment.range.start.min(neighbour.range.start)..fragment.range.end.max(neighbour.range.end);
            fragment.score = fragment.score.max(neighbour.score);
            fragment.hits.extend(&neighbour.hits);
            fragment.chunks =
                (fragment.chunks.0.min(neighbour.chunks.0), fragment.chunks.1.max(neighbour.chunks.1));
        }
        fragment.hits.sort_unstable();
        fragment.text = (self.text_of)(&fragment.document, fragment.range.clone())?;
        Some(fragment)
    }
}

/// A text that is searched in others, which rarely contain it: its beginning is searched, since the set-up of a search is
/// linear in the length.
struct SearchedText<'t> {
    text: &'t [u8],
    beginning: Finder<'t>,
}

impl<'t> SearchedText<'t> {
    fn new(text: &'t str) -> Self {
        let text = text.as_bytes();
        Self { text, beginning: Finder::new(&text[..text.len().min(PROBE_BYTES)]) }
    }

    fn is_part_of(&self, other: &str) -> bool {
        let other = other.as_bytes();
        let Some(last_start) = other.len().checked_sub(self.text.len()) else { return false };
        let mut start = 0;
        for _ in 0..MAX_PROBED_POSITIONS {
            let Some(offset) = self.beginning.find(&other[start..]) else { return false };
            start += offset;
            if start > last_start {
                return false;
            }
            if other[start..].starts_with(self.text) {
                return true;
            }
            // Occurrences of a beginning that repeats itself may overlap.
            start += 1;
        }
        find(&other[start..], self.text).is_some()
    }
}

impl Fragment {
    /// Returns true if a hit is the chunk before or after the fragment's.
    fn is_next_to(&self, hit: &Hit) -> bool {
        self.document == hit.document
            && (hit.chunk.checked_add(1) == Some(self.chunks.0)
                || self.chunks.1.checked_add(1) == Some(hit.chunk))
    }
}

#[cfg(test)]
mod tests;
