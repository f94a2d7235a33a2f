//! Conversations in memory: the reference implementation for stores.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use jiff::Timestamp;

use super::commit::{self, BeginRows, EraseCommit, QueueRows};
use super::page::{path_to_fork, select_nodes};
use super::{
    AgentFeedback, AppendedEvents, AppendedNodes, BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun,
    ConversationError, Conversations, CreateThreadRequest, DeleteFilter, DeletedThreads, DueRuns,
    EndRunRequest, EndedRun, Feedback, FeedbackCursor, FeedbackPage, ForkThreadRequest, LogPage,
    MAX_DELETED_THREADS, MAX_LOG_PAGE_BYTES, MAX_PAGE_THREADS, MAX_REAPED_RUNS, MAX_TRIMMED_LOGS, NewNode,
    NodeContent, NodeId, NodePage, NodeQuery, NodeRole, QueueRunRequest, Run, RunChunk, RunClock, RunFilter,
    RunKey, RunLease, RunPage, RunSignal, StoredNode, Thread, ThreadCursor, ThreadFilter, ThreadKey,
    ThreadLinks, ThreadOwner, ThreadPage, ThreadPatch, ThreadScan, TurnContext, VisitorThreadCursor,
    WaitingRuns, parse_number_cursor,
};

/// Maximum total size of the logs of runs in a [`MemoryConversations`], in bytes.
const MAX_MEMORY_LOG_BYTES: usize = 256 << 20;

mod state;

use state::{ConversationState, MemoryRun, MemoryThread};

/// [`Conversations`] in memory, for tests and applications without persistence.
#[derive(Debug, Default)]
pub struct MemoryConversations {
    state: Mutex<ConversationState>,
}

impl MemoryConversations {
    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    async fn contents(&self, key: &ThreadKey, seqs: &[u32]) -> Result<Vec<NodeContent>, ConversationError> {
        let state = self.lock();
        let Some(found) = state.find(key) else { return Ok(Vec::new()) };
        Ok(seqs.iter().filter_map(|seq| found.nodes.get(*seq as usize)).map(StoredNode::content).collect())
    }

    async fn contexts(
        &self,
        key: &ThreadKey,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, ConversationError> {
        Ok(self.lock().find(key).map(|found| found.contexts(from, turns)).unwrap_or_default())
    }

    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = ThreadCursor::parse(cursor)?;
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let state = self.lock();
        let position = |thread: &Thread| {
            let ThreadCursor { active_ms, id } = ThreadCursor::of(thread);
            (active_ms, id)
        };
        let is_after = |thread: &&Thread| position(thread) < (after.active_ms, after.id.clone());
        let threads = state.owners.get(owner).into_iter().flat_map(|owner| owner.threads.values());
        let mut threads: Vec<&Thread> = threads.map(|found| &found.thread).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(position(thread)));
        let matching = threads.into_iter().filter(is_after).filter(|thread| filter.matches(thread));
        Ok(ThreadPage::from_overfetch(matching.take(limit + 1).cloned().collect(), limit))
    }

    async fn create(&self, create: CreateThreadRequest) -> Result<Thread, ConversationError> {
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
        found.thread = commit::patch(found.thread.clone(), &patch, &found.links())?;
        Ok(found.thread.clone())
    }

    async fn append(
        &self,
        key: &ThreadKey,
        expected_version: Option<u64>,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        let mut state = self.lock();
        state.check_room(nodes.len())?;
        let found = state.find(key).ok_or(ConversationError::ThreadNotFound)?;
        let known = found.known(&nodes, None);
        let (thread, nodes) =
            commit::append(found.thread.clone(), expected_version, known.clone(), nodes, now)?;
        state.write(key, thread.clone(), nodes.clone());
        Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
    }

    async fn fork(&self, fork: ForkThreadRequest) -> Result<Thread, ConversationError> {
        let mut state = self.lock();
        let found = state.find(&fork.key).ok_or(ConversationError::ThreadNotFound)?;
        let seqs = path_to_fork(&fork, &found.thread, &found.links())?;
        let path = seqs.iter().map(|seq| found.nodes[*seq as usize].clone()).collect();
        let source = found.thread.clone();
        let (key, agent) = (ThreadKey { id: fork.id.clone(), ..fork.key.clone() }, source.agent_id.clone());
        let thread = state.create(&key, |count| commit::fork(&fork, source, path, count))?;
        if thread.agent_id == agent {
            state.copy_contexts(&fork.key, &seqs, &key);
        }
        Ok(thread)
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
        let has_more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { has_more, ..state.remove(owner, ids) })
    }

    async fn scan_threads(&self, cursor: Option<&str>) -> Result<ThreadScan, ConversationError> {
        let wrong = |_| ConversationError::Invalid("the cursor is invalid".to_owned());
        let after = cursor.map(serde_json::from_str).transpose().map_err(wrong)?;
        Ok(self.lock().scan(after))
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        let mut state = self.lock();
        let run = state.find(key).and_then(|found| {
            let node = found.nodes.iter().find(|found| found.link.id == *node)?;
            let run = state.find_run(&key.thread_owner(), node.run_id.as_ref()?)?;
            Some(run.stored.run.clone())
        });
        let found = state.find_mut(key)?;
        let at = found.nodes.iter().position(|found| found.link.id == *node);
        let at = at.ok_or_else(|| ConversationError::NodeNotFound(node.to_string()))?;
        let others = found.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        let users =
            others.filter(|(_, node)| node.link.role == NodeRole::User).map(|(_, node)| &node.message);
        let erased = commit::erase_node(found.thread.clone(), found.nodes[at].clone(), users, run);
        if let Some(EraseCommit { thread, node, run }) = erased {
            found.thread = thread;
            let id = node.link.id.clone();
            found.nodes[at] = node;
            state.erase_contexts(key, &id);
            state.remove_inputs(key);
            if let Some(run) = run {
                state.erase_run(&key.thread_owner(), run);
            }
        }
        state.find(key).map(|found| found.thread.clone()).ok_or(ConversationError::ThreadNotFound)
    }

    async fn queue_run(&self, queue: QueueRunRequest) -> Result<Option<Run>, ConversationError> {
        let mut state = self.lock();
        let owner = queue.key.thread_owner();
        let rows = QueueRows {
            thread: state.find(&queue.key).map(|found| found.thread.clone()),
            used_run: state.find_run(&owner, &queue.run_id).map(|found| found.stored.run.clone()),
        };
        let Some(commit) = commit::queue_run(&queue, rows)? else { return Ok(None) };
        state.extend_lease(&queue.lease);
        state.write(&queue.key, commit.thread, Vec::new());
        state.insert_run(&owner, commit.run.clone(), &queue.lease.process);
        Ok(Some(commit.run))
    }

    async fn begin_run(&self, begin: BeginRunRequest) -> Result<BegunRun, ConversationError> {
        let mut state = self.lock();
        state.check_room(begin.nodes.len())?;
        let owner_key = begin.key.thread_owner();
        let owner = state.owners.get(&owner_key);
        let stored = |id: &RunId| state.find_run(&owner_key, id).map(|found| found.stored.clone());
        let run = |id: &RunId| stored(id).map(|stored| stored.run);
        let found = state.find(&begin.key);
        let known =
            found.map(|found| found.known(&begin.nodes, begin.parent_id.as_ref())).unwrap_or_default();
        let rows = BeginRows {
            thread: found.map(|found| found.thread.clone()),
            thread_count: owner.map_or(0, |owner| owner.threads.len() as u64),
            used_run: stored(&begin.run_id),
            continued: begin.continues.as_ref().and_then(run),
            known: known.clone(),
        };
        let commit = commit::begin_run(&begin, rows)?;
        state.extend_lease(&begin.lease);
        state.write(&begin.key, commit.thread.clone(), commit.nodes.clone());
        if let Some(changed) = commit.continued
            && let Some(found) = state.find_run_mut(&owner_key, &changed.id)
        {
            found.stored.run = changed;
        }
        match state.find_run_mut(&owner_key, &begin.run_id) {
            Some(queued) => queued.stored.run = commit.run.clone(),
            None => state.insert_run(&owner_key, commit.run.clone(), &begin.lease.process),
        }
        let links = commit::links(&commit.nodes);
        let nodes = commit::nodes_on_wire(commit.nodes, &known);
        Ok(BegunRun { thread: commit.thread, run: commit.run, nodes, links })
    }

    async fn end_run(&self, end: EndRunRequest) -> Result<EndedRun, ConversationError> {
        self.lock().end_run(end)
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        Ok(self.lock().find_run(owner, id).map(MemoryRun::run))
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
        let mut runs: Vec<(i64, Run)> = runs.map(|found| (found.number, found.run())).collect();
        runs.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        runs.truncate(limit + 1);
        Ok(RunPage::from_overfetch(runs, limit))
    }

    async fn change_run(&self, change: ChangeRunRequest) -> Result<ChangedRun, ConversationError> {
        self.lock().change_run(&change)
    }

    async fn waiting_runs(
        &self,
        company: &CompanyId,
        cursor: Option<&str>,
    ) -> Result<WaitingRuns, ConversationError> {
        Ok(self.lock().waiting_runs(company, WaitingRuns::position(cursor)?))
    }

    async fn due_runs(&self, now: Timestamp, cursor: Option<&str>) -> Result<DueRuns, ConversationError> {
        Ok(self.lock().due_runs(now, DueRuns::position(cursor)?))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        self.lock().leases.insert(lease.process.clone(), lease.until);
        Ok(())
    }

    async fn interrupt_expired(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        clock: RunClock,
    ) -> Result<Option<Run>, ConversationError> {
        let mut state = self.lock();
        state.interrupt_expired(owner, id, clock)?;
        Ok(state.find_run(owner, id).map(MemoryRun::run))
    }

    async fn reap(&self, clock: RunClock) -> Result<usize, ConversationError> {
        let mut state = self.lock();
        let runs =
            state.owners.iter().flat_map(|(owner, found)| found.runs.values().map(move |run| (owner, run)));
        let is_lost = |run: &MemoryRun| {
            run.is_live() && state.leases.get(&run.stored.process).is_none_or(|until| *until <= clock.now)
        };
        let expired = runs.filter(|(_, run)| is_lost(run));
        let expired: Vec<(ThreadOwner, RunId)> = expired
            .map(|(owner, run)| (owner.clone(), run.stored.run.id.clone()))
            .take(MAX_REAPED_RUNS)
            .collect();
        for (owner, id) in &expired {
            state.interrupt_expired(owner, id, clock)?;
        }
        state.leases.retain(|_, until| *until > clock.now);
        Ok(expired.len())
    }

    async fn append_events(
        &self,
        process: &str,
        chunks: Vec<RunChunk>,
    ) -> Result<AppendedEvents, ConversationError> {
        let mut state = self.lock();
        let bytes: usize = chunks.iter().map(|chunk| chunk.chunk.body.len()).sum();
        if state.log_bytes + bytes > MAX_MEMORY_LOG_BYTES {
            return Err(StoreError::unavailable("the in-memory store is full").into());
        }
        let mut lost = Vec::new();
        for RunChunk { run, chunk } in chunks {
            let found = state.find_run(&run.owner, &run.id);
            match found.is_some_and(|found| found.is_live() && found.stored.process == process) {
                true => state.add_chunk(&run.owner, &run.id, chunk),
                false if lost.contains(&run) => {}
                false => lost.push(run),
            }
        }
        Ok(AppendedEvents { lost, locked: Vec::new() })
    }

    async fn events(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        from: u64,
    ) -> Result<Option<LogPage>, ConversationError> {
        let state = self.lock();
        let Some(found) = state.find_run(owner, id) else { return Ok(None) };
        let mut page = LogPage { run: found.run(), chunks: Vec::new() };
        let mut bytes = 0;
        for chunk in found.log.iter().filter(|chunk| chunk.last >= from) {
            if bytes >= MAX_LOG_PAGE_BYTES {
                break;
            }
            bytes += chunk.body.len();
            page.chunks.push(chunk.clone());
        }
        Ok(Some(page))
    }

    async fn run_inputs(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<Vec<u8>>, ConversationError> {
        let inputs = self.lock().find_run(owner, id).and_then(|found| found.inputs.clone());
        Ok(inputs.filter(|inputs| !inputs.is_empty()))
    }

    async fn signal(
        &self,
        run: &RunKey,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<Option<Run>, ConversationError> {
        let mut state = self.lock();
        let Some(found) = state.find_run(&run.owner, &run.id) else { return Ok(None) };
        let (answer, process) = (found.run(), found.stored.process.clone());
        if found.is_live() {
            state.signals.insert((process, run.clone(), signal), until);
        }
        Ok(Some(answer))
    }

    async fn take_signals(
        &self,
        process: &str,
        now: Timestamp,
    ) -> Result<Vec<(RunKey, RunSignal)>, ConversationError> {
        let mut state = self.lock();
        state.signals.retain(|_, until| *until > now);
        let found = state.signals.keys().filter(|(to, ..)| to == process);
        let found: Vec<_> = found.map(|(_, run, signal)| (run.clone(), *signal)).collect();
        state.signals.retain(|(to, _, signal), _| to != process || !signal.is_delivered_once());
        Ok(found)
    }

    async fn trim_logs(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let mut state = self.lock();
        let runs =
            state.owners.iter().flat_map(|(owner, found)| found.runs.values().map(move |run| (owner, run)));
        let is_over = |run: &MemoryRun| run.stored.run.events.until.is_some_and(|until| until <= now);
        let over = runs.filter(|(_, run)| is_over(run));
        let over: Vec<(ThreadOwner, RunId)> = over
            .map(|(owner, run)| (owner.clone(), run.stored.run.id.clone()))
            .take(MAX_TRIMMED_LOGS)
            .collect();
        over.iter().for_each(|(owner, id)| state.remove_log(owner, id));
        Ok(over.len())
    }

    async fn set_feedback(
        &self,
        key: &ThreadKey,
        node: &NodeId,
        feedback: Option<Feedback>,
    ) -> Result<(), ConversationError> {
        let mut state = self.lock();
        let found = state.find_mut(key)?;
        let missing = || ConversationError::NodeNotFound(node.to_string());
        let at = found.nodes.iter().position(|found| found.link.id == *node).ok_or_else(missing)?;
        let (thread, node) = (found.thread.clone(), found.nodes[at].clone());
        if let Some((thread, node)) = commit::rate_node(&key.thread_owner(), thread, node, feedback)? {
            (found.thread, found.nodes[at]) = (thread, node);
        }
        Ok(())
    }

    async fn agent_feedback(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<FeedbackPage, ConversationError> {
        let after = FeedbackCursor::parse(cursor)?;
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let state = self.lock();
        let threads = state.threads_with(company, agent).flat_map(|(_, found)| found.nodes.iter());
        let rated = threads.filter_map(|node| Some((node.feedback.as_ref()?, node)));
        let mut rated: Vec<_> = rated.filter(|(feedback, _)| FeedbackCursor::of(feedback) < after).collect();
        rated.sort_by_key(|(feedback, _)| std::cmp::Reverse(FeedbackCursor::of(feedback)));
        let shown = |(feedback, node): (&Feedback, &StoredNode)| {
            AgentFeedback::new(feedback.clone(), Some(&node.message))
        };
        let rated = rated.into_iter().take(limit + 1).map(shown).collect();
        Ok(FeedbackPage::from_overfetch(rated, limit))
    }

    async fn visitor_threads(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = VisitorThreadCursor::parse(cursor)?;
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let state = self.lock();
        let threads = state.threads_with(company, agent).filter(|(owner, _)| owner.is_visitor());
        let with_owner = |(owner, found): (&ThreadOwner, &MemoryThread)| Thread {
            owner: Some(owner.owner.clone()),
            ..found.thread.clone()
        };
        let mut threads: Vec<Thread> = threads.map(with_owner).collect();
        threads.retain(|thread| VisitorThreadCursor::of(thread) < after);
        threads.sort_by_key(|thread| std::cmp::Reverse(VisitorThreadCursor::of(thread)));
        threads.truncate(limit + 1);
        Ok(ThreadPage::of_visitors(threads, limit))
    }
}
