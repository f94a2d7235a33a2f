mod properties;

use std::cell::RefCell;

use futures_util::FutureExt;
use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::*;
use crate::conformance::conversations::support;
use crate::conversation::{
    BeginRunRequest, DeleteFilter, EndRunRequest, ForkThreadRequest, MemoryConversations, MergeInput,
    MergeResult, NewNode, NodeId, NodeStatus, RequestFormat, SentContext, ThreadLinks, ThreadPatch, merge,
};
use crate::conversation::{is_paired, tree};

const NEXT: &str = "next";

fn key() -> ThreadKey {
    support::key("t")
}

fn now() -> Timestamp {
    support::at(0)
}

/// The prompt of a turn, and whether its thread was cached.
#[derive(Debug, PartialEq)]
struct Prompt {
    texts: Vec<String>,
    is_cached: bool,
}

fn cached(texts: &[&str]) -> Prompt {
    prompt(texts, true)
}

fn read(texts: &[&str]) -> Prompt {
    prompt(texts, false)
}

fn prompt(texts: &[&str], is_cached: bool) -> Prompt {
    let texts = texts.iter().chain([&NEXT]).map(|text| (*text).to_owned());
    Prompt { texts: texts.collect(), is_cached }
}

/// Messages of a prompt, and a copy of them.
type PromptInUse = (Arc<Vec<Arc<Message>>>, Vec<Message>);

/// A process: its cache over a store that it shares with other processes.
struct Process<'s> {
    store: &'s MemoryConversations,
    cache: ThreadCache,
    /// The latest prompt with an even number of messages, which its backend still reads.
    in_use: RefCell<Option<PromptInUse>>,
}

impl<'s> Process<'s> {
    fn new(store: &'s MemoryConversations) -> Self {
        Self::with_cache(store, ThreadCache::default())
    }

    fn with_cache(store: &'s MemoryConversations, cache: ThreadCache) -> Self {
        Self { store, cache, in_use: RefCell::default() }
    }

    /// Loads a thread and places the next message at its head, as a turn does. Returns the prompt, and true if the thread
    /// was cached.
    async fn load(&self, key: &ThreadKey) -> (Arc<Vec<Arc<Message>>>, MergeResult, bool) {
        let mut loaded = self.cache.load(self.store, key).await.expect("the thread loads");
        let is_cached = !loaded.messages.is_empty();
        let input = MergeInput {
            links: loaded.links(),
            known_path: loaded.path(),
            ids: Some(loaded.ids()),
            head: loaded.thread().and_then(|thread| thread.head.clone()),
            messages: vec![Arc::new(Message::user(NEXT))],
            format: RequestFormat::Message,
            ..MergeInput::default()
        };
        let merged = merge(input).expect("it merges");
        loaded.read_path(self.store, key, &merged.path, true).await.expect("a path");
        let plain = merged.prompt(loaded.path_messages());
        let messages = loaded.prompt(&merged);
        assert_eq!(*messages, plain);
        assert_eq!(loaded.is_paired(&messages), is_paired(&plain));
        let ids = loaded.links().iter().flat_map(|link| [Some(link.id.as_str()), link.client_id.as_deref()]);
        assert!(ids.flatten().all(|id| loaded.ids().may_have(loaded.links(), id)));
        self.cache.keep(key, loaded);
        self.use_prompt(&messages);
        (messages, merged, is_cached)
    }

    /// Checks that the prompt in use is unchanged, and then uses this prompt if its number of messages is even.
    fn use_prompt(&self, messages: &Arc<Vec<Arc<Message>>>) {
        if let Some((in_use, before)) = &*self.in_use.borrow() {
            assert_eq!(copied(in_use), *before);
        }
        if messages.len().is_multiple_of(2) {
            self.in_use.replace(Some((Arc::clone(messages), copied(messages))));
        }
    }

    async fn plan(&self, key: &ThreadKey) -> (Prompt, MergeResult) {
        let (messages, merged, is_cached) = self.load(key).await;
        let texts = messages.iter().map(|message| message.content.to_text().into_owned()).collect();
        (Prompt { texts, is_cached }, merged)
    }

    /// Returns the messages of the next prompt.
    async fn messages(&self, key: &ThreadKey) -> Vec<Message> {
        copied(&self.load(key).await.0)
    }

    async fn prompt(&self, key: &ThreadKey) -> Prompt {
        self.plan(key).await.0
    }

    /// Returns the contexts of the messages that are shown.
    async fn contexts(&self, key: &ThreadKey) -> Vec<Option<Arc<str>>> {
        let mut loaded = self.cache.load(self.store, key).await.expect("the thread loads");
        let head = loaded.thread().and_then(|thread| thread.head.as_ref());
        let head = head.and_then(|head| tree::find(loaded.links(), head));
        let path = tree::path_positions(loaded.links(), head, loaded.path());
        loaded.read_path(self.store, key, &path, true).await.expect("a path");
        let contexts = loaded.path_messages().map(|message| message.sent_context.clone()).collect();
        self.cache.keep(key, loaded);
        contexts
    }

    /// Runs a turn: its begin and its end are commits of this process.
    async fn turn(&self, key: &ThreadKey, run: &str) -> Prompt {
        let (prompt, merged) = self.plan(key).await;
        let parent = merged.parent_id.clone();
        let begun = self.store.begin_run(begin(key, run, merged)).await.expect("it begins");
        self.cache.apply_begin(key, &begun);
        let text = format!("context of {run}").into();
        let context = parent.clone().map(|node| SentContext { node, text });
        let answer = NewNode {
            origin: NodeOrigin::Run,
            ..NewNode::user(parent, Message::assistant(format!("answer of {run}")))
        };
        let end = EndRunRequest { context, ..support::end(key.thread_owner(), run, vec![answer], 0) };
        let ended = self.store.end_run(end).await.expect("it ends");
        self.cache.apply_end(key, &ended);
        prompt
    }

    /// Runs a turn without a new message, whose answer goes below a node, or that fails before it says anything.
    async fn answer_anew(&self, key: &ThreadKey, node: NodeId, run: &str, has_answer: bool) {
        let begin = support::begin(key.clone(), run, None, NEXT, 0);
        let begin = BeginRunRequest { nodes: Vec::new(), parent_id: Some(node.clone()), ..begin };
        let begun = self.store.begin_run(begin).await.expect("it begins");
        self.cache.apply_begin(key, &begun);
        let answer = NewNode::user(Some(node.clone()), Message::assistant(format!("answer of {run}")));
        let nodes = has_answer.then_some(NewNode { origin: NodeOrigin::Run, ..answer });
        let context = Some(SentContext { node, text: format!("context of {run}").into() });
        let end = support::end(key.thread_owner(), run, nodes.into_iter().collect(), 0);
        let ended = self.store.end_run(EndRunRequest { context, ..end }).await.expect("it ends");
        self.cache.apply_end(key, &ended);
    }

    async fn erase(&self, key: &ThreadKey, node: &NodeId) {
        self.store.erase_node(key, node).await.expect("it is erased");
        self.cache.remove(key);
    }

    async fn delete(&self, key: &ThreadKey) {
        self.store.delete(key).await.expect("it is deleted");
        self.cache.remove(key);
    }

    fn has(&self, key: &ThreadKey) -> bool {
        self.cache.lock().threads.get(&key.company, &table_key(key)).is_some()
    }
}

fn copied(messages: &[Arc<Message>]) -> Vec<Message> {
    messages.iter().map(|message| Message::clone(message)).collect()
}

fn begin(key: &ThreadKey, run: &str, merged: MergeResult) -> BeginRunRequest {
    let MergeResult { nodes, parent_id, .. } = merged;
    BeginRunRequest { nodes, parent_id, ..support::begin(key.clone(), run, None, NEXT, 0) }
}

async fn create(store: &MemoryConversations, key: &ThreadKey, texts: &[&str]) {
    store.create(support::create(key.clone(), texts, 0)).await.expect("it is created");
}

/// Returns the nodes of a thread.
async fn nodes(store: &MemoryConversations, key: &ThreadKey) -> Vec<NodeLink> {
    store.links(key).await.expect("links").map(|found| found.links).unwrap_or_default()
}

#[tokio::test]
async fn later_turns_read_only_the_row_and_new_contents() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    assert_eq!(process.prompt(&key()).await, read(&["a", "b"]));
    assert_eq!(process.turn(&key(), "r1").await, cached(&["a", "b"]));
    // The commits of the process have changed the version twice.
    assert_eq!(process.turn(&key(), "r2").await, cached(&["a", "b", NEXT, "answer of r1"]));
    let third = process.prompt(&key()).await;
    assert_eq!(third, cached(&["a", "b", NEXT, "answer of r1", NEXT, "answer of r2"]));
    let mut loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
    assert_eq!(loaded.links(), nodes(&store, &key()).await, "as the store has them");
    let seqs: Vec<u32> = (0..6).collect();
    loaded.read_path(&store, &key(), &seqs, true).await.expect("a path");
    let mut anew = ThreadCache::default().load(&store, &key()).await.expect("the thread loads");
    anew.read_path(&store, &key(), &seqs, true).await.expect("a path");
    assert!(loaded.path_messages().eq(anew.path_messages()), "as the store has them");
}

#[tokio::test]
async fn the_prompts_of_later_turns_share_the_messages_of_the_first() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    let messages = async || {
        let mut loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
        let seqs: Vec<u32> = loaded.links().iter().map(|link| link.seq).collect();
        let bytes = loaded.bytes;
        loaded.read_path(&store, &key(), &seqs, true).await.expect("a path");
        let messages: Vec<_> = loaded.path_messages().collect();
        let context_bytes = loaded.bytes - bytes;
        process.cache.keep(&key(), loaded);
        (messages, context_bytes)
    };
    let (first, _) = messages().await;
    process.turn(&key(), "r1").await;
    let (second, context_bytes) = messages().await;
    assert_eq!(context_bytes, "context of r1".len(), "the message keeps it, too");
    let (third, context_bytes) = messages().await;
    assert_eq!(context_bytes, 0);
    assert_eq!([first.len(), second.len(), third.len()], [2, 4, 4]);
    assert!(first.iter().zip(&second).all(|(one, other)| Arc::ptr_eq(one, other)));
    assert!(second.iter().zip(&third).all(|(one, other)| Arc::ptr_eq(one, other)));
    assert_eq!(second[2].sent_context.as_deref(), Some("context of r1"));
}

#[tokio::test]
async fn a_prompt_with_another_context_leaves_those_before_it_as_they_are() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a"]).await;
    let mut loaded = ThreadCache::default().load(&store, &key()).await.expect("the thread loads");
    let mut with = async |is_continued| {
        loaded.read_path(&store, &key(), &[0], is_continued).await.expect("a path");
        loaded.path_messages().next().expect("a message")
    };
    let (without, with_empty_one) = (with(false).await, with(true).await);
    assert_eq!(without.sent_context, None);
    assert_eq!(with_empty_one.sent_context.as_deref(), Some(""));
    assert_eq!(without.content, with_empty_one.content);
}

#[tokio::test]
async fn a_later_turn_of_a_long_thread_reads_only_the_new_nodes() {
    let store = MemoryConversations::default();
    let texts: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    create(&store, &key(), &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let process = Process::new(&store);
    process.turn(&key(), "r1").await;
    tree::FOLLOWED_PARENTS.set(0);
    assert_eq!(process.prompt(&key()).await.texts.len(), 1_003);
    assert_eq!(tree::FOLLOWED_PARENTS.get(), 2, "the message and the answer of the turn before");
    let mut loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
    let path: Vec<u32> = (0..1_002).collect();
    assert_eq!(loaded.path(), path);
    assert_eq!(loaded.path.keep_common(&path, &loaded.links), 1_002, "nothing is left to be read");
}

#[tokio::test]
async fn a_context_that_a_later_run_of_a_turn_stores_is_seen() {
    let store = MemoryConversations::default();
    let process = Process::new(&store);
    let (_, merged) = process.plan(&key()).await;
    let asked = merged.parent_id.clone().expect("a message");
    store.begin_run(begin(&key(), "r1", merged)).await.expect("it begins");
    let end = async |run: &str, below: &NodeId, context| {
        let message = Message::assistant(format!("answer of {run}"));
        let answer = NewNode { origin: NodeOrigin::Run, ..NewNode::user(Some(below.clone()), message) };
        let end = EndRunRequest { context, ..support::end(key().thread_owner(), run, vec![answer], 0) };
        let ended = store.end_run(end).await.expect("it ends");
        process.cache.apply_end(&key(), &ended);
        ended.nodes[0].id.clone()
    };
    let answer = end("r1", &asked, None).await;
    process.prompt(&key()).await;
    let contexts = |texts: &[Option<&str>]| -> Vec<Option<Arc<str>>> {
        texts.iter().map(|text| text.map(Arc::from)).collect()
    };
    assert_eq!(process.contexts(&key()).await, contexts(&[Some(""), None]));
    // The turn goes on with a result, as after a decision.
    let result = NewNode::user(Some(answer), Message::tool_result("call", "done"));
    let go_on = BeginRunRequest {
        parent_id: Some(result.id.clone()),
        nodes: vec![result],
        continues: Some("r1".into()),
        ..support::begin(key(), "r2", None, NEXT, 0)
    };
    let begun = store.begin_run(go_on).await.expect("it begins");
    process.cache.apply_begin(&key(), &begun);
    let context = SentContext { node: asked, text: "late".into() };
    end("r2", &begun.nodes[0].id, Some(context)).await;
    assert!(process.prompt(&key()).await.is_cached);
    assert_eq!(process.contexts(&key()).await, contexts(&[Some("late"), None, None, None]));
}

#[tokio::test]
async fn the_context_of_a_turn_of_this_process_need_not_be_read() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    for run in ["r1", "r2"] {
        process.turn(&key(), run).await;
        let loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
        let path = PathContexts::new(&loaded.links().iter().collect::<Vec<_>>(), true);
        assert!(loaded.contexts.missing(&path).turns.is_empty(), "nothing is read after {run}");
        process.cache.keep(&key(), loaded);
    }
    let contexts = process.contexts(&key()).await;
    assert_eq!(contexts[4].as_deref(), Some("context of r2"));
    assert_eq!(contexts, Process::new(&store).contexts(&key()).await);
}

#[tokio::test]
async fn the_contexts_of_a_copied_turn_are_seen_after_a_run_with_its_id() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    process.turn(&key(), "r1").await;
    let at = nodes(&store, &key()).await.last().map(|node| node.id.clone());
    let fork =
        ForkThreadRequest { key: key(), at, id: "fork".into(), agent_id: None, title: None, now: now() };
    store.fork(fork).await.expect("it is forked");
    // The run is deleted with its thread.
    process.delete(&key()).await;
    let fork = ThreadKey { id: "fork".into(), ..key() };
    process.turn(&fork, "r1").await;
    let contexts = process.contexts(&fork).await;
    assert_eq!(contexts[2].as_deref(), Some("context of r1"));
    assert_eq!(contexts, Process::new(&store).contexts(&fork).await);
}

#[tokio::test]
async fn the_contexts_of_turns_are_read_once() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    let mut expected: Vec<Option<Arc<str>>> = vec![Some("".into()), None];
    for run in ["r1", "r2"] {
        process.turn(&key(), run).await;
        expected.extend([Some(format!("context of {run}").into()), None]);
        assert_eq!(process.contexts(&key()).await, expected);
        let loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
        let path = PathContexts::new(&loaded.links().iter().collect::<Vec<_>>(), true);
        assert!(loaded.contexts.missing(&path).turns.is_empty(), "also those without a context");
        process.cache.keep(&key(), loaded);
    }
}

#[tokio::test]
async fn an_erased_message_is_gone_whichever_process_erases_it() {
    for is_own in [true, false] {
        let store = MemoryConversations::default();
        create(&store, &key(), &["secret", "b"]).await;
        let (process, other) = (Process::new(&store), Process::new(&store));
        process.prompt(&key()).await;
        other.prompt(&key()).await;
        let node = nodes(&store, &key()).await.remove(0).id;
        let erasing = if is_own { &process } else { &other };
        erasing.erase(&key(), &node).await;
        assert_eq!(process.has(&key()), !is_own, "an own erasure drops it at once");
        assert_eq!(process.prompt(&key()).await, read(&["b"]));
        assert_eq!(other.prompt(&key()).await, read(&["b"]));
        assert_eq!(process.prompt(&key()).await, cached(&["b"]));
    }
}

#[tokio::test]
async fn changes_by_another_process_are_seen() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let (process, other) = (Process::new(&store), Process::new(&store));
    process.prompt(&key()).await;
    other.turn(&key(), "r").await;
    assert_eq!(process.prompt(&key()).await, read(&["a", "b", NEXT, "answer of r"]));
    // A second branch, which becomes the head, and the first one again.
    let first = nodes(&store, &key()).await[0].id.clone();
    let branch = NewNode::user(Some(first), Message::user("c"));
    store.append(&key(), None, vec![branch], now()).await.expect("it is appended");
    assert_eq!(process.prompt(&key()).await, read(&["a", "c"]));
    let second = nodes(&store, &key()).await[1].id.clone();
    let patch = ThreadPatch { head: Some(second), ..ThreadPatch::default() };
    store.patch(&key(), patch, now()).await.expect("the head moves");
    assert_eq!(process.prompt(&key()).await, read(&["a", "b", NEXT, "answer of r"]));
}

#[tokio::test]
async fn a_thread_that_is_created_again_has_nothing_of_the_first() {
    let store = MemoryConversations::default();
    let (process, other) = (Process::new(&store), Process::new(&store));
    // Time, version and number of messages are the same each time.
    for text in ["a", "b", "c"] {
        create(&store, &key(), &[text]).await;
        assert_eq!(process.prompt(&key()).await, read(&[text]));
        assert_eq!(other.prompt(&key()).await, read(&[text]));
        match text {
            "a" => other.delete(&key()).await,
            // As retention does.
            _ => {
                let owner = key().thread_owner();
                let deleted = store.delete_many(&owner, &DeleteFilter::default()).await.expect("deleted");
                assert_eq!(deleted.deleted, 1);
                other.cache.remove_owner(&owner);
            }
        }
        assert!(process.has(&key()) && !other.has(&key()), "{text}");
    }
    assert_eq!(process.prompt(&key()).await, read(&[]));
    assert!(!process.has(&key()), "a deleted thread is dropped when it is found to be");
}

#[tokio::test]
async fn a_commit_after_that_of_another_process_is_not_applied() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["secret", "b"]).await;
    let (process, other) = (Process::new(&store), Process::new(&store));
    let (_, merged) = process.plan(&key()).await;
    let node = nodes(&store, &key()).await.remove(0).id;
    other.erase(&key(), &node).await;
    let begun = store.begin_run(begin(&key(), "r", merged)).await.expect("it begins");
    process.cache.apply_begin(&key(), &begun);
    assert!(!process.has(&key()));
    assert_eq!(process.prompt(&key()).await, read(&["b", NEXT]));
}

#[tokio::test]
async fn a_thread_that_is_loaded_while_it_is_removed_is_not_kept() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["secret"]).await;
    let process = Process::new(&store);
    for _ in 0..2 {
        // At first from the store, then from the cache.
        let loaded = process.cache.load(&store, &key()).await.expect("the thread loads");
        process.cache.remove(&key());
        process.cache.keep(&key(), loaded);
        assert!(!process.has(&key()));
        process.prompt(&key()).await;
        assert!(process.has(&key()));
    }
}

#[tokio::test]
async fn nodes_of_another_version_than_the_row_are_not_kept() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a"]).await;
    let before = store.thread(&key()).await.expect("it reads").expect("a thread");
    store.append(&key(), None, vec![NewNode::user(None, Message::user("b"))], now()).await.expect("appended");
    let found = store.links(&key()).await.expect("links").expect("a thread");
    let process = Process::new(&store);
    let torn = ThreadLinks { thread: before, links: found.links.clone() };
    process.cache.keep(&key(), LoadedThread::new(torn.into(), 0));
    assert!(!process.has(&key()));
    process.cache.keep(&key(), LoadedThread::new(found.into(), 0));
    assert!(process.has(&key()));
}

#[tokio::test]
async fn forks_owners_and_companies_are_isolated() {
    let store = MemoryConversations::default();
    create(&store, &key(), &["a", "b"]).await;
    let process = Process::new(&store);
    process.prompt(&key()).await;
    let at = Some(nodes(&store, &key()).await[0].id.clone());
    let fork =
        ForkThreadRequest { key: key(), at, id: "fork".into(), agent_id: None, title: None, now: now() };
    store.fork(fork).await.expect("it is forked");
    let fork = ThreadKey { id: "fork".into(), ..key() };
    assert_eq!(process.prompt(&fork).await, read(&["a"]));
    for other in [ThreadKey::new("acme", "bob", "t"), ThreadKey::new("other", "ada", "t")] {
        assert_eq!(process.prompt(&other).await, read(&[]));
        create(&store, &other, &["c"]).await;
        assert_eq!(process.prompt(&other).await, read(&["c"]));
        process.cache.remove_owner(&other.thread_owner());
        assert!(!process.has(&other));
    }
    assert_eq!(process.prompt(&key()).await, cached(&["a", "b"]));
    assert_eq!(process.prompt(&fork).await, cached(&["a"]));
}

#[tokio::test]
async fn a_company_fills_its_share_and_no_more() {
    let store = MemoryConversations::default();
    let own = |n: usize| ThreadKey::new("acme", "ada", n.to_string());
    let other = ThreadKey::new("other", "eve", "t");
    let text = "x".repeat(10_000);
    create(&store, &other, &[&text]).await;
    // Room for five threads of one message; a company may have three of them.
    let limits = CompanyTableLimits { total: 60_000, per_company: 36_000 };
    let process = Process::with_cache(&store, ThreadCache::with_limits(limits));
    process.prompt(&other).await;
    for n in 0..10 {
        create(&store, &own(n), &[&text]).await;
        process.prompt(&own(n)).await;
    }
    let kept: Vec<usize> = (0..10).filter(|n| process.has(&own(*n))).collect();
    assert_eq!(kept, [7, 8, 9], "the least recently used ones make room");
    assert_eq!(process.prompt(&other).await, cached(&[&text]));
    // A thread that exceeds the share takes the place of no other one.
    create(&store, &own(10), &[&text, &text, &text, &text]).await;
    process.prompt(&own(10)).await;
    assert!(!process.has(&own(10)) && process.has(&own(9)));
    // One that grows makes the others give way.
    process.prompt(&own(7)).await;
    let long = NewNode::user(None, Message::user(text.repeat(2)));
    store.append(&own(7), None, vec![long], now()).await.expect("appended");
    process.prompt(&own(7)).await;
    assert!(process.has(&own(7)) && !process.has(&own(8)));
}
