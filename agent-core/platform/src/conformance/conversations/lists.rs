//! Lists of threads and runs.

use super::support::*;
use crate::conversation::{
    BeginRunRequest, ConversationError, Conversations, CreateThreadRequest, NewThread, RunFilter, RunState,
    RunTriggerKind, ThreadFilter, ThreadOrigin, ThreadOwner, ThreadPatch, ThreadStatus,
};

/// Returns the ids of a list, page by page.
async fn ids(store: &dyn Conversations, filter: &ThreadFilter, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = done("threads", store.threads(&ada(), filter, cursor.as_deref(), limit).await);
        assert!(page.threads.len() <= limit, "a page has no more threads than its limit");
        ids.extend(page.threads.iter().map(|thread| thread.id.to_string()));
        assert!(ids.len() <= 10_000, "a list ends");
        cursor = page.next_cursor;
        if cursor.is_none() {
            return ids;
        }
    }
}

pub(super) async fn threads_are_listed_by_activity(store: &dyn Conversations) {
    assert!(ids(store, &ThreadFilter::default(), 50).await.is_empty());
    for (ms, id) in [(30, "c"), (10, "a"), (20, "b"), (20, "bb"), (20, "Ä")] {
        done("create", store.create(create(key(id), &["x"], ms)).await);
    }
    let job = NewThread { origin: ThreadOrigin::Job, ..NewThread::default() };
    let other = CreateThreadRequest { agent_id: "cook".into(), new: job, ..create(key("job"), &["x"], 5) };
    done("create", store.create(other).await);
    let archive = ThreadPatch { archived: Some(true), ..ThreadPatch::default() };
    done("patch", store.patch(&key("b"), archive, at(40)).await);
    done("begin", store.begin_run(begin(key("a"), "r", None, "x", 50)).await);
    let filter = ThreadFilter::default();
    for limit in [1, 2, 3, 6, 50] {
        let all = ids(store, &filter, limit).await;
        assert_eq!(all, ["a", "c", "Ä", "bb", "b", "job"], "latest activity first, then by descending id");
    }
    let cases = [
        (ThreadFilter { archived: Some(true), ..filter.clone() }, vec!["b"]),
        (ThreadFilter { archived: Some(false), ..filter.clone() }, vec!["a", "c", "Ä", "bb", "job"]),
        (ThreadFilter { agent: Some("cook".into()), ..filter.clone() }, vec!["job"]),
        (ThreadFilter { origin: Some(ThreadOrigin::Job), ..filter.clone() }, vec!["job"]),
        (ThreadFilter { status: Some(ThreadStatus::Running), ..filter.clone() }, vec!["a"]),
        (ThreadFilter { status: Some(ThreadStatus::Waiting), ..filter.clone() }, vec![]),
        (
            ThreadFilter { agent: Some("gardener".into()), archived: Some(false), ..filter.clone() },
            vec!["a", "c", "Ä", "bb"],
        ),
    ];
    for (filter, expected) in cases {
        for limit in [1, 2, 50] {
            assert_eq!(ids(store, &filter, limit).await, expected, "{filter:?} in pages of {limit}");
        }
    }
    for cursor in ["", "x", "no cursor", "1-zz", "-"] {
        let refused = store.threads(&ada(), &filter, Some(cursor), 10).await;
        assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{cursor:?}: {refused:?}");
    }
    let page = done("threads", store.threads(&ada(), &filter, None, 0).await);
    assert_eq!(page.threads.len(), 1, "a page has one thread at least");
}

pub(super) async fn pages_are_stable_while_others_write(store: &dyn Conversations) {
    for n in 0..6 {
        done("create", store.create(create(key(&n.to_string()), &["x"], n)).await);
    }
    let filter = ThreadFilter::default();
    let first = done("threads", store.threads(&ada(), &filter, None, 2).await);
    // New threads, new activity of an old one, and a deletion, also of the thread that the cursor names.
    done("create", store.create(create(key("new"), &["x"], 10)).await);
    done("begin", store.begin_run(begin(key("1"), "r", None, "x", 20)).await);
    done("delete", store.delete(&key("4")).await).expect("the thread exists");
    let mut thread_ids: Vec<String> = first.threads.iter().map(|thread| thread.id.to_string()).collect();
    let mut cursor = first.next_cursor;
    while let Some(next) = cursor {
        let page = done("threads", store.threads(&ada(), &filter, Some(&next), 2).await);
        thread_ids.extend(page.threads.iter().map(|thread| thread.id.to_string()));
        cursor = page.next_cursor;
    }
    assert_eq!(thread_ids, ["5", "4", "3", "2", "0"], "threads that did not move are listed once");
}

pub(super) async fn runs_are_listed_newest_first(store: &dyn Conversations) {
    for (n, thread) in (0..).zip(["a", "b", "a", "b", "a"]) {
        let kind = if n == 2 { RunTriggerKind::Job } else { RunTriggerKind::Chat };
        let request =
            BeginRunRequest { trigger: kind.into(), ..begin(key(thread), &format!("r{n}"), None, "x", n) };
        done("begin", store.begin_run(request).await);
        if n < 4 {
            done("end", store.end_run(end(ada(), &format!("r{n}"), Vec::new(), n)).await);
        }
    }
    let filter = RunFilter::default();
    let cases = [
        (filter.clone(), vec!["r4", "r3", "r2", "r1", "r0"]),
        (RunFilter { thread: Some("a".into()), ..filter.clone() }, vec!["r4", "r2", "r0"]),
        (RunFilter { state: Some(RunState::Running), ..filter.clone() }, vec!["r4"]),
        (RunFilter { kind: Some(RunTriggerKind::Job), ..filter.clone() }, vec!["r2"]),
        (RunFilter { agent: Some("cook".into()), ..filter.clone() }, vec![]),
        (RunFilter { thread: Some("none".into()), ..filter.clone() }, vec![]),
    ];
    for (filter, expected) in cases {
        for limit in [1, 2, 50] {
            let (mut ids, mut cursor) = (Vec::new(), None);
            loop {
                let page = done("runs", store.runs(&ada(), &filter, cursor.as_deref(), limit).await);
                ids.extend(page.runs.iter().map(|run| run.id.to_string()));
                assert!(ids.len() <= expected.len(), "a list ends");
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(ids, expected, "{filter:?} in pages of {limit}");
        }
    }
    let refused = store.runs(&ada(), &filter, Some("no cursor"), 10).await;
    assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{refused:?}");
    let others = done("runs", store.runs(&ThreadOwner::new("acme", "bob"), &filter, None, 10).await);
    assert!(others.runs.is_empty(), "another owner's runs are absent");
    cursors_reveal_nothing_of_other_users(store).await;
}

/// Lists the runs of two owners with equal numbers of runs, one owner after the other.
async fn cursors_reveal_nothing_of_other_users(store: &dyn Conversations) {
    let owners = [ThreadOwner::new("first", "ada"), ThreadOwner::new("second", "bob")];
    let mut cursors = Vec::new();
    for owner in &owners {
        for n in 0..3 {
            let thread = owner.thread(format!("t{n}"));
            done("begin", store.begin_run(begin(thread, &format!("r{n}"), None, "x", n)).await);
        }
        let page = done("runs", store.runs(owner, &RunFilter::default(), None, 1).await);
        assert_eq!(page.runs[0].id, run_id("r2"));
        cursors.push(page.next_cursor.expect("another page"));
    }
    assert_eq!(cursors[0], cursors[1], "a cursor does not reveal the number of other owners' runs");
}
