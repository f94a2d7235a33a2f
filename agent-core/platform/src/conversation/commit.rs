//! Commits of a store as pure functions: from the rows that a store has read to those that it writes.
//!
//! A store reads the rows that a function takes, under a lock on the owner, writes what the function returns, and
//! returns it to the caller. It decides nothing itself.

use std::collections::{HashMap, HashSet};

use agent_core::ids::{AgentId, RunId};
use jiff::Timestamp;

mod begin;
mod decisions;
mod end;
mod erasure;
mod queue;
mod rating;

pub use begin::{BeginCommit, BeginRows, begin_run};
pub use decisions::{ChangeCommit, ChangeRows, added_run, change_run, last_node};
pub use end::{EndCommit, EndRows, end_run};
pub use erasure::{EraseCommit, delete_part, erase_node};
pub use queue::{QueueCommit, QueueRows, queue_run};
pub use rating::rate_node;

use queue::set_idle;

use super::thread::{check_metadata, check_title, expiry};
use super::thread_limit::max_threads;
use super::time::whole_millis;
use super::tree::branch_leaf;
use super::{
    ConversationError, CreateThreadRequest, ForkThreadRequest, MAX_NODE_CHILDREN, MAX_THREAD_NODES, NewNode,
    NewThread, Node, NodeId, NodeLink, Run, Siblings, StoredNode, Thread, ThreadKey, ThreadLimit,
    ThreadPatch, ThreadStatus, TitleSource, check_conversation_id, title,
};

/// Position of a stored node, as far as a new node needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodePosition {
    /// Position in the order in which the thread's nodes were stored.
    pub seq: u32,
    /// Number of children.
    pub children: u32,
}

/// Stored nodes that new nodes refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNodes {
    /// Positions of those nodes of [`referenced_ids`] that exist.
    pub positions: HashMap<NodeId, NodePosition>,
    /// Number of roots.
    pub roots: u32,
}

/// Returns the ids that decide about new nodes: their own, and their parents'.
pub fn referenced_ids<'n>(nodes: &'n [NewNode], parent: Option<&'n NodeId>) -> HashSet<&'n NodeId> {
    let ids = nodes.iter().flat_map(|node| [Some(&node.id), node.parent_id.as_ref()]);
    ids.chain([parent]).flatten().collect()
}

/// A run with the process that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// Id of the process.
    pub process: String,
}

/// Adds nodes without a run. `known` has the nodes of [`referenced_ids`]. A thread that awaits results of its client's calls awaits
/// none any more if the nodes are below its head.
///
/// # Errors
/// See [`Conversations::append`](super::Conversations::append).
pub fn append(
    mut thread: Thread,
    expected_version: Option<u64>,
    known: KnownNodes,
    nodes: Vec<NewNode>,
    now: Timestamp,
) -> Result<(Thread, Vec<StoredNode>), ConversationError> {
    if expected_version.is_some_and(|expected| expected != thread.version) {
        return Err(ConversationError::VersionConflict { found: thread.version });
    }
    let now = whole_millis(now);
    let nodes = Placement::new(&thread, known, now).add_all(nodes, true)?;
    if let Some(first) = nodes.first() {
        // Later results would be on another branch than these nodes.
        if thread.status == ThreadStatus::AwaitingTools && first.parent_id == thread.head {
            thread.open_run_id = None;
            set_idle(&mut thread);
        }
        thread.version += 1;
        apply_nodes(&mut thread, &nodes, now);
    }
    Ok((thread, nodes))
}

/// Creates a thread. `thread_count` is the number of threads that the owner has.
///
/// # Errors
/// See [`Conversations::create`](super::Conversations::create).
pub fn create(
    create: CreateThreadRequest,
    thread_count: u64,
) -> Result<(Thread, Vec<StoredNode>), ConversationError> {
    create.key.check()?;
    check_conversation_id("agentId", &create.agent_id)?;
    check_thread_count(&create.key, thread_count)?;
    let now = whole_millis(create.now);
    let mut thread = new_thread(&create.key, create.agent_id, &create.new, now)?;
    thread.expires_at = expiry(now, create.retention);
    let nodes = Placement::new(&thread, KnownNodes::default(), now).add_all(create.nodes, true)?;
    apply_nodes(&mut thread, &nodes, now);
    Ok((thread, nodes))
}

/// Copies a path into a new thread. `path` has its nodes, root first.
///
/// # Errors
/// See [`Conversations::fork`](super::Conversations::fork).
pub fn fork(
    fork: &ForkThreadRequest,
    source: Thread,
    path: Vec<StoredNode>,
    thread_count: u64,
) -> Result<(Thread, Vec<StoredNode>), ConversationError> {
    let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
    key.check()?;
    check_thread_count(&key, thread_count)?;
    let now = whole_millis(fork.now);
    let new = NewThread { origin: source.origin, metadata: source.metadata, ..NewThread::default() };
    let agent = fork.agent_id.clone().unwrap_or(source.agent_id);
    check_conversation_id("agentId", &agent)?;
    let mut thread = new_thread(&key, agent, &new, now)?;
    (thread.title, thread.title_from) = match (&fork.title, source.title_from) {
        (Some(new_title), _) => {
            check_title(new_title)?;
            (new_title.clone(), TitleSource::User)
        }
        // The source may have its title from a message of another branch, whose erasure would leave it in the copy.
        (None, TitleSource::Message) => (title(path.iter().map(|node| &node.message)), TitleSource::Message),
        (None, from) => (source.title, from),
    };
    let copy = |(seq, node): (u32, StoredNode)| {
        let link = NodeLink { seq, parent: seq.checked_sub(1), ..node.link };
        StoredNode { link, run_id: None, feedback: None, ..node }
    };
    let nodes: Vec<StoredNode> = (0..).zip(path).map(copy).collect();
    let retention = source.expires_at.map(|at| at.duration_since(source.last_activity_at));
    thread.expires_at = expiry(now, retention);
    thread.message_count = count(nodes.len());
    thread.head = nodes.last().map(|node| node.link.id.clone());
    Ok((thread, nodes))
}

/// Changes a thread. `links` are those of its nodes, which are needed only with `patch.head`: the head becomes the newest
/// leaf of that node's branch. The version grows only if something changes.
///
/// # Errors
/// See [`Conversations::patch`](super::Conversations::patch).
pub fn patch(
    mut thread: Thread,
    patch: &ThreadPatch,
    links: &[NodeLink],
) -> Result<Thread, ConversationError> {
    if patch.expected_version.is_some_and(|expected| expected != thread.version) {
        return Err(ConversationError::VersionConflict { found: thread.version });
    }
    let before = thread.clone();
    if let Some(title) = &patch.title {
        check_title(title)?;
        (thread.title, thread.title_from) = (title.clone(), TitleSource::User);
    }
    if let Some(metadata) = &patch.metadata {
        check_metadata(metadata)?;
        thread.metadata = metadata.clone();
    }
    thread.archived = patch.archived.unwrap_or(thread.archived);
    if let Some(head) = &patch.head {
        let missing = || ConversationError::NodeNotFound(head.to_string());
        thread.head = Some(branch_leaf(links, head).ok_or_else(missing)?);
    }
    if thread != before {
        thread.version += 1;
    }
    Ok(thread)
}

fn check_thread_count(key: &ThreadKey, count: u64) -> Result<(), ConversationError> {
    match count >= max_threads(&key.thread_owner()) {
        true => Err(ConversationError::ThreadFull(ThreadLimit::Threads)),
        false => Ok(()),
    }
}

fn new_thread(
    key: &ThreadKey,
    agent_id: AgentId,
    new: &NewThread,
    now: Timestamp,
) -> Result<Thread, ConversationError> {
    let NewThread { origin, title, metadata } = new;
    title.as_deref().map_or(Ok(()), check_title)?;
    check_metadata(metadata)?;
    let title_from = if title.is_some() { TitleSource::User } else { TitleSource::Message };
    Ok(Thread {
        id: key.id.clone(),
        agent_id,
        title: title.clone().unwrap_or_default(),
        title_from,
        status: ThreadStatus::Idle,
        active_run_id: None,
        queued_run_ids: Vec::new(),
        open_run_id: None,
        head: None,
        archived: false,
        origin: *origin,
        owner: None,
        message_count: 0,
        metadata: metadata.clone(),
        created_at: now,
        last_activity_at: now,
        expires_at: None,
        version: 1,
    })
}

/// Records new nodes in the thread: head, number, activity, and the title if there is none.
fn apply_nodes(thread: &mut Thread, nodes: &[StoredNode], now: Timestamp) {
    if let Some(last) = nodes.last() {
        thread.head = Some(last.link.id.clone());
    }
    thread.message_count += count(nodes.len());
    let retention = thread.expires_at.map(|at| at.duration_since(thread.last_activity_at));
    thread.last_activity_at = thread.last_activity_at.max(now);
    thread.expires_at = expiry(thread.last_activity_at, retention);
    if thread.title.is_empty() && thread.title_from == TitleSource::Message {
        thread.title = title(nodes.iter().map(|node| &node.message));
    }
}

fn count(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(u32::MAX)
}

/// Checks that a thread of `count` nodes has room for `new` ones.
///
/// # Errors
/// [`ConversationError::ThreadFull`].
pub fn check_node_count(count: usize, new: usize) -> Result<(), ConversationError> {
    match new > 0 && count + new > MAX_THREAD_NODES as usize {
        true => Err(ConversationError::ThreadFull(ThreadLimit::Nodes)),
        false => Ok(()),
    }
}

/// Checks that a node with `count` children, or a thread with `count` roots, may have another one.
///
/// # Errors
/// [`ConversationError::ThreadFull`].
pub fn check_child_count(count: usize) -> Result<(), ConversationError> {
    match count >= MAX_NODE_CHILDREN as usize {
        true => Err(ConversationError::ThreadFull(ThreadLimit::Children)),
        false => Ok(()),
    }
}

/// Placement of new nodes in a tree.
struct Placement {
    known: KnownNodes,
    /// Ids of new nodes that already existed in the thread, with the ids that replace them.
    renamed: HashMap<NodeId, NodeId>,
    next_seq: u32,
    /// Turn and run of the new nodes.
    run: Option<(RunId, RunId)>,
    now: Timestamp,
}

impl Placement {
    fn new(thread: &Thread, known: KnownNodes, now: Timestamp) -> Self {
        Self { known, renamed: HashMap::new(), next_seq: thread.message_count, run: None, now }
    }

    fn add_all(
        &mut self,
        nodes: Vec<NewNode>,
        is_limited: bool,
    ) -> Result<Vec<StoredNode>, ConversationError> {
        if is_limited {
            check_node_count(self.next_seq as usize, nodes.len())?;
        }
        nodes.into_iter().map(|node| self.add(node, is_limited)).collect()
    }

    /// Returns the id of a node as it is stored.
    fn resolve(&self, id: &NodeId) -> Result<NodeId, ConversationError> {
        let id = self.renamed.get(id).unwrap_or(id);
        match self.known.positions.contains_key(id) {
            true => Ok(id.clone()),
            false => Err(ConversationError::NodeNotFound(id.to_string())),
        }
    }

    fn add(&mut self, node: NewNode, is_limited: bool) -> Result<StoredNode, ConversationError> {
        let parent_id = node.parent_id.as_ref().map(|id| self.resolve(id)).transpose()?;
        let parent_position = parent_id.as_ref().and_then(|id| self.known.positions.get_mut(id));
        let parent = parent_position.as_ref().map(|position| position.seq);
        let children = parent_position.map_or(&mut self.known.roots, |position| &mut position.children);
        if is_limited {
            check_child_count(*children as usize)?;
        }
        *children += 1;
        let mut client_id = node.client_id.filter(|id| check_conversation_id("", id).is_ok());
        let is_taken = self.known.positions.contains_key(&node.id);
        // A vendor's ids may repeat. Clients have seen the first one.
        let id = if is_taken || check_conversation_id("", node.id.as_str()).is_err() {
            let id = NodeId::generate();
            client_id = client_id.or_else(|| Some(node.id.as_str().to_owned()).filter(|_| is_taken));
            self.renamed.insert(node.id, id.clone());
            id
        } else {
            node.id
        };
        let (seq, now) = (self.next_seq, self.now);
        self.next_seq += 1;
        self.known.positions.insert(id.clone(), NodePosition { seq, children: 0 });
        let (turn_id, run_id) = match &self.run {
            Some((turn, run)) => (turn.clone(), Some(run.clone())),
            None => (id.as_str().into(), None),
        };
        let (role, hash) = (node.message.role(), node.message.hash());
        let message = node.message.with_id(&id);
        let (status, origin) = (node.status, node.origin);
        let link = NodeLink { seq, parent, id, client_id, turn_id, role, status, origin, hash };
        Ok(StoredNode { link, parent_id, run_id, origin, created_at: now, feedback: None, message })
    }
}

/// Returns the positions and the identity of new nodes.
pub fn links(nodes: &[StoredNode]) -> Vec<NodeLink> {
    nodes.iter().map(|node| node.link.clone()).collect()
}

/// Returns new nodes on the wire. `known` has their parents as they were before.
pub fn nodes_on_wire(nodes: Vec<StoredNode>, known: &KnownNodes) -> Vec<Node> {
    let mut children: HashMap<Option<NodeId>, u32> = HashMap::new();
    let before = |parent: &Option<NodeId>| match parent {
        Some(id) => known.positions.get(id).map_or(0, |position| position.children),
        None => known.roots,
    };
    let mut indices = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let count = children.entry(node.parent_id.clone()).or_insert_with(|| before(&node.parent_id));
        indices.push(*count);
        *count += 1;
    }
    let siblings = |(node, index): (StoredNode, u32)| {
        let count = children.get(&node.parent_id).copied().unwrap_or(1);
        node.into_node(Siblings { index, count })
    };
    nodes.into_iter().zip(indices).map(siblings).collect()
}
