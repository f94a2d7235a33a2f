//! Pieces of a prompt with their origin.

use std::sync::Arc;

use serde::Serialize;

use super::Part;

/// How long a fragment's text stays the same. Assembly orders by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// As long as the role is not edited.
    Role,
    /// As long as the agent's documents and memory stay.
    Agent,
    /// For one user's conversation.
    Session,
    /// For this turn alone; it goes into the latest turn.
    Turn,
}

/// A piece of the prompt with its origin.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Stable identifier within the prompt, such as `rules` or `doc:handbook`.
    pub id: Arc<str>,
    /// The name of the layer that gave it.
    pub source: &'static str,
    /// How long its text stays the same.
    pub stability: Stability,
    /// The text, shared and with its derived forms cached.
    pub part: Arc<Part>,
}

impl Fragment {
    /// A fragment of `text`.
    pub fn new(id: impl Into<Arc<str>>, source: &'static str, stability: Stability, part: Arc<Part>) -> Self {
        Self { id: id.into(), source, stability, part }
    }
}
