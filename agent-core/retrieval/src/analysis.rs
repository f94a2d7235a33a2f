//! Analysis of text into terms: the units that are counted, stored and compared.
//!
//! The steps, for documents and queries alike:
//!
//! 1. Invisible characters are dropped and the rest is normalized to NFKC, so that a zero-width space inside of a word or
//!    a full-width letter cannot hide it ([`visible_text`]).
//! 2. Words are found by the Unicode rules (UAX 29). Scripts without spaces between words give pairs of adjacent
//!    characters.
//! 3. A compound word, an identifier or a name with dots, gives itself and its parts: `DiffExecutor` gives
//!    `diffexecutor`, `diff` and `executor`. An abbreviation of single letters has no parts: `U.K` gives `uk`.
//! 4. Words are lowercased, reduced to their stem by the document's language, and lose the marks of Latin, Greek and
//!    Arabic letters. In that order: the stemmers need the marks, and a query is often written without them.
//!
//! Analysis is linear in the text; a term has at most [`MAX_TERM_BYTES`].

mod fold;
mod language;
mod scan;
mod term;

use std::collections::HashMap;

pub use fold::{is_hidden, visible_text};
pub use language::Language;
pub(crate) use scan::is_unspaced;
pub use term::MAX_TERM_BYTES;

use language::Stemming;
use scan::Token;
use term::truncate_term;

/// Longest word, in bytes, whose terms are remembered for its next occurrence.
const MAX_REMEMBERED_WORD_BYTES: usize = 64;
/// Maximum number of words whose terms are cached; beyond it, words are analyzed at each occurrence.
const MAX_REMEMBERED_WORDS: usize = 1 << 18;

/// The number of a distinct term within one [`Analyzer`].
pub(crate) type TermNumber = u32;

/// Converts text to terms in one language, and numbers the distinct terms in the order of their first occurrence.
///
/// One analyzer serves one document or one query: repeated words are analyzed once.
pub(crate) struct Analyzer {
    language: Language,
    stemming: Stemming,
    numbers: HashMap<String, TermNumber>,
    terms: Vec<Box<str>>,
    stop_terms: Vec<bool>,
    remembered: HashMap<String, (u32, u32)>,
    expansions: Vec<TermNumber>,
    scratch: Vec<TermNumber>,
}

impl Analyzer {
    pub(crate) fn new(language: Language) -> Self {
        Self {
            language,
            stemming: Stemming::new(language),
            numbers: HashMap::new(),
            terms: Vec::new(),
            stop_terms: Vec::new(),
            remembered: HashMap::new(),
            expansions: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Calls `emit` for each word of the text, in order, with the word as written and its terms.
    pub(crate) fn for_each_word(&mut self, text: &str, mut emit: impl FnMut(&str, &[TermNumber])) {
        let text = visible_text(text);
        scan::tokens(&text, |token| {
            let word = token.text();
            if let Some(&(start, end)) = self.remembered.get(word) {
                emit(word, &self.expansions[start as usize..end as usize]);
                return;
            }
            self.scratch.clear();
            self.expand(&token);
            if word.len() <= MAX_REMEMBERED_WORD_BYTES && self.remembered.len() < MAX_REMEMBERED_WORDS {
                let start = self.expansions.len() as u32;
                self.expansions.extend_from_slice(&self.scratch);
                self.remembered.insert(word.to_owned(), (start, self.expansions.len() as u32));
            }
            emit(word, &self.scratch);
        });
    }

    /// Appends the terms of a text to `terms`, in order and with repetitions.
    pub(crate) fn append_terms(&mut self, text: &str, terms: &mut Vec<TermNumber>) {
        self.for_each_word(text, |_, numbers| terms.extend_from_slice(numbers));
    }

    /// Returns the distinct terms; the position of a term is its number.
    pub(crate) fn terms(&self) -> &[Box<str>] {
        &self.terms
    }

    /// Returns true if a term is that of a function word.
    pub(crate) fn is_stop_term(&self, term: TermNumber) -> bool {
        self.stop_terms[term as usize]
    }

    fn expand(&mut self, token: &Token<'_>) {
        match token {
            Token::Gram(gram) => self.push(gram.to_lowercase()),
            Token::Word(word) => {
                let parts = scan::split_word(word);
                if parts.keeps_whole {
                    let term = self.stemming.term(&scan::without_separators(word));
                    // `U.S` is found by `US`, but that term is the one of the function word `us` too.
                    let is_ambiguous = scan::is_abbreviation(word) && self.language.is_stop_term(&term);
                    self.push(term);
                    if is_ambiguous {
                        self.push(self.stemming.term(word));
                    }
                }
                for part in parts.parts {
                    self.push(self.stemming.term(part));
                }
            }
        }
    }

    fn push(&mut self, mut term: String) {
        truncate_term(&mut term);
        if term.is_empty() {
            return;
        }
        let number = match self.numbers.get(&term) {
            Some(&number) => number,
            None => {
                let number = self.terms.len() as TermNumber;
                self.stop_terms.push(self.language.is_stop_term(&term));
                self.terms.push(term.as_str().into());
                self.numbers.insert(term, number);
                number
            }
        };
        self.scratch.push(number);
    }
}

/// Returns the 64-bit hash with which indexes order and compare terms (SipHash-1-3 with a zero key).
///
/// The hash is part of the stored format. The terms themselves are stored beside it, for explanations.
pub(crate) fn term_hash(term: &str) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(term.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests;
