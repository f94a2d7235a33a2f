//! Threads: creation, changes, appended messages, forks and pages of nodes.

use serde_json::{Value, json};

use super::support::*;
use crate::conversation::{
    ConversationError, Conversations, CreateThreadRequest, ForkThreadRequest, NewNode, NewThread, NodeId,
    NodeMessage, NodeOrigin, NodeQuery, NodeSelection, NodeStatus, Siblings, ThreadKey, ThreadOrigin,
    ThreadPatch, ThreadStatus, TitleSource,
};

pub(super) async fn a_thread_is_created_with_imported_messages(store: &dyn Conversations) {
    assert!(
        done("thread", store.thread(&key("t")).await).is_none(),
        "a thread that was never created is absent"
    );
    let query = NodeQuery::default();
    assert!(done("nodes", store.nodes(&key("t"), &query).await).is_none());
    assert!(done("links", store.links(&key("t")).await).is_none());
    let created = done("create", store.create(create(key("t"), &["Hello\nthere", "Hi"], 5)).await);
    assert_eq!(created, thread(store, &key("t")).await, "a thread is returned as it was created");
    assert_eq!((created.title.as_str(), created.title_from), ("Hello", TitleSource::Message));
    assert_eq!((created.message_count, created.version, created.status), (2, 1, ThreadStatus::Idle));
    assert_eq!((created.created_at, created.last_activity_at), (at(5), at(5)));
    let nodes = path(store, &key("t")).await;
    assert_eq!(texts(&nodes), ["Hello\nthere", "Hi"]);
    assert_eq!(created.head.as_ref(), Some(&nodes[1].id), "the head is the last message");
    assert_eq!(nodes[1].parent_id.as_ref(), Some(&nodes[0].id));
    assert!(nodes.iter().all(|node| node.origin == NodeOrigin::Client && node.run_id.is_none()));
    assert_eq!(nodes[0].turn_id.as_str(), nodes[0].id.as_str(), "a node without a run is a turn of its own");
    let again = store.create(create(key("t"), &[], 6)).await;
    assert!(matches!(again, Err(ConversationError::ThreadExists)), "{again:?}");

    let empty = done("create", store.create(create(key("empty"), &[], 6)).await);
    assert_eq!((empty.title.as_str(), empty.head, empty.message_count), ("", None, 0));
    assert!(path(store, &key("empty")).await.is_empty());
    let new = NewThread {
        origin: ThreadOrigin::Job,
        title: Some("Mine".to_owned()),
        metadata: json!({"a": [1, null, "ü"]}).as_object().cloned().unwrap_or_default(),
    };
    let retention = Some(jiff::SignedDuration::from_millis(3));
    let full = CreateThreadRequest { new, retention, ..create(key("full"), &["Hello"], 6) };
    let created = done("create", store.create(full).await);
    assert_eq!((created.title.as_str(), created.title_from), ("Mine", TitleSource::User));
    assert_eq!((created.origin, created.expires_at), (ThreadOrigin::Job, Some(at(9))));
    assert_eq!(thread(store, &key("full")).await, created);
}

pub(super) async fn owners_and_companies_are_isolated(store: &dyn Conversations) {
    let keys = [key("t"), ThreadKey::new("acme", "bob", "t"), ThreadKey::new("other", "ada", "t")];
    for (at, key) in keys.iter().enumerate() {
        let text = format!("text {at}");
        let absent = done("thread", store.thread(key).await);
        assert!(absent.is_none(), "another owner's thread of the same id is absent: {key:?}");
        let begun = done("begin", store.begin_run(begin(key.clone(), "r", None, &text, 0)).await);
        assert_eq!(begun.thread.message_count, 1, "owners can use the same thread id: {key:?}");
        done("end", store.end_run(end(key.thread_owner(), "r", Vec::new(), 1)).await);
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(
            texts(&path(store, key).await),
            [format!("text {at}")],
            "each owner reads its own thread: {key:?}"
        );
        let listed =
            done("threads", store.threads(&key.thread_owner(), &Default::default(), None, 50).await).threads;
        assert_eq!(listed.len(), 1, "a list has only the owner's threads: {key:?}");
        let run = done("run", store.run(&key.thread_owner(), &run_id("r")).await).expect("a run");
        assert_eq!(run.node_ids.len(), 1);
    }
    done("delete", store.delete(&keys[1]).await).expect("the thread exists");
    assert_eq!(texts(&path(store, &keys[0]).await), ["text 0"], "another owner's thread stays");
    assert_eq!(texts(&path(store, &keys[2]).await), ["text 2"], "another company's thread stays");
    assert!(done("run", store.run(&ada(), &run_id("r")).await).is_some(), "another owner's run stays");
    assert!(done("run", store.run(&keys[1].thread_owner(), &run_id("r")).await).is_none());
}

pub(super) async fn a_patch_changes_what_it_names(store: &dyn Conversations) {
    let missing = store.patch(&key("t"), ThreadPatch::default(), at(0)).await;
    assert!(matches!(missing, Err(ConversationError::ThreadNotFound)), "{missing:?}");
    let first = done("create", store.create(create(key("t"), &["Hello", "Hi"], 0)).await);
    let metadata = json!({"k": "v"}).as_object().cloned();
    let patch = ThreadPatch {
        title: Some("New".to_owned()),
        archived: Some(true),
        metadata: metadata.clone(),
        expected_version: Some(first.version),
        ..ThreadPatch::default()
    };
    let patched = done("patch", store.patch(&key("t"), patch.clone(), at(9)).await);
    assert_eq!(
        (patched.title.as_str(), patched.title_from, patched.archived),
        ("New", TitleSource::User, true)
    );
    assert_eq!(patched.metadata, metadata.unwrap_or_default());
    assert_eq!(patched.last_activity_at, at(0), "a change of the title does not count as activity");
    assert!(patched.version > first.version, "versions grow");
    assert_eq!(thread(store, &key("t")).await, patched);
    let stale = store.patch(&key("t"), patch.clone(), at(9)).await;
    let is_conflict = |found| matches!(found, Err(ConversationError::VersionConflict { found }) if found == patched.version);
    assert!(is_conflict(stale), "an outdated version is refused");
    for patch in [
        ThreadPatch { title: Some("x".repeat(201)), ..ThreadPatch::default() },
        ThreadPatch {
            metadata: json!({"k": "x".repeat(16 * 1024)}).as_object().cloned(),
            ..ThreadPatch::default()
        },
    ] {
        let refused = store.patch(&key("t"), patch, at(9)).await;
        assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{refused:?}");
    }
    let head = ThreadPatch { head: Some("none".into()), ..ThreadPatch::default() };
    let refused = store.patch(&key("t"), head, at(9)).await;
    assert!(matches!(refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
    let kept = done("patch", store.patch(&key("t"), ThreadPatch::default(), at(9)).await);
    assert_eq!((kept.title.as_str(), kept.archived), ("New", true), "absent fields are unchanged");
    let same = ThreadPatch { expected_version: None, ..patch };
    for patch in [ThreadPatch::default(), same] {
        let kept = done("patch", store.patch(&key("t"), patch, at(9)).await);
        assert_eq!(kept, patched, "the version stays if nothing changes");
    }
}

pub(super) async fn messages_are_appended_without_a_run(store: &dyn Conversations) {
    let missing = store.append(&key("t"), None, vec![user(None, "x")], at(0)).await;
    assert!(matches!(missing, Err(ConversationError::ThreadNotFound)), "{missing:?}");
    let created = done("create", store.create(create(key("t"), &["Hello", "Hi"], 0)).await);
    let first = user(created.head.as_ref(), "one");
    let second = user(Some(&first.id), "two");
    let appended = done("append", store.append(&key("t"), None, vec![first, second.clone()], at(4)).await);
    assert_eq!(appended.thread.head, Some(second.id), "the head is the last appended message");
    assert_eq!((appended.thread.message_count, appended.thread.last_activity_at), (4, at(4)));
    let nodes = path(store, &key("t")).await;
    assert_eq!(texts(&nodes), ["Hello", "Hi", "one", "two"]);
    assert_eq!(nodes[2..], appended.nodes, "nodes are returned as they were appended");
    // A second child: the head selects the branch, by any of its nodes.
    let other = user(Some(&nodes[1].id), "other");
    let appended = done("append", store.append(&key("t"), None, vec![other.clone()], at(5)).await);
    assert_eq!(appended.nodes[0].siblings, Siblings { index: 1, count: 2 });
    assert_eq!(texts(&path(store, &key("t")).await), ["Hello", "Hi", "other"]);
    let select = ThreadPatch { head: Some(nodes[2].id.clone()), ..ThreadPatch::default() };
    let selected = done("patch", store.patch(&key("t"), select, at(6)).await);
    assert_eq!(selected.head.as_ref(), Some(&nodes[3].id), "the head is the newest leaf of the branch");
    let shown = path(store, &key("t")).await;
    assert_eq!(texts(&shown), ["Hello", "Hi", "one", "two"]);
    assert_eq!(shown[2].siblings, Siblings { index: 0, count: 2 });
    let below = user(Some(&"none".into()), "x");
    let refused = store.append(&key("t"), None, vec![below.clone()], at(6)).await;
    assert!(matches!(refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
    let outdated = selected.version - 1;
    let refused = store.append(&key("t"), Some(outdated), vec![below], at(6)).await;
    let is_conflict =
        matches!(refused, Err(ConversationError::VersionConflict { found }) if found == selected.version);
    assert!(is_conflict, "{refused:?}");
    assert_eq!(thread(store, &key("t")).await, selected, "a refused message changes nothing");
    let below_head = vec![user(selected.head.as_ref(), "three")];
    done("append", store.append(&key("t"), Some(selected.version), below_head, at(7)).await);
    assert_eq!(texts(&path(store, &key("t")).await), ["Hello", "Hi", "one", "two", "three"]);
}

pub(super) async fn any_text_is_kept_as_it_is(store: &dyn Conversations) {
    let odd = key(" '\"\\;--%_?*$\u{1F600}é");
    let texts_kept = ["ü \u{0} \u{1F600} \\u0000", "", "\u{feff}\u{202e}\r\n", &"x".repeat(1 << 20)];
    let mut parent = None;
    for (at_ms, text) in (0..).zip(texts_kept) {
        let run = format!("r{at_ms}");
        let begun =
            done("begin", store.begin_run(begin(odd.clone(), &run, parent.as_ref(), text, at_ms)).await);
        parent = begun.nodes.last().map(|node| node.id.clone());
        done("end", store.end_run(end(ada(), &run, Vec::new(), at_ms)).await);
    }
    assert_eq!(texts(&path(store, &odd).await), texts_kept, "a text is returned as it was sent");
    for id in ["", "a\0b", "a\nb", &"x".repeat(129)] {
        let key = key(id);
        assert!(done("thread", store.thread(&key).await).is_none(), "{id:?}");
        let refused = store.begin_run(begin(key.clone(), "r", None, "x", 0)).await;
        assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{id:?}: {refused:?}");
        let refused = store.create(create(key.clone(), &[], 0)).await;
        assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{id:?}: {refused:?}");
        assert!(done("delete", store.delete(&key).await).is_none(), "{id:?}");
    }
    let nobody = ThreadKey { owner: "a\0b".into(), ..key("t") };
    let refusals = [
        store.patch(&nobody, ThreadPatch::default(), at(9)).await.err(),
        store.append(&nobody, None, vec![user(None, "x")], at(9)).await.err(),
        store.erase_node(&nobody, &"n".into()).await.err(),
        store.fork(ForkThreadRequest { key: nobody.clone(), ..fork("f", 9) }).await.err(),
        store.set_feedback(&nobody, &"n".into(), None).await.err(),
    ];
    for refused in refusals {
        assert!(matches!(refused, Some(ConversationError::ThreadNotFound)), "{refused:?}");
    }
    let refused = store.end_run(end(nobody.thread_owner(), "r", Vec::new(), 9)).await;
    assert!(matches!(refused, Err(ConversationError::RunNotFound)), "{refused:?}");
    let reasoning = NewNode { message: NodeMessage::reasoning("I think"), ..user(parent.as_ref(), "") };
    let appended = done("append", store.append(&odd, None, vec![reasoning], at(9)).await);
    let message = serde_json::to_value(&appended.nodes[0].message).unwrap_or(Value::Null);
    assert_eq!((&message["role"], &message["content"]), (&json!("reasoning"), &json!("I think")));
    let read = path(store, &odd).await;
    assert_eq!(read.last(), appended.nodes.last(), "reasoning is returned as it was stored");
}

pub(super) async fn a_fork_copies_the_path(store: &dyn Conversations) {
    let fork = |id: &str, at: Option<NodeId>| ForkThreadRequest { at, ..fork(id, 7) };
    let missing = store.fork(fork("f", None)).await;
    assert!(matches!(missing, Err(ConversationError::ThreadNotFound)), "{missing:?}");
    let (begun, _) = turn(store, &key("t"), "r1", None, 0).await;
    let first = begun.nodes[0].id.clone();
    done("append", store.append(&key("t"), None, vec![user(Some(&first), "branch")], at(2)).await);
    let complete_fork = done("fork", store.fork(fork("whole", None)).await);
    assert_eq!(
        (complete_fork.title.as_str(), complete_fork.message_count, complete_fork.version),
        ("Hello", 2, 1)
    );
    assert_eq!(texts(&path(store, &key("whole")).await), ["Hello", "branch"]);
    let source = path(store, &key("t")).await;
    let copied = path(store, &key("whole")).await;
    assert_eq!(copied[0].id, source[0].id, "copied messages keep the ids that clients know");
    assert!(copied.iter().all(|node| node.run_id.is_none()), "runs are not copied");
    let other = ForkThreadRequest {
        agent_id: Some("cook".into()),
        title: Some("Copy".to_owned()),
        ..fork("cut", Some(first))
    };
    let cut = done("fork", store.fork(other).await);
    assert_eq!((cut.title.as_str(), cut.agent_id.as_str(), cut.message_count), ("Copy", "cook", 1));
    // The copy has neither the message of another root nor the title derived from it.
    done("append", store.append(&key("t"), None, vec![user(None, "Elsewhere")], at(3)).await);
    let elsewhere = done("fork", store.fork(fork("elsewhere", None)).await);
    assert_eq!((elsewhere.title.as_str(), elsewhere.message_count), ("Elsewhere", 1));
    let exists = store.fork(fork("cut", None)).await;
    assert!(matches!(exists, Err(ConversationError::ThreadExists)), "{exists:?}");
    let refused = store.fork(fork("x", Some("none".into()))).await;
    assert!(matches!(refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
    done("delete", store.delete(&key("t")).await).expect("the thread exists");
    assert_eq!(
        texts(&path(store, &key("whole")).await),
        ["Hello", "branch"],
        "a copy does not depend on its source"
    );
}

pub(super) async fn paths_and_trees_are_read_in_pages(store: &dyn Conversations) {
    let words: Vec<String> = (0..7).map(|n| n.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    done("create", store.create(create(key("t"), &words, 0)).await);
    let all = path(store, &key("t")).await;
    let branch = user(Some(&all[2].id), "branch");
    done("append", store.append(&key("t"), None, vec![branch], at(1)).await);
    let paths = [
        (NodeSelection::Path { at: None }, vec!["0", "1", "2", "branch"]),
        (NodeSelection::Path { at: Some(all[4].id.clone()) }, vec!["0", "1", "2", "3", "4"]),
        (NodeSelection::Tree, vec!["0", "1", "2", "3", "4", "5", "6", "branch"]),
        (NodeSelection::Positions(vec![1, 3, 6, 99]), vec!["1", "3", "6"]),
    ];
    for (select, expected) in paths {
        for limit in [1, 2, 3, 5, 8, 500] {
            let mut query = NodeQuery { select: select.clone(), limit: Some(limit), cursor: None };
            let mut nodes = Vec::new();
            loop {
                let page = done("nodes", store.nodes(&key("t"), &query).await).expect("a thread");
                assert!(page.nodes.len() <= limit, "a page has no more nodes than its limit");
                nodes.extend(page.nodes);
                let Some(next) = page.next_cursor else { break };
                query.cursor = Some(next);
                assert!(nodes.len() <= expected.len(), "a list ends");
            }
            assert_eq!(texts(&nodes), expected, "pages of {limit} together are the whole list: {select:?}");
        }
    }
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    let parents: Vec<Option<u32>> = links.iter().map(|link| link.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(2)]);
    for (link, node) in links.iter().zip(&all) {
        assert_eq!((&link.id, link.role), (&node.id, node.message.role()));
        assert_eq!((link.hash, link.status), (node.message.hash(), NodeStatus::Complete));
    }
    for seqs in [&[][..], &[0], &[1, 2, 7], &[0, 1, 2, 3, 4, 5, 6, 7], &[6, 8, u32::MAX]] {
        let expected: Vec<_> = seqs.iter().filter_map(|seq| links.get(*seq as usize)).collect();
        let contents = done("contents", store.contents(&key("t"), seqs).await);
        let listed_nodes = contents.iter().map(|node| (node.seq, node.status, node.message.hash()));
        let expected = expected.into_iter().map(|link| (link.seq, link.status, link.hash));
        assert_eq!(listed_nodes.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{seqs:?}");
        for node in contents {
            // The last node was appended after these were read.
            if let Some(of) = all.get(node.seq as usize) {
                assert_eq!((&node.message, node.origin), (&of.message, of.origin), "{seqs:?}");
            }
        }
    }
    assert!(done("contents", store.contents(&key("none"), &[0]).await).is_empty());
    let made_up = NodeQuery { cursor: Some("no cursor".to_owned()), ..NodeQuery::default() };
    let refused = store.nodes(&key("t"), &made_up).await;
    assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{refused:?}");
    let select = NodeSelection::Path { at: Some("none".into()) };
    let refused = store.nodes(&key("t"), &NodeQuery { select, ..NodeQuery::default() }).await;
    assert!(matches!(refused, Err(ConversationError::NodeNotFound(_))), "{refused:?}");
}

pub(super) async fn a_thread_is_read_with_its_path(store: &dyn Conversations) {
    assert!(done("path", store.path(&key("t")).await).is_none());
    done("create", store.create(create(key("t"), &["0", "1", "2"], 0)).await);
    let first = path(store, &key("t")).await[0].id.clone();
    for branch in [Some(&first), None] {
        done("append", store.append(&key("t"), None, vec![user(branch, "branch")], at(1)).await);
        let read = done("path", store.path(&key("t")).await).expect("a thread");
        let links = done("links", store.links(&key("t")).await).expect("a thread");
        assert_eq!((&read.thread, &read.links), (&links.thread, &links.links));
        let seqs: &[u32] = if branch.is_some() { &[0, 3] } else { &[4] };
        let expected = done("contents", store.contents(&key("t"), seqs).await);
        assert!(read.contents.is_empty() || read.contents == expected, "{:?}", read.contents);
    }
}
