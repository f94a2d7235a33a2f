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

use agent_core::error::AgentErrorKind;
use agent_core::event::{Event, RunEnd};
use agent_core::ids::{RunId, ThreadId};
use agent_platform::conversation::{
    BeginRun, CancelReason, ChangeRun, ConversationError, Conversations, EndRun, EndedRun, FoldedRun, LogEnd,
    OnDisconnect, QueueRun, Run, RunChange, RunEndKind, RunFold, RunKey, RunLease, RunSelection, RunState,
    ThreadOwner,
};
use agent_platform::run_observer::{OpenObserver, RunObserver};
use agent_platform::spawner::Spawner;
use agent_platform::usage::StoredOutcome;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select};
use tokio::sync::oneshot;

use super::queued_begin::{AnswerPosition, QueuedBegin, record_outcome};
use super::starting_client::StartingClient;
use super::stored_end::{store_end, terminal_event, unavailable};
use crate::app::services::ConversationService;
use crate::app::services::live::{LiveRun, RunStop, UnattendedRun};
use crate::shutdown::{ShutdownStage, shutting_down};
use crate::stream::{DisconnectOutcome, RunRecorder};

/// Maximum time for which a client waits for its run's end to be stored.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which the response to a run that cannot begin waits until the run's end is stored.
const FAILED_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The run as it was stored; `None` for one that need not be queued.
type Stored = Result<Option<Run>, ConversationError>;

/// Records the events of a stored run, and commits its beginning and its end.
pub(super) struct StoredRunRecorder {
    store: Arc<dyn Conversations>,
    thread_id: ThreadId,
    /// Present once the run has begun; `None` for one that was queued.
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
        begin: BeginRun,
        (position, outcome): (AnswerPosition, Option<StoredOutcome>),
        accepted: Instant,
    ) -> Self {
        let key = RunKey { owner: begin.key.thread_owner(), id: begin.run_id.clone() };
        let disconnect = (begin.on_disconnect, begin.grace_ms);
        let thread_id = begin.key.id.clone();
        let live = LiveGuard::new(service.clone(), key, &begin.lease);
        let (committing, commit_store) = (service.clone(), store.clone());
        let commit = async move {
            let begun = committing.begin_run(&*commit_store, begin).await;
            record_outcome(outcome.as_ref(), &begun);
            begun.map(Some)
        };
        let recorder = Self::new(store, live, thread_id, disconnect, accepted, commit.boxed());
        // The cell is empty.
        let _ = recorder.position.set(position);
        recorder
    }

    /// Queues a run; [`wait_until_stored`](Self::wait_until_stored) commits it.
    pub(super) fn queue(
        service: &Arc<ConversationService>,
        store: Arc<dyn Conversations>,
        queue: QueueRun,
        accepted: Instant,
    ) -> Self {
        let key = RunKey { owner: queue.key.thread_owner(), id: queue.run_id.clone() };
        let disconnect = (queue.on_disconnect, queue.grace_ms);
        let thread_id = queue.key.id.clone();
        let live = LiveGuard::new(service.clone(), key, &queue.lease);
        let commit_store = store.clone();
        let commit = async move { commit_store.queue_run(queue).await };
        Self::new(store, live, thread_id, disconnect, accepted, commit.boxed())
    }

    fn new(
        store: Arc<dyn Conversations>,
        live: LiveGuard,
        thread_id: ThreadId,
        disconnect: (OnDisconnect, Option<u32>),
        accepted: Instant,
        commit: BoxFuture<'static, Stored>,
    ) -> Self {
        let RunKey { owner: ThreadOwner { company, owner }, id } = live.run.key();
        let observer = live.service.observers.open(company, owner, id, accepted);
        let (on_disconnect, grace_ms) = disconnect;
        Self {
            store,
            thread_id,
            turn_id: None,
            position: Arc::default(),
            on_disconnect,
            grace: Duration::from_millis(grace_ms.unwrap_or_default().into()),
            unattended: None,
            commit: Some(commit),
            open: Some((RunFold::default(), live)),
            observer,
        }
    }

    /// Stores the run. If the future is dropped, the commit continues once the run ends.
    ///
    /// # Errors
    /// Those of [`Conversations::begin_run`] or [`Conversations::queue_run`]. The run does not exist then, unless the store is
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

    /// Returns what begins the run, which is queued; `None` if it has ended.
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

    /// Leaves nothing of a run whose beginning has not been committed.
    pub(super) fn discard(mut self) {
        (self.open, self.commit) = (None, None);
    }

    /// Stores that the run has failed before it had events. The future is ready once that is stored, since a client that then
    /// sends its message again must not find the thread busy, or after [`FAILED_END_TIMEOUT`]. If it is dropped, the end is
    /// stored all the same.
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
        let end = EndRun {
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
                let end = EndRun { log, ..end };
                let end_result = store_end(&*store, end).await;
                if let Ok(ended) = &end_result {
                    apply_end(&ending_service, &*store, &run, ended).await;
                }
                run.tail().close(end_result.is_ok());
                run.wake_readers();
                let thread = end_result.as_ref().ok().map(|ended| ended.thread.clone());
                // The client may have left.
                let _ = sender.send(end_result.map(drop));
                if let Some(thread) = thread {
                    ending_service.wake_next(&*store, &run.key().owner, &thread).await;
                }
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

/// A run of this process whose end is not stored yet; the service waits for it at shutdown.
struct LiveGuard {
    service: Arc<ConversationService>,
    run: Arc<LiveRun>,
}

impl LiveGuard {
    fn new(service: Arc<ConversationService>, key: RunKey, lease: &RunLease) -> Self {
        service.live.send_modify(|count| *count += 1);
        let lease = service.lease_term(lease);
        Self { service, run: Arc::new(LiveRun::new(key, lease)) }
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.service.runs.remove(&self.run);
        self.service.live.send_modify(|count| *count -= 1);
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

/// Returns true for the end of a run that the shutdown of this process has ended.
fn is_shutdown(kind: &RunEndKind) -> bool {
    matches!(kind, RunEndKind::Failed(failure) if failure.code == AgentErrorKind::ShuttingDown.code())
}

/// Applies the stored end of a run to the cached thread. A run that was stopped after its last event, and waits for decisions
/// now, is cancelled, since the request to stop it was accepted. A client that leaves then cancels nothing.
async fn apply_end(
    service: &ConversationService,
    store: &dyn Conversations,
    live_run: &LiveRun,
    ended: &EndedRun,
) {
    let EndedRun { thread, run, cancel, .. } = ended;
    let key = live_run.key().owner.thread(thread.id.clone());
    service.threads.apply_end(&key, ended);
    if run.state != RunState::Waiting {
        return;
    }
    service.signals_delivered().await;
    live_run.record_end();
    let reason = match live_run.stop_reason() {
        Some(RunStop::Cancelled(reason)) if reason != CancelReason::Disconnected => Some(reason),
        _ => *cancel,
    };
    if let Some(reason) = reason {
        let change = RunChange::CancelWaiting(reason);
        let change = ChangeRun { run: live_run.key().clone(), change, now: service.now() };
        if let Err(error) = store.change_run(change).await {
            tracing::warn!(run_id = %run.id, %error, "failed to cancel a run that waits for decisions");
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::event::{AssistantRole, Interrupt, RunOutcome, RunResult};
    use agent_core::message::FinishReason;
    use agent_core::store_error::StoreError;
    use agent_core::testing::{FakeTools, ManualClock};
    use agent_core::tool::{ExecutionContext, NoProgress, ToolError, ToolRegistry};
    use agent_platform::conversation::{MemoryConversations, RunTrigger, ThreadKey, ThreadOwner};
    use serde_json::json;
    use tokio::sync::watch;
    use tokio::time::advance;

    use super::*;
    use crate::app::conversation::LogReader;
    use crate::app::conversation::contexts::ContextSlot;
    use crate::app::conversation::test_runs::begin_in_new_thread;
    use crate::app::services::LeasedTools;
    use crate::error::Code;
    use crate::shutdown::Shutdown;

    const GRACE_MS: u32 = 600;
    const GRACE: Duration = Duration::from_millis(600);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn service(shutdown: &Shutdown) -> (Arc<ConversationService>, Arc<MemoryConversations>) {
        let store = Arc::new(MemoryConversations::default());
        (service_over(&store, Arc::new(ManualClock::new()), shutdown), store)
    }

    fn service_over(
        store: &Arc<MemoryConversations>,
        clock: Arc<ManualClock>,
        shutdown: &Shutdown,
    ) -> Arc<ConversationService> {
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let conversations: Arc<dyn Conversations> = store.clone();
        ConversationService::new(Some(conversations), clock, spawner, shutdown.clone())
    }

    fn begin(
        service: &Arc<ConversationService>,
        store: &Arc<MemoryConversations>,
        run: &str,
    ) -> StoredRunRecorder {
        begin_with_grace(service, store, run, None)
    }

    fn begin_with_grace(
        service: &Arc<ConversationService>,
        store: &Arc<MemoryConversations>,
        run: &str,
        grace_ms: Option<u32>,
    ) -> StoredRunRecorder {
        let begin = BeginRun { grace_ms, ..begin_in_new_thread(service, run) };
        let position =
            AnswerPosition { parent: begin.parent_id.clone(), sent_context: ContextSlot::default() };
        let accepted = service.observers.now();
        StoredRunRecorder::begin(service, store.clone(), begin, (position, None), accepted)
    }

    fn queue(
        service: &Arc<ConversationService>,
        store: &Arc<MemoryConversations>,
        run: &str,
    ) -> StoredRunRecorder {
        let queue = QueueRun {
            key: ThreadKey::new("c", "u", "t"),
            agent_id: "a".into(),
            run_id: run.into(),
            trigger: RunTrigger::default(),
            on_disconnect: OnDisconnect::Cancel,
            grace_ms: None,
            lease: service.lease(),
            now: service.now(),
        };
        StoredRunRecorder::queue(service, store.clone(), queue, service.observers.now())
    }

    async fn run(store: &MemoryConversations, id: &str) -> Option<Run> {
        let owner = ThreadOwner::new("c", "u");
        store.run(&owner, &id.into()).await.expect("it reads")
    }

    async fn drained(service: &ConversationService) {
        let drain = tokio::time::timeout(Duration::from_secs(5), service.drain());
        drain.await.expect("every run has its end");
    }

    fn finished() -> Event {
        let result = Some(RunResult::from(FinishReason::Stop));
        Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result,
            outcome: None,
            usage: Vec::new(),
        }
    }

    /// Returns the end of a run that asks a question.
    fn asked() -> Event {
        let interrupts = vec![Interrupt { id: "i".to_owned(), ..Interrupt::default() }];
        Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: Some(RunOutcome::Interrupt { interrupts, pending_tool_call_ids: Vec::new() }),
            usage: Vec::new(),
        }
    }

    /// Begins the run `r`, whose client disconnects at once.
    async fn begin_and_leave(
        service: &Arc<ConversationService>,
        store: &Arc<MemoryConversations>,
    ) -> StoredRunRecorder {
        let mut recorder = begin_with_grace(service, store, "r", Some(GRACE_MS));
        recorder.wait_until_stored().await.expect("it begins");
        let started = recorder.run_started();
        recorder.record(&started);
        assert!(matches!(recorder.client_disconnected(), DisconnectOutcome::Continue));
        assert_eq!(stop_of(&mut recorder), None, "the grace has begun");
        recorder
    }

    /// Polls a run as its stream does, and returns its end if it is stopped.
    fn stop_of(recorder: &mut StoredRunRecorder) -> Option<RunEnd> {
        poll_fn(|cx| recorder.poll_stop(cx)).now_or_never()
    }

    fn key() -> RunKey {
        RunKey { owner: ThreadOwner::new("c", "u"), id: "r".into() }
    }

    fn attach(service: &Arc<ConversationService>, store: &Arc<MemoryConversations>) -> LogReader {
        let store: Arc<dyn Conversations> = store.clone();
        LogReader::open(service, &store, key(), 0, true).expect("there is room")
    }

    /// Ends a run, and returns the last event that a reader of its log sees.
    async fn finish_before(
        recorder: &mut StoredRunRecorder,
        mut reader: LogReader,
        terminal: Event,
    ) -> Option<Event> {
        recorder.record(&terminal);
        recorder.finish(terminal).await;
        reader.next().await.expect("it reads").and_then(|mut events| events.pop())
    }

    #[tokio::test]
    async fn a_log_that_is_deleted_while_it_is_read_does_not_end_silently() {
        let (service, store) = service(&Shutdown::default());
        let other = service_over(&store, Arc::new(ManualClock::new()), &Shutdown::default());
        let mut recorder = begin(&service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        let started = recorder.run_started();
        recorder.record(&started);
        let [mut whole, mut cut] = [attach(&other, &store), attach(&other, &store)];
        recorder.record(&finished());
        recorder.finish(finished()).await;
        drop(recorder);
        drained(&service).await;
        let events = whole.next().await.expect("it reads").expect("events");
        assert_eq!(events.last(), Some(&finished()));
        assert_eq!(store.trim_logs(service.clock().log_until).await.expect("it works"), 1);
        assert_eq!(whole.next().await.expect("it reads"), None, "it has the terminal event");
        let error = cut.next().await.expect_err("the reader has no terminal event");
        assert_eq!(error.code(), Code::RunLogGone);
    }

    #[tokio::test]
    async fn a_reader_receives_the_end_of_a_run_that_the_shutdown_ends() {
        let shutdown = Shutdown::default();
        let (service, store) = service(&shutdown);
        let mut recorder = begin(&service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        let started = recorder.run_started();
        recorder.record(&started);
        let mut reader = attach(&service, &store);
        assert_eq!(reader.next().await.expect("it reads"), Some(vec![started]));
        shutdown.end();
        // The reader waits before the run ends.
        let end_run = async move { drop(recorder) };
        let (next, ()) = futures_util::future::join(reader.next(), end_run).await;
        let last = next.expect("it reads").and_then(|mut events| events.pop());
        assert!(
            matches!(&last, Some(Event::RunError { code, .. }) if code == "SERVER_SHUTTING_DOWN"),
            "{last:?}"
        );
        assert_eq!(reader.next().await.expect("it reads"), None);
        drained(&service).await;
    }

    #[tokio::test]
    async fn a_run_dropped_at_any_point_has_an_end() {
        let (service, store) = service(&Shutdown::default());
        // Before its beginning is stored.
        drop(begin(&service, &store, "r1"));
        drained(&service).await;
        let first = run(&store, "r1").await.expect("it has begun");
        assert_eq!(first.reason, Some(CancelReason::Disconnected));
        // In the middle.
        let mut recorder = begin(&service, &store, "r2");
        recorder.wait_until_stored().await.expect("it begins");
        recorder.record(&Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant });
        recorder.record(&Event::TextMessageContent { message_id: "m".into(), delta: "Partly".into() });
        drop(recorder);
        drained(&service).await;
        let second = run(&store, "r2").await.expect("it has begun");
        assert_eq!((second.state, second.node_ids.len()), (RunState::Cancelled, 2));
        // While its end is being stored.
        let mut recorder = begin(&service, &store, "r3");
        recorder.wait_until_stored().await.expect("it begins");
        recorder.record(&finished());
        drop(recorder.finish(finished()));
        drop(recorder);
        drained(&service).await;
        assert_eq!(run(&store, "r3").await.expect("it has begun").state, RunState::Completed);
    }

    #[tokio::test]
    async fn a_run_that_is_stopped_while_its_question_is_stored_does_not_wait() {
        for (reason, expected) in [
            (CancelReason::Requested, RunState::Cancelled),
            (CancelReason::Displaced, RunState::Cancelled),
            (CancelReason::Disconnected, RunState::Waiting),
        ] {
            let (service, store) = service(&Shutdown::default());
            let mut recorder = begin(&service, &store, "r");
            recorder.wait_until_stored().await.expect("it begins");
            let asked = asked();
            recorder.record(&asked);
            let end = recorder.finish(asked);
            let stopped = service.cancel(&*store, &key(), reason).await.expect("it reads");
            assert_eq!(stopped.expect("a run").state, RunState::Running, "its end is not stored yet");
            end.await;
            drained(&service).await;
            assert_eq!(run(&store, "r").await.expect("it has begun").state, expected, "{reason:?}");
        }
    }

    #[tokio::test]
    async fn a_run_that_another_process_stops_while_its_question_is_stored_does_not_wait() {
        let store = Arc::new(MemoryConversations::default());
        let (clock, shutdown) = (Arc::new(ManualClock::new()), Shutdown::default());
        let own_service = service_over(&store, clock.clone(), &shutdown);
        let other = service_over(&store, clock, &shutdown);
        let mut recorder = begin(&own_service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        let stopped = other.cancel(&*store, &key(), CancelReason::Requested).await.expect("it reads");
        assert_eq!(stopped.expect("a run").state, RunState::Running);
        let asked = asked();
        recorder.record(&asked);
        recorder.finish(asked).await;
        drained(&own_service).await;
        let ended = run(&store, "r").await.expect("it has begun");
        assert_eq!((ended.state, ended.reason), (RunState::Cancelled, Some(CancelReason::Requested)));
    }

    #[tokio::test]
    async fn a_run_that_cannot_begin_has_no_end() {
        let (service, store) = service(&Shutdown::default());
        let mut recorder = begin(&service, &store, "r1");
        recorder.wait_until_stored().await.expect("it begins");
        let mut other = begin(&service, &store, "r2");
        assert!(matches!(other.wait_until_stored().await, Err(ConversationError::ThreadBusy { .. })));
        drop(other);
        assert!(run(&store, "r2").await.is_none());
        assert_eq!(run(&store, "r1").await.expect("it has begun").state, RunState::Running);
        recorder.fail("BACKEND_FAILED", "the backend refused").await;
        let failed = run(&store, "r1").await.expect("it has begun");
        assert_eq!(
            (failed.state, failed.error.expect("an error").code),
            (RunState::Failed, "BACKEND_FAILED".into()),
            "when the client has its response, the thread is free"
        );
        drained(&service).await;
    }

    #[tokio::test]
    async fn a_process_whose_lease_has_expired_does_not_interrupt_its_own_run() {
        let store = Arc::new(MemoryConversations::default());
        let clock = Arc::new(ManualClock::new());
        let shutdown = Shutdown::default();
        let own_service = service_over(&store, clock.clone(), &shutdown);
        let other = service_over(&store, clock.clone(), &shutdown);
        let mut recorder = begin(&own_service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        clock.advance(2 * own_service.times.lease);
        for (service, expected) in [
            (&own_service, RunState::Running),
            (&other, RunState::Interrupted),
            (&own_service, RunState::Interrupted),
        ] {
            let found = service.interrupt_abandoned(&*store, &key()).await.expect("it reads");
            assert_eq!(found.expect("it has begun").state, expected);
        }
        drop(recorder);
        drained(&own_service).await;
    }

    #[tokio::test]
    async fn a_tool_call_after_the_lease_is_made_only_if_no_other_process_has_ended_the_run() {
        let store = Arc::new(MemoryConversations::default());
        let clock = Arc::new(ManualClock::new());
        let shutdown = Shutdown::default();
        let own_service = service_over(&store, clock.clone(), &shutdown);
        let other = service_over(&store, clock.clone(), &shutdown);
        let mut recorder = begin(&own_service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        let registry = Arc::new(FakeTools::new().answers("look", "seen"));
        let tools = LeasedTools::new(registry.clone(), own_service.clone());
        let context = ExecutionContext {
            company_id: "c".into(),
            user_id: "u".into(),
            run_id: "r".into(),
            ..ExecutionContext::default()
        };
        let call = async || tools.call(&context, "look", json!({}), &NoProgress).await;
        call().await.expect("the lease holds");
        clock.advance(2 * own_service.times.lease);
        call().await.expect("no other process has ended the run");
        other.interrupt_abandoned(&*store, &key()).await.expect("it is interrupted");
        let refused = call().await;
        assert!(matches!(refused, Err(ToolError::Conflict(_))), "{refused:?}");
        assert_eq!((registry.calls().len(), stop_of(&mut recorder)), (2, Some(RunStop::Lost.end())));
        drop(recorder);
        drained(&own_service).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_run_wakes_the_first_of_the_queue_at_once() {
        let (service, store) = service(&Shutdown::default());
        let mut running = begin(&service, &store, "r1");
        running.wait_until_stored().await.expect("it begins");
        let mut waiting = Vec::new();
        for id in ["r2", "r3", "r4"] {
            let mut recorder = queue(&service, &store, id);
            assert!(recorder.wait_until_stored().await.expect("it is queued").is_some(), "{id}");
            waiting.push(recorder);
        }
        let live: Vec<_> =
            waiting.iter().map(|recorder| recorder.queued_begin().expect("it waits").run.clone()).collect();
        // No time passes, so neither a poll of the store nor a signal can have woken it.
        let started = tokio::time::Instant::now();
        let is_woken = async |run: &LiveRun| {
            tokio::time::timeout(Duration::from_millis(1), run.wait_for_wake()).await.is_ok()
        };
        running.record(&finished());
        running.finish(finished()).await;
        assert!(is_woken(&live[0]).await, "the run before it has ended");
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(!is_woken(&live[1]).await && !is_woken(&live[2]).await, "it is not their turn");
        // The first leaves before it has begun.
        let started = tokio::time::Instant::now();
        drop(waiting.remove(0));
        assert!(is_woken(&live[1]).await, "the queue goes on with the next");
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(!is_woken(&live[2]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_attaches_a_millisecond_before_the_grace_is_over_keeps_the_run() {
        let (service, store) = service(&Shutdown::default());
        let mut recorder = begin_and_leave(&service, &store).await;
        for _ in 0..3 {
            advance(GRACE - MILLISECOND).await;
            assert_eq!(stop_of(&mut recorder), None);
            let reader = attach(&service, &store);
            advance(2 * MILLISECOND).await;
            assert_eq!(stop_of(&mut recorder), None, "it is attached in time");
            advance(100 * GRACE).await;
            assert_eq!(stop_of(&mut recorder), None, "a reader needs no grace");
            // The run has the whole grace again.
            drop(reader);
            assert_eq!(stop_of(&mut recorder), None);
        }
        advance(GRACE - MILLISECOND).await;
        let reader = attach(&service, &store);
        assert_eq!(finish_before(&mut recorder, reader, finished()).await, Some(finished()));
        assert_eq!(run(&store, "r").await.expect("it has begun").state, RunState::Completed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_attaches_a_millisecond_after_the_grace_finds_a_cancelled_run() {
        let (service, store) = service(&Shutdown::default());
        let mut recorder = begin_and_leave(&service, &store).await;
        advance(GRACE - MILLISECOND).await;
        assert_eq!(stop_of(&mut recorder), None);
        advance(2 * MILLISECOND).await;
        let end = stop_of(&mut recorder).expect("it is over");
        assert_eq!(end, RunStop::Cancelled(CancelReason::Disconnected).end());
        // Its end is not stored yet.
        let reader = attach(&service, &store);
        assert_eq!(stop_of(&mut recorder), Some(end.clone()), "it does not go on");
        let terminal = recorder.terminal(end);
        assert_eq!(finish_before(&mut recorder, reader, terminal.clone()).await, Some(terminal));
        let ended = run(&store, "r").await.expect("it has begun");
        assert_eq!(
            (ended.state, ended.reason, ended.grace_ms),
            (RunState::Cancelled, Some(CancelReason::Disconnected), Some(GRACE_MS))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_without_its_beginning_is_an_error_and_no_end() {
        let (service, store) = service(&Shutdown::default());
        let mut recorder = begin(&service, &store, "r");
        recorder.wait_until_stored().await.expect("it begins");
        let started = recorder.run_started();
        recorder.record(&started);
        let live = service.runs.get(&key()).expect("it is live");
        assert!(live.tail().begin_store().is_some(), "a chunk, which is lost");
        live.mark_stored();
        recorder.record(&finished());
        recorder.finish(finished()).await;
        let other = service_over(&store, Arc::new(ManualClock::new()), &Shutdown::default());
        let read = attach(&other, &store).next().await;
        assert!(read.is_err(), "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_is_as_long_before_the_backend_has_answered() {
        for is_attached in [true, false] {
            let (service, store) = service(&Shutdown::default());
            let mut recorder = begin_with_grace(&service, &store, "r", Some(GRACE_MS));
            recorder.wait_until_stored().await.expect("it begins");
            let (presence, client) = watch::channel(());
            let mut stopped = Box::pin(recorder.stopped_at_start(&StartingClient::new(client)));
            advance(100 * GRACE).await;
            assert!(stopped.as_mut().now_or_never().is_none(), "its client is there");
            drop(presence);
            assert!(stopped.as_mut().now_or_never().is_none(), "the grace has begun");
            advance(GRACE - MILLISECOND).await;
            assert!(stopped.as_mut().now_or_never().is_none());
            let reader = is_attached.then(|| attach(&service, &store));
            advance(2 * MILLISECOND).await;
            assert_eq!(stopped.as_mut().now_or_never().is_none(), is_attached);
            let stop = service.runs.get(&key()).expect("it is live").stop_reason();
            let cancelled = RunStop::Cancelled(CancelReason::Disconnected);
            assert_eq!(stop, (!is_attached).then_some(cancelled));
            drop((reader, recorder));
            drained(&service).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_in_another_process_keeps_a_run_beyond_its_grace() {
        let (service, store) = service(&Shutdown::default());
        let mut recorder = begin_and_leave(&service, &store).await;
        advance(GRACE - MILLISECOND).await;
        service.runs.get(&key()).expect("it is live").watch();
        advance(2 * MILLISECOND).await;
        assert_eq!(stop_of(&mut recorder), None, "it is watched");
        // The other process tells of its reader no more.
        advance(Duration::from_secs(2)).await;
        assert_eq!(stop_of(&mut recorder), Some(RunStop::Cancelled(CancelReason::Disconnected).end()));
    }

    #[tokio::test]
    async fn a_run_left_at_the_shutdown_is_interrupted() {
        let shutdown = Shutdown::default();
        let (service, store) = service(&shutdown);
        let mut recorder = begin(&service, &store, "r1");
        recorder.wait_until_stored().await.expect("it begins");
        shutdown.end();
        drop(recorder);
        drained(&service).await;
        assert_eq!(run(&store, "r1").await.expect("it has begun").state, RunState::Interrupted);
    }

    #[test]
    fn the_terminal_event_tells_of_an_end_that_was_not_stored() {
        let unavailable = || ConversationError::from(StoreError::unavailable("the disk is full"));
        assert_eq!(terminal_event(finished(), Ok(())), finished());
        for (stored, expected) in [
            (unavailable(), "STORE_UNAVAILABLE"),
            (ConversationError::Invalid("x".to_owned()), "STORE_UNAVAILABLE"),
        ] {
            let Event::RunError { code, .. } = terminal_event(finished(), Err(stored)) else {
                panic!("the client is told")
            };
            assert_eq!(code, expected);
        }
        let deleted = terminal_event(finished(), Err(ConversationError::RunNotFound));
        assert!(matches!(deleted, Event::RunFinished { outcome: Some(RunOutcome::Cancelled), .. }));
    }
}
