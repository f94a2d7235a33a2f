//! Conversations in the schema of records. Each write is one transaction under an advisory lock on the owner.

use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId};
use agent_platform::conversation::commit;
use agent_platform::conversation::page::select_nodes;
use agent_platform::conversation::{
    AppendedEvents, AppendedNodes, BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun,
    ConversationError, Conversations, CreateThreadRequest, DeleteFilter, DeletedThreads, DueRuns,
    EndRunRequest, EndedRun, Feedback, FeedbackCursor, FeedbackPage, ForkThreadRequest, LogPage,
    MAX_DELETED_THREADS, MAX_PAGE_THREADS, MAX_REAPED_RUNS, MAX_SCANNED_THREADS, MAX_TRIMMED_LOGS, NewNode,
    NodeContent, NodeId, NodePage, NodeQuery, QueueRunRequest, Run, RunChunk, RunClock, RunFilter, RunKey,
    RunLease, RunPage, RunSignal, Thread, ThreadCursor, ThreadFilter, ThreadKey, ThreadLinks, ThreadOwner,
    ThreadPage, ThreadPatch, ThreadScan, TurnContext, VisitorThreadCursor, WaitingRuns, parse_number_cursor,
};
use async_trait::async_trait;
use jiff::Timestamp;

use self::log_tables::StoredSignal;
use self::owner_write::OwnerWrite;
use self::run_upkeep::{RunSweep, RunWrite};
use self::tables::{ConversationTables, TableError};
use super::PostgresRecords;
use super::error::OperationError;
use super::session::Session;
use crate::conversation_row::{FIRST_POSITION, RowError};

mod context_tables;
pub(super) mod feedback_tables;
pub(super) mod log_tables;
mod owner_write;
mod run_tables;
mod run_upkeep;
mod runs;
pub(super) mod tables;
mod threads;

/// Ends a read, and separates rejections from database errors.
async fn end_read<T>(
    tables: ConversationTables,
    result: Result<T, TableError>,
) -> Result<Result<T, ConversationError>, OperationError> {
    let outcome = match result {
        Ok(found) => Ok(Ok(found)),
        Err(RowError::Rejected(error)) => Ok(Err(error)),
        Err(RowError::Failed(error)) => Err(OperationError::from(error)),
    };
    tables.0.release(outcome).await
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

async fn read_contents(
    tables: &ConversationTables,
    key: &ThreadKey,
    seqs: &[u32],
) -> Result<Vec<NodeContent>, TableError> {
    match tables.thread(key).await? {
        Some((n, _)) => tables.contents(n, seqs).await,
        None => Ok(Vec::new()),
    }
}

async fn read_links(tables: &ConversationTables, key: &ThreadKey) -> Result<Option<ThreadLinks>, TableError> {
    let Some((n, thread)) = tables.thread(key).await? else { return Ok(None) };
    Ok(Some(ThreadLinks { thread, links: tables.links(n).await? }))
}

/// Runs a write of an owner's conversations as one transaction, again if a lock that it needs was held.
macro_rules! write {
    ($store:expr, $owner:expr, |$tables:ident| $work:expr) => {{
        let owner: &ThreadOwner = $owner;
        let mut write = OwnerWrite::new($store, owner).await?;
        loop {
            let $tables = write.begin().await?;
            let result = $work.await;
            if let Some(done) = write.finish($tables, result).await {
                break done;
            }
        }
    }};
}

/// Runs a read for a company.
macro_rules! read {
    ($store:expr, $company:expr, |$tables:ident| $work:expr) => {
        $store
            .read($company, |session: Session| async move {
                let tables = ConversationTables(session);
                let $tables = &tables;
                let result = $work.await;
                end_read(tables, result).await
            })
            .await?
    };
}

fn page_limit(limit: usize) -> (usize, i64) {
    let limit = limit.clamp(1, MAX_PAGE_THREADS);
    (limit, i64::try_from(limit + 1).unwrap_or(i64::MAX))
}

impl PostgresRecords {
    async fn delete_threads(
        &self,
        owner: &ThreadOwner,
        ids: Vec<ThreadId>,
        filter: &DeleteFilter,
    ) -> Result<DeletedThreads, ConversationError> {
        let mut deleted = DeletedThreads::default();
        let mut processed = 0;
        while processed < ids.len() {
            let rest = &ids[processed..];
            let (count, batch): (usize, DeletedThreads) =
                write!(self, owner, |tables| runs::delete_batch(&tables, owner, rest, filter))?;
            processed += count;
            deleted.add_batch(batch);
        }
        Ok(deleted)
    }

    /// Deletes signals to a process, unless they were sent again since they were read.
    async fn delete_signals(
        &self,
        process: &str,
        signals: &[&StoredSignal],
    ) -> Result<(), ConversationError> {
        read!(self, "", |tables| tables.delete_taken_signals(process, signals))
    }
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

    async fn contents(&self, key: &ThreadKey, seqs: &[u32]) -> Result<Vec<NodeContent>, ConversationError> {
        read!(self, &key.company, |tables| read_contents(tables, key, seqs))
    }

    async fn contexts(
        &self,
        key: &ThreadKey,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, ConversationError> {
        read!(self, &key.company, |tables| tables.contexts(key, from, turns))
    }

    async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ThreadPage, ConversationError> {
        let after = ThreadCursor::parse(cursor)?;
        let (limit, wanted) = page_limit(limit);
        let after = &after;
        let found = read!(self, &owner.company, |tables| tables.threads(owner, filter, after, wanted))?;
        Ok(ThreadPage::from_overfetch(found, limit))
    }

    async fn create(&self, create: CreateThreadRequest) -> Result<Thread, ConversationError> {
        create.key.check()?;
        let (key, owner) = (create.key.clone(), create.key.thread_owner());
        let created: (i64, Thread) = write!(self, &owner, |tables| threads::insert_thread(
            &tables,
            &key,
            |count| commit::create(create.clone(), count)
        ))?;
        Ok(created.1)
    }

    async fn patch(
        &self,
        key: &ThreadKey,
        patch: ThreadPatch,
        _now: Timestamp,
    ) -> Result<Thread, ConversationError> {
        write!(self, &key.thread_owner(), |tables| threads::patch_thread(&tables, key, &patch))
    }

    async fn append(
        &self,
        key: &ThreadKey,
        expected_version: Option<u64>,
        nodes: Vec<NewNode>,
        now: Timestamp,
    ) -> Result<AppendedNodes, ConversationError> {
        write!(self, &key.thread_owner(), |tables| threads::append(
            &tables,
            key,
            expected_version,
            nodes.clone(),
            now
        ))
    }

    async fn fork(&self, request: ForkThreadRequest) -> Result<Thread, ConversationError> {
        write!(self, &request.key.thread_owner(), |tables| threads::fork(&tables, &request))
    }

    async fn delete(&self, key: &ThreadKey) -> Result<Option<DeletedThreads>, ConversationError> {
        if key.check().is_err() {
            return Ok(None);
        }
        let deleted =
            self.delete_threads(&key.thread_owner(), vec![key.id.clone()], &DeleteFilter::default()).await?;
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
        let has_more = ids.len() > MAX_DELETED_THREADS;
        ids.truncate(MAX_DELETED_THREADS);
        Ok(DeletedThreads { has_more, ..self.delete_threads(owner, ids, filter).await? })
    }

    async fn scan_threads(&self, cursor: Option<&str>) -> Result<ThreadScan, ConversationError> {
        let after = cursor.map(parse_number_cursor).transpose()?.unwrap_or(i64::MIN);
        let limit = i64::try_from(MAX_SCANNED_THREADS + 1).unwrap_or(i64::MAX);
        let threads = read!(self, "", |tables| tables.scan_threads(after, limit))?;
        Ok(ThreadScan::from_overfetch(threads))
    }

    async fn erase_node(&self, key: &ThreadKey, node: &NodeId) -> Result<Thread, ConversationError> {
        write!(self, &key.thread_owner(), |tables| runs::erase_node(&tables, key, node))
    }

    async fn queue_run(&self, queue: QueueRunRequest) -> Result<Option<Run>, ConversationError> {
        queue.key.check()?;
        write!(self, &queue.key.thread_owner(), |tables| runs::queue_run(&tables, &queue))
    }

    async fn begin_run(&self, begin: BeginRunRequest) -> Result<BegunRun, ConversationError> {
        begin.key.check()?;
        write!(self, &begin.key.thread_owner(), |tables| runs::begin_run(&tables, &begin))
    }

    async fn end_run(&self, end: EndRunRequest) -> Result<EndedRun, ConversationError> {
        write!(self, &end.owner, |tables| runs::end_run(&tables, &end))
    }

    async fn run(&self, owner: &ThreadOwner, id: &RunId) -> Result<Option<Run>, ConversationError> {
        read!(self, &owner.company, |tables| tables.run_for_client(owner, id))
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

    async fn change_run(&self, change: ChangeRunRequest) -> Result<ChangedRun, ConversationError> {
        write!(self, &change.run.owner, |tables| runs::change_run(&tables, &change))
    }

    async fn waiting_runs(
        &self,
        company: &CompanyId,
        cursor: Option<&str>,
    ) -> Result<WaitingRuns, ConversationError> {
        let before = WaitingRuns::position(cursor)?.unwrap_or(i64::MAX);
        let limit = i64::try_from(MAX_PAGE_THREADS + 1).unwrap_or(i64::MAX);
        let runs = read!(self, company, |tables| tables.waiting_runs(company, before, limit))?;
        Ok(WaitingRuns::from_overfetch(runs))
    }

    async fn due_runs(&self, now: Timestamp, cursor: Option<&str>) -> Result<DueRuns, ConversationError> {
        let after = DueRuns::position(cursor)?.unwrap_or(FIRST_POSITION);
        let limit = i64::try_from(MAX_REAPED_RUNS + 1).unwrap_or(i64::MAX);
        let runs = read!(self, "", |tables| tables.due_runs(now, after, limit))?;
        Ok(DueRuns::from_overfetch(runs))
    }

    async fn renew_lease(&self, lease: &RunLease) -> Result<(), ConversationError> {
        read!(self, "", |tables| tables.put_lease(lease, true))
    }

    async fn interrupt_expired(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        clock: RunClock,
    ) -> Result<Option<Run>, ConversationError> {
        if read!(self, &owner.company, |tables| runs::is_lost(tables, owner, id, clock))? {
            write!(self, owner, |tables| runs::interrupt(&tables, owner, id, clock))?;
        }
        self.run(owner, id).await
    }

    async fn reap(&self, clock: RunClock) -> Result<usize, ConversationError> {
        let limit = i64::try_from(MAX_REAPED_RUNS).unwrap_or(i64::MAX);
        let mut sweep = RunSweep::new(self, RunWrite::Interrupt(clock), MAX_REAPED_RUNS);
        while let Some(after) = sweep.next_page() {
            let page = read!(self, "", |tables| tables.lost_runs(clock.now, after, limit))?;
            sweep.write_page(page).await?;
        }
        let has_lost_runs = sweep.has_found_runs();
        let reaped = sweep.finish().await?;
        if has_lost_runs {
            read!(self, "", |tables| tables.delete_leases(clock.now))?;
        }
        reaped.into_count()
    }

    async fn append_events(
        &self,
        process: &str,
        chunks: Vec<RunChunk>,
    ) -> Result<AppendedEvents, ConversationError> {
        let mut outcome = AppendedEvents::default();
        if chunks.is_empty() {
            return Ok(outcome);
        }
        let chunks = &chunks;
        // One statement, which can be repeated on another connection.
        let live = read!(self, "", |tables| tables.append_events(process, chunks))?;
        for RunChunk { run, .. } in chunks {
            let runs = match live.get(run) {
                Some(true) => continue,
                Some(false) => &mut outcome.locked,
                None => &mut outcome.lost,
            };
            if !runs.contains(run) {
                runs.push(run.clone());
            }
        }
        Ok(outcome)
    }

    async fn events(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
        from: u64,
    ) -> Result<Option<LogPage>, ConversationError> {
        read!(self, &owner.company, |tables| tables.log_page(owner, id, from))
    }

    async fn run_inputs(
        &self,
        owner: &ThreadOwner,
        id: &RunId,
    ) -> Result<Option<Vec<u8>>, ConversationError> {
        read!(self, &owner.company, |tables| tables.run_inputs(owner, id))
    }

    async fn signal(
        &self,
        run: &RunKey,
        signal: RunSignal,
        until: Timestamp,
    ) -> Result<Option<Run>, ConversationError> {
        read!(self, &run.owner.company, |tables| runs::signal(tables, run, signal, until))
    }

    async fn take_signals(
        &self,
        process: &str,
        now: Timestamp,
    ) -> Result<Vec<(RunKey, RunSignal)>, ConversationError> {
        let signals = read!(self, "", |tables| tables.signals(process))?;
        let consumed: Vec<&StoredSignal> =
            signals.iter().filter(|signal| signal.is_taken_once(now)).collect();
        // Deleted by a separate statement: if its answer is lost with the connection, the signals have been read already.
        if !consumed.is_empty()
            && let Err(error) = self.delete_signals(process, &consumed).await
        {
            tracing::warn!(%error, "signals to runs were not deleted, and may be processed again");
        }
        Ok(signals.iter().filter_map(|signal| signal.current(now)).collect())
    }

    async fn trim_logs(&self, now: Timestamp) -> Result<usize, ConversationError> {
        let limit = i64::try_from(MAX_TRIMMED_LOGS).unwrap_or(i64::MAX);
        let mut sweep = RunSweep::new(self, RunWrite::TrimLog(now), MAX_TRIMMED_LOGS);
        while let Some(after) = sweep.next_page() {
            let page = read!(self, "", |tables| tables.runs_to_trim(now, after, limit))?;
            sweep.write_page(page).await?;
        }
        sweep.finish().await?.into_count()
    }

    async fn set_feedback(
        &self,
        key: &ThreadKey,
        node: &NodeId,
        feedback: Option<Feedback>,
    ) -> Result<(), ConversationError> {
        write!(self, &key.thread_owner(), |tables| feedback_tables::set_feedback(
            &tables,
            key,
            node,
            feedback.clone()
        ))
    }

    async fn agent_feedback(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<FeedbackPage, ConversationError> {
        let after = FeedbackCursor::parse(cursor)?;
        let (after, (limit, wanted)) = (&after, page_limit(limit));
        let found = read!(self, company, |tables| tables.agent_feedback(company, agent, after, wanted))?;
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
        let (after, (limit, wanted)) = (&after, page_limit(limit));
        let found = read!(self, company, |tables| tables.visitor_threads(company, agent, after, wanted))?;
        Ok(ThreadPage::of_visitors(found, limit))
    }
}
