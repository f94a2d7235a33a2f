//! Tests of recorders over conversations in memory.

use agent_core::event::{AssistantRole, Interrupt, RunOutcome, RunResult};
use agent_core::message::FinishReason;
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
use crate::app::services::live::LiveRun;
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
    let begin = BeginRunRequest { grace_ms, ..begin_in_new_thread(service, run) };
    let position = AnswerPosition { parent: begin.parent_id.clone(), sent_context: ContextSlot::default() };
    let accepted = service.observers.now();
    StoredRunRecorder::begin(service, store.clone(), begin, (position, None), accepted)
}

fn queue(
    service: &Arc<ConversationService>,
    store: &Arc<MemoryConversations>,
    run: &str,
) -> StoredRunRecorder {
    let queue = QueueRunRequest {
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
    let drain = tokio::time::timeout(Duration::from_secs(60), service.drain());
    drain.await.expect("every run has its end");
}

fn finished() -> Event {
    let result = Some(RunResult::from(FinishReason::Stop));
    Event::RunFinished { thread_id: "t".into(), run_id: "r".into(), result, outcome: None, usage: Vec::new() }
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
    for reason in [CancelReason::Requested, CancelReason::Displaced] {
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
        let ended = run(&store, "r").await.expect("it has begun");
        assert_eq!((ended.state, ended.reason), (RunState::Cancelled, Some(reason)));
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
async fn a_reader_that_has_seen_lost_events_gets_the_end_of_the_run() {
    let store = Arc::new(MemoryConversations::default());
    let (clock, shutdown) = (Arc::new(ManualClock::new()), Shutdown::default());
    let own_service = service_over(&store, clock.clone(), &shutdown);
    let other = service_over(&store, clock.clone(), &shutdown);
    let mut recorder = begin(&own_service, &store, "r");
    recorder.wait_until_stored().await.expect("it begins");
    // The clients come from the run's process, which has ended before it has stored its latest events.
    let conversations: Arc<dyn Conversations> = store.clone();
    let attach = |from| LogReader::open(&other, &conversations, key(), from, true).expect("there is room");
    let readers = [2, 3, 10].map(attach);
    clock.advance(2 * own_service.times.lease);
    other.interrupt_abandoned(&*store, &key()).await.expect("it is interrupted");
    assert_eq!(run(&store, "r").await.expect("it has begun").events.count, 2);
    for mut reader in readers {
        let events = reader.next().await.expect("it reads").expect("an end");
        assert!(matches!(&events[..], [Event::RunError { .. }]), "{events:?}");
        assert_eq!(reader.next_number(), 2, "events are numbered as they are stored");
        assert!(reader.next().await.expect("it reads").is_none());
    }
    drop(recorder);
    drained(&own_service).await;
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
    // No time passes, so that neither a look at the store nor a signal can have woken it.
    let started = tokio::time::Instant::now();
    let is_woken = async |run: &LiveRun| {
        tokio::time::timeout(Duration::from_millis(1), run.wait_for_wake()).await.is_ok()
    };
    running.record(&finished());
    running.finish(finished()).await;
    assert!(is_woken(&live[0]).await, "the run before it has ended");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(!is_woken(&live[1]).await && !is_woken(&live[2]).await, "it is not their turn");
    // The first leaves before it has started.
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
    // The other process no longer reports its reader.
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
