//! Logs of runs: appending, reading, interruption, signals, deletion.

use std::sync::Arc;

use agent_core::event::{AssistantRole, Event, Interrupt, RunOutcome};
use agent_core::message::{Message, ToolCall};
use futures_util::future::{join, join_all};

use super::support::*;
use crate::conversation::{
    ApprovalState, BegunRun, CancelReason, ChunkWriter, ConversationError, Conversations, DeleteFilter,
    EndRunRequest, LogChunk, LogEnd, LogPage, NewNode, NodeOrigin, NodeStatus, RUN_INTERRUPTED, RunChunk,
    RunEndKind, RunEnding, RunKey, RunSignal, RunState, ThreadOwner, ThreadStatus,
};

/// Runs the tests of logs and signals.
pub(super) async fn runs_are_logged(make: &impl AsyncFn() -> Arc<dyn Conversations>) {
    the_inputs_of_a_run_are_kept_with_its_log(&*make().await).await;
    the_log_of_a_live_run_outlives_an_erased_message(&*make().await).await;
    a_log_is_read_from_any_event_on(&*make().await).await;
    a_log_is_appended_only_by_the_run_s_process(&*make().await).await;
    a_run_of_a_lost_process_keeps_what_it_has_said(&*make().await).await;
    a_late_append_and_an_interruption_exclude_each_other(make().await).await;
    threads_are_deleted_while_their_runs_are_logged(make().await).await;
    signals_reach_the_run_s_process(&*make().await).await;
    a_run_that_is_asked_to_stop_does_not_come_to_wait(&*make().await).await;
    logs_are_deleted_with_their_time_thread_and_messages(&*make().await).await;
}

fn run_key(run: &str) -> RunKey {
    RunKey { owner: ada(), id: run.into() }
}

fn started(run: &str) -> Event {
    Event::RunStarted { thread_id: "t".into(), run_id: run.into() }
}

fn text_start(message: &str) -> Event {
    Event::TextMessageStart { message_id: message.into(), role: AssistantRole::Assistant }
}

fn text(message: &str, delta: &str) -> Event {
    Event::TextMessageContent { message_id: message.into(), delta: delta.to_owned() }
}

fn chunk(first: u64, events: &[Event]) -> LogChunk {
    let mut writer = ChunkWriter::new(first);
    events.iter().for_each(|event| writer.push(event));
    writer.take().expect("the chunk has events")
}

async fn append(
    store: &dyn Conversations,
    process: &str,
    run: &str,
    chunk: LogChunk,
) -> Result<Vec<RunKey>, ConversationError> {
    append_all(store, process, vec![RunChunk { run: run_key(run), chunk }]).await
}

/// Appends chunks, and repeats chunks of runs that other transactions have locked. Returns the runs that the process has lost.
async fn append_all(
    store: &dyn Conversations,
    process: &str,
    mut chunks: Vec<RunChunk>,
) -> Result<Vec<RunKey>, ConversationError> {
    let mut lost = Vec::new();
    loop {
        let appended = store.append_events(process, chunks.clone()).await?;
        lost.extend(appended.lost);
        if appended.locked.is_empty() {
            return Ok(lost);
        }
        chunks.retain(|chunk| appended.locked.contains(&chunk.run));
    }
}

async fn log(store: &dyn Conversations, run: &str, from: u64) -> LogPage {
    done("events", store.events(&ada(), &run_id(run), from).await).expect("the run is there")
}

fn events(page: &LogPage) -> Vec<Event> {
    page.chunks.iter().flat_map(|chunk| chunk.events().expect("an intact chunk")).collect()
}

/// Begins the run in the thread of the same name and appends the events.
async fn begin_with(store: &dyn Conversations, run: &str, events: &[Event]) -> BegunRun {
    let begun = done("begin", store.begin_run(begin(key(run), run, None, "Hello", 0)).await);
    assert_eq!(done("append", append(store, "p1", run, chunk(0, events)).await), []);
    begun
}

async fn a_log_is_read_from_any_event_on(store: &dyn Conversations) {
    let first_events = [started("r1"), text_start("m"), text("m", "one "), text("m", "zwei Größe 🙂")];
    begin_with(store, "r1", &first_events).await;
    let more = [text("m", "three"), Event::TextMessageEnd { message_id: "m".into() }];
    assert_eq!(done("append", append(store, "p1", "r1", chunk(4, &more)).await), []);
    assert_eq!(
        done("again", append(store, "p1", "r1", chunk(4, &more)).await),
        [],
        "a chunk is appended once"
    );
    let all: Vec<Event> = first_events.iter().chain(&more).cloned().collect();
    let page = log(store, "r1", 0).await;
    assert_eq!(events(&page), all);
    assert_eq!((page.run.state, page.run.events.count), (RunState::Running, 6));
    let listed = done("run", store.run(&ada(), &run_id("r1")).await).expect("a run");
    assert_eq!(listed.events.count, 6, "a live run reports the number of its stored events");
    for (from, firsts) in [(1, vec![0, 4]), (3, vec![0, 4]), (4, vec![4]), (5, vec![4]), (6, vec![])] {
        let found: Vec<u64> = log(store, "r1", from).await.chunks.iter().map(|chunk| chunk.first).collect();
        assert_eq!(found, firsts, "from {from}");
    }
    let last = chunk(6, &[Event::RunError { message: "no".into(), code: "X".into(), usage: Vec::new() }]);
    let end_of_log =
        LogEnd { chunks: vec![chunk(4, &more), last.clone()], until: Some(at(5_000)), ..LogEnd::default() };
    let ended =
        done("end", store.end_run(EndRunRequest { log: end_of_log, ..end(ada(), "r1", vec![], 9) }).await);
    let page = log(store, "r1", 6).await;
    assert_eq!(page, LogPage { run: ended.run, chunks: vec![last] });
    let kept = page.run.events;
    assert_eq!((kept.count, kept.complete, kept.until), (7, true, Some(at(5_000))));
    assert!(done("events", store.events(&ada(), &run_id("never"), 0).await).is_none());
    let foreign = store.events(&ThreadOwner::new("acme", "bob"), &run_id("r1"), 0).await;
    assert!(done("events", foreign).is_none(), "another owner's run does not exist");
    pages_are_bounded(store).await;
}

async fn the_inputs_of_a_run_are_kept_with_its_log(store: &dyn Conversations) {
    let inputs = async |run: &str| done("inputs", store.run_inputs(&ada(), &run_id(run)).await);
    let end_with = async |run: &str, until| {
        let last = chunk(1, &[Event::RunError { message: "no".into(), code: "X".into(), usage: Vec::new() }]);
        let recorded = Some(b"{\"a\": 1}".to_vec());
        let log =
            LogEnd { chunks: vec![last], until: Some(at(until)), inputs: recorded, ..LogEnd::default() };
        done("end", store.end_run(EndRunRequest { log, ..end(ada(), run, Vec::new(), 9) }).await).run
    };
    let mut begun = Vec::new();
    for run in ["r1", "r2", "r3"] {
        begun.push(begin_with(store, run, &[started(run)]).await);
        assert_eq!(inputs(run).await, None, "a live run has no stored inputs");
    }
    let ended = end_with("r1", 5_000).await;
    assert_eq!(inputs("r1").await.as_deref(), Some(&b"{\"a\": 1}"[..]));
    assert_eq!((ended.events.count, ended.events.complete), (2, true), "the inputs do not count as an event");
    assert_eq!(events(&log(store, "r1", 0).await).len(), 2);
    assert_eq!(log(store, "r1", 1).await.chunks.len(), 1);
    let foreign = store.run_inputs(&ThreadOwner::new("acme", "bob"), &run_id("r1")).await;
    assert_eq!(done("inputs", foreign), None, "another owner's run does not exist");
    assert_eq!((inputs("never").await, inputs("r2").await), (None, None));
    // Inputs are deleted with the log, with the content of a message of the thread, and with the thread.
    assert_eq!(done("trim", store.trim_logs(at(5_000)).await), 1);
    assert_eq!(inputs("r1").await, None);
    end_with("r2", 9_000).await;
    end_with("r3", 9_000).await;
    let first = &begun[1].nodes[0].id;
    done("begin", store.begin_run(begin(key("r2"), "later", Some(first), "x", 9)).await);
    assert_eq!(done("append", append(store, "p1", "later", chunk(0, &[started("later")])).await), []);
    end_with("later", 9_000).await;
    done("erase", store.erase_node(&key("r2"), first).await);
    assert_eq!(
        (inputs("r2").await, inputs("later").await),
        (None, None),
        "inputs of all runs that sent the erased message are deleted"
    );
    assert_eq!(events(&log(store, "later", 0).await).len(), 2, "the events of the later run are kept");
    assert!(inputs("r3").await.is_some(), "the inputs of a run in another thread are kept");
    done("delete", store.delete(&key("r3")).await);
    assert_eq!(inputs("r3").await, None);
}

async fn the_log_of_a_live_run_outlives_an_erased_message(store: &dyn Conversations) {
    let begun = begin_with(store, "r1", &[started("r1")]).await;
    done("erase", store.erase_node(&key("r1"), &begun.nodes[0].id).await);
    assert_eq!(done("append", append(store, "p1", "r1", chunk(1, &[text_start("m")])).await), []);
    assert_eq!(events(&log(store, "r1", 0).await).len(), 2, "no event is missing");
    a_live_run_stores_no_inputs_with_an_erased_message(store).await;
}

async fn a_live_run_stores_no_inputs_with_an_erased_message(store: &dyn Conversations) {
    for run in ["erased", "whole"] {
        let begun = done("begin", store.begin_run(begin(key(run), run, None, "Hello", 0)).await);
        if run == "erased" {
            done("erase", store.erase_node(&key(run), &begun.nodes[0].id).await);
        }
        let live = done("a read", store.run(&ada(), &run_id(run)).await).expect("the run");
        assert_eq!(live.events.count, 0, "{run} has no event yet");
        let last = chunk(0, &[Event::RunError { message: "no".into(), code: "X".into(), usage: Vec::new() }]);
        let inputs = Some(b"{}".to_vec());
        let log_end = LogEnd { chunks: vec![last], until: Some(at(9_000)), inputs, ..LogEnd::default() };
        done("end", store.end_run(EndRunRequest { log: log_end, ..end(ada(), run, Vec::new(), 9) }).await);
        assert_eq!(events(&log(store, run, 0).await).len(), 1);
        let stored = done("inputs", store.run_inputs(&ada(), &run_id(run)).await);
        assert_eq!(stored.is_some(), run == "whole", "{run}: those of the first have the erased message");
    }
}

/// Reads a log of 2.5 MB.
async fn pages_are_bounded(store: &dyn Conversations) {
    begin_with(store, "long", &[started("long"), text_start("m")]).await;
    for first in 2..7 {
        let piece = chunk(first, &[text("m", &"x".repeat(500_000))]);
        assert_eq!(done("append", append(store, "p1", "long", piece).await), []);
    }
    let (mut next, mut pages) = (0, 0);
    while let Some(last) = log(store, "long", next).await.chunks.last() {
        (next, pages) = (last.last + 1, pages + 1);
    }
    assert_eq!((next, pages), (7, 2), "a page ends once it has a mebibyte");
}

async fn a_log_is_appended_only_by_the_run_s_process(store: &dyn Conversations) {
    begin_with(store, "r1", &[started("r1")]).await;
    begin_with(store, "r2", &[started("r2")]).await;
    let next = || chunk(1, &[text_start("m")]);
    assert_eq!(
        done("append", append(store, "p2", "r1", next()).await),
        [run_key("r1")],
        "a run of another process is reported as lost"
    );
    assert_eq!(done("append", append(store, "p1", "never", next()).await), [run_key("never")]);
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 1)).await);
    let both = ["r1", "r2"].map(|run| RunChunk { run: run_key(run), chunk: next() });
    let lost = done("append", append_all(store, "p1", both.to_vec()).await);
    assert_eq!(lost, [run_key("r1")], "an ended run is reported as lost; chunks of other runs are appended");
    assert_eq!(events(&log(store, "r1", 0).await), [started("r1")]);
    assert_eq!(events(&log(store, "r2", 0).await), [started("r2"), text_start("m")]);
    assert_eq!(done("none", append_all(store, "p1", Vec::new()).await), []);
    let twice = [1, 2].map(|first| RunChunk { run: run_key("r1"), chunk: chunk(first, &[text_start("m")]) });
    let lost = done("append", append_all(store, "p1", twice.to_vec()).await);
    assert_eq!(lost, [run_key("r1")], "a lost run is reported once");
}

/// Number of runs to which their process appends while another process interrupts them.
const RACE_COUNT: u64 = 20;

/// A process that was suspended beyond its lease appends to its runs while they are interrupted: each chunk is part of the
/// answer that is kept, or the process learns that it has lost the run.
async fn a_late_append_and_an_interruption_exclude_each_other(store: Arc<dyn Conversations>) {
    let runs: Vec<String> = (0..RACE_COUNT).map(|n| format!("r{n}")).collect();
    for run in &runs {
        begin_with(&*store, run, &[started(run), text_start("m")]).await;
    }
    let appending = async {
        let mut appended = vec![0; runs.len()];
        for round in 0..20 {
            let piece = |run: &String| RunChunk {
                run: run_key(run),
                chunk: chunk(2 + round, &[text("m", &format!("{round} "))]),
            };
            let lost = done("append", append_all(&*store, "p1", runs.iter().map(piece).collect()).await);
            for (count, run) in appended.iter_mut().zip(&runs) {
                *count += u64::from(!lost.contains(&run_key(run)));
            }
        }
        appended
    };
    let interrupting = async {
        let (ada, ids) = (ada(), runs.iter().rev().map(|run| run_id(run)).collect::<Vec<_>>());
        let interrupt = |id| store.interrupt_expired(&ada, id, clock(10_000));
        join_all(ids.iter().map(interrupt)).await.into_iter().for_each(|run| drop(done("interrupt", run)));
    };
    let (appended, ()) = join(appending, interrupting).await;
    for (count, run) in appended.into_iter().zip(&runs) {
        let page = log(&*store, run, 0).await;
        assert_eq!(page.run.state, RunState::Interrupted);
        let logged = events(&page);
        assert_eq!(logged.len() as u64, 3 + count, "{run}: the appended events, and three others");
        assert_eq!(page.run.events.count, 3 + count);
        assert!(page.run.events.complete, "{run}: the log has no gap");
        assert!(matches!(logged.last(), Some(Event::RunError { .. })), "{run}: nothing follows the end");
        let expected_text: String = (0..count).map(|round| format!("{round} ")).collect();
        let nodes = path(&*store, &key(run)).await;
        assert_eq!(
            texts(&nodes).get(1).map_or("", String::as_str),
            expected_text,
            "{run}: the answer has it all"
        );
    }
}

/// Deletes threads whose runs are being appended to, in the opposite order.
async fn threads_are_deleted_while_their_runs_are_logged(store: Arc<dyn Conversations>) {
    let runs: Vec<String> = (0..RACE_COUNT).map(|n| format!("r{n:02}")).collect();
    for run in runs.iter().rev() {
        begin_with(&*store, run, &[started(run)]).await;
    }
    let appending = async {
        for round in 0..20 {
            let piece = |run: &String| RunChunk {
                run: run_key(run),
                chunk: chunk(1 + round, &[text_start(&format!("m{round}"))]),
            };
            done("append", append_all(&*store, "p1", runs.iter().map(piece).collect()).await);
        }
    };
    let all = DeleteFilter::default();
    let ((), deleted) = join(appending, store.delete_many(&ada(), &all)).await;
    assert_eq!(done("delete", deleted).deleted, runs.len());
    for run in &runs {
        assert!(done("events", store.events(&ada(), &run_id(run), 0).await).is_none());
    }
}

async fn a_run_of_a_lost_process_keeps_what_it_has_said(store: &dyn Conversations) {
    let logged_events = [started("r1"), text_start("m"), text("m", "Half "), text("m", "an answer")];
    let begun = begin_with(store, "r1", &logged_events).await;
    done("begin", store.begin_run(begin(key("r2"), "r2", None, "Hello", 0)).await);
    assert_eq!(done("reap", store.reap(clock(10_000)).await), 2);
    let page = log(store, "r1", 0).await;
    assert_eq!((page.run.state, page.run.events.until), (RunState::Interrupted, Some(at(11_000))));
    let mut logged = events(&page);
    assert_eq!(logged.len() as u64, page.run.events.count);
    let last = logged.pop();
    assert!(matches!(&last, Some(Event::RunError { code, .. }) if code == RUN_INTERRUPTED), "{last:?}");
    assert_eq!(logged, logged_events);
    let nodes = path(store, &key("r1")).await;
    assert_eq!(texts(&nodes), ["Hello", "Half an answer"], "the partial answer");
    assert_eq!((nodes[1].status, nodes[1].id.as_str()), (NodeStatus::Incomplete, "m"));
    assert_eq!(page.run.node_ids, [begun.nodes[0].id.clone(), "m".into()]);
    let silent = events(&log(store, "r2", 0).await);
    assert!(
        matches!(silent.as_slice(), [Event::RunStarted { .. }, Event::RunError { .. }]),
        "an interrupted run without stored events gets a beginning and an error: {silent:?}"
    );
    let late = append(store, "p1", "r1", chunk(4, &[text("m", "late")])).await;
    assert_eq!(done("append", late), [run_key("r1")], "the process learns that it has lost the run");
    let unchanged = done("again", store.interrupt_expired(&ada(), &run_id("r1"), clock(99_000)).await);
    assert_eq!(unchanged, Some(page.run));
    assert!(done("none", store.interrupt_expired(&ada(), &run_id("never"), clock(0)).await).is_none());
}

async fn signals_reach_the_run_s_process(store: &dyn Conversations) {
    begin_with(store, "r1", &[started("r1")]).await;
    let cancel = RunSignal::Cancel(CancelReason::Displaced);
    for signal in [RunSignal::Watch, cancel, cancel] {
        let found = done("signal", store.signal(&run_key("r1"), signal, at(1_000)).await);
        assert_eq!(found.map(|run| run.id), Some("r1".into()));
    }
    assert!(done("signal", store.signal(&run_key("never"), cancel, at(1_000)).await).is_none());
    let foreign = RunKey { owner: ThreadOwner::new("other", "ada"), id: "r1".into() };
    assert!(done("signal", store.signal(&foreign, cancel, at(1_000)).await).is_none());
    assert_eq!(done("take", store.take_signals("p2", at(1)).await), [], "another process");
    let mut first = done("take", store.take_signals("p1", at(1)).await);
    first.sort();
    assert_eq!(first, [(run_key("r1"), RunSignal::Watch), (run_key("r1"), cancel)]);
    let mut again = done("take", store.take_signals("p1", at(999)).await);
    again.sort();
    assert_eq!(again, first, "a signal is returned until the run ends");
    assert_eq!(
        done("take", store.take_signals("p1", at(1_000)).await),
        [],
        "an expired signal is not returned"
    );
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 1)).await);
    let found = done("signal", store.signal(&run_key("r1"), cancel, at(9_000)).await);
    assert_eq!(found.map(|run| run.state), Some(RunState::Completed));
    assert_eq!(done("take", store.take_signals("p1", at(2)).await), [], "an ended run gets no signal");
    begin_with(store, "r2", &[started("r2")]).await;
    for signal in [RunSignal::Watch, cancel] {
        done("signal", store.signal(&run_key("r2"), signal, at(9_000)).await);
    }
    done("end", store.end_run(end(ada(), "r2", Vec::new(), 3)).await);
    assert_eq!(done("take", store.take_signals("p1", at(4)).await), []);
    begin_with(store, "r3", &[started("r3")]).await;
    done("signal", store.signal(&run_key("r3"), cancel, at(9_000)).await);
    done("delete", store.delete(&key("r3")).await);
    begin_with(store, "r3", &[started("r3")]).await;
    assert_eq!(
        done("take", store.take_signals("p1", at(4)).await),
        [],
        "another run of the same id gets no signal"
    );
}

/// A process may end after the commit of a run's end. So the commit itself cancels a run that was asked to stop and would wait.
async fn a_run_that_is_asked_to_stop_does_not_come_to_wait(store: &dyn Conversations) {
    for (run, is_taken) in [("r1", false), ("r2", true)] {
        let user = begin_with(store, run, &[started(run)]).await.nodes[0].id.clone();
        for signal in [RunSignal::Watch, RunSignal::Cancel(CancelReason::Displaced)] {
            done("signal", store.signal(&run_key(run), signal, at(9_000)).await);
        }
        if is_taken {
            assert_eq!(done("take", store.take_signals("p1", at(1)).await).len(), 2);
        }
        let interrupt = Interrupt {
            id: "i".to_owned(),
            reason: "tool_call".to_owned(),
            tool_call_id: Some("call".into()),
            ..Interrupt::default()
        };
        let outcome =
            RunOutcome::Interrupt { interrupts: vec![interrupt], pending_tool_call_ids: Vec::new() };
        let ending = RunEnding { kind: RunEndKind::Suspended(outcome), ..RunEnding::default() };
        let asked = Message::with_tool_calls("", vec![ToolCall::new("call", "erase", "{}")]);
        let asked = NewNode { origin: NodeOrigin::Run, ..NewNode::user(Some(user), asked) };
        let ended =
            done("end", store.end_run(EndRunRequest { ending, ..end(ada(), run, vec![asked], 5) }).await);
        assert_eq!((ended.run.state, ended.run.reason), (RunState::Cancelled, Some(CancelReason::Displaced)));
        let approvals: Vec<_> = ended.run.approvals.iter().map(|approval| approval.state).collect();
        assert_eq!(
            (approvals.as_slice(), ended.run.ended_at),
            (&[ApprovalState::Cancelled][..], Some(at(5)))
        );
        assert_eq!((ended.thread.status, ended.thread.active_run_id), (ThreadStatus::Idle, None));
        assert_eq!((ended.nodes.len(), ended.thread.open_run_id), (1, None));
        let stored = done("read", store.run(&ada(), &run_id(run)).await).expect("a run");
        assert_eq!((stored.state, stored.approvals), (RunState::Cancelled, ended.run.approvals));
        let waiting = done("list", store.waiting_runs(&ada().company, None).await);
        assert_eq!(waiting.runs, []);
        assert_eq!(done("take", store.take_signals("p1", at(6)).await), []);
    }
}

async fn logs_are_deleted_with_their_time_thread_and_messages(store: &dyn Conversations) {
    for run in ["r1", "r2", "r3"] {
        begin_with(store, run, &[started(run), text_start("m"), text("m", "secret")]).await;
    }
    let mut ended = Vec::new();
    for (run, until) in [("r1", 1_000), ("r2", 2_000), ("r3", 3_000)] {
        let last = chunk(3, &[Event::RunError { message: "no".into(), code: "X".into(), usage: Vec::new() }]);
        let end_of_log =
            LogEnd { chunks: vec![last], is_incomplete: true, until: Some(at(until)), inputs: None };
        let user = log(store, run, 0).await.run.parent_id.expect("the user's message");
        let nodes = vec![answer(&format!("{run}-answer"), &user, "secret")];
        let end = EndRunRequest { log: end_of_log, ..end(ada(), run, nodes, 9) };
        ended.push(done("end", store.end_run(end).await));
    }
    assert!(!ended[0].run.events.complete);
    assert_eq!(done("trim", store.trim_logs(at(999)).await), 0);
    assert_eq!(done("trim", store.trim_logs(at(1_000)).await), 1, "the expired log is deleted");
    assert_eq!(done("trim", store.trim_logs(at(1_000)).await), 0);
    let page = log(store, "r1", 0).await;
    assert_eq!((page.chunks.len(), page.run.events.count, page.run.events.until), (0, 0, None));
    assert_eq!(texts(&path(store, &key("r1")).await), ["Hello", "secret"], "the messages stay");
    done("erase", store.erase_node(&key("r2"), &ended[1].nodes[0].id).await);
    let page = log(store, "r2", 0).await;
    assert_eq!(
        (page.chunks.len(), page.run.events.count),
        (0, 0),
        "a log with the text of an erased message is deleted"
    );
    done("delete", store.delete(&key("r3")).await);
    assert!(done("events", store.events(&ada(), &run_id("r3"), 0).await).is_none());
    begin_with(store, "r3", &[started("r3")]).await;
    assert_eq!(
        events(&log(store, "r3", 0).await),
        [started("r3")],
        "a new run has no events of a deleted run with its id"
    );
}
