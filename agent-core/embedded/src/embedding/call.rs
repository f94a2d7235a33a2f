//! Urgency and size of calls.

/// Maximum number of texts of a call.
pub(super) const MAX_TEXTS_PER_CALL: usize = 32;

/// Urgency of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingPriority {
    /// A query that a search waits for. It waits for one text at most, and for other questions.
    Query,
    /// Documents, embedded in the background.
    Document,
}
