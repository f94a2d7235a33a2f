//! Decisions at once with other decisions, with the expiry of their questions, and with messages.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::message::Role;
use futures_util::future::{join, join_all};

use super::approvals::{CALLS, approve, change, decision, waiting_run_in};
use super::support::*;
use crate::conversation::{
    ApprovalState, BeginRunRequest, ChangedRun, ChunkWriter, ConversationError, Conversations, LogChunk, Run,
    RunChange, RunChunk, RunKey, RunState, ThreadKey, ThreadStatus, Verdict,
};

/// Number of rounds of each race.
const ROUNDS: usize = 12;
/// Time at which the questions of [`waiting_run_in`] expire.
const EXPIRY_MS: i64 = 1000;

/// Returns the beginning of a run that continues `run` in its thread with decisions about all its calls.
fn continuing(run: &Run, id: &str, verdict: &Verdict, ms: i64) -> BeginRunRequest {
    BeginRunRequest {
        continues: Some(run.id.clone()),
        decisions: CALLS.map(|call| decision(&run.id, call, verdict.clone())).to_vec(),
        parent_id: run.node_ids.last().cloned(),
        nodes: Vec::new(),
        ..begin(thread_of(run), id, None, "", ms)
    }
}

fn thread_of(run: &Run) -> ThreadKey {
    key(run.thread_id.as_str())
}

async fn read_run(store: &dyn Conversations, id: &str) -> Run {
    done("a read", store.run(&ada(), &run_id(id)).await).expect("the run")
}

fn states(run: &Run) -> Vec<ApprovalState> {
    run.approvals.iter().map(|approval| approval.state).collect()
}

/// Polls two futures together, the second one first if `is_reversed`.
async fn join_in_order<A, B>(
    is_reversed: bool,
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    if is_reversed {
        let (second, first) = join(second, first).await;
        return (first, second);
    }
    join(first, second).await
}

pub(super) async fn one_of_many_concurrent_decisions_counts(store: Arc<dyn Conversations>) {
    let deny = || Verdict::Deny { reason: None };
    for round in 0..ROUNDS {
        let id = format!("r{round}");
        waiting_run_in(&*store, &format!("thread {round}"), &id).await;
        let decide = |number: usize| {
            let verdict = if (number + round).is_multiple_of(2) { approve() } else { deny() };
            let (store, id) = (store.clone(), id.clone());
            async move {
                let decide = RunChange::Decide(decision(&id, CALLS[0], verdict.clone()));
                (verdict, store.change_run(change(&id, decide, 10)).await)
            }
        };
        let outcomes = join_all((0..8).map(decide)).await;
        let stored = read_run(&*store, &id).await.approvals[0].state;
        let is_stored = |verdict: &Verdict| match verdict {
            Verdict::Approve { .. } => stored == ApprovalState::Approved,
            _ => stored == ApprovalState::Denied,
        };
        let mut changed = 0;
        for (verdict, outcome) in &outcomes {
            match outcome {
                Ok(ChangedRun { is_changed, run }) => {
                    assert!(is_stored(verdict), "an accepted decision is stored: {verdict:?}, {stored:?}");
                    assert_eq!(run.approvals[0].state, stored);
                    changed += usize::from(*is_changed);
                }
                Err(ConversationError::ApprovalDecided { state }) => {
                    assert!(!is_stored(verdict) && *state == stored, "{verdict:?}, {stored:?}");
                }
                Err(error) => panic!("{verdict:?}: {error:?}"),
            }
        }
        assert_eq!(changed, 1, "exactly one caller's decision is accepted: {outcomes:?}");
    }
}

pub(super) async fn a_decision_and_the_expiry_exclude_each_other(store: Arc<dyn Conversations>) {
    for round in 0..ROUNDS {
        let (waiting, next) = (format!("r{round}"), format!("next of {round}"));
        let run = waiting_run_in(&*store, &format!("thread {round}"), &waiting).await;
        // The clocks of two processes differ by a millisecond, or show exactly the time of the expiry.
        let ms = EXPIRY_MS - i64::from(round % 3 > 0);
        let begun = store.begin_run(continuing(&run, &next, &approve(), ms));
        let expired = store.change_run(change(&waiting, RunChange::Expire, EXPIRY_MS));
        let (begun, expired) = join_in_order(!round.is_multiple_of(2), begun, expired).await;
        let ChangedRun { run: stored, is_changed } = done("an expiry", expired);
        let freed = thread(&*store, &thread_of(&run)).await;
        assert_eq!(stored.state, RunState::Completed, "{round}");
        match begun {
            Ok(_) => {
                assert!(ms < EXPIRY_MS && !is_changed, "{round}: a decision in time counts");
                assert_eq!(states(&read_run(&*store, &waiting).await), [ApprovalState::Approved; 2]);
                assert_eq!((freed.status, freed.message_count), (ThreadStatus::Running, 2), "{round}");
                done("an end", store.end_run(end(ada(), &next, Vec::new(), EXPIRY_MS)).await);
            }
            Err(ConversationError::ApprovalExpired) => {
                assert!(is_changed, "{round}");
                assert_eq!(states(&stored), [ApprovalState::Expired; 2]);
                assert_eq!(freed.status, ThreadStatus::Idle);
                assert_eq!(done("a read", store.run(&ada(), &run_id(&next)).await), None, "{round}");
            }
            Err(error) => panic!("{round}: {error:?}"),
        }
        let nodes = path(&*store, &thread_of(&run)).await;
        let messages = nodes.iter().filter_map(|node| node.message.as_message());
        let results = messages.filter(|message| message.role == Role::Tool).count();
        assert_eq!(results, 2, "{round}: one for each call");
    }
}

pub(super) async fn a_clock_set_back_reopens_no_expired_approval(store: &dyn Conversations) {
    let run = waiting_run_in(store, "t", "r1").await;
    let decide = |ms| {
        let decide = RunChange::Decide(decision("r1", CALLS[0], approve()));
        store.change_run(change("r1", decide, ms))
    };
    // A late decision stores nothing; with the clock set back, the question is still open.
    assert!(matches!(decide(EXPIRY_MS).await, Err(ConversationError::ApprovalExpired)));
    assert_eq!(read_run(store, "r1").await, run);
    done("an expiry", store.change_run(change("r1", RunChange::Expire, EXPIRY_MS)).await);
    for ms in [0, EXPIRY_MS - 1, EXPIRY_MS] {
        assert!(matches!(decide(ms).await, Err(ConversationError::ApprovalExpired)), "{ms}");
        let begun = store.begin_run(continuing(&run, "r2", &approve(), ms)).await;
        assert!(matches!(begun, Err(ConversationError::ApprovalExpired)), "{ms}: {begun:?}");
    }
    assert_eq!(thread(store, &key("t")).await.status, ThreadStatus::Idle);
}

pub(super) async fn a_message_and_the_last_decision_exclude_each_other(store: Arc<dyn Conversations>) {
    for round in 0..ROUNDS {
        let (waiting, decided, message_run) = (format!("r{round}"), format!("d{round}"), format!("m{round}"));
        let run = waiting_run_in(&*store, &format!("thread {round}"), &waiting).await;
        let version = thread(&*store, &thread_of(&run)).await.version;
        let decide =
            BeginRunRequest { expected_version: Some(version), ..continuing(&run, &decided, &approve(), 10) };
        let message = BeginRunRequest {
            expected_version: Some(version),
            ..begin(thread_of(&run), &message_run, run.node_ids.last(), "Forget it", 10)
        };
        let (decide, message) = (store.begin_run(decide), store.begin_run(message));
        let (decide, message) = join_in_order(!round.is_multiple_of(2), decide, message).await;
        assert!(decide.is_ok() != message.is_ok(), "{round}: {decide:?} {message:?}");
        let refused = decide
            .as_ref()
            .err()
            .or(message.as_ref().err())
            .expect("either the decision or the message is refused");
        assert!(
            matches!(
                refused,
                ConversationError::ThreadBusy { .. } | ConversationError::VersionConflict { .. }
            ),
            "{refused:?}"
        );
        let stored_thread = thread(&*store, &thread_of(&run)).await;
        let begun = if decide.is_ok() { &decided } else { &message_run };
        assert_eq!(stored_thread.active_run_id, Some(run_id(begun)), "{round}");
        let is_continued = read_run(&*store, &waiting).await.continued_by.is_some();
        assert_eq!(is_continued, decide.is_ok(), "{round}");
    }
}

pub(super) async fn threads_are_deleted_while_their_runs_are_interrupted(store: Arc<dyn Conversations>) {
    for round in 0..ROUNDS {
        let (id, lost) = (format!("thread {round}"), format!("r{round}"));
        done("a beginning", store.begin_run(begin(key(&id), &lost, None, "Lost?", 0)).await);
        let run = RunKey { owner: ada(), id: run_id(&lost) };
        done("a log", store.append_events("p1", vec![RunChunk { run, chunk: first_chunk(&lost) }]).await);
        let thread_key = key(&id);
        let (reaped, deleted) =
            join_in_order(!round.is_multiple_of(2), store.reap(clock(10_000)), store.delete(&thread_key))
                .await;
        assert!(done("a reaping", reaped) <= 1);
        assert_eq!(done("a deletion", deleted).map(|deleted| deleted.deleted), Some(1), "{round}");
        assert!(done("a read", store.thread(&key(&id)).await).is_none(), "{round}");
        assert_eq!(done("a read", store.run(&ada(), &run_id(&lost)).await), None, "{round}");
        assert!(done("a log", store.events(&ada(), &run_id(&lost), 0).await).is_none(), "{round}");
        assert_eq!(done("again", store.reap(clock(10_000)).await), 0, "{round}: no run is left to interrupt");
        // The ids can be used again.
        done("a beginning", store.begin_run(begin(key(&id), &lost, None, "Again", 20_000)).await);
        assert_eq!(texts(&path(&*store, &key(&id)).await), ["Again"], "{round}");
        done("an end", store.end_run(end(ada(), &lost, Vec::new(), 20_001)).await);
    }
}

fn first_chunk(run: &str) -> LogChunk {
    let mut writer = ChunkWriter::new(0);
    writer.push(&Event::RunStarted { thread_id: "t".into(), run_id: run.into() });
    writer.take().expect("the chunk has an event")
}
