//! Cache of threads as turns read them: the identity of all nodes, the messages on the path to the head, and the contexts of
//! its turns. Prompts share the messages of a cached thread, and a turn whose path continues that of the previous turn reads
//! the new nodes only.
//!
//! Each turn reads the thread's row, and uses the cached thread only if the row is unchanged. A commit that adds, changes or
//! deletes nodes or contexts, or moves the head, changes the version in the row, in all stores and processes. A turn
//! therefore never sends a message that was erased before it read the row. A thread that was deleted and created again has
//! another creation time and another head.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::{RunId, ThreadId, UserId};
use agent_core::message::{Content, ContentPart, MediaSource, Message, ToolCall};

use super::context::ThreadContexts;
use super::node_ids::{NODE_ID_HASHES_BYTES, NodeIds};
use super::{
    BegunRun, ConversationError, Conversations, EndedRun, MAX_PAGE_NODES, MergeResult, Node, NodeContent,
    NodeId, NodeLink, NodeMessage, NodeOrigin, PathContexts, Thread, ThreadKey, ThreadOwner, ThreadPath,
};
use crate::company_table::{CompanyTable, CompanyTableLimits};

mod prompt_path;

use prompt_path::{PATH_NODE_BYTES, PromptPath};

/// Capacity in bytes. A thread of 10,000 short messages has about 7 MB.
const CACHE_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 64 << 20, per_company: 16 << 20 };
/// Approximate size of an entry without its nodes, title and metadata, in bytes.
const ENTRY_BYTES: usize = 1024;
/// Approximate size of a shared text or an entry of a map beyond its content, in bytes.
const OVERHEAD_BYTES: usize = 16;
/// Size of a shared message without what it has on the heap, in bytes.
const SHARED_MESSAGE_BYTES: usize = size_of::<Message>() + OVERHEAD_BYTES;

/// Cache of threads of all companies, by company, owner and id. The threads of a company have a share.
pub struct ThreadCache {
    state: Mutex<CacheState>,
}

impl std::fmt::Debug for ThreadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadCache").finish_non_exhaustive()
    }
}

struct CacheState {
    threads: CompanyTable<(UserId, ThreadId), LoadedThread>,
    /// Number of removals. A thread that was loaded before the latest removal is not kept, since it may be the removed one.
    removals: u64,
}

/// A thread with the identity of its nodes, and the messages and contexts of those that turns have read.
#[derive(Debug, Default)]
pub struct LoadedThread {
    thread: Option<Thread>,
    links: Vec<NodeLink>,
    /// Messages in the order of their positions.
    messages: Vec<CachedMessage>,
    contexts: ThreadContexts,
    path: PromptPath,
    ids: NodeIds,
    /// Approximate size in bytes, without the contexts.
    bytes: usize,
    /// Number of removals from the cache when the thread was loaded.
    removals: u64,
}

/// Message of a node, as prompts have it.
#[derive(Debug)]
struct CachedMessage {
    /// Position of the node.
    seq: u32,
    /// The message, with the context that the latest prompt had of it; `None` if no prompt has the node.
    message: Option<Arc<Message>>,
}

impl Default for ThreadCache {
    fn default() -> Self {
        Self::with_limits(CACHE_LIMITS)
    }
}

impl ThreadCache {
    fn with_limits(limits: CompanyTableLimits) -> Self {
        Self { state: Mutex::new(CacheState { threads: CompanyTable::new(limits), removals: 0 }) }
    }

    /// Loads a thread: takes it from the cache if its row is unchanged, or else reads it from the store. The caller gives
    /// it back by [`keep`](Self::keep). A thread that does not exist is an empty one.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn load(
        &self,
        store: &dyn Conversations,
        key: &ThreadKey,
    ) -> Result<LoadedThread, ConversationError> {
        if let Some(cached) = self.take(key)
            && store.thread(key).await? == cached.thread
        {
            return Ok(cached);
        }
        let removals = self.lock().removals;
        let found = store.path(key).await?;
        Ok(found.map(|found| LoadedThread::new(found, removals)).unwrap_or_default())
    }

    /// Caches a loaded thread for the next turn. A thread is left out if one was removed meanwhile, or if its row and
    /// nodes were read at different versions.
    pub fn keep(&self, key: &ThreadKey, loaded: LoadedThread) {
        let mut state = self.lock();
        if loaded.removals == state.removals && loaded.has_all_nodes() {
            state.insert(key, loaded);
        }
    }

    /// Applies the begin of a run by this process to its cached thread. The cached thread is removed unless it has the version
    /// before the commit.
    pub fn apply_begin(&self, key: &ThreadKey, begun_run: &BegunRun) {
        let BegunRun { thread, run, links, nodes } = begun_run;
        self.apply(key, |cached| cached.apply(thread, &run.turn_id, links, nodes));
    }

    /// Applies the end of a run by this process as [`apply_begin`](Self::apply_begin) does its begin.
    pub fn apply_end(&self, key: &ThreadKey, ended: &EndedRun) {
        let EndedRun { thread, run, links, nodes, context } = ended;
        self.apply(key, |cached| {
            let is_applied = cached.apply(thread, &run.turn_id, links, nodes);
            // Before its first message, a copied thread may have contexts of a turn whose run was deleted and had the same id.
            let seq = |id: &NodeId| cached.links.iter().rfind(|link| link.id == *id).map(|link| link.seq);
            let ids = context.iter().map(|sent| &sent.node).chain(run.node_ids.first());
            let from = ids.filter_map(seq).min();
            // The turn has no contexts of earlier runs.
            if let Some(from) = from.filter(|_| run.turn_id == run.id) {
                cached.contexts.set(&run.turn_id, from, context.clone());
            }
            is_applied
        });
    }

    /// Applies a commit to a cached thread, which is removed if `apply` returns false.
    fn apply(&self, key: &ThreadKey, apply: impl FnOnce(&mut LoadedThread) -> bool) {
        let mut state = self.lock();
        let Some(mut cached) = state.threads.remove(&key.company, &table_key(key)) else { return };
        if apply(&mut cached) {
            state.insert(key, cached);
        }
    }

    /// Removes a thread that was deleted or from which a message was erased.
    pub fn remove(&self, key: &ThreadKey) {
        let mut state = self.lock();
        state.removals += 1;
        state.threads.remove(&key.company, &table_key(key));
    }

    /// Removes all threads of an owner after some of them were deleted.
    pub fn remove_owner(&self, owner: &ThreadOwner) {
        let mut state = self.lock();
        state.removals += 1;
        let of_company = state.threads.company_mut(&owner.company).map(|(key, _)| key);
        let own: Vec<_> = of_company.filter(|(user, _)| *user == owner.owner).cloned().collect();
        for key in own {
            state.threads.remove(&owner.company, &key);
        }
    }

    fn take(&self, key: &ThreadKey) -> Option<LoadedThread> {
        let mut state = self.lock();
        let thread = state.threads.remove(&key.company, &table_key(key))?;
        Some(LoadedThread { removals: state.removals, ..thread })
    }

    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn insert(&mut self, key: &ThreadKey, loaded: LoadedThread) {
        let added_bytes: usize = loaded.path.added_messages().iter().map(shared_message_bytes).sum();
        let bytes = loaded.bytes + loaded.contexts.bytes() + loaded.path.paired_bytes() + added_bytes;
        self.threads.insert_sized(&key.company, table_key(key), loaded, bytes);
    }
}

fn table_key(key: &ThreadKey) -> (UserId, ThreadId) {
    (key.owner.clone(), key.id.clone())
}

impl LoadedThread {
    fn new(found: ThreadPath, removals: u64) -> Self {
        let ThreadPath { thread, links, contents } = found;
        // Parsed values take more memory than their text.
        let metadata = serde_json::to_vec(&thread.metadata).map_or(0, |json| 4 * json.len());
        let messages: Vec<_> =
            contents.into_iter().map(|content| CachedMessage::new(content, &links)).collect();
        let nodes = links.iter().map(link_bytes).chain(messages.iter().map(CachedMessage::bytes));
        let bytes = ENTRY_BYTES + thread.title.len() + metadata + nodes.sum::<usize>();
        Self { thread: Some(thread), links, messages, bytes, removals, ..Self::default() }
    }

    /// Returns the thread; `None` if it does not exist.
    pub fn thread(&self) -> Option<&Thread> {
        self.thread.as_ref()
    }

    /// Returns the identity of all nodes, in the order in which they were stored.
    pub fn links(&self) -> &[NodeLink] {
        &self.links
    }

    /// Returns the ids of all nodes. A thread in the cache keeps them for its later turns.
    pub fn ids(&self) -> &NodeIds {
        &self.ids
    }

    /// Returns the positions of the nodes on the latest path that was [read](Self::read_path), root first.
    pub fn path(&self) -> &[u32] {
        self.path.seqs()
    }

    /// Reads the messages and the contexts of a path, root first, except for those that were read before. `is_continued` is
    /// false if the last message's answer is made again.
    ///
    /// # Errors
    /// [`ConversationError::VersionConflict`] if the thread was deleted meanwhile, and errors of the store.
    pub async fn read_path(
        &mut self,
        store: &dyn Conversations,
        key: &ThreadKey,
        path: &[u32],
        is_continued: bool,
    ) -> Result<(), ConversationError> {
        let new = &path[self.path.keep_common(path, &self.links)..];
        self.read_messages(store, key, new).await?;
        let contexts = self.read_contexts(store, key, new, is_continued).await?;
        let (mut sent_context, mut next) = (contexts.texts(), 0);
        for seq in new {
            let context = sent_context(*seq);
            let at = self.message_index(*seq, next);
            next = at.map_or(next, |at| at + 1);
            let message = at.and_then(|at| self.message(at, context));
            self.path.push(*seq, message);
        }
        Ok(())
    }

    /// Returns the messages of a merged request's prompt, whose path was [read](Self::read_path). Those of the path are as
    /// they were first sent to the backend: with their contexts, and one of the client's with its id at the client, if any. A
    /// message is the same in every prompt, and all prompts share it. The list is shared, too: the thread's next prompt appends
    /// to it, or to a copy while this one is in use.
    pub fn prompt(&mut self, merged: &MergeResult) -> Arc<Vec<Arc<Message>>> {
        self.path.prompt(&merged.instructions, merged.new_messages())
    }

    /// Returns true if messages need no repair of their tool calls. Of the latest [`prompt`](Self::prompt), only messages that
    /// no earlier prompt contained are examined.
    pub fn is_paired(&mut self, messages: &Arc<Vec<Arc<Message>>>) -> bool {
        self.path.is_paired(messages)
    }

    /// Returns the messages of the path that was [read](Self::read_path).
    #[cfg(test)]
    fn path_messages(&self) -> impl Iterator<Item = Arc<Message>> {
        self.path.messages().iter().cloned()
    }

    /// Reads the messages of the nodes at these ascending positions, except for messages that were read before.
    async fn read_messages(
        &mut self,
        store: &dyn Conversations,
        key: &ThreadKey,
        seqs: &[u32],
    ) -> Result<(), ConversationError> {
        let (mut missing, mut next) = (Vec::new(), 0);
        for seq in seqs {
            match self.message_index(*seq, next) {
                Some(at) => next = at + 1,
                None => missing.push(*seq),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut added = Vec::new();
        for page in missing.chunks(MAX_PAGE_NODES) {
            let found = store.contents(key, page).await?;
            // Nodes are never removed from a thread, so it was deleted meanwhile.
            if found.len() < page.len() {
                return Err(ConversationError::VersionConflict { found: 0 });
            }
            added.extend(found.into_iter().map(|content| CachedMessage::new(content, &self.links)));
        }
        self.bytes += added.iter().map(CachedMessage::bytes).sum::<usize>();
        self.messages.append(&mut added);
        // Those of another branch are between the others.
        self.messages.sort_by_key(|cached| cached.seq);
        Ok(())
    }

    /// Returns the contexts of the user messages at these positions, which are the end of a path. Contexts of turns that were
    /// not read before are read. `is_continued` is false if the last message's answer is made again.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn read_contexts(
        &mut self,
        store: &dyn Conversations,
        key: &ThreadKey,
        seqs: &[u32],
        is_continued: bool,
    ) -> Result<PathContexts, ConversationError> {
        let path = {
            let links: Vec<_> = seqs.iter().filter_map(|seq| NodeLink::find(&self.links, *seq)).collect();
            PathContexts::new(&links, is_continued)
        };
        let missing = self.contexts.missing(&path);
        if !missing.turns.is_empty() {
            let stored = store.contexts(key, missing.from, &missing.turns).await?;
            self.contexts.add(missing, stored);
        }
        Ok(path.with_texts(&self.contexts))
    }

    /// Returns the message at an index as a prompt has it with this context; `None` if no prompt has the node.
    fn message(&mut self, at: usize, context: Option<Arc<str>>) -> Option<Arc<Message>> {
        let message = self.messages[at].message.as_mut()?;
        // Another answer to the message may have been made with another context.
        if message.sent_context != context {
            let size = |context: &Option<Arc<str>>| context.as_deref().map_or(0, str::len);
            self.bytes = self.bytes.saturating_sub(size(&message.sent_context)) + size(&context);
            Arc::make_mut(message).sent_context = context;
        }
        Some(Arc::clone(message))
    }

    /// Returns the index of the message of the node at a position; `None` if it was not read. `likely` is looked at first: on
    /// most paths, messages follow one another.
    fn message_index(&self, seq: u32, likely: usize) -> Option<usize> {
        match self.messages.get(likely) {
            Some(cached) if cached.seq == seq => Some(likely),
            _ => self.messages.binary_search_by_key(&seq, |cached| cached.seq).ok(),
        }
    }

    /// Applies a commit of a turn: `thread` is the thread after it, `added` and `nodes` are its new nodes. Returns false if
    /// others have changed the thread since it was loaded.
    fn apply(&mut self, thread: &Thread, turn: &RunId, added: &[NodeLink], nodes: &[Node]) -> bool {
        let is_next =
            |before: &Thread| before.created_at == thread.created_at && before.version + 1 == thread.version;
        if !self.thread.as_ref().is_some_and(is_next) {
            return false;
        }
        self.thread = Some(thread.clone());
        self.bytes += added.iter().map(link_bytes).sum::<usize>();
        self.links.extend_from_slice(added);
        self.ids.add(added);
        // The end of the turn's run adds its context.
        if self.contexts.remove(turn) {
            self.path.remove_turn(turn, &self.links);
        }
        for (link, node) in added.iter().zip(nodes) {
            if let Some(message) = as_stored(&node.message) {
                let content =
                    NodeContent { seq: link.seq, status: link.status, origin: node.origin, message };
                let cached = CachedMessage::new(content, added);
                self.bytes += cached.bytes();
                self.messages.push(cached);
            }
        }
        self.has_all_nodes()
    }

    /// Returns true if there are as many nodes as the thread's row counts. A store may read the row before the nodes.
    fn has_all_nodes(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.message_count as usize == self.links.len())
    }
}

/// Returns a message as a store returns it, byte by byte.
fn as_stored(message: &NodeMessage) -> Option<NodeMessage> {
    let json = serde_json::to_vec(message).ok()?;
    serde_json::from_slice(&json).ok()
}

fn link_bytes(link: &NodeLink) -> usize {
    let client_id = link.client_id.as_ref().map_or(0, String::len);
    size_of::<NodeLink>()
        + PATH_NODE_BYTES
        + NODE_ID_HASHES_BYTES
        + 2 * OVERHEAD_BYTES
        + link.id.as_str().len()
        + client_id
        + link.turn_id.len()
}

impl CachedMessage {
    /// Takes the message of a node, which is among the links.
    fn new(content: NodeContent, links: &[NodeLink]) -> Self {
        let (seq, origin) = (content.seq, content.origin);
        let id_at_client = || NodeLink::find(links, seq).and_then(|link| link.client_id.clone());
        let message = content.into_prompt_message().map(|message| match origin {
            NodeOrigin::Run => message,
            _ => Message { id: id_at_client(), ..message },
        });
        Self { seq, message: message.map(Arc::new) }
    }

    /// Returns the approximate size in bytes, without the context.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.message.as_ref().map_or(0, shared_message_bytes)
    }
}

/// Returns the approximate size of a shared message, without the context.
fn shared_message_bytes(message: &Arc<Message>) -> usize {
    SHARED_MESSAGE_BYTES + message_bytes(message)
}

/// Returns the approximate heap size of a message.
pub(crate) fn message_bytes(message: &Message) -> usize {
    let content = match &message.content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => parts.iter().map(part_bytes).sum(),
    };
    let call = |call: &ToolCall| {
        size_of::<ToolCall>() + call.id.len() + call.function.name.len() + call.function.arguments.len()
    };
    let ids = [&message.id, &message.tool_call_id].into_iter().flatten().map(String::len);
    let items = message.provider_items.iter().map(|item| size_of_val(item) + item.json.get().len());
    content + message.tool_calls.iter().map(call).chain(ids).chain(items).sum::<usize>()
}

fn part_bytes(part: &ContentPart) -> usize {
    let data_bytes = match part {
        ContentPart::Text { text } => text.len(),
        ContentPart::Image { source }
        | ContentPart::Audio { source }
        | ContentPart::Video { source }
        | ContentPart::Document { source } => match source {
            MediaSource::Data { value, .. } | MediaSource::Url { value, .. } => value.len(),
        },
    };
    size_of::<ContentPart>() + data_bytes
}

#[cfg(test)]
mod tests;
