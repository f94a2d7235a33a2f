//! Queued runs: their order, limit and ends.

use std::sync::Arc;

use agent_core::ids::RunId;
use futures_util::future::join_all;

use super::approvals::{continuing, waiting_run};
use super::support::*;
use crate::conversation::{
    BeginOrder, BeginRunRequest, BegunRun, CancelReason, ConversationError, Conversations, Decision,
    DecisionRoute, EndRunRequest, MAX_QUEUED_RUNS, OnDisconnect, PublicRunError, QueueRunRequest, Run,
    RunEndKind, RunEnding, RunFilter, RunKey, RunLease, RunSignal, RunState, RunTrigger, RunTriggerKind,
    ThreadOwner, ThreadStatus, Verdict,
};

/// Runs the tests of queued runs.
pub(super) async fn runs_are_queued(make: &impl AsyncFn() -> Arc<dyn Conversations>) {
    queued_runs_begin_in_order(&*make().await).await;
    a_run_is_queued_only_where_it_must_wait(&*make().await).await;
    the_queue_of_a_thread_is_limited(&*make().await).await;
    a_queued_run_ends_without_an_answer(&*make().await).await;
    queued_runs_of_a_lost_process_leave_the_queue(&*make().await).await;
    queued_runs_are_deleted_with_their_thread(&*make().await).await;
    a_decided_run_continues_before_queued_runs(&*make().await).await;
    the_process_of_the_next_run_is_signalled(&*make().await).await;
    a_hundred_are_queued_at_once(make().await).await;
}

/// Returns a run of the process `p1` for the queue of the thread `t`.
fn queued(run: &str, ms: i64) -> QueueRunRequest {
    QueueRunRequest {
        key: key("t"),
        agent_id: "gardener".into(),
        run_id: run.into(),
        trigger: RunTrigger::default(),
        on_disconnect: OnDisconnect::Continue,
        grace_ms: Some(7),
        lease: lease(ms + 10_000),
        now: at(ms),
    }
}

async fn enqueue(store: &dyn Conversations, run: &str, ms: i64) -> Run {
    done("queue", store.queue_run(queued(run, ms)).await).expect("the thread has a run")
}

/// Returns the beginning of a queued run with a new message.
fn from_queue(run: &str, ms: i64) -> BeginRunRequest {
    BeginRunRequest { order: BeginOrder::FromQueue, ..begin(key("t"), run, None, run, ms) }
}

fn ended_as(run: &str, kind: RunEndKind, ms: i64) -> EndRunRequest {
    EndRunRequest { ending: RunEnding { kind, ..RunEnding::default() }, ..end(ada(), run, Vec::new(), ms) }
}

async fn run(store: &dyn Conversations, id: &str) -> Run {
    done("run", store.run(&ada(), &run_id(id)).await).expect("the run is there")
}

async fn queue_of(store: &dyn Conversations) -> Vec<String> {
    thread(store, &key("t")).await.queued_run_ids.iter().map(ToString::to_string).collect()
}

fn busy_run_id(refused: &Result<BegunRun, ConversationError>) -> &str {
    match refused {
        Err(ConversationError::ThreadBusy { active_run }) => active_run,
        other => panic!("the thread is busy, but {other:?}"),
    }
}

async fn queued_runs_begin_in_order(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    let first = enqueue(store, "q1", 5).await;
    assert_eq!((first.state, first.created_at, first.started_at), (RunState::Queued, at(5), None));
    assert_eq!(
        (first.on_disconnect, first.grace_ms, first.node_ids.len()),
        (OnDisconnect::Continue, Some(7), 0)
    );
    enqueue(store, "q2", 6).await;
    assert_eq!(run(store, "q1").await, first);
    assert_eq!(queue_of(store).await, ["q1", "q2"]);
    let filter = RunFilter { state: Some(RunState::Queued), ..RunFilter::default() };
    let listed = done("a list", store.runs(&ada(), &filter, None, 10).await).runs;
    assert_eq!(listed.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["q2", "q1"]);
    for early in [
        from_queue("q1", 7),
        BeginRunRequest { order: BeginOrder::BeforeQueue, ..begin(key("t"), "r2", None, "x", 7) },
    ] {
        assert_eq!(busy_run_id(&store.begin_run(early).await), "r1", "a thread has one run at a time");
    }

    let ended = done("end", store.end_run(end(ada(), "r1", Vec::new(), 8)).await);
    assert_eq!((ended.thread.active_run_id, ended.thread.status), (None, ThreadStatus::Running));
    assert_eq!(
        ended.thread.queued_run_ids,
        ["q1", "q2"].map(run_id),
        "the end of a run returns the queued runs"
    );
    assert_eq!(busy_run_id(&store.begin_run(begin(key("t"), "r2", None, "x", 9)).await), "q1");
    assert_eq!(busy_run_id(&store.begin_run(from_queue("q2", 9)).await), "q1");
    assert_eq!(
        enqueue(store, "q3", 9).await.state,
        RunState::Queued,
        "a run is queued behind runs that already wait"
    );

    let trigger = RunTriggerKind::Regenerate.into();
    let begun = done("begin", store.begin_run(BeginRunRequest { trigger, ..from_queue("q1", 10) }).await);
    assert_eq!((begun.run.state, begun.run.created_at), (RunState::Running, at(5)));
    assert_eq!((begun.run.started_at, begun.run.trigger.kind), (Some(at(10)), RunTriggerKind::Regenerate));
    assert_eq!((begun.run.turn_id.as_str(), begun.nodes[0].run_id.as_deref()), ("q1", Some("q1")));
    assert_eq!((begun.thread.active_run_id.as_deref(), begun.thread.queued_run_ids.len()), (Some("q1"), 2));
    assert_eq!(run(store, "q1").await, begun.run);
    let filter = RunFilter { kind: Some(RunTriggerKind::Regenerate), ..RunFilter::default() };
    assert_eq!(
        done("a list", store.runs(&ada(), &filter, None, 10).await).runs,
        std::slice::from_ref(&begun.run)
    );
    let again = store.begin_run(from_queue("q1", 11)).await;
    assert!(matches!(&again, Err(ConversationError::RunEnded { run }) if **run == begun.run), "{again:?}");
    done("end", store.end_run(end(ada(), "q1", Vec::new(), 12)).await);
    for (id, ms) in [("q2", 20), ("q3", 30)] {
        done("begin", store.begin_run(from_queue(id, ms)).await);
        done("end", store.end_run(end(ada(), id, Vec::new(), ms + 1)).await);
    }
    let idle = thread(store, &key("t")).await;
    assert_eq!((idle.status, idle.queued_run_ids.len(), idle.message_count), (ThreadStatus::Idle, 0, 4));
}

async fn a_run_is_queued_only_where_it_must_wait(store: &dyn Conversations) {
    assert_eq!(
        done("queue", store.queue_run(queued("q1", 0)).await),
        None,
        "a run of an absent thread is not queued"
    );
    assert!(done("thread", store.thread(&key("t")).await).is_none(), "queueing creates no thread");
    let begun = done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 1)).await);
    let used = store.queue_run(queued("r1", 2)).await;
    assert!(matches!(&used, Err(ConversationError::RunIdUsed { run }) if **run == begun.run), "{used:?}");
    let other = store.queue_run(QueueRunRequest { agent_id: "cook".into(), ..queued("q1", 2) }).await;
    assert!(matches!(other, Err(ConversationError::AgentMismatch { .. })), "{other:?}");
    assert_eq!(thread(store, &key("t")).await, begun.thread, "a refused queued run changes nothing");
    let foreign = QueueRunRequest { key: ThreadOwner::new("acme", "bob").thread("t"), ..queued("q1", 2) };
    assert_eq!(
        done("queue", store.queue_run(foreign).await),
        None,
        "another owner's thread of the same id is absent"
    );
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 3)).await);
    assert_eq!(
        done("queue", store.queue_run(queued("q1", 4)).await),
        None,
        "a run of an idle thread is not queued"
    );
    assert!(done("run", store.run(&ada(), &run_id("q1")).await).is_none());
}

async fn the_queue_of_a_thread_is_limited(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    for n in 0..MAX_QUEUED_RUNS {
        enqueue(store, &format!("q{n}"), 1).await;
    }
    let full = store.queue_run(queued("more", 2)).await;
    assert!(matches!(full, Err(ConversationError::QueueFull)), "{full:?}");
    assert!(
        done("run", store.run(&ada(), &run_id("more")).await).is_none(),
        "the id of a refused run stays unused"
    );
    let requested = RunEndKind::Cancelled(CancelReason::Requested);
    done("cancel", store.end_run(ended_as("q3", requested, 3)).await);
    enqueue(store, "more", 4).await;
    assert_eq!(queue_of(store).await, ["q0", "q1", "q2", "q4", "q5", "q6", "q7", "more"]);
}

async fn a_queued_run_ends_without_an_answer(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    let failure = PublicRunError { code: "X".to_owned(), message: "no".to_owned() };
    for (id, kind, state) in [
        ("q1", RunEndKind::Cancelled(CancelReason::Disconnected), RunState::Cancelled),
        ("q2", RunEndKind::Failed(failure), RunState::Failed),
        ("q3", RunEndKind::Interrupted, RunState::Interrupted),
    ] {
        enqueue(store, id, 1).await;
        enqueue(store, &format!("{id}-next"), 1).await;
        let completed = store.end_run(ended_as(id, RunEndKind::Completed, 2)).await;
        assert!(
            matches!(completed, Err(ConversationError::RunEnded { .. })),
            "a queued run that has not begun cannot complete: {completed:?}"
        );
        let ended = done("end", store.end_run(ended_as(id, kind, 3)).await);
        assert_eq!((ended.run.state, ended.run.ended_at, ended.run.started_at), (state, Some(at(3)), None));
        assert_eq!(
            ended.thread.active_run_id.as_deref(),
            Some("r1"),
            "the active run of the thread continues"
        );
        let begun = store.begin_run(from_queue(id, 4)).await;
        assert!(
            matches!(begun, Err(ConversationError::RunEnded { .. })),
            "an ended queued run cannot begin: {begun:?}"
        );
    }
    assert_eq!(queue_of(store).await, ["q1-next", "q2-next", "q3-next"]);
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 5)).await);
    for id in ["q2-next", "q3-next", "q1-next"] {
        assert_eq!(thread(store, &key("t")).await.status, ThreadStatus::Running);
        done("end", store.end_run(ended_as(id, RunEndKind::Interrupted, 6)).await);
    }
    assert_eq!(
        thread(store, &key("t")).await.status,
        ThreadStatus::Idle,
        "the end of the last queued run makes the thread idle"
    );
    done("begin", store.begin_run(begin(key("t"), "r2", None, "two", 7)).await);
}

async fn queued_runs_of_a_lost_process_leave_the_queue(store: &dyn Conversations) {
    let other = |run: &str, ms: i64| QueueRunRequest {
        lease: RunLease { process: "p2".to_owned(), until: at(ms + 30_000) },
        ..queued(run, ms)
    };
    let other_lease = other("", 4).lease;
    let begun = BeginRunRequest { lease: other_lease.clone(), ..begin(key("t"), "r1", None, "one", 0) };
    done("begin", store.begin_run(begun).await);
    enqueue(store, "q1", 1).await;
    done("queue", store.queue_run(other("q2", 2)).await).expect("queued");
    enqueue(store, "q3", 3).await;
    done("queue", store.queue_run(other("q4", 4)).await).expect("queued");
    let held = done("interrupt", store.interrupt_expired(&ada(), &run_id("q1"), clock(10_002)).await);
    assert_eq!(
        held.expect("the run").state,
        RunState::Queued,
        "a run is not interrupted while its lease is valid"
    );
    let lost = done("interrupt", store.interrupt_expired(&ada(), &run_id("q1"), clock(10_003)).await);
    assert_eq!(lost.expect("the run").state, RunState::Interrupted);
    assert_eq!(
        done("reap", store.reap(clock(10_004)).await),
        1,
        "the other queued run of the lost process is interrupted"
    );
    assert_eq!(queue_of(store).await, ["q2", "q4"]);
    let last = run(store, "q3").await;
    assert_eq!((last.state, last.events.count, last.events.complete), (RunState::Interrupted, 2, true));
    let mine = EndRunRequest { process: "p2".to_owned(), ..end(ada(), "r1", Vec::new(), 10_005) };
    done("end", store.end_run(mine).await);
    let foreign = store.begin_run(from_queue("q2", 10_006)).await;
    assert!(
        matches!(foreign, Err(ConversationError::RunEnded { .. })),
        "a queued run of another process cannot begin: {foreign:?}"
    );
    let begun = BeginRunRequest { lease: other_lease, ..from_queue("q2", 10_007) };
    done("begin", store.begin_run(begun).await);
    assert_eq!(queue_of(store).await, ["q4"]);
}

async fn queued_runs_are_deleted_with_their_thread(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    enqueue(store, "q1", 1).await;
    enqueue(store, "q2", 1).await;
    let deleted = done("delete", store.delete(&key("t")).await).expect("a thread");
    assert_eq!(deleted.active_runs, ["r1", "q1", "q2"].map(run_id));
    for id in ["q1", "q2"] {
        let late = store.begin_run(from_queue(id, 2)).await;
        assert!(matches!(late, Err(ConversationError::RunNotFound)), "{late:?}");
        let late = store.end_run(ended_as(id, RunEndKind::Interrupted, 2)).await;
        assert!(matches!(late, Err(ConversationError::RunNotFound)), "{late:?}");
    }
    done("begin", store.begin_run(begin(key("t"), "r3", None, "anew", 3)).await);
    assert_eq!(done("queue", store.queue_run(queued("q1", 4)).await).expect("queued").created_at, at(4));
}

async fn a_decided_run_continues_before_queued_runs(store: &dyn Conversations) {
    let waiting = waiting_run(store, "r1").await;
    assert_eq!(
        done("queue", store.queue_run(queued("q1", 6)).await),
        None,
        "a run is not queued in a thread that waits for a decision"
    );
    let decisions = waiting.approvals.iter().map(|approval| Decision {
        approval: approval.id.clone(),
        verdict: Verdict::Cancel,
        by: "bob".into(),
        via: DecisionRoute::Chat,
    });
    let continuing = BeginRunRequest {
        order: BeginOrder::BeforeQueue,
        ..continuing("r2", &waiting, decisions.collect(), 10)
    };
    let begun = done("begin", store.begin_run(continuing).await);
    assert_eq!(begun.thread.active_run_id.as_deref(), Some("r2"));
    enqueue(store, "q1", 11).await;
    enqueue(store, "q2", 11).await;
    done("end", store.end_run(end(ada(), "r2", Vec::new(), 12)).await);
    let before = BeginRunRequest { order: BeginOrder::BeforeQueue, ..begin(key("t"), "r3", None, "now", 13) };
    let begun = done("begin", store.begin_run(before).await);
    assert_eq!(begun.thread.queued_run_ids, ["q1", "q2"].map(run_id), "the queue is unchanged");
}

async fn the_process_of_the_next_run_is_signalled(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    enqueue(store, "q1", 1).await;
    let q1 = RunKey { owner: ada(), id: run_id("q1") };
    done("signal", store.signal(&q1, RunSignal::Start, at(100)).await).expect("the run");
    done("signal", store.signal(&q1, RunSignal::Cancel(CancelReason::Requested), at(100)).await);
    let mut taken = done("signals", store.take_signals("p1", at(2)).await);
    taken.sort();
    let cancel = RunSignal::Cancel(CancelReason::Requested);
    assert_eq!(taken, [(q1.clone(), RunSignal::Start), (q1.clone(), cancel)]);
    let again = done("signals", store.take_signals("p1", at(3)).await);
    assert_eq!(again, [(q1, cancel)], "it starts once");
}

async fn a_hundred_are_queued_at_once(store: Arc<dyn Conversations>) {
    // Each run begins, is queued or is refused, for any order of the actions of two processes.
    let requests = (0..100).map(|n| {
        let store = store.clone();
        async move {
            let id = format!("r{n}");
            let lease = RunLease { process: format!("p{}", n % 2), until: at(60_000) };
            loop {
                let request = BeginRunRequest { lease: lease.clone(), ..begin(key("t"), &id, None, "x", n) };
                match store.begin_run(request).await {
                    Err(ConversationError::ThreadBusy { .. }) => {}
                    begun => return done("begin", begun.map(|begun| Some(begun.run))),
                }
                match store.queue_run(QueueRunRequest { lease: lease.clone(), ..queued(&id, n) }).await {
                    Ok(None) => {}
                    Err(ConversationError::QueueFull) => return None,
                    queued => return done("queue", queued),
                }
            }
        }
    });
    let runs: Vec<Run> = join_all(requests).await.into_iter().flatten().collect();
    let count = |state| runs.iter().filter(|run| run.state == state).count();
    assert_eq!((count(RunState::Running), count(RunState::Queued)), (1, MAX_QUEUED_RUNS));
    let stored_thread = thread(&*store, &key("t")).await;
    assert_eq!(stored_thread.queued_run_ids.len(), MAX_QUEUED_RUNS);
    let process = |id: &RunId| format!("p{}", id[1..].parse::<u32>().expect("a number") % 2);
    let mut live = stored_thread.active_run_id.expect("one runs");
    for next in stored_thread.queued_run_ids {
        let ended = EndRunRequest { process: process(&live), ..end(ada(), &live, Vec::new(), 200) };
        done("end", store.end_run(ended).await);
        let lease = RunLease { process: process(&next), until: at(60_000) };
        done("begin", store.begin_run(BeginRunRequest { lease, ..from_queue(&next, 201) }).await);
        live = next;
    }
}
