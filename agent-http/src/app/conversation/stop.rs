//! Cancellation of runs, in this process or another.

use std::collections::HashSet;
use std::time::Duration;

use agent_core::ids::RunId;
use agent_platform::conversation::{
    CancelReason, ChangeRunRequest, ConversationError, Conversations, DeleteFilter, Run, RunChange,
    RunFilter, RunKey, RunSignal, RunState, Thread, ThreadKey, ThreadOwner,
};
use futures_util::future::try_join_all;

use crate::app::services::ConversationService;
use crate::app::services::live::RunStop;
use crate::timestamps::add_saturating;

/// Time for which the signal to cancel a run is kept for the run's process.
const CANCEL_SIGNAL_TTL: Duration = Duration::from_secs(60);
/// Time for which the signal to begin is kept for the process of a queued run.
const START_SIGNAL_TTL: Duration = Duration::from_secs(10);
/// Maximum time for which a request waits for the end of a cancelled run.
const CANCELLED_RUN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two polls of a run that ends.
const END_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum time to wait for the end of a thread's cancelled queue before its run is cancelled.
const QUEUE_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time for which a deletion waits for the end of the thread's runs.
const DELETION_END_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of running runs, and of queued ones, that are cancelled before a deletion of several threads. The others learn
/// of it when they store events.
const MAX_CANCELLED_RUNS: usize = 100;

impl ConversationService {
    /// Cancels a run, and returns its state at that time, which may be before its end; `None` if it does not exist. A run
    /// that has ended is not changed, and one whose process has ended is interrupted.
    pub(in super::super) async fn cancel(
        &self,
        store: &dyn Conversations,
        key: &RunKey,
        reason: CancelReason,
    ) -> Result<Option<Run>, ConversationError> {
        let run = self.interrupt_abandoned(store, key).await?;
        let Some(run) = run.filter(|run| !run.state.is_final()) else {
            return store.run(&key.owner, &key.id).await;
        };
        if run.state == RunState::Waiting {
            return self.cancel_waiting(store, key, reason).await.map(Some);
        }
        let live = self.runs.get(key);
        if let Some(live) = &live {
            live.stop(RunStop::Cancelled(reason));
        }
        // Also for a run of this process: if its last event asks people already, the commit of its end finds the request.
        let until = add_saturating(self.now(), CANCEL_SIGNAL_TTL);
        // It may have ended with questions meanwhile.
        match store.signal(key, RunSignal::Cancel(reason), until).await {
            Ok(Some(run)) if run.state == RunState::Waiting => {
                self.cancel_waiting(store, key, reason).await.map(Some)
            }
            // The run is stopped in this process, and its end is stored once the store is available.
            Err(ConversationError::Store(error)) if live.is_some() => {
                tracing::warn!(run_id = %key.id, %error, "failed to store the request to cancel a run of this process");
                Ok(Some(run))
            }
            run => run,
        }
    }

    pub(super) async fn cancel_waiting(
        &self,
        store: &dyn Conversations,
        key: &RunKey,
        reason: CancelReason,
    ) -> Result<Run, ConversationError> {
        let change = RunChange::CancelWaiting(reason);
        let change = ChangeRunRequest { run: key.clone(), change, now: self.now() };
        store.change_run(change).await.map(|changed| changed.run)
    }

    /// Cancels the queued runs of a thread, and then its run, so that none of them begins in between.
    pub(in super::super) async fn cancel_thread(
        &self,
        store: &dyn Conversations,
        owner: &ThreadOwner,
        thread: &Thread,
        reason: CancelReason,
    ) -> Result<(), ConversationError> {
        let key = |id: &RunId| RunKey { owner: owner.clone(), id: id.clone() };
        for id in &thread.queued_run_ids {
            self.cancel(store, &key(id), reason).await?;
        }
        let queue_ended = async {
            for id in &thread.queued_run_ids {
                wait_until_ended(store, &key(id)).await?;
            }
            Ok(())
        };
        tokio::time::timeout(QUEUE_END_TIMEOUT, queue_ended)
            .await
            .unwrap_or(Ok::<_, ConversationError>(()))?;
        if let Some(id) = &thread.active_run_id {
            self.cancel(store, &key(id), reason).await?;
        }
        Ok(())
    }

    /// Wakes the first of a thread's queued runs, in this process or by a signal to another.
    pub(super) async fn wake_next(&self, store: &dyn Conversations, owner: &ThreadOwner, thread: &Thread) {
        let Some(id) = thread.queued_run_ids.first().filter(|_| thread.active_run_id.is_none()) else {
            return;
        };
        let key = RunKey { owner: owner.clone(), id: id.clone() };
        if let Some(run) = self.runs.get(&key) {
            return run.wake_queued();
        }
        // Without the signal, the run notices that it may begin at its next poll.
        if let Err(error) =
            store.signal(&key, RunSignal::Start, add_saturating(self.now(), START_SIGNAL_TTL)).await
        {
            tracing::warn!(run_id = %key.id, %error, "failed to signal the process of the next queued run; it polls for its turn");
        }
    }

    /// Cancels the queued runs of a thread and its run in favour of a new run, and waits until they are over.
    ///
    /// # Errors
    /// [`ConversationError::ThreadBusy`] if a run does not end in time.
    pub(super) async fn displace_thread(
        &self,
        store: &dyn Conversations,
        key: &ThreadKey,
    ) -> Result<(), ConversationError> {
        let Some(thread) = store.thread(key).await? else { return Ok(()) };
        let owner = key.thread_owner();
        self.cancel_thread(store, &owner, &thread, CancelReason::Displaced).await?;
        for id in thread.queued_run_ids.into_iter().chain(thread.active_run_id) {
            self.displace(store, &RunKey { owner: owner.clone(), id }).await?;
        }
        Ok(())
    }

    /// Cancels a run in favour of a new run in its thread, and waits until it has ended.
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
        tokio::time::timeout(CANCELLED_RUN_TIMEOUT, wait_until_ended(store, key))
            .await
            .unwrap_or_else(|_| Err(busy()))
    }

    /// Cancels the runs of a thread before its deletion, and waits for a short time until they are over: their clients in
    /// all processes then receive their ends.
    pub(in super::super) async fn end_before_deletion(
        &self,
        store: &dyn Conversations,
        key: &ThreadKey,
    ) -> Result<(), ConversationError> {
        let Some(thread) = store.thread(key).await? else { return Ok(()) };
        let owner = key.thread_owner();
        self.cancel_thread(store, &owner, &thread, CancelReason::Deleted).await?;
        let all_ended = async {
            for id in thread.active_run_id.into_iter().chain(thread.queued_run_ids) {
                wait_until_ended(store, &RunKey { owner: owner.clone(), id }).await?;
            }
            Ok(())
        };
        // The thread is deleted even after a timeout.
        tokio::time::timeout(DELETION_END_TIMEOUT, all_ended).await.unwrap_or(Ok(()))
    }

    /// Cancels the runs of an owner's threads that are to be deleted, as [`end_before_deletion`](Self::end_before_deletion) does
    /// those of one. With a time in the filter it cancels none: the end of a run is an activity, after which the thread would stay.
    pub(in super::super) async fn end_before_deletions(
        &self,
        store: &dyn Conversations,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<(), ConversationError> {
        if filter.before.is_some() {
            return Ok(());
        }
        let mut threads = HashSet::new();
        for state in [RunState::Queued, RunState::Running] {
            let live = RunFilter { agent: filter.agent.clone(), state: Some(state), ..RunFilter::default() };
            let page = store.runs(owner, &live, None, MAX_CANCELLED_RUNS).await?;
            threads.extend(page.runs.into_iter().map(|run| run.thread_id));
        }
        let ends = threads.into_iter().map(|id| async move {
            let key = owner.thread(id);
            self.end_before_deletion(store, &key).await
        });
        try_join_all(ends).await.map(drop)
    }

    /// Stops runs of this process whose threads were deleted. Other processes learn of it when they store events.
    pub(in super::super) fn stop_deleted(&self, runs: impl IntoIterator<Item = RunKey>) {
        for run in runs.into_iter().filter_map(|key| self.runs.get(&key)) {
            run.stop(RunStop::Cancelled(CancelReason::Deleted));
        }
    }

    /// Returns the number of clients that are attached to a run in this process.
    pub(in super::super) fn attached_clients(&self, key: &RunKey) -> u32 {
        self.runs.get(key).map_or(0, |run| run.attached_clients())
    }
}

/// Waits until a run has ended or is deleted. A run that waits for decisions has ended.
async fn wait_until_ended(store: &dyn Conversations, key: &RunKey) -> Result<(), ConversationError> {
    while store.run(&key.owner, &key.id).await?.is_some_and(|run| run.state.is_live()) {
        tokio::time::sleep(END_POLL_INTERVAL).await;
    }
    Ok(())
}
