//! Limit on the length of terms.

/// Maximum length of a term in bytes; the rest of a longer word is ignored.
pub const MAX_TERM_BYTES: usize = 64;

/// Shortens a term to [`MAX_TERM_BYTES`], at a boundary of characters.
pub(super) fn truncate_term(term: &mut String) {
    if term.len() > MAX_TERM_BYTES {
        term.truncate(term.floor_char_boundary(MAX_TERM_BYTES));
    }
}
