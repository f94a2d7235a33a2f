//! Runs whose tool calls wait for decisions.

use std::sync::Arc;

use agent_core::event::{Event, Interrupt, RunOutcome};
use agent_core::message::{Message, ToolCall};
use serde_json::json;

use super::support::*;
use crate::conversation::{
    ApprovalState, BeginRunRequest, CallExecution, CancelReason, ChangeRunRequest, ChangedRun, ChunkWriter,
    ConversationError, Conversations, Decision, DecisionRoute, EndRunRequest, LogEnd, MAX_PAGE_THREADS,
    MAX_REAPED_RUNS, NewNode, NodeOrigin, ReissueInterruptsRequest, Run, RunChange, RunEndKind, RunEnding,
    RunKey, RunState, RunTriggerKind, ThreadPatch, ThreadStatus, Verdict,
};
use crate::exact_object::ExactObject;

pub(super) const CALLS: [&str; 2] = ["call-1", "call-2"];

/// Begins a run `id` in the thread `t`, and ends it with two calls that wait for approval until `at(1000)`.
pub(super) async fn waiting_run(store: &dyn Conversations, id: &str) -> Run {
    waiting_run_in(store, "t", id).await
}

pub(super) async fn waiting_run_in(store: &dyn Conversations, thread: &str, id: &str) -> Run {
    waiting_run_with(store, thread, id, &[]).await
}

/// Begins and ends a run as [`waiting_run`] does, with further calls that the client has to execute.
async fn waiting_run_with(store: &dyn Conversations, thread: &str, id: &str, pending: &[&str]) -> Run {
    let begun = done("a beginning", store.begin_run(begin(key(thread), id, None, "Send both", 0)).await);
    let calls = CALLS.map(|call| ToolCall::new(call, "send", r#"{"to":"bob"}"#)).to_vec();
    let parent = begun.nodes.last().map(|node| node.id.clone());
    let answer =
        NewNode { origin: NodeOrigin::Run, ..NewNode::user(parent, Message::with_tool_calls("", calls)) };
    let interrupts = CALLS.map(|call| Interrupt {
        id: format!("approval of {call} in {id}"),
        reason: "tool_call".to_owned(),
        tool_call_id: Some(call.into()),
        expires_at: Some(at(1000).to_string()),
        metadata: Some(json!({"agentd": {"by": "company", "editable": true}})),
        ..Interrupt::default()
    });
    let pending_tool_call_ids = pending.iter().map(|call| (*call).into()).collect();
    let outcome = RunOutcome::Interrupt { interrupts: interrupts.to_vec(), pending_tool_call_ids };
    let ending = RunEnding { kind: RunEndKind::Suspended(outcome), ..RunEnding::default() };
    done("an end", store.end_run(EndRunRequest { ending, ..end(ada(), id, vec![answer], 5) }).await).run
}

pub(super) fn decision(run: &str, call: &str, verdict: Verdict) -> Decision {
    let approval = format!("approval of {call} in {run}");
    Decision { approval, verdict, by: "bob".into(), via: DecisionRoute::Approvals }
}

pub(super) fn approve() -> Verdict {
    Verdict::Approve { arguments: None }
}

pub(super) fn change(run: &str, change: RunChange, ms: i64) -> ChangeRunRequest {
    ChangeRunRequest { run: RunKey { owner: ada(), id: run.into() }, change, now: at(ms) }
}

pub(super) fn continuing(id: &str, run: &Run, decisions: Vec<Decision>, ms: i64) -> BeginRunRequest {
    BeginRunRequest {
        continues: Some(run.id.clone()),
        decisions,
        parent_id: run.node_ids.last().cloned(),
        nodes: Vec::new(),
        ..begin(key("t"), id, None, "", ms)
    }
}

fn begin_call(run: &str, call: &str, by: &str, process: &str) -> ChangeRunRequest {
    let approval = format!("approval of {call} in {run}");
    change(run, RunChange::BeginCall { approval, by: by.into(), process: process.to_owned() }, 30)
}

pub(super) async fn a_run_waits_until_all_calls_are_decided(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    assert_eq!((run.state, run.ended_at, run.approvals.len()), (RunState::Waiting, None, 2));
    let arguments = run.approvals[0].arguments.as_ref();
    assert_eq!(arguments.map(ExactObject::text), Some(r#"{"to":"bob"}"#));
    let thread = thread(store, &key("t")).await;
    assert_eq!((thread.status, thread.open_run_id), (ThreadStatus::Waiting, Some("r1".into())));
    let listed = done("a list", store.waiting_runs(&"acme".into(), None).await);
    assert_eq!((&listed.runs[..], listed.next_cursor), (&[(ada(), run.clone())][..], None));
    assert!(done("a list", store.waiting_runs(&"other".into(), None).await).runs.is_empty());

    let refused = store.begin_run(continuing("r2", &run, Vec::new(), 10)).await;
    assert!(
        matches!(&refused, Err(ConversationError::InterruptsOpen { run }) if run.id == "r1"),
        "{refused:?}"
    );
    let one = change("r1", RunChange::Decide(decision("r1", "call-1", approve())), 10);
    let ChangedRun { run: decided, is_changed } = done("a decision", store.change_run(one.clone()).await);
    assert!(is_changed);
    assert_eq!(decided.approvals[0].state, ApprovalState::Approved);
    assert_eq!(decided.approvals[0].decided_by, Some("bob".into()));
    let again = done("the same decision again", store.change_run(one).await);
    assert_eq!(again, ChangedRun { run: decided, is_changed: false });
    let other = RunChange::Decide(decision("r1", "call-1", Verdict::Cancel));
    let other = store.change_run(change("r1", other, 10)).await;
    assert!(matches!(other, Err(ConversationError::ApprovalDecided { .. })), "{other:?}");

    let deny = decision("r1", "call-2", Verdict::Deny { reason: Some("no".to_owned()) });
    let begun = done("a continuation", store.begin_run(continuing("r2", &run, vec![deny], 20)).await);
    assert_eq!((begun.run.turn_id.as_str(), begun.thread.open_run_id), ("r1", None));
    let first = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    assert_eq!((first.state, first.continued_by), (RunState::Completed, Some("r2".into())));
    assert_eq!(first.approvals[1].state, ApprovalState::Denied);
    let again = store.begin_run(continuing("r3", &run, Vec::new(), 20)).await;
    assert!(again.is_err(), "a run is continued once");
    assert!(done("a list", store.waiting_runs(&"acme".into(), None).await).runs.is_empty());
}

pub(super) async fn an_approved_call_begins_once_in_its_process(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let early = store.change_run(begin_call("r1", "call-1", "r2", "p1")).await;
    assert!(matches!(early, Err(ConversationError::CallRefused)), "{early:?}");
    let decisions = CALLS.map(|call| decision("r1", call, approve())).to_vec();
    done("a continuation", store.begin_run(continuing("r2", &run, decisions, 20)).await);
    for (by, process) in [("r2", "another process"), ("r3", "p1")] {
        let refused = store.change_run(begin_call("r1", "call-1", by, process)).await;
        assert!(matches!(refused, Err(ConversationError::CallRefused)), "{refused:?}");
    }
    let begun = done("a call", store.change_run(begin_call("r1", "call-1", "r2", "p1")).await).run;
    assert_eq!(begun.approvals[0].executed, CallExecution::Begun);
    let again = store.change_run(begin_call("r1", "call-1", "r2", "p1")).await;
    assert!(matches!(again, Err(ConversationError::CallRefused)), "{again:?}");
    // The process ends after the call began, and before the other.
    done("an end", store.end_run(end(ada(), "r2", Vec::new(), 40)).await);
    let late = store.change_run(begin_call("r1", "call-2", "r2", "p1")).await;
    assert!(matches!(late, Err(ConversationError::CallRefused)), "{late:?}");
    let results = texts(&path(store, &key("t")).await[2..]);
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].contains("not known"), "{results:?}");
    assert!(results[1].contains("was not made"), "{results:?}");
}

pub(super) async fn results_complete_their_calls(make: &impl AsyncFn() -> Arc<dyn Conversations>) {
    a_result_completes_its_call(&*make().await).await;
    results_of_the_client_are_added_once(&*make().await).await;
}

async fn a_result_completes_its_call(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let decisions = CALLS.map(|call| decision("r1", call, approve())).to_vec();
    let begun = done("a continuation", store.begin_run(continuing("r2", &run, decisions, 20)).await);
    done("a call", store.change_run(begin_call("r1", "call-1", "r2", "p1")).await);
    let result = NewNode {
        origin: NodeOrigin::Run,
        ..NewNode::user(begun.run.parent_id, Message::tool_result("call-1", "sent"))
    };
    done("an end", store.end_run(end(ada(), "r2", vec![result], 40)).await);
    let first = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    assert_eq!(first.approvals[0].executed, CallExecution::Done);
    assert_eq!(first.approvals[1].executed, CallExecution::No);
    assert_eq!(path(store, &key("t")).await.len(), 4, "each call has a result");
}

async fn results_of_the_client_are_added_once(store: &dyn Conversations) {
    let run = waiting_run_with(store, "t", "r1", &["call-3", "call-4"]).await;
    let before = thread(store, &key("t")).await;
    let result = |call: &str, text: &str| NewNode {
        origin: NodeOrigin::Client,
        ..NewNode::user(None, Message::tool_result(call, text))
    };
    let add = |results: Vec<NewNode>| change("r1", RunChange::AddResults(results), 10);
    let results =
        vec![result("call-3", "painted"), result("call-3", "painted again"), result("call-1", "forged")];
    let added = done("results", store.change_run(add(results)).await);
    assert!(added.is_changed);
    let pending: Vec<&str> = added.run.pending_calls().iter().map(|call| &**call).collect();
    assert_eq!((added.run.state, pending), (RunState::Waiting, vec!["call-4"]));
    assert_eq!(added.run.node_ids.len(), run.node_ids.len() + 1);
    let nodes = path(store, &key("t")).await;
    assert_eq!(texts(&nodes[2..]), ["painted"]);
    assert_eq!(added.run.node_ids.last(), nodes.last().map(|node| &node.id));
    let after = thread(store, &key("t")).await;
    assert_eq!((after.version, after.message_count), (before.version + 1, before.message_count + 1));
    assert_eq!((after.head.as_ref(), after.status), (added.run.node_ids.last(), ThreadStatus::Waiting));
    let again = done("again", store.change_run(add(vec![result("call-3", "late")])).await);
    assert_eq!(again, ChangedRun { run: added.run.clone(), is_changed: false });
    // The run that continues is below the results.
    let decisions = CALLS.map(|call| decision("r1", call, approve())).to_vec();
    done("a continuation", store.begin_run(continuing("r2", &added.run, decisions, 20)).await);
    let late = done("too late", store.change_run(add(vec![result("call-4", "late")])).await);
    assert!(!late.is_changed, "{late:?}");
    assert_eq!(path(store, &key("t")).await.len(), nodes.len());
}

/// Runs the tests of open questions, which expire, are withdrawn and are asked again.
pub(super) async fn questions_remain_open_for_their_time(make: &impl AsyncFn() -> Arc<dyn Conversations>) {
    questions_expire_and_are_withdrawn(&*make().await).await;
    questions_that_expire_free_their_thread(&*make().await).await;
    questions_are_asked_again_by_another_run(&*make().await).await;
}

async fn questions_expire_and_are_withdrawn(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let late = change("r1", RunChange::Decide(decision("r1", "call-1", approve())), 1000);
    let late = store.change_run(late).await;
    assert!(matches!(late, Err(ConversationError::ApprovalExpired)), "{late:?}");
    done("a continuation", store.begin_run(continuing("r2", &run, Vec::new(), 1000)).await);
    let first = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    let states: Vec<_> = first.approvals.iter().map(|approval| approval.state).collect();
    assert_eq!(states, [ApprovalState::Expired; CALLS.len()]);
    done("an end", store.end_run(end(ada(), "r2", Vec::new(), 40)).await);

    waiting_run(store, "r3").await;
    let cancel = change("r3", RunChange::CancelWaiting(CancelReason::Requested), 1100);
    let cancelled = done("a cancellation", store.change_run(cancel.clone()).await).run;
    assert_eq!((cancelled.state, cancelled.reason), (RunState::Cancelled, Some(CancelReason::Requested)));
    let states: Vec<_> = cancelled.approvals.iter().map(|approval| approval.state).collect();
    assert_eq!(states, [ApprovalState::Cancelled; CALLS.len()]);
    let again = done("again", store.change_run(cancel).await);
    assert_eq!(again, ChangedRun { run: cancelled, is_changed: false });
    let thread = thread(store, &key("t")).await;
    assert_eq!((thread.status, thread.open_run_id), (ThreadStatus::Idle, None));
    let missing = change("r9", RunChange::CancelWaiting(CancelReason::Requested), 1100);
    assert!(matches!(store.change_run(missing).await, Err(ConversationError::RunNotFound)));
}

/// Returns a run that asks the questions of `waiting` again, with its log until `at(5000)`.
fn reissue_interrupts(waiting: &Run, id: &str) -> ReissueInterruptsRequest {
    let outcome = waiting.outcome.clone().expect("questions");
    let mut log = ChunkWriter::default();
    log.push(&Event::RunStarted { thread_id: "t".into(), run_id: id.into() });
    log.push(&Event::RunFinished {
        thread_id: "t".into(),
        run_id: id.into(),
        result: None,
        outcome: Some(outcome.clone()),
        usage: Vec::new(),
    });
    let (chunks, until) = (log.take().into_iter().collect(), Some(at(5000)));
    ReissueInterruptsRequest {
        run_id: id.into(),
        trigger: RunTriggerKind::Resume.into(),
        process: "p1".to_owned(),
        outcome,
        log: LogEnd { chunks, until, ..LogEnd::default() },
    }
}

async fn questions_are_asked_again_by_another_run(store: &dyn Conversations) {
    let waiting = waiting_run(store, "r1").await;
    let asking =
        |id: &str| change("r1", RunChange::ReissueInterrupts(Box::new(reissue_interrupts(&waiting, id))), 20);
    let asked = done("a question", store.change_run(asking("r2")).await);
    assert_eq!((asked.run.state, asked.is_changed), (RunState::Waiting, false));
    let run = done("a read", store.run(&ada(), &"r2".into()).await).expect("the run");
    assert_eq!((run.state, &run.outcome), (RunState::Completed, &waiting.outcome));
    assert_eq!((run.turn_id.as_str(), &run.continues), ("r1", &Some("r1".into())));
    assert_eq!((run.ended_at, run.approvals.len(), run.node_ids.len()), (Some(at(20)), 0, 0));
    assert_eq!((run.events.count, run.events.complete), (2, true));
    let log = done("a log", store.events(&ada(), &"r2".into(), 0).await).expect("the run");
    assert_eq!(log.chunks, reissue_interrupts(&waiting, "r2").log.chunks);
    for used in ["r1", "r2"] {
        let refused = store.change_run(asking(used)).await;
        assert!(
            matches!(&refused, Err(ConversationError::RunIdUsed { run }) if run.id == used),
            "{used}: {refused:?}"
        );
    }

    // The questions still belong to the waiting run.
    let thread = thread(store, &key("t")).await;
    assert_eq!((thread.status, thread.open_run_id), (ThreadStatus::Waiting, Some("r1".into())));
    let listed = done("a list", store.waiting_runs(&"acme".into(), None).await).runs;
    assert_eq!(listed.iter().map(|(_, run)| run.id.as_str()).collect::<Vec<_>>(), ["r1"]);
    assert_eq!(done("a trim", store.trim_logs(at(5000)).await), 1);
    let decisions = CALLS.map(|call| decision("r1", call, approve())).to_vec();
    done("a continuation", store.begin_run(continuing("r3", &waiting, decisions, 30)).await);
    let first = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    assert_eq!((first.state, first.continued_by), (RunState::Completed, Some("r3".into())));
}

async fn questions_that_expire_free_their_thread(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let expire = |run: &str, ms| change(run, RunChange::Expire, ms);
    let early = done("too early", store.change_run(expire("r1", 999)).await);
    assert_eq!(early, ChangedRun { run: run.clone(), is_changed: false }, "it waits");
    let deny = Verdict::Deny { reason: Some("No".to_owned()) };
    done(
        "a denial",
        store.change_run(change("r1", RunChange::Decide(decision("r1", "call-1", deny)), 10)).await,
    );
    let before = thread(store, &key("t")).await;
    assert_eq!(
        done("too early", store.due_runs(at(999), None).await).runs,
        [],
        "a run with an open question is not due"
    );
    let page = done("a scan", store.due_runs(at(1000), None).await);
    let due: Vec<_> = page.runs.iter().map(|(owner, run)| (owner.clone(), run.id.clone())).collect();
    assert_eq!((due, page.next_cursor), (vec![(ada(), run.id.clone())], None));
    let ChangedRun { run: ended, is_changed } = done("expired", store.change_run(expire("r1", 1000)).await);
    assert!(is_changed);
    let states: Vec<_> = ended.approvals.iter().map(|approval| approval.state).collect();
    assert_eq!(states, [ApprovalState::Denied, ApprovalState::Expired]);
    assert_eq!((ended.state, ended.ended_at), (RunState::Completed, Some(at(1000))));
    let again = done("again", store.change_run(expire("r1", 2000)).await);
    assert_eq!(again, ChangedRun { run: ended.clone(), is_changed: false });
    assert_eq!(done("a scan", store.due_runs(at(2000), None).await).runs, [], "nothing waits");
    let after = thread(store, &key("t")).await;
    assert_eq!((after.status, after.open_run_id), (ThreadStatus::Idle, None));
    assert_eq!((after.version, after.last_activity_at), (before.version + 1, before.last_activity_at));
    let path = path(store, &key("t")).await;
    let results: Vec<String> = texts(&path).split_off(2);
    assert_eq!(results.len(), 2, "each call has a result: {results:?}");
    assert!(results[0].contains("denied it, and says: No"), "{results:?}");
    assert!(results[1].contains("in time"), "{results:?}");
    assert_eq!(after.head.as_ref(), path.last().map(|node| &node.id));
    assert_eq!(ended.node_ids.len(), run.node_ids.len() + 2);
    // The next message continues below the results.
    done("a begin", store.begin_run(begin(key("t"), "r2", after.head.as_ref(), "More", 3000)).await);
    done("an end", store.end_run(end(ada(), "r2", Vec::new(), 3001)).await);
    // An approved call is not dropped, and an open question is not closed.
    waiting_run(store, "r3").await;
    let approved = change("r3", RunChange::Decide(decision("r3", "call-1", approve())), 20);
    let approved = done("an approval", store.change_run(approved).await).run;
    let kept = done("expired", store.change_run(expire("r3", 1000)).await);
    assert_eq!(kept, ChangedRun { run: approved, is_changed: false });
    let wrong = store.due_runs(at(1000), Some("?")).await;
    assert!(matches!(wrong, Err(ConversationError::Invalid(_))), "{wrong:?}");
}

pub(super) async fn due_runs_are_read_in_pages(store: &dyn Conversations) {
    let ids: Vec<String> = (0..MAX_REAPED_RUNS + 2).map(|number| format!("r{number}")).collect();
    for id in &ids {
        waiting_run_in(store, &format!("thread of {id}"), id).await;
    }
    // Its last decision makes a run due before the others.
    for (call, ms) in [("call-1", 10), ("call-2", 20)] {
        let deny = RunChange::Decide(decision("r7", call, Verdict::Deny { reason: None }));
        let decided = done("a decision", store.change_run(change("r7", deny, ms)).await).run;
        assert_eq!(decided.due_at(), Some(at(if ms == 20 { 20 } else { 1000 })));
    }
    let page = done("a page", store.due_runs(at(20), None).await);
    let due: Vec<&str> = page.runs.iter().map(|(_, run)| run.id.as_str()).collect();
    assert_eq!((due, page.next_cursor), (vec!["r7"], None));
    let first = done("a page", store.due_runs(at(1000), None).await);
    assert_eq!((first.runs.len(), first.runs[0].1.id.as_str()), (MAX_REAPED_RUNS, "r7"));
    let second = done("a page", store.due_runs(at(1000), first.next_cursor.as_deref()).await);
    assert_eq!((second.runs.len(), second.next_cursor), (2, None));
    let mut run_ids: Vec<String> =
        first.runs.iter().chain(&second.runs).map(|(_, run)| run.id.to_string()).collect();
    let mut expected = ids;
    expected.sort();
    run_ids.sort();
    assert_eq!(run_ids, expected, "each run is on exactly one page");
}

pub(super) async fn waiting_runs_are_read_in_pages(store: &dyn Conversations) {
    let ids: Vec<String> = (0..MAX_PAGE_THREADS + 2).map(|number| format!("r{number:03}")).collect();
    for id in &ids {
        waiting_run_in(store, &format!("thread of {id}"), id).await;
    }
    let company = "acme".into();
    let first = done("a page", store.waiting_runs(&company, None).await);
    let second = done("a page", store.waiting_runs(&company, first.next_cursor.as_deref()).await);
    assert_eq!((first.runs.len(), second.runs.len()), (MAX_PAGE_THREADS, 2));
    assert_eq!(second.next_cursor, None);
    let run_ids: Vec<&str> = first.runs.iter().chain(&second.runs).map(|(_, run)| run.id.as_str()).collect();
    assert!(
        run_ids.iter().eq(ids.iter().rev()),
        "the newest run first, each on exactly one page: {run_ids:?}"
    );
    let wrong = store.waiting_runs(&company, Some("x")).await;
    assert!(matches!(wrong, Err(ConversationError::Invalid(_))), "{wrong:?}");
}

pub(super) async fn erased_messages_leave_no_arguments(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let answer = run.node_ids.last().expect("an answer");
    done("an erasure", store.erase_node(&key("t"), answer).await);
    let run = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    assert!(!serde_json::to_string(&run).expect("JSON").contains("bob"), "{run:?}");
}

pub(super) async fn erased_calls_are_not_made(store: &dyn Conversations) {
    let run = waiting_run(store, "r1").await;
    let approved = RunChange::Decide(decision("r1", CALLS[0], approve()));
    done("a decision", store.change_run(change("r1", approved, 10)).await);
    let answer = run.node_ids.last().expect("an answer");
    done("an erasure", store.erase_node(&key("t"), answer).await);
    let run = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
    assert!(run.approvals.iter().all(|approval| approval.state == ApprovalState::Cancelled), "{run:?}");
    let late = RunChange::Decide(decision("r1", CALLS[1], approve()));
    let late = store.change_run(change("r1", late, 20)).await;
    assert!(matches!(late, Err(ConversationError::ApprovalDecided { .. })), "{late:?}");
    done("a beginning", store.begin_run(continuing("r2", &run, Vec::new(), 20)).await);
    let begun = store.change_run(begin_call("r1", CALLS[0], "r2", "p1")).await;
    assert!(matches!(begun, Err(ConversationError::CallRefused)), "{begun:?}");
}

pub(super) async fn erased_calls_of_the_client_are_not_waited_for(store: &dyn Conversations) {
    let begun = done("a beginning", store.begin_run(begin(key("t"), "r1", None, "Show both", 0)).await);
    let mut parent = begun.nodes.last().map(|node| node.id.clone());
    let answers = CALLS.map(|call| {
        let message = Message::with_tool_calls("", vec![ToolCall::new(call, "show", "{}")]);
        let node = NewNode { origin: NodeOrigin::Run, ..NewNode::user(parent.take(), message) };
        parent = Some(node.id.clone());
        node
    });
    let ids = answers.each_ref().map(|node| node.id.clone());
    let outcome = RunOutcome::Success { pending_tool_call_ids: CALLS.map(Into::into).to_vec() };
    let ending = RunEnding { kind: RunEndKind::Suspended(outcome), ..RunEnding::default() };
    done("an end", store.end_run(EndRunRequest { ending, ..end(ada(), "r1", answers.to_vec(), 5) }).await);
    assert_eq!(thread(store, &key("t")).await.status, ThreadStatus::AwaitingTools);
    for (erased, pending, status) in
        [(&ids[0], &CALLS[1..], ThreadStatus::AwaitingTools), (&ids[1], &CALLS[2..], ThreadStatus::Idle)]
    {
        let changed = done("an erasure", store.erase_node(&key("t"), erased).await);
        assert_eq!(changed.status, status);
        assert_eq!(changed.open_run_id.is_some(), status == ThreadStatus::AwaitingTools);
        assert_eq!(thread(store, &key("t")).await, changed);
        let run = done("a read", store.run(&ada(), &"r1".into()).await).expect("the run");
        let left: Vec<&str> = run.pending_calls().iter().map(|call| &**call).collect();
        assert_eq!((run.state, left), (RunState::Completed, pending.to_vec()));
    }
}

pub(super) async fn messages_below_calls_of_the_client_end_the_wait(store: &dyn Conversations) {
    let begun = done("a beginning", store.begin_run(begin(key("t"), "r1", None, "Show it", 0)).await);
    let question = begun.nodes.last().map(|node| node.id.clone());
    let message = Message::with_tool_calls("", vec![ToolCall::new(CALLS[0], "show", "{}")]);
    let answer = NewNode { origin: NodeOrigin::Run, ..NewNode::user(question.clone(), message) };
    let call = answer.id.clone();
    let outcome = RunOutcome::Success { pending_tool_call_ids: vec![CALLS[0].into()] };
    let ending = RunEnding { kind: RunEndKind::Suspended(outcome), ..RunEnding::default() };
    done("an end", store.end_run(EndRunRequest { ending, ..end(ada(), "r1", vec![answer], 5) }).await);
    let elsewhere = vec![user(question.as_ref(), "another branch")];
    let added = done("a message", store.append(&key("t"), None, elsewhere, at(6)).await).thread;
    assert_eq!(added.status, ThreadStatus::AwaitingTools);
    let select = ThreadPatch { head: Some(call.clone()), ..ThreadPatch::default() };
    done("a change", store.patch(&key("t"), select, at(7)).await);
    let added = done("a message", store.append(&key("t"), None, vec![user(Some(&call), "on")], at(8)).await);
    assert_eq!((added.thread.status, &added.thread.open_run_id), (ThreadStatus::Idle, &None));
    assert_eq!(thread(store, &key("t")).await, added.thread);
}
