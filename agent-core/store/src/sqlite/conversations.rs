//! Conversations: each operation is one read of a reader thread, or one operation of the writer thread.

use agent_core::ids::{RunId, ThreadId};
use agent_platform::conversation::commit::{self, BeginRows, EndRows, StoredRun, referenced_ids};
use agent_platform::conversation::page::{path_to_fork, select_nodes};
use agent_platform::conversation::tree::Tree;
use agent_platform::conversation::{
    AppendedNodes, BeginRun, BegunRun, ConversationError, Conversations, CreateThread, DeleteFilter,
    DeletedThreads, EndRun, EndedRun, ForkThread, MAX_DELETED_THREADS, MAX_PAGE_THREADS, MAX_REAPED_RUNS,
    NewNode, NodeId, NodePage, NodeQuery, Run, RunFilter, RunLease, RunPage, StoredNode, Thread,
    ThreadCursor, ThreadFilter, ThreadKey, ThreadLinks, ThreadOwner, ThreadPage, ThreadPatch,
    parse_number_cursor,
};
use async_trait::async_trait;
use jiff::Timestamp;

use self::rows::{ConversationTables, TableError};
use super::SqliteStore;
use super::fault::WriteError;
use super::write_op::{WriteBatch, WriteOp};
use crate::conversation_row::{DELETE_BATCH_NODES, RowError};

pub(super) mod rows;

/// A write operation on conversations that stores about `bytes` bytes. It reads, decides, and then writes, so that a
/// rejected one has written nothing.
struct ConversationWrite<F> {
    bytes: usize,
    work: F,
}

impl<T: Send, F> WriteOp for ConversationWrite<F>
where
    F: Fn(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
{
    type Output = Result<T, ConversationError>;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&self, stage: &mut WriteBatch<'_>) -> Result<Self::Output, WriteError> {
        match (self.work)(&ConversationTables(stage.connection)) {
            Ok(done) => {
                stage.changes.has_changes = true;
                Ok(Ok(done))
            }
            Err(RowError::Rejected(error)) => Ok(Err(error)),
            Err(RowError::Failed(error)) => Err(error),
        }
    }
}

impl SqliteStore {
    async fn write_conversations<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        self.writers.commit(ConversationWrite { bytes, work }).await?
    }

    async fn read_conversations<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let read = self.readers.read(move |rows| match work(&ConversationTables(rows.0)) {
            Ok(found) => Ok(Ok(found)),
            Err(RowError::Rejected(error)) => Ok(Err(error)),
            Err(RowError::Failed(error)) => Err(error),
        });
        read.await?
    }
}

/// Returns the approximate size of new nodes.
fn node_bytes(nodes: &[NewNode]) -> usize {
    let bytes =
        |node: &NewNode| node.message.as_message().map_or(0, |message| message.content.to_text().len());
    nodes.iter().map(bytes).sum()
}

/// Creates a thread under a key that has none.
fn insert_thread(
    tables: &ConversationTables<'_>,
    key: &ThreadKey,
    make: impl FnOnce(u64) -> Result<(Thread, Vec<StoredNode>), ConversationError>,
) -> Result<Thread, TableError> {
    if tables.thread(key)?.is_some() {
        return Err(ConversationError::ThreadExists.into());
    }
    let (thread, nodes) = make(tables.thread_count(&key.thread_owner())?)?;
    let n = tables.put_thread(None, key, &thread)?;
    tables.insert_nodes(n, &nodes)?;
    Ok(thread)
}

fn begin_run(tables: &ConversationTables<'_>, begin: &BeginRun) -> Result<BegunRun, TableError> {
    let owner = begin.key.thread_owner();
    let found = tables.thread(&begin.key)?;
    let run = |id: Option<&RunId>| id.map_or(Ok(None), |id| tables.run(&owner, id));
    let active = run(found.as_ref().and_then(|(_, thread)| thread.active_run_id.as_ref()))?;
    let continued = run(begin.continues.as_ref())?;
    let lease = active.as_ref().map_or(Ok(None), |(_, _, active)| tables.lease(&active.process))?;
    let known = match &found {
        Some((n, _)) => tables.known(*n, &referenced_ids(&begin.nodes, begin.parent_id.as_ref()))?,
        None => Default::default(),
    };
    let thread_count = if found.is_some() { 0 } else { tables.thread_count(&owner)? };
    let numbers = (active.as_ref().map(|found| found.0), continued.as_ref().map(|found| found.0));
    let rows = BeginRows {
        thread: found.as_ref().map(|(_, thread)| thread.clone()),
        thread_count,
        used_run: tables.run(&owner, &begin.run_id)?.map(|(_, _, stored)| stored.run),
        active: active.map(|(_, _, stored)| (stored.run, lease)),
        continued: continued.map(|(_, _, stored)| stored.run),
        known: known.clone(),
    };
    let commit = commit::begin_run(begin, rows)?;
    tables.put_lease(&begin.lease, false)?;
    let n = tables.put_thread(found.map(|(n, _)| n), &begin.key, &commit.thread)?;
    tables.insert_nodes(n, &commit.nodes)?;
    for (number, run) in [(numbers.0, &commit.interrupted), (numbers.1, &commit.continued)] {
        if let (Some(number), Some(run)) = (number, run) {
            tables.update_run(number, run)?;
        }
    }
    let stored = StoredRun { run: commit.run, process: begin.lease.process.clone() };
    tables.insert_run(&owner, n, &stored)?;
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    Ok(BegunRun { thread: commit.thread, run: stored.run, nodes, interrupted: commit.interrupted })
}

fn end_run(tables: &ConversationTables<'_>, end: &EndRun) -> Result<EndedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let (number, _, run) = tables.run(&end.owner, &end.run_id)?.ok_or_else(missing)?;
    let key = end.owner.thread(&run.run.thread_id);
    let (n, thread) = tables.thread(&key)?.ok_or_else(missing)?;
    let known = tables.known(n, &referenced_ids(&end.nodes, None))?;
    let commit = commit::end_run(end, EndRows { run, thread, known: known.clone() })?;
    tables.put_thread(Some(n), &key, &commit.thread)?;
    tables.insert_nodes(n, &commit.nodes)?;
    tables.update_run(number, &commit.run)?;
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    Ok(EndedRun { thread: commit.thread, run: commit.run, nodes })
}

fn erase_node(tables: &ConversationTables<'_>, key: &ThreadKey, id: &NodeId) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key)?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id)?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq])?.pop().ok_or_else(missing)?;
    // The title is made of the first user message that has text.
    let seqs: Vec<u32> = tables.user_seqs(n, 100)?.into_iter().filter(|user| *user != seq).collect();
    let others = tables.nodes(n, &seqs)?;
    match commit::erase_node(thread.clone(), node, others.iter().map(|node| &node.message)) {
        None => Ok(thread),
        Some((thread, node)) => {
            tables.put_thread(Some(n), key, &thread)?;
            tables.update_node(n, &node)?;
            Ok(thread)
        }
    }
}

/// Deletes threads until [`DELETE_BATCH_NODES`] nodes are deleted. Returns how many of them are done with.
fn delete_batch(
    tables: &ConversationTables<'_>,
    owner: &ThreadOwner,
    ids: &[ThreadId],
) -> Result<(usize, DeletedThreads), TableError> {
    let mut deleted = DeletedThreads::default();
    let mut remaining_nodes = DELETE_BATCH_NODES;
    for (at, id) in ids.iter().enumerate() {
        let Some((n, thread)) = tables.thread(&owner.thread(id.clone()))? else { continue };
        let removed = tables.delete_nodes(n)?;
        remaining_nodes = remaining_nodes.saturating_sub(removed);
        if removed == DELETE_BATCH_NODES {
            return Ok((at, deleted));
        }
        tables.delete_thread(n)?;
        deleted.deleted += 1;
        deleted.active_runs.extend(thread.active_run_id);
        if remaining_nodes == 0 {
            return Ok((at + 1, deleted));
        }
    }
    Ok((ids.len(), deleted))
}

impl SqliteStore {
    async fn delete_threads(
        &self,
        owner: &ThreadOwner,
        ids: Vec<ThreadId>,
    ) -> Result<DeletedThreads, ConversationError> {
        let mut deleted = DeletedThreads::default();
        let mut done = 0;
        while done < ids.len() {
            let (owner, rest) = (owner.clone(), ids[done..].to_vec());
            let batch =
                self.write_conversations(0, move |tables| delete_batch(tables, &owner, &rest)).await?;
            done += batch.0;
            deleted.deleted += batch.1.deleted;
            deleted.active_runs.extend(batch.1.active_runs);
        }
        Ok(deleted)
    }
}

#[async_trait]
impl Conversations for SqliteStore {
    async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, ConversationError> {
        let key = key.clone();
        self.read_conversations(move |tables| Ok(tables.thread(&key)?.map(|(_, thread)| thread))).await
    }

    async fn links(&self, key: &ThreadKey) -> Result<Option<ThreadLinks>, ConversationError> {
        let key = key.clone();
        let read = self.read_conversations(move |tables| {
            let Some((n, thread)) = tables.thread(&key)? else { return Ok(None) };
            Ok(Some(ThreadLinks { thread, links: tables.links(n)? }))
        });
        read.await
    }

    async fn nodes(&self, key: &ThreadKey, query: &NodeQuery) -> Result<Option<NodePage>, ConversationError> {
        let (key, query) = (key.clone(), query.clone());
        let read = self.read_conversations(move |tables| {
            let Some((n, thread)) = tables.thread(&key)? else { return Ok(None) };
            let selected = select_nodes(&thread, &tables.links(n)?, &query)?;
            let nodes = tables.nodes(n, &selected.seqs)?;
            Ok(Some(selected.into_page(thread, nodes)))
        });
        read.await
    }

    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = cursor.map(ThreadCursor::parse).transpose()?.unwrap_or_else(ThreadCursor::start);
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let (owner, filter) = (owner.clone(), filter.clone());
        let read = self.read_conversations(move |tables| tables.threads(&owner, &filter, &after, limit + 1));
        Ok(ThreadPage::from_overfetch(read.await?, limit))
    }

    async fn create(&self, create: CreateThread) -> Result<Thread, ConversationError> {
        create.key.check()?;
        let bytes = node_bytes(&create.nodes);
        let write = self.write_conversations(bytes, move |tables| {
            insert_thread(tables, &create.key, |count| commit::create(create.clone(), count))
        });
        write.await
    }

    async fn patch(
        &self,
        key: &ThreadKey,
        patch: ThreadPatch,
        _now: Timestamp,
    ) -> Result<Thread, ConversationError> {
        let key = key.clone();
        let write = self.write_conversations(0, move |tables| {
            let (n, thread) = tables.thread(&key)?.ok_or(ConversationError::ThreadNotFound)?;
            let leaf = match &patch.head {
                Some(head) => {
                    let links = tables.links(n)?;
                    let tree = Tree::new(&links);
                    tree.find(head).map(|at| links[tree.newest_leaf(at)].id.clone())
                }
                None => None,
            };
            let thread = commit::patch(thread, &patch, leaf)?;
            tables.put_thread(Some(n), &key, &thread)?;
            Ok(thread)
        });
        write.await
    }

    async fn append(
        &self,
        key: &ThreadKey,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        let key = key.clone();
        let write = self.write_conversations(node_bytes(&nodes), move |tables| {
            let (n, thread) = tables.thread(&key)?.ok_or(ConversationError::ThreadNotFound)?;
            let known = tables.known(n, &referenced_ids(&nodes, None))?;
            let (thread, nodes) = commit::append(thread, known.clone(), nodes.clone(), now)?;
            tables.put_thread(Some(n), &key, &thread)?;
            tables.insert_nodes(n, &nodes)?;
            Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
        });
        write.await
    }

    async fn fork(&self, fork: ForkThread) -> Result<Thread, ConversationError> {
        let write = self.write_conversations(0, move |tables| {
            let (n, source) = tables.thread(&fork.key)?.ok_or(ConversationError::ThreadNotFound)?;
            let seqs = path_to_fork(&fork, &source, &tables.links(n)?)?;
            let path = tables.nodes(n, &seqs)?;
            let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
            insert_thread(tables, &key, |count| commit::fork(&fork, source, path, count))
        });
        write.await
    }

    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError> {
        let deleted = self.delete_threads(&key.thread_owner(), vec![key.id.clone()]).await?;
        Ok(Some(deleted).filter(|deleted| deleted.deleted > 0))
    }

    async fn delete_many(
        &self,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let (key, agent) = (owner.clone(), filter.agent.clone());
        let before = filter.before.map(Timestamp::as_millisecond);
        let read = self.read_conversations(move |tables| {
            tables.thread_ids(&key, agent.as_deref(), before, MAX_DELETED_THREADS + 1)
        });
        let mut ids: Vec<ThreadId> = read.await?.into_iter().map(ThreadId::from).collect();
        let more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { more, ..self.delete_threads(owner, ids).await? })
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        let (key, node) = (key.clone(), node.clone());
        self.write_conversations(0, move |tables| erase_node(tables, &key, &node)).await
    }

    async fn begin_run(&self, begin: BeginRun) -> Result<BegunRun, ConversationError> {
        let bytes = node_bytes(&begin.nodes);
        self.write_conversations(bytes, move |tables| begin_run(tables, &begin)).await
    }

    async fn end_run(&self, end: EndRun) -> Result<EndedRun, ConversationError> {
        let bytes = node_bytes(&end.nodes);
        self.write_conversations(bytes, move |tables| end_run(tables, &end)).await
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        let (owner, id) = (owner.clone(), id.clone());
        self.read_conversations(move |tables| Ok(tables.run(&owner, &id)?.map(|(_, _, stored)| stored.run)))
            .await
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
        let (owner, filter) = (owner.clone(), filter.clone());
        let read = self.read_conversations(move |tables| tables.runs(&owner, &filter, before, limit + 1));
        Ok(RunPage::from_overfetch(read.await?, limit))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        let lease = lease.clone();
        self.write_conversations(0, move |tables| tables.put_lease(&lease, true)).await
    }

    async fn reap(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let is_lost = self.read_conversations(move |tables| tables.lost_runs(now, 1)).await?;
        if is_lost.is_empty() {
            return Ok(0);
        }
        let write = self.write_conversations(0, move |tables| {
            let lost = tables.lost_runs(now, MAX_REAPED_RUNS)?;
            let mut reaped = 0;
            for (owner, id) in lost {
                let Some((number, n, stored)) = tables.run(&owner, &id)? else { continue };
                let key = owner.thread(&stored.run.thread_id);
                let Some((_, thread)) = tables.thread(&key)? else { continue };
                if let Some((run, thread)) = commit::reap(stored.run, thread, now) {
                    tables.update_run(number, &run)?;
                    tables.put_thread(Some(n), &key, &thread)?;
                    reaped += 1;
                }
            }
            tables.delete_leases(now)?;
            Ok(reaped)
        });
        write.await
    }
}
