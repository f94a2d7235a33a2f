//! Tables of conversations in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId, UserId};
use agent_core::store_error::StoreError;
use jiff::Timestamp;

use super::super::commit::{self, ChangeRows, EndRows, KnownNodes, NodePosition, StoredRun, referenced_ids};
use super::super::{
    ActiveThread, CancelReason, ChangeRunRequest, ChangedRun, ConversationError, DeletedThreads, DueRuns,
    EndRunRequest, EndedRun, LogChunk, MAX_CONTEXT_BYTES, MAX_CONTEXT_PAGE_BYTES, MAX_SCANNED_THREADS,
    NewNode, NodeId, NodeLink, NodeRole, NodeStatus, Run, RunClock, RunKey, RunLease, RunLogState, RunSignal,
    RunState, SentContext, StoredNode, Thread, ThreadKey, ThreadOwner, ThreadScan, TurnContext, WaitingRuns,
    interrupt_run,
};

/// Maximum number of nodes.
const MAX_MEMORY_NODES: usize = 1_000_000;
/// Maximum total size of the contexts of messages, in bytes. Further ones are not stored, which only raises the cost of later
/// prompts.
const MAX_MEMORY_CONTEXT_BYTES: usize = 256 << 20;

#[derive(Debug, Default)]
pub(super) struct ConversationState {
    pub(super) owners: HashMap<ThreadOwner, OwnerConversations>,
    pub(super) leases: HashMap<String, Timestamp>,
    /// Ends of the signals to processes.
    pub(super) signals: BTreeMap<(String, RunKey, RunSignal), Timestamp>,
    pub(super) node_count: usize,
    /// Size of all logs.
    pub(super) log_bytes: usize,
    /// Size of all contexts.
    context_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct OwnerConversations {
    pub(super) threads: BTreeMap<ThreadId, MemoryThread>,
    pub(super) runs: HashMap<RunId, MemoryRun>,
    pub(super) last_run: i64,
}

#[derive(Debug)]
pub(super) struct MemoryThread {
    pub(super) thread: Thread,
    pub(super) nodes: Vec<StoredNode>,
    /// Contexts of messages, by position and turn.
    contexts: BTreeMap<(u32, RunId), Arc<str>>,
}

#[derive(Debug)]
pub(super) struct MemoryRun {
    /// Number in the order in which the owner's runs have started.
    pub(super) number: i64,
    pub(super) stored: StoredRun,
    pub(super) log: Vec<LogChunk>,
    /// Part of the log that is not an event.
    pub(super) inputs: Option<Vec<u8>>,
}

impl MemoryRun {
    pub(super) fn is_live(&self) -> bool {
        self.stored.run.state.is_live()
    }

    pub(super) fn log_bytes(&self) -> usize {
        let events: usize = self.log.iter().map(|chunk| chunk.body.len()).sum();
        events + self.inputs.as_ref().map_or(0, Vec::len)
    }

    /// Returns the run; the number of events of a live one is that of its stored events.
    pub(super) fn run(&self) -> Run {
        let mut run = self.stored.run.clone();
        if self.is_live() {
            run.events.count = self.log.last().map_or(0, |chunk| chunk.last + 1);
        }
        run
    }
}

impl ConversationState {
    pub(super) fn find(&self, key: &ThreadKey) -> Option<&MemoryThread> {
        self.owners.get(&key.thread_owner())?.threads.get(&key.id)
    }

    pub(super) fn find_mut(&mut self, key: &ThreadKey) -> Result<&mut MemoryThread, ConversationError> {
        let owner = self.owners.get_mut(&key.thread_owner());
        owner.and_then(|owner| owner.threads.get_mut(&key.id)).ok_or(ConversationError::ThreadNotFound)
    }

    /// Returns the threads after a position in the order of company, owner and id.
    pub(super) fn scan(&self, after: Option<(CompanyId, UserId, ThreadId)>) -> ThreadScan {
        let mut page = BTreeMap::new();
        for (owner, found) in &self.owners {
            for thread in found.threads.values().map(|found| &found.thread) {
                let key = (&owner.company, &owner.owner, &thread.id);
                if after.as_ref().is_some_and(|(company, user, id)| key <= (company, user, id)) {
                    continue;
                }
                page.insert(key, (owner, thread));
                if page.len() > MAX_SCANNED_THREADS + 1 {
                    page.pop_last();
                }
            }
        }
        let has_more = page.len() > MAX_SCANNED_THREADS;
        let last = page.keys().nth(MAX_SCANNED_THREADS - 1).filter(|_| has_more);
        let next_cursor = last.and_then(|key| serde_json::to_string(key).ok());
        let thread = |(owner, thread): (&ThreadOwner, &Thread)| ActiveThread {
            owner: owner.clone(),
            agent_id: thread.agent_id.clone(),
            last_activity_at: thread.last_activity_at,
        };
        let threads = page.into_values().take(MAX_SCANNED_THREADS).map(thread).collect();
        ThreadScan { threads, next_cursor }
    }

    /// Returns the threads that a company has with an agent.
    pub(super) fn threads_with<'s>(
        &'s self,
        company: &'s CompanyId,
        agent: &'s AgentId,
    ) -> impl Iterator<Item = (&'s ThreadOwner, &'s MemoryThread)> {
        let owners = self.owners.iter().filter(move |(owner, _)| owner.company == *company);
        let threads =
            owners.flat_map(|(owner, found)| found.threads.values().map(move |found| (owner, found)));
        threads.filter(move |(_, found)| found.thread.agent_id == *agent)
    }

    /// Returns the runs that are due at a time, after a position in the order of due time, company, owner and id.
    pub(super) fn due_runs(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, CompanyId, UserId, RunId)>,
    ) -> DueRuns {
        let mut due = Vec::new();
        for (owner, found) in &self.owners {
            for run in found.runs.values() {
                let Some(at) = run.stored.run.due_at().filter(|at| *at <= now) else { continue };
                let position = (at, owner.company.clone(), owner.owner.clone(), run.stored.run.id.clone());
                if after.as_ref().is_none_or(|after| position > *after) {
                    due.push((position, owner.clone(), Some(run.run())));
                }
            }
        }
        due.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        DueRuns::from_overfetch(due)
    }

    /// Returns a page of a company's runs that wait for decisions, the newest first, after the position of one of them.
    pub(super) fn waiting_runs(
        &self,
        company: &CompanyId,
        after: Option<(Timestamp, UserId, RunId)>,
    ) -> WaitingRuns {
        let mut waiting = Vec::new();
        for (owner, found) in self.owners.iter().filter(|(owner, _)| owner.company == *company) {
            for run in found.runs.values().filter(|run| run.stored.run.state == RunState::Waiting) {
                let stored = &run.stored.run;
                let position = (stored.created_at, owner.owner.clone(), stored.id.clone());
                if after.as_ref().is_none_or(|after| position < *after) {
                    waiting.push((position, owner.clone(), run.run()));
                }
            }
        }
        waiting.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        WaitingRuns::from_overfetch(waiting)
    }

    /// Checks that there is room for nodes.
    pub(super) fn check_room(&self, nodes: usize) -> Result<(), ConversationError> {
        match self.node_count + nodes > MAX_MEMORY_NODES {
            true => Err(StoreError::unavailable("the in-memory store is full").into()),
            false => Ok(()),
        }
    }

    pub(super) fn write(&mut self, key: &ThreadKey, thread: Thread, nodes: Vec<StoredNode>) {
        self.node_count += nodes.len();
        let owner = self.owners.entry(key.thread_owner()).or_default();
        match owner.threads.get_mut(&key.id) {
            Some(found) => {
                found.thread = thread;
                found.nodes.extend(nodes);
            }
            None => {
                owner
                    .threads
                    .insert(key.id.clone(), MemoryThread { thread, nodes, contexts: BTreeMap::new() });
            }
        }
    }

    pub(super) fn create(
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

    /// Stores the context of a user message in a turn, unless it has one. Returns true if it is stored now.
    fn put_context(&mut self, key: &ThreadKey, turn: &RunId, sent: &SentContext) -> bool {
        let Ok(found) = self.find_mut(key) else { return false };
        let is_user =
            |node: &&StoredNode| node.link.role == NodeRole::User && node.link.status != NodeStatus::Deleted;
        let node = found.nodes.iter().find(|node| node.link.id == sent.node).filter(is_user);
        let Some(seq) = node.map(|node| node.link.seq).filter(|_| sent.text.len() <= MAX_CONTEXT_BYTES)
        else {
            return false;
        };
        if found.contexts.contains_key(&(seq, turn.clone())) {
            return false;
        }
        if self.context_bytes + sent.text.len() > MAX_MEMORY_CONTEXT_BYTES {
            return false;
        }
        self.context_bytes += sent.text.len();
        if let Ok(found) = self.find_mut(key) {
            found.contexts.insert((seq, turn.clone()), Arc::clone(&sent.text));
        }
        true
    }

    /// Copies the contexts of a path, whose nodes are at these positions, into its fork.
    pub(super) fn copy_contexts(&mut self, from: &ThreadKey, seqs: &[u32], into: &ThreadKey) {
        let Some(source) = self.find(from) else { return };
        let positions: HashMap<u32, u32> = seqs.iter().copied().zip(0..).collect();
        let copy = |((seq, turn), text): (&(u32, RunId), &Arc<str>)| {
            Some(((*positions.get(seq)?, turn.clone()), Arc::clone(text)))
        };
        let copied: BTreeMap<(u32, RunId), Arc<str>> = source.contexts.iter().filter_map(copy).collect();
        self.context_bytes += copied.values().map(|text| text.len()).sum::<usize>();
        if let Ok(fork) = self.find_mut(into) {
            fork.contexts = copied;
        }
    }

    /// Deletes the contexts of a node.
    pub(super) fn erase_contexts(&mut self, key: &ThreadKey, node: &NodeId) {
        let Ok(found) = self.find_mut(key) else { return };
        let Some(seq) = found.nodes.iter().find(|found| found.link.id == *node).map(|node| node.link.seq)
        else {
            return;
        };
        let erased = found.contexts.extract_if(.., |(position, _), _| *position == seq);
        let bytes = erased.map(|(_, text)| text.len()).sum::<usize>();
        self.context_bytes -= bytes;
    }

    pub(super) fn find_run(&self, owner: &ThreadOwner, id: &RunId) -> Option<&MemoryRun> {
        self.owners.get(owner)?.runs.get(id)
    }

    pub(super) fn find_run_mut(&mut self, owner: &ThreadOwner, id: &RunId) -> Option<&mut MemoryRun> {
        self.owners.get_mut(owner)?.runs.get_mut(id)
    }

    /// Adds a run of a process, which gets the next number among the owner's.
    pub(super) fn insert_run(&mut self, owner: &ThreadOwner, run: Run, process: &str) {
        let owner = self.owners.entry(owner.clone()).or_default();
        owner.last_run += 1;
        let id = run.id.clone();
        let stored = StoredRun { run, process: process.to_owned() };
        let run = MemoryRun { number: owner.last_run, stored, log: Vec::new(), inputs: None };
        owner.runs.insert(id, run);
    }

    /// Stores the lease of a process, unless it has a later one.
    pub(super) fn extend_lease(&mut self, lease: &RunLease) {
        let until = self.leases.entry(lease.process.clone()).or_insert(lease.until);
        *until = (*until).max(lease.until);
    }

    /// Adds a chunk to a run's log, unless the log has it.
    pub(super) fn add_chunk(&mut self, owner: &ThreadOwner, id: &RunId, chunk: LogChunk) {
        let Some(run) = self.find_run_mut(owner, id) else { return };
        let at = run.log.partition_point(|found| found.first < chunk.first);
        if run.log.get(at).is_none_or(|found| found.first != chunk.first) {
            let bytes = chunk.body.len();
            run.log.insert(at, chunk);
            self.log_bytes += bytes;
        }
    }

    pub(super) fn remove_log(&mut self, owner: &ThreadOwner, id: &RunId) {
        let Some(run) = self.find_run_mut(owner, id) else { return };
        let bytes = run.log_bytes();
        (run.log, run.inputs) = (Vec::new(), None);
        run.stored.run.events = RunLogState::default();
        self.log_bytes -= bytes;
    }

    /// Deletes the inputs of a thread's runs. The one in progress stores none at its end.
    pub(super) fn remove_inputs(&mut self, key: &ThreadKey) {
        let Some(owner) = self.owners.get_mut(&key.thread_owner()) else { return };
        for run in owner.runs.values_mut().filter(|run| run.stored.run.thread_id == key.id) {
            self.log_bytes -= run.inputs.take().map_or(0, |inputs| inputs.len());
            run.inputs = (run.stored.run.state == RunState::Running).then(Vec::new);
        }
    }

    /// Deletes the log of a run, and erases the run's data.
    pub(super) fn erase_run(&mut self, owner: &ThreadOwner, erased: Run) {
        self.remove_log(owner, &erased.id);
        if let Some(found) = self.find_run_mut(owner, &erased.id) {
            found.stored.run = erased;
        }
    }

    pub(super) fn change_run(&mut self, change: &ChangeRunRequest) -> Result<ChangedRun, ConversationError> {
        let owner = &change.run.owner;
        let missing = || ConversationError::RunNotFound;
        let run = self.find_run(owner, &change.run.id).ok_or_else(missing)?.stored.run.clone();
        let continuing = run.continued_by.as_ref().and_then(|id| self.find_run(owner, id));
        let continuing = continuing.map(|found| found.stored.clone());
        let key = owner.thread(&run.thread_id);
        let thread = self.find(&key).ok_or_else(missing)?.thread.clone();
        let known = match commit::last_node(change, &run) {
            Some(node) => self.find(&key).map(|found| found.known(&[], Some(node))).unwrap_or_default(),
            None => KnownNodes::default(),
        };
        let asking = commit::added_run(change);
        let used_run = asking.and_then(|asking| self.find_run(owner, &asking.run_id));
        let used_run = used_run.map(|found| found.stored.run.clone());
        let commit = commit::change_run(change, ChangeRows { run, continuing, thread, known, used_run })?;
        self.write(&key, commit.thread, commit.nodes);
        if let (Some(asking), Some(added)) = (asking, commit.added) {
            self.insert_run(owner, added.run, &added.process);
            for chunk in &asking.log.chunks {
                self.add_chunk(owner, &asking.run_id, chunk.clone());
            }
        }
        let found = self.find_run_mut(owner, &change.run.id).ok_or_else(missing)?;
        found.stored.run = commit.run;
        Ok(ChangedRun { run: found.run(), is_changed: commit.is_changed })
    }

    pub(super) fn end_run(&mut self, end: EndRunRequest) -> Result<EndedRun, ConversationError> {
        let owner = self.owners.get(&end.owner).ok_or(ConversationError::RunNotFound)?;
        let run = owner.runs.get(&end.run_id).ok_or(ConversationError::RunNotFound)?.stored.clone();
        let key = end.owner.thread(&run.run.thread_id);
        let found = owner.threads.get(&key.id).ok_or(ConversationError::RunNotFound)?;
        let known = found.known(&end.nodes, run.run.parent_id.as_ref());
        let continued = run.run.continues.as_ref().and_then(|id| owner.runs.get(id));
        let continued = continued.map(|found| found.stored.run.clone());
        let cancel = self.cancel_signal(&end.process, &end.owner, &end.run_id);
        let rows = EndRows { run, continued, thread: found.thread.clone(), known: known.clone(), cancel };
        let commit = commit::end_run(&end, rows)?;
        self.write(&key, commit.thread.clone(), commit.nodes.clone());
        if let Some(found) = self.find_run_mut(&end.owner, &end.run_id) {
            found.stored.run = commit.run.clone();
        }
        if let Some(run) = commit.continued
            && let Some(found) = self.find_run_mut(&end.owner, &run.id)
        {
            found.stored.run = run;
        }
        let context = end.context.filter(|sent| self.put_context(&key, &commit.run.turn_id, sent));
        for chunk in end.log.chunks {
            self.add_chunk(&end.owner, &end.run_id, chunk);
        }
        if let Some(inputs) = end.log.inputs
            && let Some(found) = self.find_run_mut(&end.owner, &end.run_id)
            && found.inputs.is_none()
        {
            let bytes = inputs.len();
            found.inputs = Some(inputs);
            self.log_bytes += bytes;
        }
        let links = commit::links(&commit.nodes);
        let nodes = commit::nodes_on_wire(commit.nodes, &known);
        self.signals.retain(|(_, run, _), _| run.owner != end.owner || run.id != end.run_id);
        Ok(EndedRun { thread: commit.thread, run: commit.run, nodes, links, context })
    }

    /// Returns the reason of the signal that the process of a run has to cancel it.
    fn cancel_signal(&self, process: &str, owner: &ThreadOwner, id: &RunId) -> Option<CancelReason> {
        let mut signals =
            self.signals.keys().filter(|(to, run, _)| to == process && run.owner == *owner && run.id == *id);
        signals.find_map(|(_, _, signal)| signal.cancel_reason())
    }

    /// Interrupts a run if its process's lease has expired. Returns true if it was.
    pub(super) fn interrupt_expired(
        &mut self,
        owner: &ThreadOwner,
        id: &RunId,
        clock: RunClock,
    ) -> Result<bool, ConversationError> {
        let Some(found) = self.find_run(owner, id) else { return Ok(false) };
        let lease = self.leases.get(&found.stored.process).copied();
        match interrupt_run(owner, &found.stored, lease, &found.log, clock) {
            Some(end) => self.end_run(end).map(|_| true),
            None => Ok(false),
        }
    }

    pub(super) fn remove(&mut self, owner: &ThreadOwner, ids: Vec<ThreadId>) -> DeletedThreads {
        let mut deleted = DeletedThreads::default();
        let Some(state) = self.owners.get_mut(owner) else { return deleted };
        for id in &ids {
            let Some(removed) = state.threads.remove(id) else { continue };
            self.node_count -= removed.nodes.len();
            self.context_bytes -= removed.contexts.values().map(|text| text.len()).sum::<usize>();
            deleted.add_thread(removed.thread);
        }
        let ids: HashSet<ThreadId> = ids.into_iter().collect();
        for (id, run) in state.runs.extract_if(|_, run| ids.contains(&run.stored.run.thread_id)) {
            self.log_bytes -= run.log_bytes();
            self.signals.retain(|(_, run, _), _| run.owner != *owner || run.id != id);
        }
        if state.threads.is_empty() && state.runs.is_empty() {
            self.owners.remove(owner);
        }
        deleted
    }
}

impl MemoryThread {
    pub(super) fn links(&self) -> Vec<NodeLink> {
        self.nodes.iter().map(|node| node.link.clone()).collect()
    }

    /// Returns the contexts of messages from a position on in these turns, those of the newest messages first.
    pub(super) fn contexts(&self, from: u32, turns: &[RunId]) -> Vec<TurnContext> {
        let turns: HashSet<&RunId> = turns.iter().collect();
        let (mut found, mut bytes) = (Vec::new(), 0);
        let contexts = self.contexts.iter().rev().take_while(|((seq, _), _)| *seq >= from);
        for ((seq, turn), text) in contexts.filter(|((_, turn), _)| turns.contains(turn)) {
            if bytes >= MAX_CONTEXT_PAGE_BYTES {
                break;
            }
            bytes += text.len();
            let node = self.nodes[*seq as usize].link.id.clone();
            found.push(TurnContext {
                turn_id: turn.clone(),
                sent: SentContext { node, text: Arc::clone(text) },
            });
        }
        found
    }

    pub(super) fn known(&self, nodes: &[NewNode], parent: Option<&NodeId>) -> KnownNodes {
        let ids = referenced_ids(nodes, parent);
        let mut children: HashMap<Option<u32>, u32> = HashMap::new();
        for node in &self.nodes {
            *children.entry(node.link.parent).or_default() += 1;
        }
        let position = |node: &StoredNode| {
            let seq = node.link.seq;
            let children = children.get(&Some(seq)).copied().unwrap_or_default();
            (node.link.id.clone(), NodePosition { seq, children })
        };
        let positions = self.nodes.iter().filter(|node| ids.contains(&node.link.id)).map(position).collect();
        KnownNodes { positions, roots: children.get(&None).copied().unwrap_or_default() }
    }
}
