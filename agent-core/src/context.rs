//! Context layers: each contributes fragments to the prompt of a turn.
//!
//! Layers do the I/O of a turn, side by side, before anything is assembled; what they give are plain
//! values, and assembly is pure. A fragment says how long its text stays the same, so that assembly
//! can put what is stable first and providers' prompt caches hold.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::Serialize;

use crate::prompt::Part;
use crate::records::StoreError;
use crate::role::RoleBlock;
use crate::tool::ExecutionContext;
use crate::turn::TurnRequest;

/// Contributes fragments to the prompt of a turn.
#[async_trait]
pub trait ContextLayer: Send + Sync + 'static {
    /// The layer's name, in `kebab-case`, as the manifest shows it.
    fn name(&self) -> &'static str;

    /// Gives the fragments for this turn, in the order in which they shall stand.
    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError>;
}

/// What a layer knows of the turn.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// The agent's role.
    pub role: Arc<RoleBlock>,
    /// For whom and about what the turn works.
    pub context: ExecutionContext,
    /// What was asked, with the caller's own context.
    pub request: Arc<TurnRequest>,
    /// When the turn began.
    pub now: SystemTime,
}

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

/// Why a layer gave nothing. A turn without a layer would be a different turn, so it does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The store failed.
    #[error("the context layer could not read its data")]
    Store(#[from] StoreError),
    /// Anything else that failed inside.
    #[error("the context layer failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}
