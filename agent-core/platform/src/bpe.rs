//! Exact counts for the hosted models' encoding.

use std::cell::RefCell;
use std::sync::LazyLock;

use agent_core::budget::TokenCounter;
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, PatternID};

mod recent;
mod vocabulary;

use recent::RecentPieces;
use vocabulary::{MergeBuffers, Vocabulary};

/// Counts by `o200k_base`, the byte-pair encoding of the hosted vendor's present models.
///
/// The counts are exact, save for words of more than 4 KiB without a break: they are encoded in parts, which may
/// cost a token more each. The vocabulary is searched where it lies in the program's file, so a process that
/// counts has some 4 MiB more resident memory. The first count compiles the pattern, which takes some 3 ms.
#[derive(Debug, Clone, Copy, Default)]
pub struct BpeCounter;

impl TokenCounter for BpeCounter {
    fn id(&self) -> &'static str {
        "o200k_base"
    }

    fn count(&self, text: &str) -> usize {
        let mut buffers = MergeBuffers::default();
        let parts = pieces(text).flat_map(|piece| piece.as_bytes().chunks(MAX_MERGE_BYTES));
        RECENT_PIECES.with_borrow_mut(|recent| {
            parts.map(|part| recent.count(part, |part| O200K_BASE.count(part, &mut buffers))).sum()
        })
    }
}

/// The longest byte string that is merged at once. The time per byte grows with its logarithm, and the text
/// of a request has to be counted on a thread that serves other requests.
const MAX_MERGE_BYTES: usize = 4096;

static O200K_BASE: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::parse(include_bytes!("bpe/o200k_base.vocabulary")));

thread_local! {
    /// Counts of this encoding.
    static RECENT_PIECES: RefCell<RecentPieces> = RefCell::new(RecentPieces::new());
}

/// The encoding's pre-tokenizer: no token crosses the end of a match. `\s+(?!\S)` of the original is written without
/// its look-ahead, which regular automata do not have: as `\s+$`, and as [`WHITE_SPACE_LOOKAHEAD`], whose last
/// character is not part of the piece.
static PIECE: LazyLock<Regex> = LazyLock::new(|| {
    let pieces = [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+$",
    ]
    .join("|");
    Regex::new_many(&[&pieces, r"\s+\s", r"\s+"]).expect("the pattern is valid")
});

/// The pattern of [`PIECE`] that matches one character more than the piece has.
const WHITE_SPACE_LOOKAHEAD: PatternID = PatternID::new_unchecked(1);

/// Returns the length of the piece at the start of a text, if the pattern's first alternative matches it and it is known from
/// ASCII bytes alone: most words are, and need no automaton.
fn ascii_word(text: &[u8]) -> Option<usize> {
    let begins_word =
        |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric() && !matches!(byte, b'\r' | b'\n');
    let prefix = usize::from(text.first().is_some_and(begins_word));
    let capitals = text[prefix..].iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let small = text[prefix + capitals..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let length = prefix + capitals + small;
    // A letter beyond ASCII belongs to the word, and so does a contraction after an apostrophe.
    let is_whole = text.get(length).is_none_or(|next| next.is_ascii() && *next != b'\'');
    (small > 0 && is_whole).then_some(length)
}

/// Splits a text into the pieces that are encoded separately.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let Some(length) = ascii_word(rest.as_bytes()) {
            let (word, after_word) = rest.split_at(length);
            rest = after_word;
            return Some(word);
        }
        let found = PIECE.find(Input::new(rest).anchored(Anchored::Yes))?;
        let mut matched = &rest[..found.end()];
        if found.pattern() == WHITE_SPACE_LOOKAHEAD {
            let mut characters = matched.chars();
            characters.next_back();
            matched = characters.as_str();
        }
        rest = &rest[matched.len()..];
        Some(matched)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reference_count(text: &str) -> usize {
        bpe_openai::o200k_base().count(text)
    }

    #[test]
    fn control_tokens_in_a_text_are_ordinary_text() {
        assert_eq!(BpeCounter.count("hello world"), 2);
        assert!(BpeCounter.count("<|endoftext|>") > 1);
    }

    #[test]
    fn every_tokens_text_has_the_reference_count() {
        let encoding = &bpe_openai::o200k_base().bpe;
        let tokens = (0..encoding.num_tokens() as u32).map(|token| encoding.token_bytes(token));
        for text in tokens.filter_map(|token| std::str::from_utf8(token).ok()) {
            assert_eq!(BpeCounter.count(text), reference_count(text), "{text:?}");
        }
    }

    #[test]
    fn a_count_is_the_same_again_and_after_others() {
        let words = ["", "a", " tea", "strengt", " authenticatio", "\0\0a", "a\0", "zzzzzz", "ÄÖÜ"];
        let texts =
            || words.iter().flat_map(|first| words.iter().map(move |second| format!("{first}{second}")));
        for _ in 0..2 {
            for text in texts() {
                assert_eq!(BpeCounter.count(&text), reference_count(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn long_words_cost_at_most_a_token_more_for_each_part() {
        let letters = |index: usize| char::from(b'a' + (index * index % 251 % 26) as u8);
        for text in ["a".repeat(100_000), " ".repeat(100_000), (0..100_000).map(letters).collect()] {
            let (count, reference) = (BpeCounter.count(&text), reference_count(&text));
            assert!(
                (reference..=reference + text.len() / MAX_MERGE_BYTES).contains(&count),
                "{count} {reference}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_has_the_reference_count(text in r"(\PC|\s|[a-zA-Z0-9 '\n]|ab|\p{Lu}\p{Ll}+|\p{Han}|\p{M}){0,200}") {
            prop_assert_eq!(BpeCounter.count(&text), reference_count(&text));
        }
    }
}
