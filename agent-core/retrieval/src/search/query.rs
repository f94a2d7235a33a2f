//! The texts of a query, and its terms.

use std::borrow::Cow;

/// Maximum number of bytes at each end of a query that are read; what is between is ignored.
const MAX_END_BYTES: usize = 8 * 1024;

/// The texts that a search is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query<'a> {
    /// The user's last text.
    pub text: &'a str,
    /// The user's text before, whose terms have a fifth of the weight, for questions that leave out their subject.
    pub previous: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Creates the query of a conversation's first message.
    pub fn new(text: &'a str) -> Self {
        Self { text, previous: None }
    }
}

/// Returns a text, or the first and the last 8 KiB of one that is longer than both: a question usually stands before or behind
/// what it quotes.
pub fn query_ends(text: &str) -> Cow<'_, str> {
    if text.len() <= 2 * MAX_END_BYTES {
        return text.into();
    }
    let head = text.floor_char_boundary(MAX_END_BYTES);
    let tail = text.ceil_char_boundary(text.len() - MAX_END_BYTES);
    format!("{}\n{}", &text[..head], &text[tail..]).into()
}

/// The source of a term of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermOrigin {
    /// The user's last text.
    Query,
    /// The user's text before.
    Previous,
    /// The best chunks of the first ranking.
    Feedback,
}

/// A term that chunks were scored by.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryTerm {
    /// The stem.
    pub term: String,
    /// Inverse document frequency among the chunks of the scope.
    pub idf: f32,
    /// Share of the term in the query; the weights of all terms add up to 1.
    pub weight: f32,
    /// The source of the term.
    pub origin: TermOrigin,
}
