//! Runs: beginning, end, busy threads, used ids and lost processes.

use std::sync::Arc;

use agent_core::prompt::{PromptTokens, Stability};
use agent_core::select::{BackendKind, SelectionRule};
use futures_util::future::join_all;

use super::support::*;
use crate::conversation::{
    BeginRunRequest, BegunRun, CancelReason, ConversationError, Conversations, EndRunRequest, NewNode,
    NodeId, NodeStatus, OnDisconnect, PromptCacheLine, PublicRunError, RUN_INTERRUPTED, RoundTiming,
    RunEndKind, RunEnding, RunLease, RunPrompt, RunPromptPart, RunPromptTool, RunRecord, RunSelection,
    RunState, RunTiming, RunTriggerKind, Siblings, ThreadOwner, ThreadStatus,
};
use crate::fallback::AttemptReport;
use crate::preview::PartPlacement;

pub(super) async fn a_run_begins_and_ends_in_one_commit_each(store: &dyn Conversations) {
    let request = BeginRunRequest {
        on_disconnect: OnDisconnect::Continue,
        grace_ms: Some(7),
        backend: Some("openai".to_owned()),
        ..begin(key("t"), "r1", None, "Hello\nthere", 0)
    };
    let begun = done("begin", store.begin_run(request).await);
    assert_eq!(
        (begun.run.state, begun.run.started_at, begun.run.ended_at),
        (RunState::Running, Some(at(0)), None)
    );
    assert_eq!(
        (begun.thread.status, begun.thread.active_run_id.as_deref()),
        (ThreadStatus::Running, Some("r1"))
    );
    assert_eq!(
        (begun.thread.title.as_str(), begun.thread.version),
        ("Hello", 1),
        "the title is set when the run begins"
    );
    assert_eq!(begun.run.node_ids, [begun.nodes[0].id.clone()]);
    assert_eq!((begun.nodes[0].turn_id.as_str(), begun.nodes[0].run_id.as_deref()), ("r1", Some("r1")));
    assert_eq!(thread(store, &key("t")).await, begun.thread, "the returned thread is the stored one");
    assert_eq!(path(store, &key("t")).await, begun.nodes);
    assert_eq!(done("run", store.run(&ada(), &run_id("r1")).await), Some(begun.run.clone()));

    let user = begun.nodes[0].id.clone();
    let nodes = vec![answer("a1", &user, "one"), answer("a2", &"a1".into(), "two")];
    let ended = done(
        "end",
        store
            .end_run(EndRunRequest { request_sha256: Some("00".to_owned()), ..end(ada(), "r1", nodes, 9) })
            .await,
    );
    assert_eq!((ended.run.state, ended.run.ended_at), (RunState::Completed, Some(at(9))));
    assert_eq!(
        (ended.run.request_sha256.as_deref(), ended.run.backend.as_deref()),
        (Some("00"), Some("openai"))
    );
    assert_eq!(ended.run.node_ids, [user.clone(), "a1".into(), "a2".into()]);
    assert_eq!((ended.thread.status, &ended.thread.active_run_id), (ThreadStatus::Idle, &None));
    assert_eq!(ended.thread.head, Some("a2".into()), "the head moves to the answer");
    assert_eq!((ended.thread.message_count, ended.thread.last_activity_at), (3, at(9)));
    assert_eq!(thread(store, &key("t")).await, ended.thread);
    assert_eq!(done("run", store.run(&ada(), &run_id("r1")).await), Some(ended.run.clone()));
    assert_eq!(texts(&path(store, &key("t")).await), ["Hello\nthere", "one", "two"]);
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    assert_eq!(links, [begun.links, ended.links].concat(), "each commit returns the links that it added");

    let again = store.end_run(end(ada(), "r1", Vec::new(), 10)).await;
    assert!(
        matches!(again, Err(ConversationError::RunEnded { run }) if *run == ended.run),
        "a run ends once"
    );
    let never = store.end_run(end(ada(), "r0", Vec::new(), 10)).await;
    assert!(matches!(never, Err(ConversationError::RunNotFound)), "{never:?}");
    let foreign = store.end_run(end(ThreadOwner::new("acme", "bob"), "r1", Vec::new(), 10)).await;
    assert!(matches!(foreign, Err(ConversationError::RunNotFound)), "{foreign:?}");
    runs_end_in_each_state(store).await;
}

/// Runs and ends further turns below the answer `a2`.
async fn runs_end_in_each_state(store: &dyn Conversations) {
    for (at_ms, kind, state) in [
        (20, RunEndKind::Cancelled(CancelReason::Disconnected), RunState::Cancelled),
        (30, RunEndKind::Failed(PublicRunError { code: "X".into(), message: "no".into() }), RunState::Failed),
        (40, RunEndKind::Interrupted, RunState::Interrupted),
    ] {
        let run = format!("r{at_ms}");
        done("begin", store.begin_run(begin(key("t"), &run, Some(&"a2".into()), "next", at_ms)).await);
        let ending = RunEnding { kind, ..RunEnding::default() };
        let ended =
            done("end", store.end_run(EndRunRequest { ending, ..end(ada(), &run, Vec::new(), at_ms) }).await);
        assert_eq!((ended.run.state, ended.thread.status), (state, ThreadStatus::Idle));
        assert_eq!(done("run", store.run(&ada(), &run_id(&run)).await), Some(ended.run));
    }
}

/// Returns the attempts at a call that a fallback has answered.
fn attempts() -> Vec<AttemptReport> {
    let failed = AttemptReport {
        round: 1,
        attempt: Some(1),
        provider: "openai".to_owned(),
        model: "m \u{0}".to_owned(),
        reason: Some("BACKEND_FAILED".to_owned()),
        status: Some(503),
        waited_ms: 5,
        request_sha256: Some("11".to_owned()),
        ..AttemptReport::default()
    };
    let answered = AttemptReport { entry: 1, reason: None, status: None, ..failed.clone() };
    vec![failed, answered]
}

pub(super) async fn the_record_of_a_run_is_kept_with_it(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "Hello", 0)).await);
    let round =
        RoundTiming { started_ms: 2, output_tokens: Some(7), attempts: Some(1), ..RoundTiming::default() };
    let timing = RunTiming { queued_ms: Some(1), rounds: vec![round], ..RunTiming::default() };
    let selection = RunSelection {
        backend: BackendKind::Embedded,
        rule: Some(SelectionRule::EmbeddedAi),
        container: None,
    };
    let part = RunPromptPart {
        id: "rules \u{0}".to_owned(),
        source: "role".to_owned(),
        stability: Stability::Role,
        placement: PartPlacement::System,
        tokens: 3,
        bytes: 9,
        sha256: "00".to_owned(),
        content: None,
    };
    let prompt = RunPrompt {
        request_sha256: "11".to_owned(),
        backend: BackendKind::Embedded,
        parts: vec![part],
        tools: vec![RunPromptTool { name: "look".to_owned(), sha256: "22".to_owned(), tokens: 4 }],
        messages: 1,
        tokens: PromptTokens { system: 3, tools: 4, messages: 5 },
        token_counter: "estimate".to_owned(),
        trimmed_messages: 2,
        cache: PromptCacheLine {
            reusable_share: Some(0.5),
            previous_run_id: Some("r0".into()),
            ..PromptCacheLine::default()
        },
    };
    let attempts = attempts();
    let record = RunRecord {
        timing: Some(timing.clone()),
        selection: Some(selection.clone()),
        prompt: Some(Box::new(prompt.clone())),
        attempts: attempts.clone(),
    };
    done("end", store.end_run(EndRunRequest { record, ..end(ada(), "r1", Vec::new(), 9) }).await);
    let run = done("run", store.run(&ada(), &run_id("r1")).await).expect("the run");
    assert_eq!(
        (run.timing, run.selection, run.prompt),
        (Some(timing), Some(selection), Some(Box::new(prompt)))
    );
    assert_eq!(run.attempts, attempts);
    // The data about a message is erased with it.
    done("erase", store.erase_node(&key("t"), &run.node_ids[0]).await);
    let run = done("run", store.run(&ada(), &run_id("r1")).await).expect("the run");
    assert_eq!((run.prompt, run.timing.is_some()), (None, true));
}

pub(super) async fn a_regenerated_answer_is_a_sibling_of_the_first(store: &dyn Conversations) {
    let (begun, first) = turn(store, &key("t"), "r1", None, 0).await;
    let question = begun.nodes[0].id.clone();
    let request = BeginRunRequest {
        nodes: Vec::new(),
        parent_id: Some(question.clone()),
        trigger: RunTriggerKind::Regenerate.into(),
        ..begin(key("t"), "r2", None, "", 10)
    };
    let begun = done("begin", store.begin_run(request).await);
    assert_eq!(
        begun.thread.head, first.thread.head,
        "the first answer stays the head until a new answer exists"
    );
    let node = NewNode { status: NodeStatus::Cancelled, ..answer("second", &question, "Hello again") };
    let ended = done("end", store.end_run(end(ada(), "r2", vec![node], 11)).await);
    assert_eq!(ended.nodes[0].siblings, Siblings { index: 1, count: 2 });
    assert_eq!(ended.nodes[0].status, NodeStatus::Cancelled);
    assert_eq!(texts(&path(store, &key("t")).await), ["Hello", "Hello again"]);
    let missing = BeginRunRequest {
        nodes: Vec::new(),
        parent_id: Some("none".into()),
        ..begin(key("t"), "r3", None, "", 20)
    };
    let refused = store.begin_run(missing).await;
    assert!(matches!(refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
}

pub(super) async fn a_busy_thread_refuses_other_runs(store: &dyn Conversations) {
    done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    done("begin", store.begin_run(begin(key("other"), "r2", None, "one", 0)).await);
    let refused = store.begin_run(begin(key("t"), "r3", None, "two", 1)).await;
    assert!(
        matches!(&refused, Err(ConversationError::ThreadBusy { active_run }) if *active_run == *"r1"),
        "a second run of a thread is refused, and told which one is active: {refused:?}"
    );
    assert!(
        done("run", store.run(&ada(), &run_id("r3")).await).is_none(),
        "the id of a refused run stays unused"
    );
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 2)).await);
    done("begin", store.begin_run(begin(key("t"), "r3", None, "two", 3)).await);
}

pub(super) async fn a_used_run_id_is_refused_whatever_the_thread(store: &dyn Conversations) {
    let begun = done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    let is_used = |refused: &Result<BegunRun, ConversationError>, state: RunState| matches!(refused, Err(ConversationError::RunIdUsed { run }) if *run.id == *"r1" && run.state == state);
    for thread in ["t", "other"] {
        let refused = store.begin_run(begin(key(thread), "r1", None, "two", 1)).await;
        assert!(is_used(&refused, RunState::Running), "{thread}: {refused:?}");
    }
    done("end", store.end_run(end(ada(), "r1", Vec::new(), 2)).await);
    let refused = store.begin_run(begin(key("t"), "r1", None, "two", 3)).await;
    assert!(is_used(&refused, RunState::Completed), "{refused:?}");
    assert!(done("thread", store.thread(&key("other")).await).is_none(), "a refused run makes no thread");
    assert_eq!(path(store, &key("t")).await, begun.nodes, "a refused run adds no message");
}

pub(super) async fn a_refused_run_writes_nothing(store: &dyn Conversations) {
    let (_, ended) = turn(store, &key("t"), "r1", None, 0).await;
    let version = ended.thread.version;
    let head = ended.thread.head.clone();
    let refused = store
        .begin_run(BeginRunRequest { agent_id: "cook".into(), ..begin(key("t"), "r2", None, "x", 5) })
        .await;
    assert!(
        matches!(&refused, Err(ConversationError::AgentMismatch { agent }) if *agent == "gardener"),
        "{refused:?}"
    );
    for expected in [0, version + 1] {
        let stale =
            BeginRunRequest { expected_version: Some(expected), ..begin(key("t"), "r2", None, "x", 5) };
        let refused = store.begin_run(stale).await;
        assert!(
            matches!(&refused, Err(ConversationError::VersionConflict { found }) if *found == version),
            "{refused:?}"
        );
    }
    let orphan = begin(key("t"), "r2", Some(&"none".into()), "x", 5);
    let refused = store.begin_run(orphan).await;
    assert!(matches!(&refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
    assert_eq!(thread(store, &key("t")).await, ended.thread, "a refused run changes no thread");
    let absent = BeginRunRequest { expected_version: Some(1), ..begin(key("new"), "r2", None, "x", 5) };
    let refused = store.begin_run(absent).await;
    assert!(matches!(&refused, Err(ConversationError::VersionConflict { found: 0 })), "{refused:?}");
    let fresh = BeginRunRequest { expected_version: Some(0), ..begin(key("new"), "r2", None, "x", 5) };
    done("begin", store.begin_run(fresh).await);
    let current =
        BeginRunRequest { expected_version: Some(version), ..begin(key("t"), "r3", head.as_ref(), "x", 5) };
    done("begin", store.begin_run(current).await);
}

pub(super) async fn a_run_of_a_lost_process_does_not_block_its_thread(store: &dyn Conversations) {
    let begun = done("begin", store.begin_run(begin(key("t"), "r1", None, "one", 0)).await);
    let other = |run: &str, ms: i64| BeginRunRequest {
        lease: RunLease { process: "p2".to_owned(), until: at(ms + 10_000) },
        ..begin(key("t"), run, Some(&begun.nodes[0].id), "two", ms)
    };
    let busy = store.begin_run(other("r2", 9_999)).await;
    assert!(
        matches!(busy, Err(ConversationError::ThreadBusy { .. })),
        "the thread is busy while the lease is valid: {busy:?}"
    );
    done("renew", store.renew_lease(&lease(13_000)).await);
    let busy = store.begin_run(other("r2", 12_999)).await;
    assert!(
        matches!(busy, Err(ConversationError::ThreadBusy { .. })),
        "the thread is busy while the renewed lease is valid: {busy:?}"
    );
    assert!(
        matches!(store.interrupt_expired(&ada(), &run_id("r1"), clock(12_999)).await, Ok(Some(run)) if run == begun.run),
        "a run is not interrupted while its lease is valid"
    );
    let lost = done("interrupt", store.interrupt_expired(&ada(), &run_id("r1"), clock(13_000)).await);
    let lost = lost.expect("the run of the lost process");
    assert_eq!(
        (lost.id.as_str(), lost.state, lost.ended_at),
        ("r1", RunState::Interrupted, Some(at(13_000)))
    );
    let taken = done("begin", store.begin_run(other("r2", 13_000)).await);
    assert_eq!(lost.error.as_ref().map(|error| error.code.as_str()), Some(RUN_INTERRUPTED));
    assert_eq!(done("run", store.run(&ada(), &run_id("r1")).await), Some(lost.clone()));
    assert_eq!(taken.thread.active_run_id.as_deref(), Some("r2"));
    let late =
        store.end_run(end(ada(), "r1", vec![answer("late", &begun.nodes[0].id, "late")], 13_001)).await;
    assert!(
        matches!(late, Err(ConversationError::RunEnded { run }) if *run == lost),
        "a late process learns that its run has ended"
    );
    let foreign = store.end_run(end(ada(), "r2", Vec::new(), 13_002)).await;
    assert!(
        matches!(foreign, Err(ConversationError::RunEnded { .. })),
        "a process cannot end another process's run: {foreign:?}"
    );
    assert_eq!(texts(&path(store, &key("t")).await), ["one", "two"]);
    let mine = EndRunRequest { process: "p2".to_owned(), ..end(ada(), "r2", Vec::new(), 13_003) };
    done("end", store.end_run(mine).await);
}

pub(super) async fn lost_runs_are_reaped(store: &dyn Conversations) {
    for (at_ms, thread) in (0..).zip(["a", "b", "c"]) {
        done("begin", store.begin_run(begin(key(thread), &format!("r{thread}"), None, "x", at_ms)).await);
    }
    done("end", store.end_run(end(ada(), "rb", Vec::new(), 5)).await);
    assert_eq!(done("reap", store.reap(clock(10_001)).await), 0, "the lease of the latest run counts");
    assert_eq!(
        done("reap", store.reap(clock(10_002)).await),
        2,
        "all runs that have not ended are interrupted"
    );
    assert_eq!(done("reap", store.reap(clock(10_003)).await), 0, "once");
    for (thread_id, state) in
        [("a", RunState::Interrupted), ("b", RunState::Completed), ("c", RunState::Interrupted)]
    {
        let run = done("run", store.run(&ada(), &run_id(&format!("r{thread_id}"))).await).expect("a run");
        assert_eq!(run.state, state);
        let freed = thread(store, &key(thread_id)).await;
        assert_eq!((freed.status, freed.active_run_id), (ThreadStatus::Idle, None));
        assert_eq!(texts(&path(store, &key(thread_id)).await), ["x"], "the user's message is kept");
    }
}

pub(super) async fn a_continued_run_belongs_to_the_turn(store: &dyn Conversations) {
    let (_, ended) = turn(store, &key("t"), "r1", None, 0).await;
    let request = BeginRunRequest {
        continues: Some("r1".into()),
        nodes: Vec::new(),
        parent_id: ended.thread.head.clone(),
        ..begin(key("t"), "r2", None, "", 10)
    };
    let begun = done("begin", store.begin_run(request).await);
    assert_eq!((begun.run.turn_id.as_str(), begun.run.continues.as_deref()), ("r1", Some("r1")));
    let first = done("run", store.run(&ada(), &run_id("r1")).await).expect("a run");
    assert_eq!(first.continued_by.as_deref(), Some("r2"));
    let head = ended.thread.head.expect("a head");
    let ended = done("end", store.end_run(end(ada(), "r2", vec![answer("more", &head, "more")], 11)).await);
    assert_eq!((ended.nodes[0].turn_id.as_str(), ended.nodes[0].run_id.as_deref()), ("r1", Some("r2")));
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    assert!(links.iter().all(|link| link.turn_id == *"r1"));
}

pub(super) async fn repeated_ids_of_a_vendor_are_made_unique(store: &dyn Conversations) {
    let mut parent = None;
    for (at_ms, run) in (0..).zip(["r1", "r2"]) {
        let begun = done("begin", store.begin_run(begin(key("t"), run, parent.as_ref(), run, at_ms)).await);
        let user = begun.nodes[0].id.clone();
        let nodes = vec![answer("msg-1", &user, "one"), answer("msg-2", &"msg-1".into(), "two")];
        parent = done("end", store.end_run(end(ada(), run, nodes, at_ms)).await).thread.head;
    }
    assert_eq!(texts(&path(store, &key("t")).await), ["r1", "one", "two", "r2", "one", "two"]);
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    assert_eq!((links[1].id.as_str(), &links[1].client_id), ("msg-1", &None));
    assert_eq!(links[4].client_id.as_deref(), Some("msg-1"), "the vendor's id is kept as the client id");
    let ids: std::collections::HashSet<&NodeId> = links.iter().map(|link| &link.id).collect();
    assert_eq!(ids.len(), 6, "node ids are unique");
}

pub(super) async fn one_of_a_hundred_concurrent_runs_begins(store: Arc<dyn Conversations>) {
    for round in 0..3 {
        let begin = |n: i32| {
            let store = store.clone();
            async move { store.begin_run(begin(key("t"), &format!("r{round}-{n}"), None, "x", round)).await }
        };
        let outcomes = join_all((0..100).map(begin)).await;
        let busy = |outcome: &&Result<_, _>| matches!(outcome, Err(ConversationError::ThreadBusy { .. }));
        let begun: Vec<&BegunRun> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        assert_eq!(
            (begun.len(), outcomes.iter().filter(busy).count()),
            (1, 99),
            "one of many runs of an idle thread begins, and the others are refused as busy: {:?}",
            outcomes.iter().find(|outcome| outcome.is_err() && !busy(outcome))
        );
        let stored_thread = thread(&*store, &key("t")).await;
        assert_eq!(stored_thread.message_count, round as u32 + 1, "refused runs add no messages");
        done("end", store.end_run(end(ada(), &begun[0].run.id, Vec::new(), round)).await);
    }
    let same = |_| {
        let store = store.clone();
        async move { store.begin_run(begin(key("same"), "same", None, "x", 0)).await }
    };
    let outcomes = join_all((0..20).map(same)).await;
    let used = |outcome: &&Result<_, _>| matches!(outcome, Err(ConversationError::RunIdUsed { .. }));
    assert_eq!(outcomes.iter().filter(used).count(), 19, "one of many runs of the same id begins");
}
