//! Runs that wait for their thread: their positions in its queue, and their beginning when the runs before them have ended.
//!
//! A queued run is a row with a position in the thread's list. Each waits in the process that has its client, which the end of
//! the run before wakes: in the same process at once, in another one by a signal. A poll every [`POLL_INTERVAL`] finds
//! changes without a signal, such as the interruption of a run whose process has ended.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::event::{EventStream, RunIds};
use agent_core::request::{Principal, TurnRequest};
use agent_platform::conversation::{
    BeginOrder, CancelReason, ConversationError, LoadedThread, MAX_QUEUED_RUNS, MergeResult, NodeLink,
    ParentChoice, QueueRunRequest, RunKey, RunTriggerKind, ThreadKey,
};
use agent_platform::usage::AdmittedRun;
use futures_util::FutureExt;
use jiff::Timestamp;

use super::super::App;
use super::begin_error::BeginError;
use super::plan::{BeginInputs, DisconnectPolicy};
use super::queued_begin::QueuedBegin;
use super::stored_run_recorder::StoredRunRecorder;
use super::stored_turn::{StoredTurn, thread_key};
use crate::app::services::live::RunStop;
use crate::error::{Code, HttpError};
use crate::shutdown::{ShutdownStage, shutting_down};
use crate::stream::RunSource;

/// Time between two polls of its thread by a queued run.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of attempts to begin a queued run in a thread that is changed meanwhile.
const MAX_CONFLICTS: usize = 100;
/// Maximum number of times that a limit on runs may refuse a queued run which then waits again: the run before, in another
/// process, may count for a moment after its end, which has woken this one.
const MAX_REFUSALS: usize = 1;

/// Position of a run in the queue of its thread.
enum QueuePosition {
    /// The run is the next one to begin.
    Next,
    /// Another run is before it.
    Behind,
    /// The run was removed from the queue for this reason.
    Removed(RunStop),
}

impl QueuedBegin {
    /// Returns the run's position in the queue. Interrupts the run before it if its process has ended.
    async fn position(&self, key: &ThreadKey) -> Result<QueuePosition, ConversationError> {
        let id = &self.run.key().id;
        // Each iteration interrupts at most one run before this one.
        for _ in 0..=MAX_QUEUED_RUNS {
            let Some(thread) = self.store.thread(key).await? else {
                return Ok(QueuePosition::Removed(RunStop::Cancelled(CancelReason::Deleted)));
            };
            if !thread.queued_run_ids.contains(id) {
                // The thread of the run may be deleted, and another one be created under its id.
                let stored_run = self.store.run(&self.run.key().owner, id).await?;
                let deleted = RunStop::Cancelled(CancelReason::Deleted);
                return Ok(QueuePosition::Removed(stored_run.map_or(deleted, |_| RunStop::Lost)));
            }
            let Some(blocking_id) = BeginOrder::FromQueue.blocking_run(&thread, id) else {
                return Ok(QueuePosition::Next);
            };
            let blocking = RunKey { owner: self.run.key().owner.clone(), id: blocking_id.clone() };
            let run = self.service.interrupt_abandoned(&*self.store, &blocking).await?;
            if run.is_some_and(|run| !run.state.is_final()) {
                return Ok(QueuePosition::Behind);
            }
        }
        Ok(QueuePosition::Behind)
    }
}

impl StoredTurn {
    /// Queues the run; `None` if its thread is free.
    ///
    /// # Errors
    /// [`ConversationError::QueueFull`], and those of [`Conversations::queue_run`](agent_platform::conversation::Conversations::queue_run).
    pub(super) async fn queue(
        &self,
        app: &Arc<App>,
        principal: &Principal,
        turn: &TurnRequest,
        accepted: Instant,
    ) -> Result<Option<(RunSource, StoredRunRecorder)>, BeginError> {
        let key = thread_key(principal, turn);
        let next = self.next_message(app, turn, &key).await?;
        let kind = next.as_ref().map_or(RunTriggerKind::Chat, |merged| merged.trigger);
        let DisconnectPolicy { on_disconnect, grace_ms } = DisconnectPolicy::of(&self.fields);
        let now = app.conversations.now();
        let queue = QueueRunRequest {
            key,
            agent_id: turn.agent_id.clone(),
            run_id: turn.run_id.clone(),
            trigger: self.trigger(principal, turn, kind),
            on_disconnect,
            grace_ms,
            lease: app.conversations.begin_lease(),
            now,
        };
        let mut recorder = StoredRunRecorder::queue(&app.conversations, self.store.clone(), queue, accepted);
        let (Some(run), Some(queued)) = (recorder.wait_until_stored().await?, recorder.queued_begin()) else {
            return Ok(None);
        };
        let ids = RunIds { thread_id: run.thread_id, run_id: run.id };
        let wait = WaitingTurn {
            stored_turn: self.clone(),
            app: app.clone(),
            principal: principal.clone(),
            turn: turn.clone(),
            queued,
            next,
            since: run.created_at,
        };
        Ok(Some((RunSource::queued(ids, wait.begin().boxed()), recorder)))
    }

    /// Merges a request that is the next message of its thread now; `None` for one that is another's edit, or that cannot be
    /// placed before the thread's run has ended.
    async fn next_message(
        &self,
        app: &App,
        turn: &TurnRequest,
        key: &ThreadKey,
    ) -> Result<Option<MergeResult>, BeginError> {
        if self.fields.parent != ParentChoice::Unspecified {
            return Ok(None);
        }
        let threads = &app.conversations.threads;
        let loaded = threads.load(&*self.store, key).await?;
        let placed = self.place(turn, &loaded, None, key);
        let next = placed.ok().filter(|merged| is_next_message(&loaded, merged));
        threads.keep(key, loaded);
        Ok(next)
    }
}

/// Returns true if a request has new messages and was placed below the head of its thread.
fn is_next_message(loaded: &LoadedThread, merged: &MergeResult) -> bool {
    let Some(thread) = loaded.thread() else { return false };
    let end = merged.path.last().and_then(|seq| NodeLink::find(loaded.links(), *seq));
    end.map(|link| &link.id) == thread.head.as_ref() && !merged.nodes.is_empty()
}

/// A turn whose run is queued.
struct WaitingTurn {
    stored_turn: StoredTurn,
    app: Arc<App>,
    principal: Principal,
    turn: TurnRequest,
    queued: QueuedBegin,
    /// The request's messages as they were merged when the run was queued, if they were the next ones.
    next: Option<MergeResult>,
    /// Time at which the run was queued.
    since: Timestamp,
}

impl WaitingTurn {
    /// Waits until the run may begin, and begins it. A run that is no longer queued is stopped instead.
    ///
    /// # Errors
    /// Errors of the beginning, and the shutdown of the service: no run begins while it drains.
    async fn begin(self) -> Result<EventStream, HttpError> {
        let draining = self.app.conversations.shutdown.wait_for(ShutdownStage::Draining);
        let too_long = async {
            match self.stored_turn.max_wait {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = draining => Err(shutting_down().into()),
            () = too_long => Err(self.busy()),
            result = self.begin_when_free() => result,
        }
    }

    /// Returns the error of a run that has waited for too long.
    fn busy(&self) -> HttpError {
        ConversationError::ThreadBusy { active_run: self.turn.run_id.clone() }.into()
    }

    async fn begin_when_free(&self) -> Result<EventStream, HttpError> {
        let key = thread_key(&self.principal, &self.turn);
        let (mut conflicts, mut refusals) = (0, 0);
        let mut admitted = None;
        loop {
            let mut wake = pin!(self.queued.run.wait_for_wake());
            wake.as_mut().enable();
            match self.queued.position(&key).await {
                Ok(QueuePosition::Next) => match self.try_begin(&mut admitted).await {
                    Err(BeginError::Store(ConversationError::ThreadBusy { .. })) => {}
                    Err(BeginError::Store(ConversationError::VersionConflict { .. }))
                        if conflicts < MAX_CONFLICTS =>
                    {
                        conflicts += 1;
                        continue;
                    }
                    Err(BeginError::NotAdmitted { error, .. })
                        if error.code() == Code::RateLimited && refusals < MAX_REFUSALS =>
                    {
                        refusals += 1;
                    }
                    // The next poll returns the reason.
                    Err(BeginError::Store(
                        ConversationError::RunEnded { .. } | ConversationError::RunNotFound,
                    )) => continue,
                    result => return Ok(result?),
                },
                Ok(QueuePosition::Behind) => {}
                Ok(QueuePosition::Removed(stop)) => {
                    self.queued.run.stop(stop);
                    return std::future::pending().await;
                }
                Err(error) => {
                    tracing::warn!(run_id = %self.turn.run_id, %error, "the queue of a thread could not be read; its run keeps waiting")
                }
            }
            // A run that waits does not count.
            admitted = None;
            let _ = tokio::time::timeout(POLL_INTERVAL, wake).await;
        }
    }

    async fn try_begin(&self, admitted: &mut Option<AdmittedRun>) -> Result<EventStream, BeginError> {
        let Self { stored_turn, app, principal, turn, queued, next, since } = self;
        let mut plan = stored_turn.plan(app, principal, turn, BeginOrder::FromQueue, next.as_ref()).await?;
        let waited = app.conversations.now().duration_since(*since).as_millis();
        plan.queued_ms = Some(u64::try_from(waited).unwrap_or_default());
        plan.begin_queued(BeginInputs { app, principal, turn }, queued, admitted).await
    }
}
