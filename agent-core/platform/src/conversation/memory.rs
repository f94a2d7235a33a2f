//! Conversations in memory: the reference implementation for stores.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::{RunId, ThreadId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use jiff::Timestamp;

use super::commit::{self, BeginRows, EndRows, KnownNodes, NodePlace, StoredRun, referenced_ids};
use super::page::{path_to_fork, select_nodes};
use super::tree::Tree;
use super::{
    AppendedNodes, BeginRun, BegunRun, ConversationError, Conversations, CreateThread, DeleteFilter,
    DeletedThreads, EndRun, EndedRun, ForkThread, MAX_DELETED_THREADS, MAX_PAGE_THREADS, MAX_REAPED_RUNS,
    NewNode, NodeId, NodeLink, NodePage, NodeQuery, NodeRole, Run, RunFilter, RunLease, RunPage, RunState,
    StoredNode, Thread, ThreadCursor, ThreadFilter, ThreadKey, ThreadLinks, ThreadOwner, ThreadPage,
    ThreadPatch, parse_number_cursor,
};

/// Default capacity of a [`MemoryConversations`], in nodes.
const MAX_MEMORY_NODES: usize = 1_000_000;

/// [`Conversations`] in memory, for tests and applications without persistence.
#[derive(Debug, Default)]
pub struct MemoryConversations {
    state: Mutex<ConversationState>,
}

#[derive(Debug, Default)]
struct ConversationState {
    owners: HashMap<ThreadOwner, OwnerConversations>,
    leases: HashMap<String, Timestamp>,
    last_run: i64,
    node_count: usize,
}

#[derive(Debug, Default)]
struct OwnerConversations {
    threads: BTreeMap<ThreadId, MemoryThread>,
    runs: HashMap<RunId, MemoryRun>,
}

#[derive(Debug)]
struct MemoryThread {
    thread: Thread,
    nodes: Vec<StoredNode>,
}

#[derive(Debug)]
struct MemoryRun {
    number: i64,
    stored: StoredRun,
}

impl MemoryConversations {
    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationState {
    fn find(&self, key: &ThreadKey) -> Option<&MemoryThread> {
        self.owners.get(&key.thread_owner())?.threads.get(&key.id)
    }

    fn find_mut(&mut self, key: &ThreadKey) -> Result<&mut MemoryThread, ConversationError> {
        let owner = self.owners.get_mut(&key.thread_owner());
        owner.and_then(|owner| owner.threads.get_mut(&key.id)).ok_or(ConversationError::ThreadNotFound)
    }

    /// Checks that there is room for nodes.
    fn check_room(&self, nodes: usize) -> Result<(), ConversationError> {
        match self.node_count + nodes > MAX_MEMORY_NODES {
            true => Err(StoreError::unavailable("the in-memory store is full").into()),
            false => Ok(()),
        }
    }

    fn write(&mut self, key: &ThreadKey, thread: Thread, nodes: Vec<StoredNode>) {
        self.node_count += nodes.len();
        let owner = self.owners.entry(key.thread_owner()).or_default();
        match owner.threads.get_mut(&key.id) {
            Some(found) => {
                found.thread = thread;
                found.nodes.extend(nodes);
            }
            None => {
                owner.threads.insert(key.id.clone(), MemoryThread { thread, nodes });
            }
        }
    }

    fn create(
        &mut self,
        key: &ThreadKey,
        make: impl FnOnce(u64) -> Result<(Thread, Vec<StoredNode>), ConversationError>,
    ) -> Result<Thread, ConversationError> {
        let owner = self.owners.get(&key.thread_owner());
        if owner.is_some_and(|owner| owner.threads.contains_key(&key.id)) {
            return Err(ConversationError::ThreadExists);
        }
        let (thread, nodes) = make(owner.map_or(0, |owner| owner.threads.len() as u64))?;
        self.check_room(nodes.len())?;
        self.write(key, thread.clone(), nodes);
        Ok(thread)
    }

    fn remove(&mut self, owner: &ThreadOwner, ids: Vec<ThreadId>) -> DeletedThreads {
        let mut deleted = DeletedThreads::default();
        let Some(state) = self.owners.get_mut(owner) else { return deleted };
        for id in &ids {
            let Some(removed) = state.threads.remove(id) else { continue };
            deleted.deleted += 1;
            deleted.active_runs.extend(removed.thread.active_run_id);
            self.node_count -= removed.nodes.len();
        }
        let ids: HashSet<ThreadId> = ids.into_iter().collect();
        state.runs.retain(|_, run| !ids.contains(&run.stored.run.thread_id));
        if state.threads.is_empty() && state.runs.is_empty() {
            self.owners.remove(owner);
        }
        deleted
    }
}

impl MemoryThread {
    fn links(&self) -> Vec<NodeLink> {
        self.nodes.iter().map(|node| node.link.clone()).collect()
    }

    fn known(&self, nodes: &[NewNode], parent: Option<&NodeId>) -> KnownNodes {
        let ids = referenced_ids(nodes, parent);
        let mut children: HashMap<Option<u32>, u32> = HashMap::new();
        for node in &self.nodes {
            *children.entry(node.link.parent).or_default() += 1;
        }
        let place = |node: &StoredNode| {
            let seq = node.link.seq;
            let children = children.get(&Some(seq)).copied().unwrap_or_default();
            (node.link.id.clone(), NodePlace { seq, children })
        };
        let places = self.nodes.iter().filter(|node| ids.contains(&node.link.id)).map(place).collect();
        KnownNodes { places, roots: children.get(&None).copied().unwrap_or_default() }
    }
}

#[async_trait]
impl Conversations for MemoryConversations {
    async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, ConversationError> {
        Ok(self.lock().find(key).map(|found| found.thread.clone()))
    }

    async fn links(&self, key: &ThreadKey) -> Result<Option<ThreadLinks>, ConversationError> {
        let state = self.lock();
        let links = |found: &MemoryThread| ThreadLinks { thread: found.thread.clone(), links: found.links() };
        Ok(state.find(key).map(links))
    }

    async fn nodes(&self, key: &ThreadKey, query: &NodeQuery) -> Result<Option<NodePage>, ConversationError> {
        let state = self.lock();
        let Some(found) = state.find(key) else { return Ok(None) };
        let selected = select_nodes(&found.thread, &found.links(), query)?;
        let nodes = selected.seqs.iter().map(|seq| found.nodes[*seq as usize].clone()).collect();
        Ok(Some(selected.into_page(found.thread.clone(), nodes)))
    }

    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = cursor.map(ThreadCursor::parse).transpose()?;
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let state = self.lock();
        let place = |thread: &Thread| {
            let ThreadCursor { active_ms, id } = ThreadCursor::of(thread);
            (active_ms, id)
        };
        let is_after = |thread: &&Thread| {
            after.as_ref().is_none_or(|after| place(thread) < (after.active_ms, after.id.clone()))
        };
        let threads = state.owners.get(owner).into_iter().flat_map(|owner| owner.threads.values());
        let mut threads: Vec<&Thread> = threads.map(|found| &found.thread).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(place(thread)));
        let matching = threads.into_iter().filter(is_after).filter(|thread| filter.matches(thread));
        Ok(ThreadPage::from_overfetch(matching.take(limit + 1).cloned().collect(), limit))
    }

    async fn create(&self, create: CreateThread) -> Result<Thread, ConversationError> {
        let key = create.key.clone();
        self.lock().create(&key, |count| commit::create(create, count))
    }

    async fn patch(
        &self,
        key: &ThreadKey,
        patch: ThreadPatch,
        _now: Timestamp,
    ) -> Result<Thread, ConversationError> {
        let mut state = self.lock();
        let found = state.find_mut(key)?;
        let leaf = patch.head.as_ref().and_then(|head| {
            let links = found.links();
            let tree = Tree::new(&links);
            tree.find(head).map(|at| links[tree.newest_leaf(at)].id.clone())
        });
        found.thread = commit::patch(found.thread.clone(), &patch, leaf)?;
        Ok(found.thread.clone())
    }

    async fn append(
        &self,
        key: &ThreadKey,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        let mut state = self.lock();
        state.check_room(nodes.len())?;
        let found = state.find(key).ok_or(ConversationError::ThreadNotFound)?;
        let known = found.known(&nodes, None);
        let (thread, nodes) = commit::append(found.thread.clone(), known.clone(), nodes, now)?;
        state.write(key, thread.clone(), nodes.clone());
        Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
    }

    async fn fork(&self, fork: ForkThread) -> Result<Thread, ConversationError> {
        let mut state = self.lock();
        let found = state.find(&fork.key).ok_or(ConversationError::ThreadNotFound)?;
        let seqs = path_to_fork(&fork, &found.thread, &found.links())?;
        let path = seqs.iter().map(|seq| found.nodes[*seq as usize].clone()).collect();
        let source = found.thread.clone();
        let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
        state.create(&key, |count| commit::fork(&fork, source, path, count))
    }

    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError> {
        let deleted = self.lock().remove(&key.thread_owner(), vec![key.id.clone()]);
        Ok(Some(deleted).filter(|deleted| deleted.deleted > 0))
    }

    async fn delete_many(
        &self,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let mut state = self.lock();
        let threads = state.owners.get(owner).into_iter().flat_map(|owner| owner.threads.values());
        let matching =
            threads.filter(|found| filter.matches(&found.thread)).map(|found| found.thread.id.clone());
        let mut ids: Vec<ThreadId> = matching.take(MAX_DELETED_THREADS + 1).collect();
        let more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { more, ..state.remove(owner, ids) })
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        let mut state = self.lock();
        let found = state.find_mut(key)?;
        let at = found.nodes.iter().position(|found| found.link.id == *node);
        let at = at.ok_or_else(|| ConversationError::NodeNotFound(node.to_string()))?;
        let others = found.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        let users =
            others.filter(|(_, node)| node.link.role == NodeRole::User).map(|(_, node)| &node.message);
        if let Some((thread, node)) = commit::erase_node(found.thread.clone(), found.nodes[at].clone(), users)
        {
            found.thread = thread;
            found.nodes[at] = node;
        }
        Ok(found.thread.clone())
    }

    async fn begin_run(&self, begin: BeginRun) -> Result<BegunRun, ConversationError> {
        let mut state = self.lock();
        state.check_room(begin.nodes.len())?;
        let owner_key = begin.key.thread_owner();
        let owner = state.owners.get(&owner_key);
        let run = |id: &RunId| owner.and_then(|owner| owner.runs.get(id)).map(|found| &found.stored);
        let found = state.find(&begin.key);
        let active = found.and_then(|found| run(found.thread.active_run_id.as_ref()?));
        let known =
            found.map(|found| found.known(&begin.nodes, begin.parent_id.as_ref())).unwrap_or_default();
        let rows = BeginRows {
            thread: found.map(|found| found.thread.clone()),
            thread_count: owner.map_or(0, |owner| owner.threads.len() as u64),
            used_run: run(&begin.run_id).map(|stored| stored.run.clone()),
            active: active.map(|stored| (stored.run.clone(), state.leases.get(&stored.process).copied())),
            continued: begin.continues.as_ref().and_then(run).map(|stored| stored.run.clone()),
            known: known.clone(),
        };
        let commit = commit::begin_run(&begin, rows)?;
        let RunLease { process, until } = &begin.lease;
        let lease = state.leases.entry(process.clone()).or_insert(*until);
        *lease = (*lease).max(*until);
        state.write(&begin.key, commit.thread.clone(), commit.nodes.clone());
        state.last_run += 1;
        let number = state.last_run;
        let runs = &mut state.owners.entry(owner_key).or_default().runs;
        for changed in [&commit.interrupted, &commit.continued].into_iter().flatten() {
            if let Some(found) = runs.get_mut(&changed.id) {
                found.stored.run = changed.clone();
            }
        }
        let stored = StoredRun { run: commit.run.clone(), process: process.clone() };
        runs.insert(commit.run.id.clone(), MemoryRun { number, stored });
        let nodes = commit::nodes_on_wire(commit.nodes, &known);
        Ok(BegunRun { thread: commit.thread, run: commit.run, nodes, interrupted: commit.interrupted })
    }

    async fn end_run(&self, end: EndRun) -> Result<EndedRun, ConversationError> {
        let mut state = self.lock();
        let owner = state.owners.get(&end.owner).ok_or(ConversationError::RunNotFound)?;
        let run = owner.runs.get(&end.run_id).ok_or(ConversationError::RunNotFound)?.stored.clone();
        let key = end.owner.thread(&run.run.thread_id);
        let found = owner.threads.get(&key.id).ok_or(ConversationError::RunNotFound)?;
        let known = found.known(&end.nodes, None);
        let rows = EndRows { run, thread: found.thread.clone(), known: known.clone() };
        let commit = commit::end_run(&end, rows)?;
        state.write(&key, commit.thread.clone(), commit.nodes.clone());
        if let Some(found) =
            state.owners.get_mut(&end.owner).and_then(|owner| owner.runs.get_mut(&end.run_id))
        {
            found.stored.run = commit.run.clone();
        }
        let nodes = commit::nodes_on_wire(commit.nodes, &known);
        Ok(EndedRun { thread: commit.thread, run: commit.run, nodes })
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        let state = self.lock();
        let run = state.owners.get(owner).and_then(|owner| owner.runs.get(id));
        Ok(run.map(|found| found.stored.run.clone()))
    }

    async fn runs(
        &self,
        owner: &ThreadOwner,
        filter: &RunFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<RunPage, ConversationError> {
        let before = cursor.map(parse_number_cursor).transpose()?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let state = self.lock();
        let runs = state.owners.get(owner).into_iter().flat_map(|owner| owner.runs.values());
        let runs = runs.filter(|found| found.number < before && filter.matches(&found.stored.run));
        let mut runs: Vec<(i64, Run)> = runs.map(|found| (found.number, found.stored.run.clone())).collect();
        runs.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        runs.truncate(limit + 1);
        Ok(RunPage::from_overfetch(runs, limit))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        self.lock().leases.insert(lease.process.clone(), lease.until);
        Ok(())
    }

    async fn reap(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let mut state = self.lock();
        let ConversationState { owners, leases, .. } = &mut *state;
        let mut reaped = 0;
        for owner in owners.values_mut() {
            for found in owner.runs.values_mut() {
                let StoredRun { run, process } = &mut found.stored;
                let is_live = matches!(run.state, RunState::Queued | RunState::Running);
                if !is_live
                    || leases.get(process).is_some_and(|until| *until > now)
                    || reaped >= MAX_REAPED_RUNS
                {
                    continue;
                }
                let Some(thread) = owner.threads.get_mut(&run.thread_id) else { continue };
                if let Some((ended, freed)) = commit::reap(run.clone(), thread.thread.clone(), now) {
                    (*run, thread.thread) = (ended, freed);
                    reaped += 1;
                }
            }
        }
        leases.retain(|_, until| *until > now);
        Ok(reaped)
    }
}
