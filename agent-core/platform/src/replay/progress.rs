//! Progress of a replay.

use std::sync::Arc;

use agent_core::model::{Model, ModelEvent, ModelInfo};
use agent_core::payload::Payload;

/// Progress of a replay.
#[derive(Default)]
pub(super) struct ReplayProgress {
    /// Hashes of the requests of the model calls so far.
    pub(super) requests: Vec<String>,
    /// The model calls so far, if models can be called live.
    pub(super) calls: Vec<ReplayedCall>,
}

/// A call of a model in a replay.
pub(super) struct ReplayedCall {
    /// The model that can be called; `None` if it cannot be created here.
    pub(super) model: Option<Arc<dyn Model>>,
    pub(super) info: ModelInfo,
    pub(super) payload: Payload,
    pub(super) recorded: Vec<ModelEvent>,
}
