//! Pieces of a prompt with their origin.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Part;
use crate::event::{Audience, EventObserver};
use crate::ids::UserId;

/// Lifetime of a fragment's text. Assembly orders fragments by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Name of the layer that produced it. The role's `ragPlacement` places those of [`RETRIEVAL_SOURCE`](super::RETRIEVAL_SOURCE).
    pub source: &'static str,
    /// Lifetime of its text.
    pub stability: Stability,
    /// The text with its cached derived forms (JSON, hash, token counts).
    pub part: Arc<Part>,
    /// Origin of a text that users have stored; `None` for a text of the operator or the platform.
    pub origin: Option<Arc<StoredOrigin>>,
    /// The layer's report on its fragments, attached to the first of them.
    pub report: Option<Arc<dyn LayerReport>>,
}

/// Report of a layer on how it chose its fragments, such as the scores of retrieved texts.
pub trait LayerReport: Debug + Send + Sync + 'static {
    /// Returns the report as a member of a preview: its name and its value.
    fn preview(&self) -> (&'static str, Value);

    /// Returns an observer that adds the report's events to the run, if this audience may see any.
    fn observer(&self, audience: Audience) -> Option<Box<dyn EventObserver>>;
}

/// Origin of a stored text, such as a document or the agent's memory, and the part of it that a fragment contains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredOrigin {
    /// Kind of text, such as `document`.
    pub kind: &'static str,
    /// Identifier of the stored item, if the text is of a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Title of the stored item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The user who owns the text, if the store knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserId>,
    /// Number of bytes that were left out to fit the layer's budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_bytes: Option<usize>,
    /// Position of the stored text in the fragment's text, between its delimiters.
    #[serde(skip)]
    pub text: Range<usize>,
}

impl Fragment {
    /// Creates a fragment of the text in `part`.
    pub fn new(id: impl Into<Arc<str>>, source: &'static str, stability: Stability, part: Arc<Part>) -> Self {
        Self { id: id.into(), source, stability, part, origin: None, report: None }
    }

    /// Sets the origin of a stored text.
    pub fn with_origin(self, origin: StoredOrigin) -> Self {
        Self { origin: Some(Arc::new(origin)), ..self }
    }

    /// Attaches the layer's report.
    pub fn with_report(self, report: Arc<dyn LayerReport>) -> Self {
        Self { report: Some(report), ..self }
    }

    /// Returns the stored text without its delimiters, if the fragment is of one.
    pub fn stored_text(&self) -> Option<&str> {
        self.part.text().get(self.origin.as_ref()?.text.clone())
    }
}
