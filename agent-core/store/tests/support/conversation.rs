//! A conversation with all that the tables of conversations keep.

use agent_core::event::Event;
use agent_core::message::{Message, ToolCall};
use agent_platform::conversation::{
    AppendedEvents, BeginRunRequest, ChunkWriter, ConversationError, Conversations, EndRunRequest, Feedback,
    LogChunk, LogEnd, NewNode, NewThread, Node, NodeOrigin, NodeQuery, NodeSelection, NodeStatus,
    OnDisconnect, PublicRunError, Rating, Run, RunChunk, RunEndKind, RunEnding, RunFilter, RunKey, RunLease,
    RunRecord, RunTrigger, SentContext, Thread, ThreadFilter, ThreadKey, ThreadOwner, ThreadPatch,
    TurnContext,
};
use jiff::Timestamp;

/// Returns a fixed point in time plus `ms` milliseconds.
pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

pub(crate) fn owner() -> ThreadOwner {
    ThreadOwner::new("acme", "ada \"ü\"")
}

fn node(id: &str, parent: Option<&str>, message: Message) -> NewNode {
    NewNode { id: id.into(), parent_id: parent.map(Into::into), ..NewNode::user(None, message) }
}

pub(crate) fn begin(key: ThreadKey, run: &str, nodes: Vec<NewNode>) -> BeginRunRequest {
    BeginRunRequest {
        key,
        agent_id: "gardener".into(),
        run_id: run.into(),
        continues: None,
        decisions: Vec::new(),
        context: Default::default(),
        trigger: RunTrigger::default(),
        parent_id: nodes.last().map(|node| node.id.clone()),
        nodes,
        new_thread: NewThread::default(),
        retention: None,
        order: Default::default(),
        expected_version: None,
        on_disconnect: OnDisconnect::Continue,
        grace_ms: Some(5_000),
        backend: Some("openai".to_owned()),
        request_sha256: None,
        lease: RunLease { process: "process".to_owned(), until: at(10_000) },
        now: at(1),
    }
}

pub(crate) fn end(run: &str, nodes: Vec<NewNode>) -> EndRunRequest {
    EndRunRequest {
        owner: owner(),
        run_id: run.into(),
        process: "process".to_owned(),
        nodes,
        ending: RunEnding::default(),
        log: LogEnd::default(),
        context: None,
        request_sha256: Some("00ff".to_owned()),
        backend: None,
        record: RunRecord::default(),
        now: at(2),
    }
}

/// Returns a chunk of a log with a text in as many pieces as it has words.
pub(crate) fn chunk(first: u64, text: &str) -> LogChunk {
    let mut writer = ChunkWriter::new(first);
    for delta in text.split_inclusive(' ') {
        writer.push(&Event::TextMessageContent { message_id: "m".into(), delta: delta.to_owned() });
    }
    writer.take().expect("a text has words")
}

/// Appends a chunk to the log of the owner's run.
pub(crate) async fn append(
    store: &dyn Conversations,
    run: &str,
    chunk: LogChunk,
) -> Result<(), ConversationError> {
    let run = RunKey { owner: owner(), id: run.into() };
    let appended = store.append_events("process", vec![RunChunk { run, chunk }]).await?;
    assert_eq!(appended, AppendedEvents::default(), "the process has the run");
    Ok(())
}

/// Stores two threads: one with two runs, of which one has failed and has a log, with a rated answer, and one that is archived and has a run
/// in progress.
pub(crate) async fn fill(store: &dyn Conversations) -> Result<(), ConversationError> {
    let key = owner().thread("t/1");
    let question =
        Message { id: Some("client 1".to_owned()), ..Message::user("Water the \"basil\"?\nü \u{0}") };
    store.begin_run(begin(key.clone(), "run 1", vec![node("n1", None, question)])).await?;
    let calls = vec![ToolCall::new("call", "look", "{}")];
    let answer = |id: &str, parent: &str, message: Message| NewNode {
        origin: NodeOrigin::Run,
        ..node(id, Some(parent), message)
    };
    let nodes = vec![
        answer("n2", "n1", Message::with_tool_calls("I look", calls)),
        answer("n3", "n2", Message::tool_result("call", "dry")),
        answer("n4", "n3", Message::assistant("Yes")),
    ];
    let sent = SentContext { node: "n1".into(), text: "It is \"noon\".\n\u{0}ü".into() };
    store.end_run(EndRunRequest { context: Some(sent), ..end("run 1", nodes) }).await?;
    store.begin_run(begin(key, "run 2", vec![node("n5", Some("n1"), Message::user("Why?"))])).await?;
    append(store, "run 2", chunk(0, "Be \"cause\"\nü \u{0}")).await?;
    let log = LogEnd { chunks: vec![chunk(3, "the end")], until: Some(at(60_000)), ..LogEnd::default() };
    let failure = PublicRunError { code: "UPSTREAM".to_owned(), message: "no".to_owned() };
    let ending = RunEnding { kind: RunEndKind::Failed(failure), ..RunEnding::default() };
    let partial = NewNode { status: NodeStatus::Incomplete, ..answer("n6", "n5", Message::assistant("Be")) };
    store.end_run(EndRunRequest { ending, log, ..end("run 2", vec![partial]) }).await?;
    let other = owner().thread("t2");
    store.begin_run(begin(other.clone(), "run 3", vec![node("n1", None, Message::user("Hello"))])).await?;
    append(store, "run 3", chunk(0, "Hel lo")).await?;
    let archive = ThreadPatch { archived: Some(true), ..ThreadPatch::default() };
    store.patch(&other, archive, at(3)).await?;
    let feedback = Feedback {
        id: "feedback 1".to_owned(),
        rating: Rating::Down,
        tags: vec!["wet \"ü\"".to_owned()],
        comment: Some("Too much\n\u{0}".to_owned()),
        share: true,
        created_at: at(4),
    };
    store.set_feedback(&owner().thread("t/1"), &"n4".into(), Some(feedback)).await?;
    let unsaid = Feedback {
        rating: Rating::Up,
        tags: Vec::new(),
        comment: None,
        share: false,
        id: "feedback 2".to_owned(),
        created_at: at(5),
    };
    store.set_feedback(&other, &"n1".into(), Some(unsaid)).await
}

/// Threads, nodes, runs and chunks of logs.
pub(crate) type Contents = (Vec<Thread>, Vec<Node>, Vec<Run>, Vec<LogChunk>);

/// Returns all stored data of the owner.
pub(crate) async fn contents(store: &dyn Conversations) -> Contents {
    let threads =
        store.threads(&owner(), &ThreadFilter::default(), None, 100).await.expect("threads").threads;
    let mut nodes = Vec::new();
    for thread in &threads {
        let query = NodeQuery { select: NodeSelection::Tree, ..NodeQuery::default() };
        let page = store.nodes(&owner().thread(&thread.id), &query).await.expect("nodes");
        nodes.extend(page.expect("a thread").nodes);
    }
    let runs = store.runs(&owner(), &RunFilter::default(), None, 100).await.expect("runs").runs;
    let mut chunks = Vec::new();
    for run in &runs {
        let mut next = 0;
        loop {
            let page = store.events(&owner(), &run.id, next).await.expect("events").expect("a run");
            assert_eq!(page.run, *run);
            let Some(last) = page.chunks.last() else { break };
            next = last.last + 1;
            chunks.extend(page.chunks);
        }
    }
    (threads, nodes, runs, chunks)
}

/// Returns the contexts that [`fill`] has stored.
pub(crate) async fn contexts(store: &dyn Conversations) -> Vec<TurnContext> {
    let turns = ["run 1".into(), "run 2".into()];
    let found = store.contexts(&owner().thread("t/1"), 0, &turns).await.expect("contexts");
    assert_eq!(found.len(), 1);
    found
}

/// Checks the data that [`fill`] stored in a version without logs and without numbers of an owner's runs.
pub(crate) async fn runs_of_the_version_before_are_read(store: &dyn Conversations) {
    let read = contents(store).await;
    assert_eq!((read.0.len(), read.1.len(), read.2.len(), read.3.len()), (2, 7, 3, 0));
    append(store, "run 3", chunk(0, "go on")).await.expect("a live run is continued");
    store.begin_run(begin(owner().thread("t3"), "run 4", Vec::new())).await.expect("begun");
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let filter = RunFilter::default();
        let page = store.runs(&owner(), &filter, cursor.as_deref(), 1).await.expect("a page of runs");
        ids.extend(page.runs.iter().map(|run| run.id.to_string()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, ["run 4", "run 3", "run 2", "run 1"]);
}
