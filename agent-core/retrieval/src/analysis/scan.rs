//! Segmentation of text into words (UAX 29), and of compound words into parts.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// A piece of text from which terms are made.
pub(super) enum Token<'a> {
    /// A word by the rules of UAX 29.
    Word(&'a str),
    /// Two adjacent characters of a script without spaces, or a single one.
    Gram(&'a str),
}

impl<'a> Token<'a> {
    pub(super) fn text(&self) -> &'a str {
        match self {
            Self::Word(text) | Self::Gram(text) => text,
        }
    }
}

/// Calls `emit` for each token of a text, in order.
pub(super) fn tokens<'a>(text: &'a str, mut emit: impl FnMut(Token<'a>)) {
    if text.is_ascii() {
        text.unicode_words().for_each(|word| emit(Token::Word(word)));
        return;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let words_end = rest.find(is_unspaced).unwrap_or(rest.len());
        let (words, tail) = rest.split_at(words_end);
        words.unicode_words().for_each(|word| emit(Token::Word(word)));
        let run_end = tail.find(|character| !is_unspaced(character)).unwrap_or(tail.len());
        let (run, tail) = tail.split_at(run_end);
        grams(run, &mut emit);
        rest = tail;
    }
}

/// Calls `emit` for each pair of adjacent characters of a run.
fn grams<'a>(run: &'a str, emit: &mut impl FnMut(Token<'a>)) {
    let mut starts = run.char_indices().map(|(start, _)| start);
    let Some(mut first) = starts.next() else { return };
    let Some(mut second) = starts.next() else {
        emit(Token::Gram(run));
        return;
    };
    for third in starts.chain([run.len()]) {
        emit(Token::Gram(&run[first..third]));
        (first, second) = (second, third);
    }
}

/// Returns true for letters of scripts that are written without spaces between words, and for Hangul, whose words end
/// in particles.
pub(crate) fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}'       // Thai, Lao
        | '\u{1000}'..='\u{109f}'   // Myanmar
        | '\u{1100}'..='\u{11ff}'   // Hangul
        | '\u{1780}'..='\u{17dd}'   // Khmer
        | '\u{3005}'..='\u{3007}'   // ideographic
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}'  // Hiragana
        | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'  // Katakana
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'  // Han
        | '\u{ac00}'..='\u{d7a3}'   // Hangul
        | '\u{20000}'..='\u{323af}' // Han
    )
}

/// The parts of a word from which terms are made.
pub(super) struct WordParts<'a> {
    /// True if the word as a whole is a term too.
    pub(super) keeps_whole: bool,
    pub(super) parts: Vec<&'a str>,
}

/// Splits a word at separators, changes of case and changes between letters and digits.
///
/// Numbers and abbreviations stay whole. Of a word with an apostrophe, only the parts of two and more letters are terms:
/// *l'homme* is *homme*, *user's* is *user*.
pub(super) fn split_word(word: &str) -> WordParts<'_> {
    if word.chars().all(|character| !character.is_alphabetic()) || is_abbreviation(word) {
        return WordParts { keeps_whole: true, parts: Vec::new() };
    }
    let mut parts = Vec::new();
    let is_joined = |character: char| character.is_alphanumeric() || !is_separator(character);
    for piece in word.split(|character| !is_joined(character)) {
        split_camel_case(piece, &mut parts);
    }
    if word.contains(is_apostrophe) {
        parts.retain(|part| part.chars().nth(1).is_some());
        return WordParts { keeps_whole: parts.is_empty(), parts };
    }
    if parts.len() <= 1 {
        return WordParts { keeps_whole: true, parts: Vec::new() };
    }
    WordParts { keeps_whole: true, parts }
}

/// Returns true if a word consists of single letters with dots between them: `U.S`, `e.g`. By UAX 29, the last dot of *U.S.*
/// is not part of the word.
pub(super) fn is_abbreviation(word: &str) -> bool {
    let is_letter = |piece: &str| {
        let mut characters = piece.chars();
        characters.next().is_some_and(char::is_alphabetic) && characters.next().is_none()
    };
    word.contains('.') && word.split('.').all(is_letter)
}

/// Returns the word without separators between its parts; `diff_executor` and `diffExecutor` are one identifier, and `U.K` is
/// `UK`.
pub(super) fn without_separators(word: &str) -> Cow<'_, str> {
    let drops_dots = is_abbreviation(word);
    let is_dropped = |character: char| {
        is_apostrophe(character) || matches!(character, '_' | ',') || (drops_dots && character == '.')
    };
    if word.contains(is_dropped) { Cow::Owned(word.replace(is_dropped, "")) } else { Cow::Borrowed(word) }
}

fn is_apostrophe(character: char) -> bool {
    matches!(character, '\'' | '\u{2018}' | '\u{2019}')
}

fn is_separator(character: char) -> bool {
    is_apostrophe(character)
        || matches!(character, '_' | '.' | ':' | ',' | ';' | '\u{b7}' | '\u{2024}' | '\u{2027}')
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Upper,
    Lower,
    Digit,
}

fn kind(character: char) -> Kind {
    if character.is_numeric() {
        Kind::Digit
    } else if character.is_uppercase() {
        Kind::Upper
    } else {
        Kind::Lower
    }
}

/// Splits a piece without separators at changes of case and of digits: `HTTPServer2` gives `HTTP`, `Server` and `2`.
fn split_camel_case<'a>(piece: &'a str, parts: &mut Vec<&'a str>) {
    let mut start = 0;
    let mut previous: Option<(usize, Kind)> = None;
    for (offset, character) in piece.char_indices() {
        let current = kind(character);
        if let Some((previous_offset, previous_kind)) = previous {
            let boundary = match (previous_kind, current) {
                (Kind::Lower, Kind::Upper) => Some(offset),
                (Kind::Digit, Kind::Digit) => None,
                (Kind::Digit, _) | (_, Kind::Digit) => Some(offset),
                // The last capital of a run begins the next part, except before the s of a plural.
                (Kind::Upper, Kind::Lower) if previous_offset > start && &piece[offset..] != "s" => {
                    Some(previous_offset)
                }
                _ => None,
            };
            if let Some(boundary) = boundary {
                parts.push(&piece[start..boundary]);
                start = boundary;
            }
        }
        previous = Some((offset, current));
    }
    if start < piece.len() {
        parts.push(&piece[start..]);
    }
}
