//! Deletion of threads and of single messages.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use jiff::SignedDuration;

use super::support::*;
use crate::conversation::{
    ActiveThread, BeginRunRequest, ConversationError, Conversations, CreateThreadRequest, DeleteFilter,
    MAX_DELETED_THREADS, MAX_SCANNED_THREADS, NodeQuery, NodeStatus, RunFilter, ThreadFilter, ThreadKey,
    ThreadOwner, ThreadScan,
};

pub(super) async fn threads_and_messages_are_deleted(make: &impl AsyncFn() -> Arc<dyn Conversations>) {
    a_thread_is_deleted_with_all_it_has(&*make().await).await;
    many_are_deleted_by_agent_and_time(&*make().await).await;
    each_commit_of_a_deletion_changes_the_version(&*make().await).await;
    all_threads_are_scanned_in_pages(&*make().await).await;
    activity_postpones_the_expiry(&*make().await).await;
    a_node_is_erased_and_stays_in_the_tree(&*make().await).await;
}

async fn a_thread_is_deleted_with_all_it_has(store: &dyn Conversations) {
    assert!(
        done("delete", store.delete(&key("t")).await).is_none(),
        "deleting an absent thread returns None"
    );
    turn(store, &key("t"), "r1", None, 0).await;
    turn(store, &key("other"), "r2", None, 0).await;
    done("begin", store.begin_run(begin(key("t"), "r3", None, "x", 5)).await);
    let deleted = done("delete", store.delete(&key("t")).await)
        .expect("deleting an existing thread returns its counts");
    assert_eq!((deleted.deleted, deleted.active_runs), (1, vec![run_id("r3")]));
    assert!(
        done("delete", store.delete(&key("t")).await).is_none(),
        "a deleted thread cannot be deleted again"
    );
    assert!(done("thread", store.thread(&key("t")).await).is_none());
    assert!(done("nodes", store.nodes(&key("t"), &NodeQuery::default()).await).is_none());
    for run in ["r1", "r3"] {
        assert!(
            done("run", store.run(&ada(), &run_id(run)).await).is_none(),
            "a thread's runs are deleted with it"
        );
    }
    let late = store.end_run(end(ada(), "r3", vec![user(None, "late")], 6)).await;
    assert!(
        matches!(late, Err(ConversationError::RunNotFound)),
        "the end of a run does not restore its deleted thread: {late:?}"
    );
    assert!(done("thread", store.thread(&key("t")).await).is_none());
    assert_eq!(texts(&path(store, &key("other")).await), ["Hello", "Hi"], "other threads stay");
    assert!(done("run", store.run(&ada(), &run_id("r2")).await).is_some());
    // A new thread can use the id.
    let (begun, ended) = turn(store, &key("t"), "r3", None, 9).await;
    assert_eq!((begun.thread.message_count, ended.thread.message_count), (1, 2));
    assert_eq!(
        path(store, &key("t")).await.len(),
        2,
        "a new thread has no messages of a deleted thread with its id"
    );
}

async fn many_are_deleted_by_agent_and_time(store: &dyn Conversations) {
    for n in 0..8 {
        let agent = if n % 2 == 0 { "gardener" } else { "cook" };
        let new = CreateThreadRequest { agent_id: agent.into(), ..create(key(&n.to_string()), &["x"], n) };
        done("create", store.create(new).await);
    }
    let bob = ThreadOwner::new("acme", "bob");
    done("create", store.create(create(bob.thread("0"), &["x"], 0)).await);
    let filter = DeleteFilter { agent: Some("cook".into()), before: Some(at(5)) };
    let deleted = done("delete", store.delete_many(&ada(), &filter).await);
    assert_eq!((deleted.deleted, deleted.has_more), (2, false), "threads before the time are deleted");
    let left = done("threads", store.threads(&ada(), &ThreadFilter::default(), None, 50).await).threads;
    let left: Vec<&str> = left.iter().map(|thread| thread.id.as_str()).collect();
    assert_eq!(left, ["7", "6", "5", "4", "2", "0"]);
    for n in 0..MAX_DELETED_THREADS {
        done("create", store.create(create(key(&format!("many{n}")), &["x"], 20)).await);
    }
    let all = DeleteFilter::default();
    let deleted = done("delete", store.delete_many(&ada(), &all).await);
    assert_eq!(
        (deleted.deleted, deleted.has_more),
        (MAX_DELETED_THREADS, true),
        "a call deletes a bounded number of threads"
    );
    let deleted = done("delete", store.delete_many(&ada(), &all).await);
    assert_eq!((deleted.deleted, deleted.has_more), (6, false));
    let none = done("delete", store.delete_many(&ada(), &all).await);
    assert_eq!((none.deleted, none.has_more), (0, false));
    let runs = done("runs", store.runs(&ada(), &RunFilter::default(), None, 50).await);
    assert!(runs.runs.is_empty());
    assert!(done("thread", store.thread(&bob.thread("0")).await).is_some(), "another owner's threads stay");
}

/// A cache of nodes compares versions, so all nodes must exist at the version of their thread.
async fn each_commit_of_a_deletion_changes_the_version(store: &dyn Conversations) {
    // More than one commit deletes.
    let texts = vec!["x"; 5_000];
    let created = done("create", store.create(create(key("t"), &texts, 0)).await);
    let key = key("t");
    let look = async {
        while let Some(thread_links) = done("links", store.links(&key).await) {
            let after = done("thread", store.thread(&key).await);
            if after.is_some_and(|after| after.version == created.version) {
                assert_eq!(thread_links.links.len(), texts.len(), "nodes were deleted at the same version");
            }
        }
    };
    let deleted = match select(store.delete(&key), pin!(look)).await {
        Either::Left((deleted, _)) => deleted,
        Either::Right(((), deletion)) => deletion.await,
    };
    assert_eq!(done("delete", deleted).map(|deleted| deleted.deleted), Some(1));
}

async fn all_threads_are_scanned_in_pages(store: &dyn Conversations) {
    let empty = done("scan", store.scan_threads(None).await);
    assert_eq!(empty, ThreadScan::default());
    let owners = [("acme", "ada"), ("acme", "bob"), ("other", "ada")];
    for n in 0..=MAX_SCANNED_THREADS {
        let (company, owner) = owners[n % owners.len()];
        let create = create(ThreadKey::new(company, owner, n.to_string()), &[], 1);
        done("create", store.create(create).await);
    }
    let first = done("scan", store.scan_threads(None).await);
    assert_eq!(first.threads.len(), MAX_SCANNED_THREADS);
    let expected = ActiveThread {
        owner: ThreadOwner::new("other", "ada"),
        agent_id: "gardener".into(),
        last_activity_at: at(1),
    };
    assert!(first.threads.contains(&expected), "{:?}", first.threads.first());
    // Activity moves no thread to another page.
    let active = done("append", store.append(&key("0"), None, vec![user(None, "x")], at(9)).await);
    assert_eq!(active.thread.last_activity_at, at(9));
    let second_page = done("scan", store.scan_threads(first.next_cursor.as_deref()).await);
    assert_eq!((second_page.threads.len(), second_page.next_cursor), (1, None));
    let wrong = store.scan_threads(Some("\u{0}x")).await;
    assert!(matches!(wrong, Err(ConversationError::Invalid(_))), "{wrong:?}");
}

async fn activity_postpones_the_expiry(store: &dyn Conversations) {
    let retention = Some(SignedDuration::from_millis(100));
    done("create", store.create(CreateThreadRequest { retention, ..create(key("t"), &["x"], 1) }).await);
    assert_eq!(thread(store, &key("t")).await.expires_at, Some(at(101)));
    done("append", store.append(&key("t"), None, vec![user(None, "y")], at(5)).await);
    assert_eq!(thread(store, &key("t")).await.expires_at, Some(at(105)));
    let retention = Some(SignedDuration::from_millis(10));
    let begun = BeginRunRequest { retention, ..begin(key("t"), "r", None, "z", 20) };
    let begun = done("begin", store.begin_run(begun).await);
    assert_eq!(begun.thread.expires_at, Some(at(30)), "a run sets the retention that applies when it begins");
    let ended = done("end", store.end_run(end(ada(), "r", Vec::new(), 25)).await);
    assert_eq!(ended.thread.expires_at, Some(at(35)));
    assert_eq!(done("fork", store.fork(fork("copy", 50)).await).expires_at, Some(at(60)));
    done("begin", store.begin_run(begin(key("t"), "r2", None, "z", 70)).await);
    assert_eq!(thread(store, &key("t")).await.expires_at, None, "retention has ended");
}

async fn a_node_is_erased_and_stays_in_the_tree(store: &dyn Conversations) {
    let missing = store.erase_node(&key("t"), &"n".into()).await;
    assert!(matches!(missing, Err(ConversationError::ThreadNotFound)), "{missing:?}");
    done("create", store.create(create(key("t"), &["secret word", "Hi", "second"], 0)).await);
    let nodes = path(store, &key("t")).await;
    let missing = store.erase_node(&key("t"), &"n".into()).await;
    assert!(matches!(missing, Err(ConversationError::NodeNotFound(_))), "{missing:?}");
    let before = thread(store, &key("t")).await;
    let erased = done("erase", store.erase_node(&key("t"), &nodes[0].id).await);
    assert!(erased.version > before.version);
    assert_eq!(erased.title, "second", "the title does not keep erased text");
    let left = path(store, &key("t")).await;
    assert_eq!(texts(&left), ["", "Hi", "second"]);
    let statuses: Vec<NodeStatus> = left.iter().map(|node| node.status).collect();
    assert_eq!(statuses, [NodeStatus::Deleted, NodeStatus::Complete, NodeStatus::Complete]);
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    assert_ne!(links[0].hash, nodes[0].message.hash(), "the hash of the erased text is not kept");
    let json = serde_json::to_string(&left).unwrap_or_default();
    assert!(!json.contains("secret"), "{json}");
    let again = done("erase", store.erase_node(&key("t"), &nodes[0].id).await);
    assert_eq!(again, erased, "erasing a node again changes nothing");
}
