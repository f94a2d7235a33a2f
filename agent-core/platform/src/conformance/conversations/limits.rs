//! Limits, and threads as large as they may be.

use agent_core::message::Message;

use super::support::*;
use crate::conversation::{
    ConversationError, Conversations, CreateThreadRequest, MAX_NODE_CHILDREN, MAX_PAGE_NODES,
    MAX_THREAD_NODES, MAX_VISITOR_THREADS, NodeQuery, ThreadLimit, ThreadOwner, VISITOR_OWNER_PREFIX,
    import_nodes,
};

fn is_full<T>(result: &Result<T, ConversationError>, limit: ThreadLimit) -> bool {
    matches!(result, Err(ConversationError::ThreadFull(found)) if *found == limit)
}

pub(super) async fn nodes_children_and_threads_are_limited(store: &dyn Conversations) {
    let roots = (0..MAX_NODE_CHILDREN).map(|n| user(None, &n.to_string())).collect();
    done("create", store.create(CreateThreadRequest { nodes: roots, ..create(key("t"), &[], 0) }).await);
    let refused = store.append(&key("t"), None, vec![user(None, "one more")], at(1)).await;
    assert!(is_full(&refused, ThreadLimit::Children), "{refused:?}");
    let refused = store.begin_run(begin(key("t"), "r", None, "one more", 1)).await;
    assert!(is_full(&refused, ThreadLimit::Children), "{refused:?}");
    let root = path(store, &key("t")).await[0].id.clone();
    let children = (0..MAX_NODE_CHILDREN).map(|n| user(Some(&root), &n.to_string())).collect();
    done("append", store.append(&key("t"), None, children, at(1)).await);
    let refused = store.begin_run(begin(key("t"), "r", Some(&root), "one more", 1)).await;
    assert!(is_full(&refused, ThreadLimit::Children), "{refused:?}");

    let visitor = ThreadOwner::new("acme", format!("{VISITOR_OWNER_PREFIX}token:00ff"));
    for n in 0..MAX_VISITOR_THREADS {
        done("create", store.create(create(visitor.thread(n.to_string()), &[], 0)).await);
    }
    let refused = store.create(create(visitor.thread("more"), &[], 0)).await;
    assert!(is_full(&refused, ThreadLimit::Threads), "{refused:?}");
    let refused = store.begin_run(begin(visitor.thread("more"), "r", None, "x", 0)).await;
    assert!(is_full(&refused, ThreadLimit::Threads), "{refused:?}");
    done("begin", store.begin_run(begin(visitor.thread("0"), "r", None, "x", 0)).await);
}

pub(super) async fn ten_thousand_nodes_are_read(store: &dyn Conversations) {
    let messages = (0..MAX_THREAD_NODES).map(|n| Message::user(format!("{n} {}", "x".repeat(100)))).collect();
    let nodes = import_nodes(None, messages);
    let created =
        done("create", store.create(CreateThreadRequest { nodes, ..create(key("t"), &[], 0) }).await);
    assert_eq!(created.message_count, MAX_THREAD_NODES);
    let refused = store.append(&key("t"), None, vec![user(created.head.as_ref(), "x")], at(1)).await;
    assert!(is_full(&refused, ThreadLimit::Nodes), "{refused:?}");
    let mut query = NodeQuery { limit: Some(usize::MAX), ..NodeQuery::default() };
    let (mut count, mut pages) = (0, 0);
    loop {
        let page = done("nodes", store.nodes(&key("t"), &query).await).expect("a thread");
        for node in &page.nodes {
            let text = node.message.as_message().map(|message| message.content.to_text().into_owned());
            assert!(text.unwrap_or_default().starts_with(&format!("{count} ")), "the path is in order");
            count += 1;
        }
        pages += 1;
        let Some(next) = page.next_cursor else { break };
        query.cursor = Some(next);
    }
    assert_eq!(
        (count, pages),
        (MAX_THREAD_NODES as usize, (MAX_THREAD_NODES as usize).div_ceil(MAX_PAGE_NODES))
    );
    let links = done("links", store.links(&key("t")).await).expect("a thread").links;
    assert_eq!(links.len(), MAX_THREAD_NODES as usize);
    let deleted = done("delete", store.delete(&key("t")).await).expect("the thread exists");
    assert_eq!(deleted.deleted, 1);
    assert!(done("thread", store.thread(&key("t")).await).is_none());
}
