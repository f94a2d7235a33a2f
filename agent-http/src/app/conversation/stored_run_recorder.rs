//! Recorder of a stored run: its beginning is committed while the backend prepares its request, its end before the client
//! receives it.
//!
//! The end is committed by a separate task, so that no disconnect leaves a run without its end. The beginning is committed by
//! the task that waits for it, which is woken by the store alone; if nothing waits for it any more, by that of the end. A run
//! whose client disconnects is stored as cancelled with its answer so far.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use agent_core::event::{Event, RunEnd};
use agent_core::ids::{RunId, ThreadId};
use agent_platform::conversation::{
    BeginRunRequest, CancelReason, ConversationError, Conversations, EndRunRequest, FoldedRun, LogEnd,
    OnDisconnect, QueueRunRequest, Run, RunEndKind, RunFold, RunKey, RunSelection, RunState, ThreadOwner,
};
use agent_platform::run_observer::{OpenObserver, RunObserver};
use agent_platform::spawner::Spawner;
use agent_platform::usage::StoredOutcome;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select};
use tokio::sync::oneshot;

use super::live_guard::LiveGuard;
use super::queued_begin::{AnswerPosition, QueuedBegin, record_outcome};
use super::starting_client::StartingClient;
use super::stored_end::{is_shutdown, store_and_announce_end, terminal_event, unavailable};
use crate::app::services::ConversationService;
use crate::app::services::live::{RunStop, UnattendedRun};
use crate::shutdown::{ShutdownStage, shutting_down};
use crate::stream::{DisconnectOutcome, RunRecorder};

/// Maximum time for which a client waits for its run's end to be stored.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which the response to a run that cannot begin waits until the run's end is stored.
const FAILED_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The run as it was stored; `None` for one that need not be queued.
type Stored = Result<Option<Run>, ConversationError>;

/// A run that is to be stored and recorded.
struct RecordedRun {
    live: LiveGuard,
    store: Arc<dyn Conversations>,
    thread_id: ThreadId,
    on_disconnect: OnDisconnect,
    /// Time without a client after which the run is cancelled.
    grace_ms: Option<u32>,
    /// Time at which the request was accepted.
    accepted: Instant,
}

/// Records the events of a stored run, and commits its beginning and its end.
pub(super) struct StoredRunRecorder {
    store: Arc<dyn Conversations>,
    thread_id: ThreadId,
    /// Present once the run has started; `None` for one that was queued.
    turn_id: Option<RunId>,
    position: Arc<OnceLock<AnswerPosition>>,
    on_disconnect: OnDisconnect,
    /// Time without a client after which the run is cancelled.
    grace: Duration,
    /// Present once the run continues without its own client.
    unattended: Option<UnattendedRun>,
    /// The commit that stores the run, until it is done.
    commit: Option<BoxFuture<'static, Stored>>,
    /// The run so far; `None` once its end is being stored, or if it is not stored.
    open: Option<(RunFold, LiveGuard)>,
    /// Observer that makes the run's record, stored with its end.
    observer: OpenObserver,
}

impl StoredRunRecorder {
    /// Begins a run; [`wait_until_stored`](Self::wait_until_stored) commits it, and records the outcome.
    pub(super) fn begin(
        service: &Arc<ConversationService>,
        store: Arc<dyn Conversations>,
        begin: BeginRunRequest,
        (position, outcome): (AnswerPosition, Option<StoredOutcome>),
        accepted: Instant,
    ) -> Self {
        let key = RunKey { owner: begin.key.thread_owner(), id: begin.run_id.clone() };
        let run = RecordedRun {
            live: LiveGuard::new(service.clone(), key, &begin.lease),
            store: store.clone(),
            thread_id: begin.key.id.clone(),
            on_disconnect: begin.on_disconnect,
            grace_ms: begin.grace_ms,
            accepted,
        };
        let committing = service.clone();
        let recorder = Self::new(run, async move {
            let result = committing.begin_run(&*store, begin).await;
            record_outcome(outcome.as_ref(), &result);
            result.map(Some)
        });
        // The cell is empty.
        let _ = recorder.position.set(position);
        recorder
    }

    /// Queues a run; [`wait_until_stored`](Self::wait_until_stored) commits it.
    pub(super) fn queue(
        service: &Arc<ConversationService>,
        store: Arc<dyn Conversations>,
        queue: QueueRunRequest,
        accepted: Instant,
    ) -> Self {
        let key = RunKey { owner: queue.key.thread_owner(), id: queue.run_id.clone() };
        let run = RecordedRun {
            live: LiveGuard::new(service.clone(), key, &queue.lease),
            store: store.clone(),
            thread_id: queue.key.id.clone(),
            on_disconnect: queue.on_disconnect,
            grace_ms: queue.grace_ms,
            accepted,
        };
        Self::new(run, async move { store.queue_run(queue).await })
    }

    /// Creates the recorder of a run that `commit` stores.
    fn new(run: RecordedRun, commit: impl Future<Output = Stored> + Send + 'static) -> Self {
        let RecordedRun { live, store, thread_id, on_disconnect, grace_ms, accepted } = run;
        let RunKey { owner: ThreadOwner { company, owner }, id } = live.run.key();
        let observer = live.service.observers.open(company, owner, id, accepted);
        Self {
            store,
            thread_id,
            turn_id: None,
            position: Arc::default(),
            on_disconnect,
            grace: Duration::from_millis(grace_ms.unwrap_or_default().into()),
            unattended: None,
            commit: Some(commit.boxed()),
            open: Some((RunFold::default(), live)),
            observer,
        }
    }

    /// Stores the run. If the future is dropped, the commit continues once the run ends.
    ///
    /// # Errors
    /// Errors of [`Conversations::begin_run`] or [`Conversations::queue_run`]. The run does not exist then, unless the store is
    /// unavailable.
    pub(super) async fn wait_until_stored(&mut self) -> Stored {
        let Some(commit) = &mut self.commit else { return Err(ConversationError::RunNotFound) };
        let stored = commit.await;
        self.commit = None;
        match &stored {
            Ok(Some(run)) => {
                self.turn_id = (run.state == RunState::Running).then(|| run.turn_id.clone());
                if let Some((_, live)) = &self.open {
                    live.service.runs.insert(&live.run);
                }
            }
            Err(ConversationError::Store(_)) => {}
            Ok(None) | Err(_) => self.open = None,
        }
        stored
    }

    /// Returns the data for the beginning of the queued run; `None` if it has ended.
    pub(super) fn queued_begin(&self) -> Option<QueuedBegin> {
        let (_, live) = self.open.as_ref()?;
        Some(QueuedBegin {
            service: live.service.clone(),
            store: self.store.clone(),
            run: live.run.clone(),
            position: self.position.clone(),
            observer: self.observer.clone(),
        })
    }

    /// Returns the observer of the run.
    pub(super) fn observer(&self) -> &Arc<RunObserver> {
        &self.observer
    }

    /// Returns a future that is ready once the run is stopped while its backend starts: it is cancelled, or ends since
    /// `client` has left.
    pub(super) fn stopped_at_start(
        &self,
        client: &StartingClient,
    ) -> impl Future<Output = ()> + Send + use<> {
        let client = client.clone();
        let (on_disconnect, grace) = (self.on_disconnect, self.grace);
        let live = self.open.as_ref().map(|(_, live)| (live.service.clone(), live.run.clone()));
        async move {
            let Some((service, run)) = live else { return std::future::pending().await };
            let unattended = async {
                client.wait_until_left().await;
                run.detach_own_client();
                match UnattendedRun::new(&service.runs, &run, on_disconnect, grace) {
                    Some(mut unattended) => {
                        let abandoned = poll_fn(|cx| unattended.poll_abandoned(cx));
                        select(pin!(abandoned), pin!(service.shutdown.wait_for(ShutdownStage::Ending))).await;
                    }
                    None => run.stop(RunStop::Cancelled(CancelReason::Disconnected)),
                }
            };
            select(pin!(unattended), poll_fn(|cx| run.poll_stop(cx))).await;
        }
    }

    /// Discards a run whose beginning has not been committed.
    pub(super) fn discard(mut self) {
        (self.open, self.commit) = (None, None);
    }

    /// Stores that the run has failed before it had events. The future is ready once that is stored, since a client that then
    /// sends its message again must not find the thread busy, or after [`FAILED_END_TIMEOUT`]. If it is dropped, the end is
    /// stored nevertheless.
    pub(super) fn fail(mut self, code: &str, message: &str) -> impl Future<Output = ()> + Send + use<> {
        let terminal =
            Event::RunError { message: message.to_owned(), code: code.to_owned(), usage: Vec::new() };
        self.record(&self.run_started());
        self.record(&terminal);
        let stored_end = self.spawn_end(&terminal);
        async move {
            let _ = tokio::time::timeout(FAILED_END_TIMEOUT, stored_end).await;
        }
    }

    fn run_id(&self) -> RunId {
        self.open.as_ref().map(|(_, live)| live.run.key().id.clone()).unwrap_or_default()
    }

    fn run_started(&self) -> Event {
        Event::RunStarted { thread_id: self.thread_id.clone(), run_id: self.run_id() }
    }

    fn terminal(&self, end: RunEnd) -> Event {
        match end {
            RunEnd::Failed { message, code, usage } => Event::RunError { message, code, usage },
            RunEnd::Finished { result, outcome, usage } => {
                let thread_id = self.thread_id.clone();
                Event::RunFinished { thread_id, run_id: self.run_id(), result, outcome, usage }
            }
        }
    }

    /// Stores the end of the run in the background, after its terminal event was recorded.
    fn spawn_end(&mut self, terminal: &Event) -> oneshot::Receiver<Result<(), ConversationError>> {
        let (sender, receiver) = oneshot::channel();
        let Some((fold, live)) = self.open.take() else { return receiver };
        let (service, run) = (live.service.clone(), live.run.clone());
        let cut_end = match run.stop_reason() {
            Some(RunStop::Cancelled(reason)) => RunEndKind::Cancelled(reason),
            _ => RunEndKind::Completed,
        };
        let position = self.position.get();
        let mut folded = fold.finish(position.and_then(|position| position.parent.clone()), cut_end);
        if is_shutdown(&folded.ending.kind) {
            folded.ending.kind = RunEndKind::Interrupted;
        }
        let FoldedRun { nodes, ending } = folded;
        let (chunks, is_incomplete) = run.tail().end(terminal);
        let clock = service.clock();
        let (record, observer) = (self.observer.record(), self.observer.clone());
        let end = EndRunRequest {
            owner: run.key().owner.clone(),
            run_id: run.key().id.clone(),
            process: service.process.clone(),
            nodes,
            ending,
            log: LogEnd { chunks, is_incomplete, until: Some(clock.log_until), inputs: None },
            context: position.and_then(|position| position.sent_context.sent()),
            request_sha256: record.prompt.as_ref().map(|prompt| prompt.request_sha256.clone()),
            backend: record.selection.as_ref().map(RunSelection::backend_name),
            record,
            now: clock.now,
        };
        let (store, commit) = (self.store.clone(), self.commit.take());
        let ending_service = service.clone();
        let task = async move {
            if may_be_stored(commit).await {
                ending_service.wait_for_group_commit(&*store).await;
                // A queued run may be about to begin.
                let _storing = run.lock_storing().await;
                // Outside of the event path, since inputs can be large.
                let log = LogEnd { inputs: observer.inputs(), ..end.log };
                let end = EndRunRequest { log, ..end };
                store_and_announce_end(&ending_service, &*store, &run, end, sender).await;
            }
            drop(live);
        };
        service.spawner.spawn(task.boxed());
        receiver
    }
}

impl RunRecorder for StoredRunRecorder {
    fn turn_id(&self) -> Option<RunId> {
        self.turn_id.clone()
    }

    fn record(&mut self, event: &Event) {
        let Some((fold, live)) = &mut self.open else { return };
        for result in self.observer.take_hidden_results() {
            fold.push_hidden_result(&result);
        }
        fold.push(event);
        // The terminal event becomes visible when the end is stored.
        if !event.is_terminal() && live.run.record(event) {
            live.service.large_tail.notify_one();
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.open.as_ref().map_or(Poll::Ready(()), |(_, live)| live.run.poll_ready(cx))
    }

    fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event> {
        let stored_end = self.spawn_end(&terminal);
        async move {
            match tokio::time::timeout(END_TIMEOUT, stored_end).await {
                Ok(Ok(stored)) => terminal_event(terminal, stored),
                Ok(Err(_)) | Err(_) => unavailable(&terminal),
            }
        }
        .boxed()
    }

    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<RunEnd> {
        let Some((_, live)) = &self.open else { return Poll::Pending };
        if let Some(unattended) = &mut self.unattended {
            // Once it is ready, the run is stopped.
            let _ = unattended.poll_abandoned(cx);
        }
        live.run.poll_stop(cx).map(RunStop::end)
    }

    fn client_disconnected(&mut self) -> DisconnectOutcome {
        let Some((_, live)) = &self.open else { return DisconnectOutcome::End(RunStop::Lost.end()) };
        live.run.detach_own_client();
        if live.service.is_ending() {
            let failure = shutting_down();
            let (message, code) = (failure.message().to_owned(), failure.kind().code().to_owned());
            return DisconnectOutcome::End(RunEnd::Failed { message, code, usage: Vec::new() });
        }
        self.unattended = UnattendedRun::new(&live.service.runs, &live.run, self.on_disconnect, self.grace);
        if self.unattended.is_some() {
            return DisconnectOutcome::Continue;
        }
        let stop = RunStop::Cancelled(CancelReason::Disconnected);
        live.run.stop(stop);
        DisconnectOutcome::End(stop.end())
    }

    fn spawner(&self) -> Option<Arc<dyn Spawner>> {
        self.open.as_ref().map(|(_, live)| live.service.spawner.clone())
    }
}

impl Drop for StoredRunRecorder {
    /// Ends a run whose stream was dropped without [`client_disconnected`](RunRecorder::client_disconnected).
    fn drop(&mut self) {
        if self.open.is_none() {
            return;
        }
        let end = match self.client_disconnected() {
            DisconnectOutcome::End(end) => end,
            DisconnectOutcome::Continue => RunStop::Lost.end(),
        };
        let terminal = self.terminal(end);
        if self.open.as_ref().is_some_and(|(_, live)| live.run.tail().count() == 0) {
            self.record(&self.run_started());
        }
        self.record(&terminal);
        drop(self.spawn_end(&terminal));
    }
}

/// Completes the commit that stores a run. Returns false if the run does not exist.
async fn may_be_stored(commit: Option<BoxFuture<'static, Stored>>) -> bool {
    let Some(commit) = commit else { return true };
    // A timer of the store panics if it belongs to the runtime of a connection, which ends with the server.
    match AssertUnwindSafe(commit).catch_unwind().await {
        Ok(stored) => matches!(stored, Ok(Some(_)) | Err(ConversationError::Store(_))),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
