//! Feedback, and the lists of an agent's owner.

use agent_core::ids::{AgentId, CompanyId};

use super::support::*;
use crate::conversation::{
    ConversationError, Conversations, CreateThreadRequest, Feedback, FeedbackPage, MAX_COMMENT_BYTES,
    MAX_FEEDBACK_TAGS, MAX_TAG_BYTES, NewNode, NodeId, NodeOrigin, Rating, Thread, ThreadKey, ThreadOwner,
};

fn feedback(id: &str, ms: i64) -> Feedback {
    Feedback {
        id: id.to_owned(),
        rating: Rating::Up,
        tags: vec!["kind \"ü\"".to_owned()],
        comment: Some("good\u{0}".to_owned()),
        share: false,
        created_at: at(ms),
    }
}

async fn rate(store: &dyn Conversations, key: &ThreadKey, node: &NodeId, feedback_to_store: Feedback) {
    done("rate", store.set_feedback(key, node, Some(feedback_to_store)).await);
}

async fn list(
    store: &dyn Conversations,
    company: &str,
    agent: &str,
    cursor: Option<&str>,
    limit: usize,
) -> FeedbackPage {
    let (company, agent) = (CompanyId::from(company), AgentId::from(agent));
    done("list", store.agent_feedback(&company, &agent, cursor, limit).await)
}

async fn listed(store: &dyn Conversations, company: &str, agent: &str) -> Vec<String> {
    let page = list(store, company, agent, None, 100).await;
    page.feedback.into_iter().map(|found| found.feedback.id).collect()
}

async fn is_refused(store: &dyn Conversations, key: &ThreadKey, node: &NodeId) {
    for invalid_rating in [Some(feedback("x", 1)), None] {
        let refused = store.set_feedback(key, node, invalid_rating).await;
        let expected = ConversationError::NodeNotFound(node.to_string());
        assert_eq!(
            refused.expect_err("feedback on another node is refused").to_string(),
            expected.to_string()
        );
    }
}

pub(super) async fn a_message_is_rated_by_its_owner(store: &dyn Conversations) {
    turn(store, &key("t"), "r1", None, 0).await;
    let nodes = path(store, &key("t")).await;
    let before = thread(store, &key("t")).await;
    rate(store, &key("t"), &nodes[1].id, feedback("f1", 5)).await;
    let rated = path(store, &key("t")).await;
    assert_eq!((&rated[0].feedback, &rated[1].feedback), (&None, &Some(feedback("f1", 5))));
    let after = thread(store, &key("t")).await;
    assert!(after.version > before.version, "a rating invalidates a cached answer");
    assert_eq!(after.last_activity_at, before.last_activity_at, "a rating does not count as activity");
    let other = Feedback { rating: Rating::Down, tags: Vec::new(), comment: None, ..feedback("f2", 6) };
    rate(store, &key("t"), &nodes[1].id, other.clone()).await;
    assert_eq!(path(store, &key("t")).await[1].feedback, Some(other), "a message has one rating");
    assert_eq!(listed(store, "acme", "gardener").await, ["f2"]);
    done("remove", store.set_feedback(&key("t"), &nodes[1].id, None).await);
    assert_eq!(path(store, &key("t")).await, nodes);
    let version = thread(store, &key("t")).await.version;
    done("remove", store.set_feedback(&key("t"), &nodes[1].id, None).await);
    assert_eq!(thread(store, &key("t")).await.version, version, "removing a rating again changes nothing");
    is_refused(store, &key("t"), &"missing".into()).await;
    let bob = ThreadOwner::new("acme", "bob").thread("t");
    for key in [key("missing"), bob, ThreadOwner::new("other", "ada").thread("t")] {
        let refused = store.set_feedback(&key, &nodes[1].id, Some(feedback("x", 7))).await;
        assert!(matches!(refused, Err(ConversationError::ThreadNotFound)), "{key:?}: {refused:?}");
    }
}

pub(super) async fn feedback_is_limited(store: &dyn Conversations) {
    let (_, ended) = turn(store, &key("t"), "r1", None, 0).await;
    let node = ended.nodes[0].id.clone();
    let (comment, tag) = ("x".repeat(MAX_COMMENT_BYTES), "x".repeat(MAX_TAG_BYTES));
    let most = Feedback {
        comment: Some(comment.clone()),
        tags: vec![tag.clone(); MAX_FEEDBACK_TAGS],
        ..feedback("f", 1)
    };
    rate(store, &key("t"), &node, most.clone()).await;
    for more in [
        Feedback { comment: Some(format!("{comment}x")), ..most.clone() },
        Feedback { tags: vec![format!("{tag}x")], ..most.clone() },
        Feedback { tags: vec![String::new()], ..most.clone() },
        Feedback { tags: vec![tag; MAX_FEEDBACK_TAGS + 1], ..most.clone() },
    ] {
        let refused = store.set_feedback(&key("t"), &node, Some(more)).await;
        assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(path(store, &key("t")).await[1].feedback, Some(most));
}

pub(super) async fn feedback_goes_with_what_it_rates(store: &dyn Conversations) {
    turn(store, &key("t"), "r1", None, 0).await;
    let nodes = path(store, &key("t")).await;
    for (at, node) in (1..).zip(&nodes) {
        rate(store, &key("t"), &node.id, feedback(&format!("f{at}"), at)).await;
    }
    done("fork", store.fork(fork("copy", 9)).await);
    assert!(path(store, &key("copy")).await.iter().all(|node| node.feedback.is_none()), "a copy is unrated");
    assert_eq!(listed(store, "acme", "gardener").await, ["f2", "f1"]);
    done("erase", store.erase_node(&key("t"), &nodes[1].id).await);
    assert_eq!(path(store, &key("t")).await[1].feedback, None);
    assert_eq!(listed(store, "acme", "gardener").await, ["f1"]);
    is_refused(store, &key("t"), &nodes[1].id).await;
    done("delete", store.delete(&key("t")).await);
    assert_eq!(listed(store, "acme", "gardener").await, Vec::<String>::new());
    turn(store, &key("t"), "r1", None, 20).await;
    assert!(
        path(store, &key("t")).await.iter().all(|node| node.feedback.is_none()),
        "a new thread has no ratings of a deleted thread with its id"
    );
    // A visitor rates the messages of its own thread.
    let visitor = ThreadOwner::new("acme", "widget:t1:00ff").thread("t");
    turn(store, &visitor, "r1", None, 30).await;
    let visitor_path = path(store, &visitor).await;
    let hidden = NewNode { origin: NodeOrigin::Client, ..user(Some(&visitor_path[1].id), "hidden") };
    let hidden = done("append", store.append(&visitor, None, vec![hidden], at(31)).await).nodes[0].id.clone();
    rate(store, &visitor, &visitor_path[1].id, feedback("v", 32)).await;
    is_refused(store, &visitor, &hidden).await;
}

pub(super) async fn an_agent_s_feedback_is_listed_in_pages(store: &dyn Conversations) {
    let bob = ThreadOwner::new("acme", "bob").thread("t");
    let elsewhere = ThreadOwner::new("other", "ada").thread("t");
    for (owner, name) in [(&key("t"), "a"), (&bob, "b"), (&elsewhere, "e")] {
        turn(store, owner, "r1", None, 0).await;
        for (at, node) in path(store, owner).await.iter().enumerate() {
            let share = at == 1;
            let stored_feedback = Feedback { share, ..feedback(&format!("{name}{at}"), 5) };
            rate(store, owner, &node.id, stored_feedback).await;
        }
    }
    let other = CreateThreadRequest { agent_id: "cook".into(), ..create(key("other"), &["x"], 0) };
    done("create", store.create(other).await);
    let node = path(store, &key("other")).await[0].id.clone();
    rate(store, &key("other"), &node, feedback("c", 9)).await;
    assert_eq!(listed(store, "acme", "cook").await, ["c"]);
    assert_eq!(listed(store, "other", "gardener").await, ["e1", "e0"]);
    let (mut listed_feedback, mut cursor) = (Vec::new(), None);
    loop {
        let page = list(store, "acme", "gardener", cursor.as_deref(), 1).await;
        assert_eq!(page.feedback.len(), 1);
        listed_feedback.extend(page.feedback);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
        // Ratings that are added meanwhile are newer.
        let node = path(store, &key("t")).await[0].id.clone();
        rate(store, &key("t"), &node, feedback("a0", 10)).await;
    }
    let shown = |entry: &crate::conversation::AgentFeedback| {
        let words = entry.message.as_ref().map(|message| message.content.clone());
        (entry.feedback.id.clone(), words)
    };
    let shown: Vec<_> = listed_feedback.iter().map(shown).collect();
    let words = |id: &str, text: Option<&str>| (id.to_owned(), text.map(str::to_owned));
    assert_eq!(shown, [words("b1", Some("Hi")), words("b0", None), words("a1", Some("Hi"))]);
    for cursor in ["", "x", "5-zz", "zz-00"] {
        let page = store.agent_feedback(&"acme".into(), &"gardener".into(), Some(cursor), 5).await;
        assert!(matches!(page, Err(ConversationError::Invalid(_))), "{cursor:?}: {page:?}");
    }
}

pub(super) async fn visitors_threads_are_listed_by_agent(store: &dyn Conversations) {
    let visitors = ["widget:t1:00", "widget:t1:01", "widget:t2:00"];
    for visitor in visitors {
        for (id, ms) in [("a", 5), ("b", 5), ("c", 6)] {
            let owner = ThreadOwner::new("acme", visitor);
            done("create", store.create(create(owner.thread(id), &["x"], ms)).await);
        }
    }
    for owner in [
        ada(),
        ThreadOwner::new("acme", "widget"),
        ThreadOwner::new("acme", "Widget:x"),
        ThreadOwner::new("other", "widget:t1:00"),
    ] {
        done("create", store.create(create(owner.thread("mine"), &["x"], 7)).await);
    }
    let other = create(ThreadOwner::new("acme", "widget:t1:00").thread("cook"), &["x"], 7);
    done("create", store.create(CreateThreadRequest { agent_id: "cook".into(), ..other }).await);
    let (company, agent) = (CompanyId::from("acme"), AgentId::from("gardener"));
    let (mut locations, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.visitor_threads(&company, &agent, cursor.as_deref(), 2).await;
        let page = done("list", page);
        assert!(page.threads.len() <= 2);
        let location =
            |thread: &Thread| (thread.owner.as_ref().expect("its owner").to_string(), thread.id.clone());
        locations.extend(page.threads.iter().map(location));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let mut expected = Vec::new();
    for ids in [&["c"][..], &["b", "a"]] {
        for visitor in visitors.iter().rev() {
            expected.extend(ids.iter().map(|id| ((*visitor).to_owned(), (*id).into())));
        }
    }
    assert_eq!(locations, expected);
    for cursor in ["", "x", "5-00", "5-zz-00", "zz-00-00"] {
        let page = store.visitor_threads(&company, &agent, Some(cursor), 5).await;
        assert!(matches!(page, Err(ConversationError::Invalid(_))), "{cursor:?}: {page:?}");
    }
    let thread = done("thread", store.thread(&ThreadOwner::new("acme", visitors[0]).thread("a")).await);
    assert_eq!(thread.expect("the thread exists").owner, None, "only the list names owners");
}
