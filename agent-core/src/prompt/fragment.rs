//! Pieces of a prompt with their origin.

use std::sync::Arc;

use serde::Serialize;

use super::Part;

/// Lifetime of a fragment's text. Assembly orders fragments by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// Constant until the role is edited.
    Role,
    /// Constant until the agent's documents or memory change.
    Agent,
    /// Constant for one user's conversation.
    Session,
    /// Valid for this turn only; placed in the latest turn.
    Turn,
}

/// A piece of the prompt with its origin and stability.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Stable identifier within the prompt, such as `rules` or `doc:handbook`.
    pub id: Arc<str>,
    /// Name of the layer that produced it.
    pub source: &'static str,
    /// Lifetime of its text.
    pub stability: Stability,
    /// The text with its cached derived forms (JSON, hash, token counts).
    pub part: Arc<Part>,
}

impl Fragment {
    /// Creates a fragment of the text in `part`.
    pub fn new(id: impl Into<Arc<str>>, source: &'static str, stability: Stability, part: Arc<Part>) -> Self {
        Self { id: id.into(), source, stability, part }
    }
}
