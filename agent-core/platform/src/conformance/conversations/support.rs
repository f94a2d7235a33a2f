//! Threads, runs and times that the tests of conversations share.

use agent_core::ids::RunId;
use agent_core::message::Message;
use jiff::Timestamp;

use crate::conversation::{
    BeginRunRequest, BegunRun, ConversationError, Conversations, CreateThreadRequest, EndRunRequest,
    EndedRun, ForkThreadRequest, LogEnd, NewNode, NewThread, Node, NodeId, NodeOrigin, NodePage, NodeQuery,
    NodeSelection, OnDisconnect, RunClock, RunEnding, RunLease, RunRecord, RunTrigger, Thread, ThreadKey,
    ThreadOwner, import_nodes,
};

pub(super) fn done<T>(what: &str, result: Result<T, ConversationError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

/// Returns a fixed point in time plus `ms` milliseconds.
pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

pub(super) fn ada() -> ThreadOwner {
    ThreadOwner::new("acme", "ada")
}

pub(crate) fn key(id: &str) -> ThreadKey {
    ada().thread(id)
}

pub(super) fn user(parent: Option<&NodeId>, text: &str) -> NewNode {
    NewNode::user(parent.cloned(), Message::user(text))
}

pub(super) fn answer(id: &str, parent: &NodeId, text: &str) -> NewNode {
    NewNode {
        id: id.into(),
        origin: NodeOrigin::Run,
        ..NewNode::user(Some(parent.clone()), Message::assistant(text))
    }
}

pub(crate) fn create(key: ThreadKey, texts: &[&str], ms: i64) -> CreateThreadRequest {
    let messages = texts.iter().enumerate().map(|(at, text)| match at % 2 {
        0 => Message::user(*text),
        _ => Message::assistant(*text),
    });
    let nodes = import_nodes(None, messages.collect());
    CreateThreadRequest {
        key,
        agent_id: "gardener".into(),
        new: NewThread::default(),
        retention: None,
        nodes,
        now: at(ms),
    }
}

pub(super) fn lease(until_ms: i64) -> RunLease {
    RunLease { process: "p1".to_owned(), until: at(until_ms) }
}

/// Returns the clock at `at(ms)`, with logs kept for a second.
pub(super) fn clock(ms: i64) -> RunClock {
    RunClock { now: at(ms), log_until: at(ms + 1_000) }
}

/// Returns the begin of a run with one new message below `parent`, at `at(ms)`.
pub(crate) fn begin(
    key: ThreadKey,
    run: &str,
    parent: Option<&NodeId>,
    text: &str,
    ms: i64,
) -> BeginRunRequest {
    let node = user(parent, text);
    BeginRunRequest {
        key,
        agent_id: "gardener".into(),
        run_id: run.into(),
        continues: None,
        decisions: Vec::new(),
        context: Default::default(),
        trigger: RunTrigger::default(),
        parent_id: Some(node.id.clone()),
        nodes: vec![node],
        new_thread: NewThread::default(),
        retention: None,
        order: Default::default(),
        expected_version: None,
        on_disconnect: OnDisconnect::default(),
        grace_ms: None,
        backend: None,
        request_sha256: None,
        lease: lease(ms + 10_000),
        now: at(ms),
    }
}

pub(crate) fn end(owner: ThreadOwner, run: &str, nodes: Vec<NewNode>, ms: i64) -> EndRunRequest {
    EndRunRequest {
        owner,
        run_id: run.into(),
        process: "p1".to_owned(),
        nodes,
        ending: RunEnding::default(),
        log: LogEnd::default(),
        context: None,
        request_sha256: None,
        backend: None,
        record: RunRecord::default(),
        now: at(ms),
    }
}

/// Returns the request to copy the whole path of the thread `t` to the thread `id`, at `at(ms)`.
pub(super) fn fork(id: &str, ms: i64) -> ForkThreadRequest {
    ForkThreadRequest { key: key("t"), at: None, id: id.into(), agent_id: None, title: None, now: at(ms) }
}

/// Runs a turn at `at(ms)` and returns its beginning and its end.
pub(super) async fn turn(
    store: &dyn Conversations,
    key: &ThreadKey,
    run: &str,
    parent: Option<&NodeId>,
    ms: i64,
) -> (BegunRun, EndedRun) {
    let begun = done("begin", store.begin_run(begin(key.clone(), run, parent, "Hello", ms)).await);
    let last = begun.nodes.last().expect("the user's message").id.clone();
    let nodes = vec![answer(&format!("{run}-answer"), &last, "Hi")];
    let ended = done("end", store.end_run(end(key.thread_owner(), run, nodes, ms + 1)).await);
    (begun, ended)
}

pub(super) async fn thread(store: &dyn Conversations, key: &ThreadKey) -> Thread {
    done("thread", store.thread(key).await).expect("the thread is there")
}

pub(super) async fn page(store: &dyn Conversations, key: &ThreadKey, select: NodeSelection) -> NodePage {
    let query = NodeQuery { select, ..NodeQuery::default() };
    done("nodes", store.nodes(key, &query).await).expect("the thread is there")
}

pub(super) async fn path(store: &dyn Conversations, key: &ThreadKey) -> Vec<Node> {
    page(store, key, NodeSelection::default()).await.nodes
}

pub(super) fn texts(nodes: &[Node]) -> Vec<String> {
    let text = |node: &Node| node.message.as_message().map(|message| message.content.to_text().into_owned());
    nodes.iter().map(|node| text(node).unwrap_or_default()).collect()
}

pub(super) fn run_id(id: &str) -> RunId {
    id.into()
}
