//! Use of a text that is embedded.

/// Use of a text. Some models have a prefix for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbedRole {
    /// A question.
    Query,
    /// A chunk of a document.
    Document,
}
