//! Folding of characters: invisible characters, compatibility forms, case and marks.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};

/// Returns the text as a reader sees it: without invisible and control characters, in Normalization Form KC.
///
/// Dropped are control characters other than white space, the default-ignorable characters (zero-width characters, soft
/// hyphens, variation selectors, tags) and the controls of bidirectional text. The result has at most 11 times the
/// bytes of the text.
pub fn visible_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() && !text.bytes().any(|byte| is_hidden(byte as char)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|&character| !is_hidden(character)).nfkc().collect())
}

/// Returns true for characters without a visible form that do not separate words: control characters other than white
/// space, default-ignorable characters and the controls of bidirectional text.
pub fn is_hidden(character: char) -> bool {
    match character {
        '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' => false,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        // Default_Ignorable_Code_Point.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// Lowercases a word. In Turkish, `I` and `i` are two letters, each with its own capital.
pub(super) fn lowercase(word: &str, turkish: bool) -> String {
    if turkish {
        return word.replace('I', "ı").replace('İ', "i").to_lowercase();
    }
    word.to_lowercase()
}

/// Removes the marks from letters whose readers also write them without: Latin, Greek, Arabic and Hebrew ones.
///
/// In other scripts marks distinguish letters: Cyrillic `й`, Japanese `が` and the vowels of Indic scripts stay.
pub(super) fn strip_marks(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    let mut folded = String::with_capacity(word.len());
    for character in word.chars() {
        match character {
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'ø' => folded.push('o'),
            'đ' | 'ð' => folded.push('d'),
            'þ' => folded.push_str("th"),
            'ł' => folded.push('l'),
            'ı' => folded.push('i'),
            'ς' => folded.push('σ'),
            'ё' => folded.push('е'),
            // Marks on their own: Latin and Greek ones, points of Hebrew and Arabic, the Arabic stretching character.
            '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5c7}' | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}' => {
            }
            '\u{c0}'..='\u{24f}' | '\u{370}'..='\u{3ff}' | '\u{1e00}'..='\u{1fff}' => {
                decompose_canonical(character, |piece| {
                    if !is_combining_mark(piece) {
                        folded.push(piece);
                    }
                });
            }
            other => folded.push(other),
        }
    }
    Cow::Owned(folded)
}
