//! The weighted terms of a query.

use std::collections::BTreeMap;

use super::bm25::{best_score, idf};
use super::query::{Query, QueryTerm, TermOrigin, query_ends};
use crate::analysis::{Analyzer, Language, is_unspaced, term_hash, visible_text};
use crate::part::Corpus;

/// Weight of a word of the user's text before the last one, relative to a word of the last one.
const PREVIOUS_WEIGHT: f64 = 0.2;
/// Maximum number of terms that are scored: those with the most weight.
const MAX_TERMS: usize = 128;

/// A term with its weight in a query.
#[derive(Debug, Clone)]
pub(super) struct WeightedTerm {
    pub(super) hash: u64,
    pub(super) term: String,
    pub(super) idf: f32,
    pub(super) weight: f32,
    pub(super) origin: TermOrigin,
    /// Bits of the languages of the documents in which the term counts: those in which it is the stem of a word of the query.
    pub(super) languages: u32,
}

impl WeightedTerm {
    pub(super) fn best_score(&self) -> f32 {
        best_score(self.idf)
    }

    /// Returns true if the term counts in documents of a language.
    pub(super) fn is_for(&self, language: Language) -> bool {
        self.languages & language.bit() != 0
    }

    pub(super) fn describe(&self, total_weight: f32) -> QueryTerm {
        let weight = if total_weight > 0.0 { self.weight / total_weight } else { 0.0 };
        QueryTerm { term: self.term.clone(), idf: self.idf, weight, origin: self.origin }
    }
}

/// The terms of a query, sorted by their hash.
pub(super) struct QueryTerms {
    pub(super) weighted: Vec<WeightedTerm>,
    /// The weights of the terms that a document's language has, added up.
    total_weight: f64,
    /// The greatest score that a chunk could have by these terms.
    best_score: f64,
    /// True if most of the weight is of scripts without spaces between words.
    pub(super) is_unspaced: bool,
}

/// A word of the query with its terms in each language of the corpus.
#[derive(Default)]
struct Word {
    weight: f64,
    is_previous: bool,
    is_stop_word: bool,
    /// Terms of a word, each with the bits of the languages in which the word has this term.
    variants: Vec<(Vec<String>, u32)>,
}

/// Accumulated weight of a term.
struct TermSum {
    hash: u64,
    weight: f64,
    is_previous: bool,
    chunks: u64,
    languages: u32,
}

impl QueryTerms {
    pub(super) fn new(corpus: &Corpus<'_>, query: &Query<'_>) -> Self {
        let mut words = BTreeMap::new();
        collect_words(corpus, query.text, 1.0, false, &mut words);
        if let Some(previous) = query.previous {
            collect_words(corpus, previous, PREVIOUS_WEIGHT, true, &mut words);
        }
        // A query of function words alone asks for them.
        if words.values().any(|word| !word.is_stop_word) {
            words.retain(|_, word| !word.is_stop_word);
        }
        let mut sums: BTreeMap<&str, TermSum> = BTreeMap::new();
        let mut unspaced = 0.0;
        let mut total_weight = 0.0;
        for (text, word) in &words {
            unspaced += if text.starts_with(is_unspaced) { word.weight } else { -word.weight };
            let mut terms: BTreeMap<&str, u32> = BTreeMap::new();
            for (variant, languages) in &word.variants {
                for term in variant {
                    *terms.entry(term).or_default() |= languages;
                }
            }
            let term_count = word.variants.iter().map(|(variant, _)| variant.len()).max().unwrap_or(0);
            total_weight += word.weight * term_count as f64;
            for (term, languages) in terms {
                let sum = sums.entry(term).or_insert_with(|| {
                    let hash = term_hash(term);
                    TermSum {
                        hash,
                        weight: 0.0,
                        is_previous: true,
                        chunks: corpus.chunks_with(hash),
                        languages: 0,
                    }
                });
                sum.weight += word.weight;
                sum.languages |= languages;
                sum.is_previous &= word.is_previous;
            }
        }
        let total = corpus.totals.chunks;
        let best_score = words.values().map(|word| word.weight * best_of_word(word, &sums, total)).sum();
        let mut weighted: Vec<WeightedTerm> = sums
            .iter()
            .map(|(term, sum)| WeightedTerm {
                hash: sum.hash,
                term: (*term).to_owned(),
                idf: idf(sum.chunks, total),
                weight: sum.weight as f32,
                origin: if sum.is_previous { TermOrigin::Previous } else { TermOrigin::Query },
                languages: sum.languages,
            })
            .collect();
        keep_heaviest(&mut weighted, |term| sums[term].chunks > 0);
        weighted.sort_unstable_by_key(|term| term.hash);
        Self { weighted, total_weight, best_score, is_unspaced: unspaced > 0.0 }
    }

    /// Scales the weights so that the weights of one language add up to `share`.
    pub(super) fn normalize(&mut self, share: f32) {
        if self.total_weight > 0.0 {
            let factor = f64::from(share) / self.total_weight;
            for term in &mut self.weighted {
                term.weight = (f64::from(term.weight) * factor) as f32;
            }
            self.best_score *= factor;
            self.total_weight *= factor;
        }
    }

    /// Returns a score without feedback over the best possible one.
    pub(super) fn relevance(&self, score: f32) -> f32 {
        if self.best_score > 0.0 { (f64::from(score) / self.best_score) as f32 } else { 0.0 }
    }

    /// Returns the positions of the terms, the heaviest first.
    pub(super) fn display_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.weighted.len()).collect();
        order.sort_by(|&left, &right| {
            let (left, right) = (&self.weighted[left], &self.weighted[right]);
            right.weight.total_cmp(&left.weight).then_with(|| left.term.cmp(&right.term))
        });
        order
    }
}

/// Drops all but [`MAX_TERMS`] terms; terms that no chunk has are dropped first, since they add nothing.
fn keep_heaviest(terms: &mut Vec<WeightedTerm>, is_found: impl Fn(&str) -> bool) {
    if terms.len() > MAX_TERMS {
        let key = |term: &WeightedTerm| term.weight * term.idf;
        terms.sort_unstable_by(|left, right| {
            let by_key = || key(right).total_cmp(&key(left)).then(left.hash.cmp(&right.hash));
            is_found(&right.term).cmp(&is_found(&left.term)).then_with(by_key)
        });
        terms.truncate(MAX_TERMS);
    }
}

/// Returns the greatest score of a chunk by the terms of a word in one language; a language in which the word is found comes
/// first.
fn best_of_word(word: &Word, sums: &BTreeMap<&str, TermSum>, total: u64) -> f64 {
    let mut best = (false, 0.0_f64);
    for (variant, _) in &word.variants {
        let mut is_found = false;
        let mut score = 0.0;
        for sum in variant.iter().filter_map(|term| sums.get(term.as_str())) {
            is_found |= sum.chunks > 0;
            score += f64::from(best_score(idf(sum.chunks, total)));
        }
        if (is_found, score) > best {
            best = (is_found, score);
        }
    }
    best.1
}

/// The words of a text, analyzed in one language.
struct AnalyzedText {
    /// Each word with its terms, and true for a function word.
    words: Vec<(String, Vec<String>, bool)>,
    function_words: usize,
}

/// Adds the words of a text, analyzed in each language of the corpus.
///
/// The text is in one language. The language with the most matches determines its function words.
fn collect_words(
    corpus: &Corpus<'_>,
    text: &str,
    weight: f64,
    is_previous: bool,
    words: &mut BTreeMap<String, Word>,
) {
    let text = query_ends(text);
    let text = visible_text(&text);
    let analyzed: Vec<AnalyzedText> =
        corpus.languages.iter().map(|&language| analyze(&text, language)).collect();
    let max_function_words = analyzed.iter().map(|analyzed| analyzed.function_words).max().unwrap_or(0);
    // Documents in languages that are not analyzed are searched by the most frequent language.
    let analyzed_bits: u32 = corpus.languages.iter().map(|language| language.bit()).sum();
    let other_bits = corpus.totals.language_bits() & !analyzed_bits;
    for (number, in_language) in analyzed.into_iter().enumerate() {
        let bits = corpus.languages[number].bit() | if number == 0 { other_bits } else { 0 };
        for (spelling, terms, is_stop_word) in in_language.words {
            let word = words.entry(spelling).or_insert_with(|| Word { is_previous: true, ..Word::default() });
            if number == 0 {
                word.weight += weight;
                word.is_previous &= is_previous;
            }
            word.is_stop_word |= is_stop_word && in_language.function_words == max_function_words;
            match word.variants.iter_mut().find(|(variant, _)| *variant == terms) {
                Some((_, languages)) => *languages |= bits,
                None => word.variants.push((terms, bits)),
            }
        }
    }
}

fn analyze(text: &str, language: Language) -> AnalyzedText {
    // A capitalized word among others is a name: WHO, IT.
    let is_mixed = text.chars().any(char::is_lowercase);
    let mut analyzer = Analyzer::new(language);
    let mut word_terms: Vec<(String, Vec<u32>)> = Vec::new();
    analyzer.for_each_word(text, |word, terms| word_terms.push((word.to_owned(), terms.to_vec())));
    let mut analyzed = AnalyzedText { words: Vec::with_capacity(word_terms.len()), function_words: 0 };
    for (word, terms) in word_terms {
        let is_name = is_mixed && word.len() > 1 && word.chars().all(char::is_uppercase);
        let is_stop_word =
            !is_name && !terms.is_empty() && terms.iter().all(|&term| analyzer.is_stop_term(term));
        analyzed.function_words += usize::from(is_stop_word);
        let terms = terms.iter().map(|&term| analyzer.terms()[term as usize].to_string()).collect();
        analyzed.words.push((word, terms, is_stop_word));
    }
    analyzed
}
