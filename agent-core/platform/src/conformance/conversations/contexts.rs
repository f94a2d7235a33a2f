//! Contexts that were sent with user messages.

use agent_core::ids::RunId;

use super::support::*;
use crate::conversation::{
    Conversations, EndRunRequest, ForkThreadRequest, MAX_CONTEXT_BYTES, MAX_CONTEXT_PAGE_BYTES, NewNode,
    NodeId, NodeStatus, SentContext, ThreadKey, ThreadOwner, TurnContext,
};

fn sent(node: &NodeId, text: &str) -> Option<SentContext> {
    Some(SentContext { node: node.clone(), text: text.into() })
}

/// Runs a turn with a context below `parent`. Returns its user message.
async fn turn_with(
    store: &dyn Conversations,
    key: &ThreadKey,
    run: &str,
    parent: Option<&NodeId>,
    text: &str,
) -> NodeId {
    let begun = done("begin", store.begin_run(begin(key.clone(), run, parent, "Hello", 0)).await);
    let question = begun.nodes.last().expect("the user's message").id.clone();
    let nodes = vec![answer(&format!("{run}-answer"), &question, "Hi")];
    let end = EndRunRequest { context: sent(&question, text), ..end(key.thread_owner(), run, nodes, 1) };
    done("end", store.end_run(end).await);
    question
}

async fn found(store: &dyn Conversations, key: &ThreadKey, turns: &[&str]) -> Vec<(NodeId, String, String)> {
    found_from(store, key, 0, turns).await
}

async fn found_from(
    store: &dyn Conversations,
    key: &ThreadKey,
    from: u32,
    turns: &[&str],
) -> Vec<(NodeId, String, String)> {
    let turns: Vec<RunId> = turns.iter().map(|turn| run_id(turn)).collect();
    let contexts = done("contexts", store.contexts(key, from, &turns).await);
    let context = |TurnContext { turn_id, sent }: TurnContext| {
        (sent.node, turn_id.as_str().to_owned(), sent.text.to_string())
    };
    contexts.into_iter().map(context).collect()
}

pub(super) async fn a_context_is_of_a_message_and_a_turn(store: &dyn Conversations) {
    let (first_text, second_text) = ("It is \"noon\".\n\u{0}ü", "one");
    let first = turn_with(store, &key("t"), "r1", None, first_text).await;
    let second = turn_with(store, &key("t"), "r2", Some(&"r1-answer".into()), second_text).await;
    let row = |node: &NodeId, turn: &str, text: &str| (node.clone(), turn.to_owned(), text.to_owned());
    let both = [row(&second, "r2", second_text), row(&first, "r1", first_text)];
    assert_eq!(found(store, &key("t"), &["r1", "r2", "none"]).await, both, "the newest message first");
    assert_eq!(found(store, &key("t"), &["r1"]).await, both[1..]);
    assert_eq!(found(store, &key("t"), &[]).await, []);
    // The second message is the third node.
    for (from, count) in [(0, 2), (1, 1), (2, 1), (3, 0)] {
        assert_eq!(found_from(store, &key("t"), from, &["r1", "r2"]).await, both[..count], "from {from}");
    }
    // A second answer to the first message has a separate context.
    let mut again = begin(key("t"), "r3", None, "", 5);
    (again.nodes, again.parent_id) = (Vec::new(), Some(first.clone()));
    done("begin", store.begin_run(again).await);
    let nodes = vec![answer("r3-answer", &first, "Ho")];
    done(
        "end",
        store.end_run(EndRunRequest { context: sent(&first, "two"), ..end(ada(), "r3", nodes, 6) }).await,
    );
    assert_eq!(
        found(store, &key("t"), &["r1", "r3"]).await,
        [row(&first, "r3", "two"), row(&first, "r1", first_text)]
    );
    // Other owners, companies and threads do not have the context.
    turn_with(store, &key("other"), "r4", None, "another").await;
    for other in [
        ThreadOwner::new("acme", "bob").thread("t"),
        ThreadOwner::new("other", "ada").thread("t"),
        key("none"),
    ] {
        assert_eq!(found(store, &other, &["r1", "r2", "r3", "r4"]).await, []);
    }
}

pub(super) async fn a_turn_keeps_its_first_context(store: &dyn Conversations) {
    let begun = done("begin", store.begin_run(begin(key("t"), "r1", None, "Hello", 0)).await);
    let question = begun.nodes[0].id.clone();
    let calling = NewNode { status: NodeStatus::Complete, ..answer("a", &question, "Let me see") };
    let first = EndRunRequest { context: sent(&question, "noon"), ..end(ada(), "r1", vec![calling], 1) };
    let ended = done("end", store.end_run(first).await);
    assert_eq!(ended.context, sent(&question, "noon"));
    let mut next = begin(key("t"), "r2", None, "", 2);
    (next.nodes, next.parent_id, next.continues) = (Vec::new(), Some("a".into()), Some(run_id("r1")));
    done("begin", store.begin_run(next).await);
    let second = EndRunRequest { context: sent(&question, "one"), ..end(ada(), "r2", Vec::new(), 3) };
    let ended = done("end", store.end_run(second).await);
    assert_eq!((ended.run.turn_id.as_str(), ended.context), ("r1", None), "a turn keeps its first context");
    assert_eq!(
        found(store, &key("t"), &["r1", "r2"]).await,
        [(question, "r1".to_owned(), "noon".to_owned())]
    );
}

pub(super) async fn contexts_go_with_their_message(store: &dyn Conversations) {
    let first = turn_with(store, &key("t"), "r1", None, "noon").await;
    let second = turn_with(store, &key("t"), "r2", Some(&"r1-answer".into()), "one").await;
    let fork = |id: &str, agent: Option<&str>| ForkThreadRequest {
        at: Some("r2-answer".into()),
        agent_id: agent.map(Into::into),
        ..fork(id, 9)
    };
    done("fork", store.fork(fork("copy", None)).await);
    done("fork", store.fork(fork("of-another", Some("cook"))).await);
    let texts = async |id: &str| -> Vec<String> {
        let found = found(store, &key(id), &["r1", "r2"]).await;
        found.into_iter().map(|(_, _, text)| text).collect()
    };
    assert_eq!(texts("copy").await, ["one", "noon"]);
    assert_eq!(texts("of-another").await, [""; 0], "another agent's prompt has no contexts of the thread");
    done("erase", store.erase_node(&key("t"), &first).await);
    assert_eq!(texts("t").await, ["one"], "an erased message has no context");
    let late = EndRunRequest { context: sent(&first, "late"), ..end(ada(), "r3", Vec::new(), 12) };
    done("begin", store.begin_run(begin(key("t"), "r3", Some(&second), "More", 11)).await);
    done("end", store.end_run(late).await);
    assert_eq!(found(store, &key("t"), &["r3"]).await, [], "an erased message gets no context later");
    done("delete", store.delete(&key("t")).await);
    assert_eq!(texts("t").await, [""; 0]);
    assert_eq!(texts("copy").await, ["one", "noon"], "a copied thread keeps its contexts");
    turn_with(store, &key("t"), "r5", None, "anew").await;
    assert_eq!(texts("t").await, [""; 0], "a new thread has no contexts of a deleted thread with its id");
}

pub(super) async fn contexts_are_limited(store: &dyn Conversations) {
    let longest = "x".repeat(MAX_CONTEXT_BYTES);
    turn_with(store, &key("t"), "long", None, &longest).await;
    turn_with(store, &key("t"), "too-long", None, &format!("{longest}x")).await;
    let answered = begin(key("t"), "answer", Some(&"long-answer".into()), "More", 3);
    done("begin", store.begin_run(answered).await);
    let context = sent(&"long-answer".into(), "of an answer");
    let ended =
        done("end", store.end_run(EndRunRequest { context, ..end(ada(), "answer", Vec::new(), 4) }).await);
    assert_eq!(ended.context, None, "a context is kept only for a user message");
    let kept = found(store, &key("t"), &["long", "too-long", "answer"]).await;
    assert_eq!(kept.iter().map(|(_, turn, _)| turn.as_str()).collect::<Vec<_>>(), ["long"]);
    // A page has a bounded size and contains the newest messages.
    let fitting = MAX_CONTEXT_PAGE_BYTES / MAX_CONTEXT_BYTES;
    let runs: Vec<String> = (0..fitting + 3).map(|n| format!("r{n}")).collect();
    for (n, run) in runs.iter().enumerate() {
        let parent = n.checked_sub(1).map(|before| NodeId::from(format!("r{before}-answer")));
        turn_with(store, &key("many"), run, parent.as_ref(), &longest).await;
    }
    let turns: Vec<&str> = runs.iter().map(String::as_str).collect();
    let page = found(store, &key("many"), &turns).await;
    assert!((fitting - 1..=fitting).contains(&page.len()), "{}", page.len());
    assert_eq!(page[0].1, runs[fitting + 2]);
}
