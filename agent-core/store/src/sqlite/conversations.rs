//! Conversations: each operation is one read of a reader thread, or one operation of the writer thread.

use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId};
use agent_platform::conversation::commit;
use agent_platform::conversation::page::{path_to_fork, select_nodes};
use agent_platform::conversation::{
    AppendedEvents, AppendedNodes, BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun,
    ConversationError, Conversations, CreateThreadRequest, DeleteFilter, DeletedThreads, DueRuns,
    EndRunRequest, EndedRun, Feedback, FeedbackCursor, FeedbackPage, ForkThreadRequest, LogPage,
    MAX_DELETED_THREADS, MAX_PAGE_THREADS, MAX_REAPED_RUNS, MAX_SCANNED_THREADS, MAX_TRIMMED_LOGS, NewNode,
    NodeContent, NodeId, NodePage, NodeQuery, QueueRunRequest, Run, RunChunk, RunClock, RunFilter, RunKey,
    RunLease, RunPage, RunSignal, StoredNode, Thread, ThreadCursor, ThreadFilter, ThreadKey, ThreadLinks,
    ThreadOwner, ThreadPage, ThreadPatch, ThreadPath, ThreadScan, TurnContext, VisitorThreadCursor,
    WaitingRuns, parse_number_cursor,
};
use async_trait::async_trait;
use jiff::Timestamp;

use self::access::{node_bytes, platform};
use self::rows::{ConversationTables, TableError};
use super::SqliteStore;
use crate::conversation_row::{FIRST_POSITION, with_stored_events};

mod access;
mod context_rows;
pub(super) mod feedback_rows;
pub(super) mod log_rows;
pub(super) mod rows;
mod run_rows;
mod runs;

/// Maximum number of runs that one commit interrupts.
const REAP_BATCH_RUNS: usize = 10;

/// Creates a thread under a key that has none, and returns it with its number.
fn insert_thread(
    tables: &ConversationTables<'_>,
    key: &ThreadKey,
    make: impl FnOnce(u64) -> Result<(Thread, Vec<StoredNode>), ConversationError>,
) -> Result<(i64, Thread), TableError> {
    if tables.thread(key)?.is_some() {
        return Err(ConversationError::ThreadExists.into());
    }
    let (thread, nodes) = make(tables.thread_count(&key.thread_owner())?)?;
    let n = tables.put_thread(None, key, &thread)?;
    tables.insert_nodes(n, &nodes)?;
    Ok((n, thread))
}

impl SqliteStore {
    async fn delete_threads(
        &self,
        owner: &ThreadOwner,
        ids: Vec<ThreadId>,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let mut deleted = DeletedThreads::default();
        let mut processed = 0;
        while processed < ids.len() {
            let (owner, rest, filter) = (owner.clone(), ids[processed..].to_vec(), filter.clone());
            let write = self.write_tables(owner.company.clone(), 0, move |tables| {
                runs::delete_batch(tables, &owner, &rest, &filter)
            });
            let batch = write.await?;
            processed += batch.0;
            deleted.add_batch(batch.1);
        }
        Ok(deleted)
    }
}

#[async_trait]
impl Conversations for SqliteStore {
    fn has_group_commits(&self) -> bool {
        true
    }

    async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, ConversationError> {
        let key = key.clone();
        self.read_tables(key.company.clone(), move |tables| {
            Ok(tables.thread(&key)?.map(|(_, thread)| thread))
        })
        .await
    }

    async fn links(&self, key: &ThreadKey) -> Result<Option<ThreadLinks>, ConversationError> {
        let key = key.clone();
        let read = self.read_tables(key.company.clone(), move |tables| {
            let Some((n, thread)) = tables.thread(&key)? else { return Ok(None) };
            Ok(Some(ThreadLinks { thread, links: tables.links(n)? }))
        });
        read.await
    }

    async fn path(&self, key: &ThreadKey) -> Result<Option<ThreadPath>, ConversationError> {
        let key = key.clone();
        self.read_tables(key.company.clone(), move |tables| tables.path(&key)).await
    }

    async fn nodes(&self, key: &ThreadKey, query: &NodeQuery) -> Result<Option<NodePage>, ConversationError> {
        let (key, query) = (key.clone(), query.clone());
        let read = self.read_tables(key.company.clone(), move |tables| {
            let Some((n, thread)) = tables.thread(&key)? else { return Ok(None) };
            let selected = select_nodes(&thread, &tables.links(n)?, &query)?;
            let nodes = tables.nodes(n, &selected.seqs)?;
            Ok(Some(selected.into_page(thread, nodes)))
        });
        read.await
    }

    async fn contents(&self, key: &ThreadKey, seqs: &[u32]) -> Result<Vec<NodeContent>, ConversationError> {
        let (key, seqs) = (key.clone(), seqs.to_vec());
        let read = self.read_tables(key.company.clone(), move |tables| match tables.thread_number(&key)? {
            Some(n) => tables.contents(n, &seqs),
            None => Ok(Vec::new()),
        });
        read.await
    }

    async fn contexts(
        &self,
        key: &ThreadKey,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, ConversationError> {
        let (key, turns) = (key.clone(), turns.to_vec());
        let read = self.read_tables(key.company.clone(), move |tables| match tables.thread_number(&key)? {
            Some(n) => tables.contexts(n, from, &turns),
            None => Ok(Vec::new()),
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
        let after = ThreadCursor::parse(cursor)?;
        let limit = limit.clamp(1, MAX_PAGE_THREADS);
        let (owner, filter) = (owner.clone(), filter.clone());
        let read = self.read_tables(owner.company.clone(), move |tables| {
            tables.threads(&owner, &filter, &after, limit + 1)
        });
        Ok(ThreadPage::from_overfetch(read.await?, limit))
    }

    async fn create(&self, create: CreateThreadRequest) -> Result<Thread, ConversationError> {
        create.key.check()?;
        let bytes = node_bytes(&create.nodes);
        let write = self.write_tables(create.key.company.clone(), bytes, move |tables| {
            Ok(insert_thread(tables, &create.key, |count| commit::create(create.clone(), count))?.1)
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
        let write = self.write_tables(key.company.clone(), 0, move |tables| {
            let (n, thread) = tables.thread(&key)?.ok_or(ConversationError::ThreadNotFound)?;
            let links = match patch.head {
                Some(_) => tables.links(n)?,
                None => Vec::new(),
            };
            let thread = commit::patch(thread, &patch, &links)?;
            tables.put_thread(Some(n), &key, &thread)?;
            Ok(thread)
        });
        write.await
    }

    async fn append(
        &self,
        key: &ThreadKey,
        expected_version: Option<u64>,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        let key = key.clone();
        let write = self.write_tables(key.company.clone(), node_bytes(&nodes), move |tables| {
            let (n, thread) = tables.thread(&key)?.ok_or(ConversationError::ThreadNotFound)?;
            let known = tables.known(n, &nodes, None)?;
            let (thread, nodes) =
                commit::append(thread, expected_version, known.clone(), nodes.clone(), now)?;
            tables.put_thread(Some(n), &key, &thread)?;
            tables.insert_nodes(n, &nodes)?;
            Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
        });
        write.await
    }

    async fn fork(&self, fork: ForkThreadRequest) -> Result<Thread, ConversationError> {
        let write = self.write_tables(fork.key.company.clone(), 0, move |tables| {
            let (n, source) = tables.thread(&fork.key)?.ok_or(ConversationError::ThreadNotFound)?;
            let seqs = path_to_fork(&fork, &source, &tables.links(n)?)?;
            let path = tables.nodes(n, &seqs)?;
            let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
            let agent = source.agent_id.clone();
            let (into, thread) =
                insert_thread(tables, &key, |count| commit::fork(&fork, source, path, count))?;
            if thread.agent_id == agent {
                tables.copy_contexts(n, &seqs, into)?;
            }
            Ok(thread)
        });
        write.await
    }

    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError> {
        let deleted =
            self.delete_threads(&key.thread_owner(), vec![key.id.clone()], &DeleteFilter::default()).await?;
        Ok(Some(deleted).filter(|deleted| deleted.deleted > 0))
    }

    async fn delete_many(
        &self,
        owner: &ThreadOwner,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let (key, agent) = (owner.clone(), filter.agent.clone());
        let before = filter.before.map(Timestamp::as_millisecond);
        let read = self.read_tables(owner.company.clone(), move |tables| {
            tables.thread_ids(&key, agent.as_deref(), before, MAX_DELETED_THREADS + 1)
        });
        let mut ids: Vec<ThreadId> = read.await?.into_iter().map(ThreadId::from).collect();
        let has_more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { has_more, ..self.delete_threads(owner, ids, filter).await? })
    }

    async fn scan_threads(&self, cursor: Option<&str>) -> Result<ThreadScan, ConversationError> {
        let after = cursor.map(parse_number_cursor).transpose()?.unwrap_or(i64::MIN);
        let read =
            self.read_tables(platform(), move |tables| tables.scan_threads(after, MAX_SCANNED_THREADS + 1));
        Ok(ThreadScan::from_overfetch(read.await?))
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        let (key, node) = (key.clone(), node.clone());
        self.write_tables(key.company.clone(), 0, move |tables| runs::erase_node(tables, &key, &node)).await
    }

    async fn queue_run(&self, queue: QueueRunRequest) -> Result<Option<Run>, ConversationError> {
        self.write_tables(queue.key.company.clone(), 0, move |tables| runs::queue_run(tables, &queue)).await
    }

    async fn begin_run(&self, begin: BeginRunRequest) -> Result<BegunRun, ConversationError> {
        let bytes = node_bytes(&begin.nodes);
        self.write_tables(begin.key.company.clone(), bytes, move |tables| runs::begin_run(tables, &begin))
            .await
    }

    async fn end_run(&self, end: EndRunRequest) -> Result<EndedRun, ConversationError> {
        let log_bytes: usize = end.log.chunks.iter().map(|chunk| chunk.body.len()).sum();
        let context_bytes = end.context.as_ref().map_or(0, |sent| sent.text.len());
        let bytes = node_bytes(&end.nodes) + log_bytes + context_bytes;
        self.write_tables(end.owner.company.clone(), bytes, move |tables| runs::end_run(tables, &end)).await
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        let (owner, id) = (owner.clone(), id.clone());
        self.read_tables(owner.company.clone(), move |tables| tables.run_for_client(&owner, &id)).await
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
        let read = self.read_tables(owner.company.clone(), move |tables| {
            tables.runs(&owner, &filter, before, limit + 1)
        });
        Ok(RunPage::from_overfetch(read.await?, limit))
    }

    async fn change_run(&self, change: ChangeRunRequest) -> Result<ChangedRun, ConversationError> {
        self.write_tables(change.run.owner.company.clone(), 0, move |tables| {
            runs::change_run(tables, &change)
        })
        .await
    }

    async fn waiting_runs(
        &self,
        company: &CompanyId,
        cursor: Option<&str>,
    ) -> Result<WaitingRuns, ConversationError> {
        let (company, before) = (company.clone(), WaitingRuns::position(cursor)?.unwrap_or(i64::MAX));
        let limit = MAX_PAGE_THREADS + 1;
        let read =
            self.read_tables(company.clone(), move |tables| tables.waiting_runs(&company, before, limit));
        Ok(WaitingRuns::from_overfetch(read.await?))
    }

    async fn due_runs(&self, now: Timestamp, cursor: Option<&str>) -> Result<DueRuns, ConversationError> {
        let after = DueRuns::position(cursor)?.unwrap_or(FIRST_POSITION);
        let read =
            self.read_tables(platform(), move |tables| tables.due_runs(now, after, MAX_REAPED_RUNS + 1));
        Ok(DueRuns::from_overfetch(read.await?))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        let lease = lease.clone();
        self.write_tables(platform(), 0, move |tables| tables.put_lease(&lease, true)).await
    }

    async fn interrupt_expired(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        clock: RunClock,
    ) -> Result<Option<Run>, ConversationError> {
        let (key, run) = (owner.clone(), id.clone());
        if self
            .read_tables(owner.company.clone(), move |tables| runs::is_lost(tables, &key, &run, clock))
            .await?
        {
            let (key, run) = (owner.clone(), id.clone());
            let write = self.write_tables(owner.company.clone(), 0, move |tables| {
                runs::interrupt(tables, &key, &run, clock)
            });
            write.await?;
        }
        self.run(owner, id).await
    }

    async fn reap(&self, clock: RunClock) -> Result<usize, ConversationError> {
        let reap = self.write_runs(
            (MAX_REAPED_RUNS, REAP_BATCH_RUNS),
            move |tables, after| tables.lost_runs(clock.now, after, MAX_REAPED_RUNS),
            move |tables, runs| runs::reap_batch(tables, runs, clock),
        );
        reap.await
    }

    async fn append_events(
        &self,
        process: &str,
        chunks: Vec<RunChunk>,
    ) -> Result<AppendedEvents, ConversationError> {
        if chunks.is_empty() {
            return Ok(AppendedEvents::default());
        }
        let process = process.to_owned();
        let bytes = chunks.iter().map(|chunk| chunk.chunk.body.len()).sum();
        self.write_tables(platform(), bytes, move |tables| runs::append_events(tables, &process, &chunks))
            .await
    }

    async fn events(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        from: u64,
    ) -> Result<Option<LogPage>, ConversationError> {
        let (owner, id) = (owner.clone(), id.clone());
        let read = self.read_tables(owner.company.clone(), move |tables| {
            let Some((n, _, stored)) = tables.run(&owner, &id)? else { return Ok(None) };
            let run = with_stored_events(stored.run, tables.last_event(n)?);
            Ok(Some(LogPage { run, chunks: tables.log_page(n, from)? }))
        });
        read.await
    }

    async fn run_inputs(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<Vec<u8>>, ConversationError> {
        let (owner, id) = (owner.clone(), id.clone());
        let read = self.read_tables(owner.company.clone(), move |tables| match tables.run(&owner, &id)? {
            Some((n, ..)) => tables.inputs(n),
            None => Ok(None),
        });
        read.await
    }

    async fn signal(
        &self,
        run: &RunKey,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<Option<Run>, ConversationError> {
        let run = run.clone();
        self.write_tables(run.owner.company.clone(), 0, move |tables| {
            runs::signal(tables, &run, signal, until)
        })
        .await
    }

    async fn take_signals(
        &self,
        process: &str,
        now: Timestamp,
    ) -> Result<Vec<(RunKey, RunSignal)>, ConversationError> {
        let name = process.to_owned();
        let found = self.read_tables(platform(), move |tables| tables.signals(&name)).await?;
        // A signal of a newer version, whose name is not known, is kept until it expires.
        let is_kept = |signal: Option<RunSignal>| signal.is_none_or(|signal| !signal.is_delivered_once());
        let is_over = |until_ms: i64| until_ms <= now.as_millisecond();
        // Most calls find nothing to delete, and write nothing.
        let found = match found.iter().all(|(_, signal, until_ms)| is_kept(*signal) && !is_over(*until_ms)) {
            true => found,
            false => {
                let process = process.to_owned();
                let write = self.write_tables(platform(), 0, move |tables| {
                    let found = tables.signals(&process)?;
                    tables.delete_taken_signals(&process, now)?;
                    Ok(found)
                });
                write.await?
            }
        };
        let current = found.into_iter().filter(|(_, _, until_ms)| !is_over(*until_ms));
        Ok(current.filter_map(|(run, signal, _)| Some((run, signal?))).collect())
    }

    async fn trim_logs(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let trim = self.write_runs(
            (MAX_TRIMMED_LOGS, MAX_TRIMMED_LOGS),
            move |tables, after| tables.runs_to_trim(now, after, MAX_TRIMMED_LOGS),
            move |tables, runs| runs::trim_batch(tables, runs, now),
        );
        trim.await
    }

    async fn set_feedback(
        &self,
        key: &ThreadKey,
        node: &NodeId,
        feedback: Option<Feedback>,
    ) -> Result<(), ConversationError> {
        let (key, node) = (key.clone(), node.clone());
        let write = self.write_tables(key.company.clone(), 0, move |tables| {
            feedback_rows::set_feedback(tables, &key, &node, feedback.clone())
        });
        write.await
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
        let (company, agent) = (company.clone(), agent.clone());
        let read = self.read_tables(company.clone(), move |tables| {
            tables.agent_feedback(&company, &agent, &after, limit + 1)
        });
        let found = read.await?;
        Ok(FeedbackPage::from_overfetch(found, limit))
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
        let (company, agent) = (company.clone(), agent.clone());
        let read = self.read_tables(company.clone(), move |tables| {
            tables.visitor_threads(&company, &agent, &after, limit + 1)
        });
        let found = read.await?;
        Ok(ThreadPage::of_visitors(found, limit))
    }
}
