//! Conversations in the schema of records. Each write is one transaction under an advisory lock on the owner.

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

use self::tables::{ConversationTables, TableError};
use super::PostgresRecords;
use super::fault::{OperationError, PostgresErrorKind};
use super::session::{Session, contains_nul};
use crate::conversation_row::{DELETE_BATCH_NODES, RowError};

pub(super) mod tables;

/// Locks an owner's conversations until the end of the transaction. The seed keeps the locks apart from those of records.
const LOCK_OWNER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))";

impl PostgresRecords {
    /// Begins a transaction that has an owner's conversations for itself. Begins again on another connection if the
    /// connection was lost, as all idle ones are by a restart of the server.
    async fn lock_conversations(&self, owner: &ThreadOwner) -> Result<ConversationTables, ConversationError> {
        let name = format!("{}\u{1f}{}", owner.company, owner.owner);
        if contains_nul(&name) {
            return Err(ConversationError::Invalid("the owner has a control character".to_owned()));
        }
        let mut remaining_retries = self.sessions.max_size();
        loop {
            let session = self.sessions.get().await.map_err(failed)?;
            match session.begin(&[(LOCK_OWNER, &[&name])]).await {
                Ok(_) => return Ok(ConversationTables(session)),
                Err(fault) if fault.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 => {
                    remaining_retries -= 1;
                }
                Err(fault) => {
                    return session.release(Err(OperationError::from(fault))).await.map_err(rejected);
                }
            }
        }
    }

    /// Commits a transaction, or rolls it back after an error.
    async fn finish<T>(
        &self,
        tables: ConversationTables,
        done: Result<T, TableError>,
    ) -> Result<T, ConversationError> {
        let session = tables.0;
        let outcome = match done {
            Err(RowError::Rejected(error)) => {
                session.rollback().await.map_err(failed)?;
                return Err(error);
            }
            Err(RowError::Failed(fault)) => session.release(Err(OperationError::from(fault))).await,
            Ok(done) => {
                let committed = session.commit(&[]).await.map_err(OperationError::from);
                session.release(committed.map(|_| done)).await
            }
        };
        self.record_outcome(matches!(outcome, Err(OperationError::Failed(_))));
        outcome.map_err(rejected)
    }
}

fn failed(fault: super::PostgresError) -> ConversationError {
    rejected(OperationError::from(fault))
}

fn rejected(error: OperationError) -> ConversationError {
    ConversationError::Store(error.into())
}

/// Ends a read, and separates what was rejected from what failed.
async fn end_read<T>(
    tables: ConversationTables,
    done: Result<T, TableError>,
) -> Result<Result<T, ConversationError>, OperationError> {
    let done = match done {
        Ok(found) => Ok(Ok(found)),
        Err(RowError::Rejected(error)) => Ok(Err(error)),
        Err(RowError::Failed(fault)) => Err(OperationError::from(fault)),
    };
    tables.0.release(done).await
}

/// Creates a thread under a key that has none.
async fn insert_thread(
    tables: &ConversationTables,
    key: &ThreadKey,
    make: impl FnOnce(u64) -> Result<(Thread, Vec<StoredNode>), ConversationError> + Send,
) -> Result<Thread, TableError> {
    if tables.thread(key).await?.is_some() {
        return Err(ConversationError::ThreadExists.into());
    }
    let (thread, nodes) = make(tables.thread_count(&key.thread_owner()).await?)?;
    let n = tables.put_thread(None, key, &thread).await?;
    tables.insert_nodes(n, &nodes).await?;
    Ok(thread)
}

async fn begin_run(tables: &ConversationTables, begin: &BeginRun) -> Result<BegunRun, TableError> {
    let owner = begin.key.thread_owner();
    let found = tables.thread(&begin.key).await?;
    let run = async |id: Option<&RunId>| match id {
        Some(id) => tables.run(&owner, id).await,
        None => Ok(None),
    };
    let active = run(found.as_ref().and_then(|(_, thread)| thread.active_run_id.as_ref())).await?;
    let continued = run(begin.continues.as_ref()).await?;
    let lease = match &active {
        Some((_, _, active)) => tables.lease(&active.process).await?,
        None => None,
    };
    let known = match &found {
        Some((n, _)) => tables.known(*n, &referenced_ids(&begin.nodes, begin.parent_id.as_ref())).await?,
        None => Default::default(),
    };
    let thread_count = if found.is_some() { 0 } else { tables.thread_count(&owner).await? };
    let numbers = (active.as_ref().map(|found| found.0), continued.as_ref().map(|found| found.0));
    let rows = BeginRows {
        thread: found.as_ref().map(|(_, thread)| thread.clone()),
        thread_count,
        used_run: tables.run(&owner, &begin.run_id).await?.map(|(_, _, stored)| stored.run),
        active: active.map(|(_, _, stored)| (stored.run, lease)),
        continued: continued.map(|(_, _, stored)| stored.run),
        known: known.clone(),
    };
    let commit = commit::begin_run(begin, rows)?;
    tables.put_lease(&begin.lease, false).await?;
    let n = tables.put_thread(found.map(|(n, _)| n), &begin.key, &commit.thread).await?;
    tables.insert_nodes(n, &commit.nodes).await?;
    for (number, run) in [(numbers.0, &commit.interrupted), (numbers.1, &commit.continued)] {
        if let (Some(number), Some(run)) = (number, run) {
            tables.update_run(number, run).await?;
        }
    }
    let stored = StoredRun { run: commit.run, process: begin.lease.process.clone() };
    tables.insert_run(&owner, n, &stored).await?;
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    Ok(BegunRun { thread: commit.thread, run: stored.run, nodes, interrupted: commit.interrupted })
}

async fn end_run(tables: &ConversationTables, end: &EndRun) -> Result<EndedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let (number, _, run) = tables.run(&end.owner, &end.run_id).await?.ok_or_else(missing)?;
    let key = end.owner.thread(&run.run.thread_id);
    let (n, thread) = tables.thread(&key).await?.ok_or_else(missing)?;
    let known = tables.known(n, &referenced_ids(&end.nodes, None)).await?;
    let commit = commit::end_run(end, EndRows { run, thread, known: known.clone() })?;
    tables.put_thread(Some(n), &key, &commit.thread).await?;
    tables.insert_nodes(n, &commit.nodes).await?;
    tables.update_run(number, &commit.run).await?;
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    Ok(EndedRun { thread: commit.thread, run: commit.run, nodes })
}

async fn erase_node(tables: &ConversationTables, key: &ThreadKey, id: &NodeId) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id).await?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq]).await?.pop().ok_or_else(missing)?;
    // The title is made of the first user message that has text.
    let seqs: Vec<u32> = tables.user_seqs(n, 100).await?.into_iter().filter(|user| *user != seq).collect();
    let others = tables.nodes(n, &seqs).await?;
    match commit::erase_node(thread.clone(), node, others.iter().map(|node| &node.message)) {
        None => Ok(thread),
        Some((thread, node)) => {
            tables.put_thread(Some(n), key, &thread).await?;
            tables.update_node(n, &node).await?;
            Ok(thread)
        }
    }
}

/// Deletes threads until [`DELETE_BATCH_NODES`] nodes are deleted. Returns how many of them are done with.
async fn delete_batch(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    ids: &[ThreadId],
) -> Result<(usize, DeletedThreads), TableError> {
    let mut deleted = DeletedThreads::default();
    let mut remaining_nodes = DELETE_BATCH_NODES;
    for (at, id) in ids.iter().enumerate() {
        let Some((n, thread)) = tables.thread(&owner.thread(id.clone())).await? else { continue };
        let removed = tables.delete_nodes(n).await?;
        remaining_nodes = remaining_nodes.saturating_sub(removed);
        if removed == DELETE_BATCH_NODES {
            return Ok((at, deleted));
        }
        tables.delete_thread(n).await?;
        deleted.deleted += 1;
        deleted.active_runs.extend(thread.active_run_id);
        if remaining_nodes == 0 {
            return Ok((at + 1, deleted));
        }
    }
    Ok((ids.len(), deleted))
}

impl PostgresRecords {
    async fn delete_threads(
        &self,
        owner: &ThreadOwner,
        ids: Vec<ThreadId>,
    ) -> Result<DeletedThreads, ConversationError> {
        let _permit = self.permits.acquire(&owner.company, self.wait_timeout).await.map_err(failed)?;
        let mut deleted = DeletedThreads::default();
        let mut done = 0;
        while done < ids.len() {
            let tables = self.lock_conversations(owner).await?;
            let batch = delete_batch(&tables, owner, &ids[done..]).await;
            let (count, batch) = self.finish(tables, batch).await?;
            done += count;
            deleted.deleted += batch.deleted;
            deleted.active_runs.extend(batch.active_runs);
        }
        Ok(deleted)
    }
}

async fn patch_thread(
    tables: &ConversationTables,
    key: &ThreadKey,
    patch: &ThreadPatch,
) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let leaf = match &patch.head {
        Some(head) => {
            let links = tables.links(n).await?;
            let tree = Tree::new(&links);
            tree.find(head).map(|at| links[tree.newest_leaf(at)].id.clone())
        }
        None => None,
    };
    let thread = commit::patch(thread, patch, leaf)?;
    tables.put_thread(Some(n), key, &thread).await?;
    Ok(thread)
}

async fn append(
    tables: &ConversationTables,
    key: &ThreadKey,
    nodes: Vec<NewNode>,
    now: Timestamp,
) -> Result<AppendedNodes, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let known = tables.known(n, &referenced_ids(&nodes, None)).await?;
    let (thread, nodes) = commit::append(thread, known.clone(), nodes, now)?;
    tables.put_thread(Some(n), key, &thread).await?;
    tables.insert_nodes(n, &nodes).await?;
    Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
}

async fn fork(tables: &ConversationTables, fork: &ForkThread) -> Result<Thread, TableError> {
    let (n, source) = tables.thread(&fork.key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let seqs = path_to_fork(fork, &source, &tables.links(n).await?)?;
    let path = tables.nodes(n, &seqs).await?;
    let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
    insert_thread(tables, &key, |count| commit::fork(fork, source, path, count)).await
}

async fn read_nodes(
    tables: &ConversationTables,
    key: &ThreadKey,
    query: &NodeQuery,
) -> Result<Option<NodePage>, TableError> {
    let Some((n, thread)) = tables.thread(key).await? else { return Ok(None) };
    let selected = select_nodes(&thread, &tables.links(n).await?, query)?;
    let nodes = tables.nodes(n, &selected.seqs).await?;
    // Nodes are never removed from a thread, so it was deleted between the statements.
    Ok((nodes.len() == selected.seqs.len()).then(|| selected.into_page(thread, nodes)))
}

async fn read_links(tables: &ConversationTables, key: &ThreadKey) -> Result<Option<ThreadLinks>, TableError> {
    let Some((n, thread)) = tables.thread(key).await? else { return Ok(None) };
    Ok(Some(ThreadLinks { thread, links: tables.links(n).await? }))
}

async fn reap_run(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    id: &RunId,
    now: Timestamp,
) -> Result<bool, TableError> {
    let Some((number, n, stored)) = tables.run(owner, id).await? else { return Ok(false) };
    // The lease may have been renewed since the run was found.
    if tables.lease(&stored.process).await?.is_some_and(|until| until > now) {
        return Ok(false);
    }
    let key = owner.thread(&stored.run.thread_id);
    let Some((_, thread)) = tables.thread(&key).await? else { return Ok(false) };
    let Some((run, thread)) = commit::reap(stored.run, thread, now) else { return Ok(false) };
    tables.update_run(number, &run).await?;
    tables.put_thread(Some(n), &key, &thread).await?;
    Ok(true)
}

/// Runs a write of an owner's conversations as one transaction.
macro_rules! write {
    ($store:expr, $owner:expr, |$tables:ident| $work:expr) => {{
        let owner: &ThreadOwner = $owner;
        let _permit = $store.permits.acquire(&owner.company, $store.wait_timeout).await.map_err(failed)?;
        let $tables = $store.lock_conversations(owner).await?;
        let done = $work.await;
        $store.finish($tables, done).await
    }};
}

/// Runs a read for a company.
macro_rules! read {
    ($store:expr, $company:expr, |$tables:ident| $work:expr) => {
        $store
            .read($company, |session: Session| async move {
                let tables = ConversationTables(session);
                let $tables = &tables;
                let done = $work.await;
                end_read(tables, done).await
            })
            .await?
    };
}

fn page_limit(limit: usize) -> (usize, i64) {
    let limit = limit.clamp(1, MAX_PAGE_THREADS);
    (limit, i64::try_from(limit + 1).unwrap_or(i64::MAX))
}

#[async_trait]
impl Conversations for PostgresRecords {
    async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, ConversationError> {
        let found = read!(self, &key.company, |tables| tables.thread(key))?;
        Ok(found.map(|(_, thread)| thread))
    }

    async fn links(&self, key: &ThreadKey) -> Result<Option<ThreadLinks>, ConversationError> {
        read!(self, &key.company, |tables| read_links(tables, key))
    }

    async fn nodes(&self, key: &ThreadKey, query: &NodeQuery) -> Result<Option<NodePage>, ConversationError> {
        read!(self, &key.company, |tables| read_nodes(tables, key, query))
    }

    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = cursor.map(ThreadCursor::parse).transpose()?.unwrap_or_else(ThreadCursor::start);
        let (limit, wanted) = page_limit(limit);
        let after = &after;
        let found = read!(self, &owner.company, |tables| tables.threads(owner, filter, after, wanted))?;
        Ok(ThreadPage::from_overfetch(found, limit))
    }

    async fn create(&self, create: CreateThread) -> Result<Thread, ConversationError> {
        create.key.check()?;
        let (key, owner) = (create.key.clone(), create.key.thread_owner());
        write!(self, &owner, |tables| insert_thread(&tables, &key, |count| commit::create(create, count)))
    }

    async fn patch(
        &self,
        key: &ThreadKey,
        patch: ThreadPatch,
        _now: Timestamp,
    ) -> Result<Thread, ConversationError> {
        write!(self, &key.thread_owner(), |tables| patch_thread(&tables, key, &patch))
    }

    async fn append(
        &self,
        key: &ThreadKey,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        write!(self, &key.thread_owner(), |tables| append(&tables, key, nodes, now))
    }

    async fn fork(&self, request: ForkThread) -> Result<Thread, ConversationError> {
        write!(self, &request.key.thread_owner(), |tables| fork(&tables, &request))
    }

    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError> {
        if key.check().is_err() {
            return Ok(None);
        }
        let deleted = self.delete_threads(&key.thread_owner(), vec![key.id.clone()]).await?;
        Ok(Some(deleted).filter(|deleted| deleted.deleted > 0))
    }

    async fn delete_many(
        &self,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let agent = filter.agent.as_deref();
        let before = filter.before.map(Timestamp::as_millisecond);
        let limit = i64::try_from(MAX_DELETED_THREADS + 1).unwrap_or(i64::MAX);
        let ids = read!(self, &owner.company, |tables| tables.thread_ids(owner, agent, before, limit))?;
        let mut ids: Vec<ThreadId> = ids.into_iter().map(ThreadId::from).collect();
        let more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { more, ..self.delete_threads(owner, ids).await? })
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        write!(self, &key.thread_owner(), |tables| erase_node(&tables, key, node))
    }

    async fn begin_run(&self, begin: BeginRun) -> Result<BegunRun, ConversationError> {
        begin.key.check()?;
        write!(self, &begin.key.thread_owner(), |tables| begin_run(&tables, &begin))
    }

    async fn end_run(&self, end: EndRun) -> Result<EndedRun, ConversationError> {
        write!(self, &end.owner, |tables| end_run(&tables, &end))
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        let found = read!(self, &owner.company, |tables| tables.run(owner, id))?;
        Ok(found.map(|(_, _, stored)| stored.run))
    }

    async fn runs(
        &self,
        owner: &ThreadOwner,
        filter: &RunFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<RunPage, ConversationError> {
        let before = cursor.map(parse_number_cursor).transpose()?.unwrap_or(i64::MAX);
        let (limit, wanted) = page_limit(limit);
        let found = read!(self, &owner.company, |tables| tables.runs(owner, filter, before, wanted))?;
        Ok(RunPage::from_overfetch(found, limit))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        read!(self, "", |tables| tables.put_lease(lease, true))
    }

    async fn reap(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let limit = i64::try_from(MAX_REAPED_RUNS).unwrap_or(i64::MAX);
        let lost = read!(self, "", |tables| tables.lost_runs(now, limit))?;
        let mut reaped = 0;
        for (owner, id) in &lost {
            let is_reaped = write!(self, owner, |tables| reap_run(&tables, owner, id, now))?;
            reaped += usize::from(is_reaped);
        }
        if !lost.is_empty() {
            read!(self, "", |tables| tables.delete_leases(now))?;
        }
        Ok(reaped)
    }
}
