//! Beginning of a queued run.

use std::sync::{Arc, OnceLock};

use agent_platform::conversation::{BeginRunRequest, ConversationError, Conversations, NodeId, Run};
use agent_platform::run_observer::RunObserver;
use agent_platform::usage::StoredOutcome;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::contexts::ContextSlot;
use crate::app::services::ConversationService;
use crate::app::services::live::LiveRun;

/// Position of a run's answer in the tree, known once the run begins.
#[derive(Debug)]
pub(super) struct AnswerPosition {
    /// Node below which the answer goes.
    pub(super) parent: Option<NodeId>,
    /// Context that the run sends with the user's message.
    pub(super) sent_context: ContextSlot,
}

/// Records the outcome of the commit of a run's beginning.
pub(super) fn record_outcome(outcome: Option<&StoredOutcome>, result: &Result<Run, ConversationError>) {
    let Some(outcome) = outcome else { return };
    match result {
        Ok(_) => outcome.record_stored(),
        // The commit may be made although its answer was lost.
        Err(ConversationError::Store(_)) => outcome.record_unknown(),
        Err(_) => {}
    }
}

/// Beginning of a queued run.
pub(super) struct QueuedBegin {
    pub(super) service: Arc<ConversationService>,
    pub(super) store: Arc<dyn Conversations>,
    pub(super) run: Arc<LiveRun>,
    pub(super) position: Arc<OnceLock<AnswerPosition>>,
    pub(super) observer: Arc<RunObserver>,
}

impl QueuedBegin {
    /// Commits the beginning in a separate task, so that no disconnect leaves the run between two states.
    pub(super) async fn begin(
        &self,
        begin: BeginRunRequest,
        sent_context: ContextSlot,
        outcome: Option<StoredOutcome>,
    ) -> Result<(), ConversationError> {
        let (sender, receiver) = oneshot::channel();
        let (service, store) = (self.service.clone(), self.store.clone());
        let (run, position) = (self.run.clone(), self.position.clone());
        let task = async move {
            let _storing = run.lock_storing().await;
            let result = service.begin_run(&*store, begin).await;
            record_outcome(outcome.as_ref(), &result);
            let result = result.map(|run| {
                let _ = position.set(AnswerPosition { parent: run.parent_id, sent_context });
            });
            // The client may have left.
            let _ = sender.send(result);
        };
        self.service.spawner.spawn(task.boxed());
        receiver.await.unwrap_or(Err(ConversationError::RunNotFound))
    }
}
