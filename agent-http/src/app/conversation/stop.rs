//! Cancelling of runs, in whichever process they are.

use std::time::Duration;

use agent_platform::conversation::{
    CancelReason, ChangeRun, ConversationError, Conversations, Run, RunChange, RunKey, RunSignal, RunState,
    ThreadKey,
};

use super::live::RunStop;
use super::{ConversationService, later};

/// Time for which a request to cancel a run waits for the run's process.
const CANCEL_TIME: Duration = Duration::from_secs(60);
/// Maximum time for which a request waits until a cancelled run is over.
const END_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks at a run that ends.
const END_POLL: Duration = Duration::from_millis(50);

/// Maximum time for which a deletion waits until the thread's run is over.
const DELETION_WAIT: Duration = Duration::from_secs(2);

impl ConversationService {
    /// Cancels a run. Returns it as it is then, since it ends soon after; `None` if there is none. A run that is over
    /// stays as it is, and one whose process has ended is interrupted.
    pub(in super::super) async fn cancel(
        &self,
        store: &dyn Conversations,
        key: &RunKey,
        reason: CancelReason,
    ) -> Result<Option<Run>, ConversationError> {
        let run = store.interrupt_expired(&key.owner, &key.id, self.clock()).await?;
        let Some(run) = run.filter(|run| !run.state.is_final()) else {
            return store.run(&key.owner, &key.id).await;
        };
        if run.state == RunState::Waiting {
            let change = RunChange::CancelWaiting(reason);
            let change = ChangeRun { run: key.clone(), change, now: self.now() };
            return store.change_run(change).await.map(Some);
        }
        match self.runs.get(key) {
            Some(live) => live.stop(RunStop::Cancelled(reason)),
            None => {
                let until = later(self.now(), CANCEL_TIME);
                store.signal(key, RunSignal::Cancel(reason), until).await?;
            }
        }
        Ok(Some(run))
    }

    /// Cancels a run for another one in its thread, and waits until it is over.
    ///
    /// # Errors
    /// [`ConversationError::ThreadBusy`] if the run does not end in time.
    pub(super) async fn displace(
        &self,
        store: &dyn Conversations,
        key: &RunKey,
    ) -> Result<(), ConversationError> {
        self.cancel(store, key, CancelReason::Displaced).await?;
        let busy = || ConversationError::ThreadBusy { active_run: key.id.clone() };
        tokio::time::timeout(END_WAIT, until_over(store, key)).await.unwrap_or_else(|_| Err(busy()))
    }

    /// Cancels the run of a thread that is to be deleted, and waits for a short time until it is over: its clients in all
    /// processes then receive its end.
    pub(in super::super) async fn end_before_deletion(
        &self,
        store: &dyn Conversations,
        key: &ThreadKey,
    ) -> Result<(), ConversationError> {
        let Some(id) = store.thread(key).await?.and_then(|thread| thread.active_run_id) else {
            return Ok(());
        };
        let run = RunKey { owner: key.thread_owner(), id };
        self.cancel(store, &run, CancelReason::Deleted).await?;
        // The thread is deleted all the same.
        tokio::time::timeout(DELETION_WAIT, until_over(store, &run)).await.unwrap_or(Ok(()))
    }

    /// Stops runs of this process whose threads were deleted. Other processes learn of it when they store events.
    pub(in super::super) fn stop_deleted(&self, runs: impl IntoIterator<Item = RunKey>) {
        for run in runs.into_iter().filter_map(|key| self.runs.get(&key)) {
            run.stop(RunStop::Cancelled(CancelReason::Deleted));
        }
    }

    /// Returns the number of clients that are attached to a run in this process.
    pub(in super::super) fn attached(&self, key: &RunKey) -> u32 {
        self.runs.get(key).map_or(0, |run| run.attached())
    }
}

/// Waits until a run is over or deleted.
async fn until_over(store: &dyn Conversations, key: &RunKey) -> Result<(), ConversationError> {
    while store.run(&key.owner, &key.id).await?.is_some_and(|run| !run.state.is_final()) {
        tokio::time::sleep(END_POLL).await;
    }
    Ok(())
}
