//! Storing of the end of a run, and its terminal event by the outcome.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, RunOutcome};
use agent_platform::backoff::Backoff;
use agent_platform::conversation::{
    CancelReason, ConversationError, Conversations, EndRunRequest, EndedRun, PublicRunError, RUN_INTERRUPTED,
    Run, RunEndKind, RunState, Thread, ThreadOwner,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::app::services::ConversationService;
use crate::app::services::live::{LiveRun, RunStop};

/// Maximum time for which the end of a run is attempted to be stored. Until then the thread is busy.
const END_RETRY_TIME: Duration = Duration::from_secs(10 * 60);
/// Minimum pause between attempts to store the end of a run, which is the first one; it doubles up to [`MAX_END_RETRY_PAUSE`].
const MIN_END_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_END_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Pauses between attempts to write for [`END_RETRY_TIME`].
struct RetryPauses {
    started: Instant,
    backoff: Backoff,
}

impl RetryPauses {
    fn new() -> Self {
        Self { started: Instant::now(), backoff: Backoff::new(MIN_END_RETRY_PAUSE, MAX_END_RETRY_PAUSE) }
    }

    /// Waits for the next attempt. Returns false at once if there is no time for one.
    async fn pause(&mut self) -> bool {
        if self.started.elapsed() >= END_RETRY_TIME {
            return false;
        }
        tokio::time::sleep(self.backoff.next_pause()).await;
        true
    }
}

/// A run whose end is stored.
#[derive(Debug)]
enum StoredEnd {
    /// Stored by the last attempt.
    Ended(Box<EndedRun>),
    /// Stored by an earlier attempt, whose answer was lost.
    EndedBefore(Box<Run>),
}

impl StoredEnd {
    /// Returns the state of the run.
    fn state(&self) -> RunState {
        match self {
            Self::Ended(ended) => ended.run.state,
            Self::EndedBefore(run) => run.state,
        }
    }

    /// Returns the thread of the run; `None` if it is not known.
    async fn thread(&self, store: &dyn Conversations, owner: &ThreadOwner) -> Option<Thread> {
        match self {
            Self::Ended(ended) => Some(ended.thread.clone()),
            Self::EndedBefore(run) => store.thread(&owner.thread(run.thread_id.clone())).await.ok().flatten(),
        }
    }
}

/// Stores the end of a run by `end_run`; repeats it while the store is unavailable.
///
/// # Errors
/// Errors of [`Conversations::end_run`].
async fn store_end<S>(
    end_run: impl Fn(EndRunRequest) -> S,
    mut end: EndRunRequest,
) -> Result<StoredEnd, ConversationError>
where
    S: Future<Output = Result<EndedRun, ConversationError>>,
{
    let (mut pauses, mut may_be_stored) = (RetryPauses::new(), false);
    let is_interrupted = matches!(end.ending.kind, RunEndKind::Interrupted);
    loop {
        let error = match end_run(end.clone()).await {
            Ok(ended) => return Ok(StoredEnd::Ended(Box::new(ended))),
            // Other processes only interrupt a run.
            Err(ConversationError::RunEnded { run })
                if may_be_stored && (is_interrupted || run.state != RunState::Interrupted) =>
            {
                return Ok(StoredEnd::EndedBefore(run));
            }
            Err(
                error @ (ConversationError::RunNotFound
                | ConversationError::RunEnded { .. }
                | ConversationError::ThreadNotFound),
            ) => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(run_id = %end.run_id, %error, "failed to store the end of a run");
        if matches!(error, ConversationError::Store(_)) {
            may_be_stored = true;
        } else {
            // The thread must become free, even if the answer cannot be stored.
            let code = AgentErrorKind::Internal.code().to_owned();
            let failure = PublicRunError { code, message: "the answer could not be stored".to_owned() };
            (end.nodes, end.ending.kind) = (Vec::new(), RunEndKind::Failed(failure));
        }
        if !pauses.pause().await {
            return Err(error);
        }
    }
}

/// Stores the end of a run. Then the run's readers see it, its client gets the result by `sender`, and the next run of the queue
/// is woken.
pub(super) async fn store_and_announce_end(
    service: &ConversationService,
    store: &dyn Conversations,
    live_run: &LiveRun,
    end: EndRunRequest,
    sender: oneshot::Sender<Result<(), ConversationError>>,
) {
    let stored = store_end(|end| store.end_run(end), end).await;
    // After a lost answer, the next turn finds that the cached thread is an older version.
    if let Ok(StoredEnd::Ended(ended)) = &stored {
        let key = live_run.key().owner.thread(ended.thread.id.clone());
        service.threads.apply_end(&key, ended);
    }
    if stored.as_ref().is_ok_and(|stored| stored.state() == RunState::Waiting) {
        cancel_if_requested(service, store, live_run).await;
    }
    live_run.tail().close(stored.is_ok());
    live_run.wake_readers();
    let owner = &live_run.key().owner;
    let thread = match &stored {
        Ok(stored) => stored.thread(store, owner).await,
        Err(_) => None,
    };
    // The client may have left.
    let _ = sender.send(stored.map(drop));
    if let Some(thread) = thread {
        service.wake_next(store, owner, &thread).await;
    }
}

/// Cancels a run that waits for decisions if this process was asked to cancel it while the store was unavailable: the commit of the
/// end finds only stored requests. A client that disconnects does not cancel a run that waits.
async fn cancel_if_requested(service: &ConversationService, store: &dyn Conversations, live_run: &LiveRun) {
    let Some(RunStop::Cancelled(reason)) = live_run.stop_reason() else { return };
    if reason == CancelReason::Disconnected {
        return;
    }
    if let Err(error) = service.cancel_waiting(store, live_run.key(), reason).await {
        tracing::warn!(run_id = %live_run.key().id, %error, "failed to cancel a run that waits for decisions");
    }
}

/// Returns true for the end of a run that the shutdown of this process has ended.
pub(super) fn is_shutdown(kind: &RunEndKind) -> bool {
    matches!(kind, RunEndKind::Failed(failure) if failure.code == AgentErrorKind::ShuttingDown.code())
}

/// Returns the terminal event for a client whose run's end was stored with this result.
pub(super) fn terminal_event(terminal: Event, stored: Result<(), ConversationError>) -> Event {
    match stored {
        Ok(()) => terminal,
        // The thread was deleted meanwhile, and the run with it.
        Err(ConversationError::RunNotFound | ConversationError::ThreadNotFound) => match terminal {
            Event::RunFinished { thread_id, run_id, usage, .. } => {
                let outcome = Some(RunOutcome::Cancelled);
                Event::RunFinished { thread_id, run_id, result: None, outcome, usage }
            }
            error => error,
        },
        Err(ConversationError::RunEnded { .. }) => Event::RunError {
            message: "the run was interrupted: its process had stopped for too long".to_owned(),
            code: RUN_INTERRUPTED.to_owned(),
            usage: usage_of(&terminal),
        },
        Err(_) => unavailable(&terminal),
    }
}

/// Returns the terminal event of a run whose end could not be stored.
pub(super) fn unavailable(terminal: &Event) -> Event {
    let error = AgentError::new(AgentErrorKind::StoreUnavailable, "the answer could not be stored");
    Event::RunError {
        message: error.message().to_owned(),
        code: error.kind().code().to_owned(),
        usage: usage_of(terminal),
    }
}

fn usage_of(terminal: &Event) -> Vec<agent_core::message::Usage> {
    match terminal {
        Event::RunFinished { usage, .. } | Event::RunError { usage, .. } => usage.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use agent_core::event::Interrupt;
    use agent_core::store_error::StoreError;
    use agent_core::testing::ManualClock;
    use agent_platform::conversation::{LogEnd, MemoryConversations, RunEnding, RunKey, RunRecord};
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::app::conversation::live_guard::LiveGuard;
    use crate::app::conversation::test_runs::begin_in_new_thread;
    use crate::shutdown::Shutdown;

    /// A run of a process, and its end.
    async fn running(store: &Arc<MemoryConversations>, clock: &Arc<ManualClock>) -> EndRunRequest {
        running_in(&service(store, clock), store).await
    }

    async fn running_in(service: &ConversationService, store: &MemoryConversations) -> EndRunRequest {
        let begin = begin_in_new_thread(service, "r");
        let owner = begin.key.thread_owner();
        store.begin_run(begin).await.expect("it begins");
        EndRunRequest {
            owner,
            run_id: "r".into(),
            process: service.process.clone(),
            nodes: Vec::new(),
            ending: RunEnding::default(),
            log: LogEnd::default(),
            context: None,
            request_sha256: None,
            backend: None,
            record: RunRecord::default(),
            now: service.now(),
        }
    }

    /// An end with which the run waits for a decision.
    async fn suspended_in(service: &ConversationService, store: &MemoryConversations) -> EndRunRequest {
        let interrupts = vec![Interrupt { id: "i".to_owned(), ..Interrupt::default() }];
        let outcome = RunOutcome::Interrupt { interrupts, pending_tool_call_ids: Vec::new() };
        let mut end = running_in(service, store).await;
        end.ending.kind = RunEndKind::Suspended(outcome);
        end
    }

    fn service(store: &Arc<MemoryConversations>, clock: &Arc<ManualClock>) -> Arc<ConversationService> {
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let conversations: Arc<dyn Conversations> = store.clone();
        ConversationService::new(Some(conversations), clock.clone(), spawner, Shutdown::default())
    }

    fn lost_answer() -> ConversationError {
        StoreError::unavailable("the connection was lost").into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_whose_answer_was_lost_is_stored() {
        for (kind, state) in [
            (RunEndKind::Completed, RunState::Completed),
            // By the shutdown of the process.
            (RunEndKind::Interrupted, RunState::Interrupted),
        ] {
            let (store, clock) = (Arc::new(MemoryConversations::default()), Arc::new(ManualClock::new()));
            let mut end = running(&store, &clock).await;
            end.ending.kind = kind;
            let (attempts, store) = (&Cell::new(0), &store);
            let end_run = |end| async move {
                attempts.set(attempts.get() + 1);
                let ended = store.end_run(end).await?;
                if attempts.get() == 1 { Err(lost_answer()) } else { Ok(ended) }
            };
            let stored = store_end(end_run, end.clone()).await.expect("it is stored");
            let StoredEnd::EndedBefore(run) = &stored else { panic!("the first attempt: {stored:?}") };
            assert_eq!((run.state, attempts.get()), (state, 2));
            let thread = stored.thread(&**store, &end.owner).await.expect("it is there");
            assert_eq!((thread.id.as_str(), thread.active_run_id), ("t", None));
            // Without an attempt before, another one has ended the run.
            let refused = store_end(|end| store.end_run(end), end).await;
            assert!(matches!(refused, Err(ConversationError::RunEnded { .. })), "{refused:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_was_interrupted_between_two_attempts_has_not_this_end() {
        let (store, clock) = (Arc::new(MemoryConversations::default()), Arc::new(ManualClock::new()));
        let end = running(&store, &clock).await;
        let other = service(&store, &clock);
        clock.advance(2 * other.times.lease);
        let (key, store, other) =
            (&RunKey { owner: end.owner.clone(), id: end.run_id.clone() }, &store, &other);
        let attempts = &Cell::new(0);
        let end_run = |end| async move {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 1 {
                other.interrupt_abandoned(&**store, key).await?;
                return Err(lost_answer());
            }
            store.end_run(end).await
        };
        let refused = store_end(end_run, end).await;
        assert!(matches!(refused, Err(ConversationError::RunEnded { .. })), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_would_wait_is_cancelled_with_its_end_although_the_answer_was_lost() {
        for (is_own, is_taken) in [(true, false), (false, false), (false, true)] {
            let (store, clock) = (Arc::new(MemoryConversations::default()), Arc::new(ManualClock::new()));
            let (own, other) = (service(&store, &clock), service(&store, &clock));
            let end = suspended_in(&own, &store).await;
            let key = RunKey { owner: end.owner.clone(), id: end.run_id.clone() };
            let live = LiveGuard::new(own.clone(), key.clone(), &own.lease());
            own.runs.insert(&live.run);
            let asked = if is_own { &own } else { &other };
            let asked = asked.cancel(&*store, &key, CancelReason::Requested).await.expect("it is left");
            assert_eq!(asked.expect("a run").state, RunState::Running);
            if is_taken {
                let taken = store.take_signals(&own.process, own.now()).await.expect("they are read");
                assert_eq!(taken.len(), 1);
            }
            let (attempts, store) = (&Cell::new(0), &store);
            let end_run = |end| async move {
                attempts.set(attempts.get() + 1);
                let ended = store.end_run(end).await?;
                if attempts.get() == 1 { Err(lost_answer()) } else { Ok(ended) }
            };
            // The process may end after this commit.
            let stored = store_end(end_run, end).await.expect("it is stored");
            assert!(matches!(stored, StoredEnd::EndedBefore(_)), "{stored:?}");
            let run = store.run(&key.owner, &key.id).await.expect("it reads").expect("a run");
            assert_eq!((run.state, run.reason), (RunState::Cancelled, Some(CancelReason::Requested)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_would_wait_is_cancelled_although_the_request_could_not_be_stored() {
        for (reason, state) in [
            (CancelReason::Requested, RunState::Cancelled),
            // A client that leaves does not withdraw the question.
            (CancelReason::Disconnected, RunState::Waiting),
        ] {
            let (store, clock) = (Arc::new(MemoryConversations::default()), Arc::new(ManualClock::new()));
            let own = service(&store, &clock);
            let end = suspended_in(&own, &store).await;
            let key = RunKey { owner: end.owner.clone(), id: end.run_id.clone() };
            let live = LiveGuard::new(own.clone(), key.clone(), &own.lease());
            live.run.stop(RunStop::Cancelled(reason));
            let (sender, receiver) = oneshot::channel();
            store_and_announce_end(&own, &*store, &live.run, end, sender).await;
            receiver.await.expect("an answer").expect("it is stored");
            let run = store.run(&key.owner, &key.id).await.expect("it reads").expect("a run");
            assert_eq!(run.state, state, "{reason:?}");
        }
    }

    #[test]
    fn the_terminal_event_reports_an_end_that_was_not_stored() {
        let finished = || Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: None,
            usage: Vec::new(),
        };
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
