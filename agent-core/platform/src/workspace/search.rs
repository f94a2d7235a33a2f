//! Search by words over documents: BM25 over paragraphs. Pure, without an index.

use std::collections::HashMap;
use std::ops::Range;

use super::Document;

/// Maximum length of a passage, in bytes. Longer paragraphs are split.
const MAX_PASSAGE_BYTES: usize = 1_000;
/// Maximum number of different words of a query that count.
const MAX_QUERY_WORDS: usize = 32;
/// Saturation of a word's frequency, and influence of a passage's length: the usual constants of BM25.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A passage that shares words with a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Passage {
    /// Index of the document.
    pub(crate) document: usize,
    /// Position in the document's text, in bytes.
    pub(crate) range: Range<usize>,
    /// Score by BM25; higher is better.
    pub(crate) score: f64,
}

/// Frequencies of the query's words in one passage.
struct Candidate {
    document: usize,
    range: Range<usize>,
    words: usize,
    frequencies: Vec<u32>,
}

/// Returns at most `limit` passages that share words with `query`, the best first. A document's title counts as a part
/// of each of its passages.
pub(crate) fn search_passages(documents: &[Document], query: &str, limit: usize) -> Vec<Passage> {
    let mut terms: HashMap<String, usize> = HashMap::new();
    for word in words(query).filter(|word| !is_common(word)) {
        let next = terms.len();
        if next < MAX_QUERY_WORDS {
            terms.entry(word).or_insert(next);
        }
    }
    let (mut candidates, mut passages, mut total_words) = (Vec::new(), 0_usize, 0_usize);
    for (document, Document { title, text, .. }) in documents.iter().enumerate() {
        for range in paragraphs(text) {
            let mut candidate =
                Candidate { document, range: range.clone(), words: 0, frequencies: vec![0; terms.len()] };
            for word in words(title).chain(words(&text[range])) {
                candidate.words += 1;
                if let Some(&term) = terms.get(&word) {
                    candidate.frequencies[term] += 1;
                }
            }
            passages += 1;
            total_words += candidate.words;
            candidates.extend(candidate.frequencies.iter().any(|count| *count > 0).then_some(candidate));
        }
    }
    rank(candidates, terms.len(), passages, total_words, limit)
}

fn rank(
    candidates: Vec<Candidate>,
    terms: usize,
    passages: usize,
    total_words: usize,
    limit: usize,
) -> Vec<Passage> {
    let mean_words = (total_words as f64 / passages.max(1) as f64).max(1.0);
    let weights: Vec<f64> = (0..terms)
        .map(|term| {
            let with_term = candidates.iter().filter(|found| found.frequencies[term] > 0).count() as f64;
            (1.0 + (passages as f64 - with_term + 0.5) / (with_term + 0.5)).ln()
        })
        .collect();
    let score = |found: &Candidate| -> f64 {
        let length = K1 * (1.0 - B + B * found.words as f64 / mean_words);
        let gain = |count: u32| f64::from(count) * (K1 + 1.0) / (f64::from(count) + length);
        found.frequencies.iter().zip(&weights).map(|(count, weight)| weight * gain(*count)).sum()
    };
    let mut found: Vec<Passage> = candidates
        .into_iter()
        .map(|found| Passage { score: score(&found), document: found.document, range: found.range })
        .collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.document.cmp(&b.document)));
    found.truncate(limit);
    found
}

/// Returns the positions of the paragraphs of a text, of at most [`MAX_PASSAGE_BYTES`] each.
fn paragraphs(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut begin = 0;
    for paragraph in text.split_inclusive("\n\n") {
        let mut rest = paragraph;
        while !rest.is_empty() {
            let end = passage_end(rest);
            let passage = &rest[..end];
            let blank = passage.len() - passage.trim_start().len();
            let trimmed = passage.trim();
            if !trimmed.is_empty() {
                found.push(begin + blank..begin + blank + trimmed.len());
            }
            begin += end;
            rest = &rest[end..];
        }
    }
    found
}

/// Returns the length of the first passage of a paragraph: all of it, or up to the last line, sentence or word that
/// fits.
fn passage_end(paragraph: &str) -> usize {
    if paragraph.len() <= MAX_PASSAGE_BYTES {
        return paragraph.len();
    }
    let fitting = &paragraph[..paragraph.floor_char_boundary(MAX_PASSAGE_BYTES)];
    let mut ends = ["\n", ". ", " "].into_iter().filter_map(|end| Some(fitting.rfind(end)? + end.len()));
    // An end in the first half would leave passages of a few words.
    ends.find(|end| *end > fitting.len() / 2).unwrap_or(fitting.len())
}

/// Iterates over the words of a text in lower case, without the plural's `s`.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(|word| {
        let mut word = word.to_lowercase();
        if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
        word
    })
}

/// Returns true for words that nearly every English text contains; they would match every passage.
fn is_common(word: &str) -> bool {
    const COMMON: [&str; 34] = [
        "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "doe", "for", "from", "how", "i", "in",
        "is", "it", "me", "my", "of", "on", "or", "that", "the", "there", "thi", "to", "we", "what", "when",
        "which", "with", "you",
    ];
    COMMON.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(title: &str, text: &str) -> Document {
        Document {
            id: title.into(),
            company_id: "c".into(),
            title: title.into(),
            text: text.into(),
            ..Document::default()
        }
    }

    fn found(documents: &[Document], query: &str, limit: usize) -> Vec<String> {
        let passages = search_passages(documents, query, limit);
        passages.into_iter().map(|p| documents[p.document].text[p.range].to_owned()).collect()
    }

    #[test]
    fn rare_words_and_short_passages_rank_first() {
        let documents = [
            document(
                "Hours",
                "The shop is open daily.\n\nThe shop is closed on holidays, and so is the café.",
            ),
            document("Café", "The café serves cake.\n\n\n  Dogs are welcome in the shop.  \n"),
        ];
        for (query, expected) in [
            ("Is there a dog?", &["Dogs are welcome in the shop."][..]),
            ("cake", &["The café serves cake."]),
            ("HOLIDAY shop", &["The shop is closed on holidays, and so is the café."]),
            ("is the what", &[]),
            ("", &[]),
            ("bicycle", &[]),
        ] {
            assert_eq!(found(&documents, query, 1), expected, "{query}");
        }
        // The title belongs to each passage.
        assert_eq!(found(&documents, "hours holiday", 5).len(), 2);
        assert_eq!(found(&documents, "shop", 2).len(), 2, "the limit");
    }

    #[test]
    fn long_paragraphs_are_split_and_nothing_is_lost() {
        for text in ["word ".repeat(1_000), "ü".repeat(5_000), "A sentence of words. ".repeat(300)] {
            let ranges = paragraphs(&text);
            assert!(ranges.len() > 3);
            assert!(ranges.iter().all(|range| range.len() <= MAX_PASSAGE_BYTES));
            let joined: String = ranges.iter().map(|range| text[range.clone()].replace(' ', "")).collect();
            assert_eq!(joined, text.replace(' ', ""));
        }
    }

    #[test]
    fn common_words_are_sorted() {
        for word in ["a", "doe", "you", "there"] {
            assert!(is_common(word), "{word}");
        }
        assert!(!is_common("shop"));
    }
}
