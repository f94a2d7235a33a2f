//! Writes of runs and their logs, each within one transaction.

use agent_core::ids::{RunId, ThreadId};
use agent_platform::conversation::commit::{
    self, BeginRows, ChangeRows, EndRows, EraseCommit, QueueRows, StoredRun,
};
use agent_platform::conversation::{
    AppendedEvents, BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun, ConversationError, DeleteFilter,
    DeletedThreads, EndRunRequest, EndedRun, NodeId, QueueRunRequest, Run, RunChunk, RunClock, RunKey,
    RunLogState, RunSignal, Thread, ThreadKey, ThreadOwner, interrupt_run,
};
use jiff::Timestamp;

use super::rows::{ConversationTables, TableError};
use crate::conversation_row::{
    BATCH_LOG_BYTES, DELETE_BATCH_NODES, RowError, log_until_ms, with_stored_events,
};

pub(super) fn begin_run(
    tables: &ConversationTables<'_>,
    begin: &BeginRunRequest,
) -> Result<BegunRun, TableError> {
    let owner = begin.key.thread_owner();
    let found = tables.thread(&begin.key)?;
    let continued = begin.continues.as_ref().map_or(Ok(None), |id| tables.run(&owner, id))?;
    let known = match &found {
        Some((n, _)) => tables.known(*n, &begin.nodes, begin.parent_id.as_ref())?,
        None => Default::default(),
    };
    let thread_count = if found.is_some() { 0 } else { tables.thread_count(&owner)? };
    let continued_number = continued.as_ref().map(|found| found.0);
    let used = tables.run(&owner, &begin.run_id)?;
    let queued_number = used.as_ref().map(|found| found.0);
    let rows = BeginRows {
        thread: found.as_ref().map(|(_, thread)| thread.clone()),
        thread_count,
        used_run: used.map(|(_, _, stored)| stored),
        continued: continued.map(|(_, _, stored)| stored.run),
        known: known.clone(),
    };
    let commit = commit::begin_run(begin, rows)?;
    tables.put_lease(&begin.lease, false)?;
    let n = tables.put_thread(found.map(|(n, _)| n), &begin.key, &commit.thread)?;
    tables.insert_nodes(n, &commit.nodes)?;
    if let (Some(number), Some(run)) = (continued_number, &commit.continued) {
        tables.update_run(number, run)?;
    }
    let stored = StoredRun { run: commit.run, process: begin.lease.process.clone() };
    match queued_number {
        Some(number) => tables.update_run(number, &stored.run)?,
        None => tables.insert_run(&owner, n, &stored)?,
    }
    let links = commit::links(&commit.nodes);
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    Ok(BegunRun { thread: commit.thread, run: stored.run, nodes, links })
}

pub(super) fn queue_run(
    tables: &ConversationTables<'_>,
    queue: &QueueRunRequest,
) -> Result<Option<Run>, TableError> {
    let owner = queue.key.thread_owner();
    let found = tables.thread(&queue.key)?;
    let rows = QueueRows {
        thread: found.as_ref().map(|(_, thread)| thread.clone()),
        used_run: tables.run(&owner, &queue.run_id)?.map(|(_, _, stored)| stored.run),
    };
    let Some(commit) = commit::queue_run(queue, rows)? else { return Ok(None) };
    tables.put_lease(&queue.lease, false)?;
    let n = tables.put_thread(found.map(|(n, _)| n), &queue.key, &commit.thread)?;
    let stored = StoredRun { run: commit.run, process: queue.lease.process.clone() };
    tables.insert_run(&owner, n, &stored)?;
    Ok(Some(stored.run))
}

pub(super) fn end_run(tables: &ConversationTables<'_>, end: &EndRunRequest) -> Result<EndedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let (number, _, run) = tables.run(&end.owner, &end.run_id)?.ok_or_else(missing)?;
    let key = end.owner.thread(&run.run.thread_id);
    let (n, thread) = tables.thread(&key)?.ok_or_else(missing)?;
    let known = tables.known(n, &end.nodes, run.run.parent_id.as_ref())?;
    let continued = match &run.run.continues {
        Some(id) => tables.run(&end.owner, id)?,
        None => None,
    };
    let continued_number = continued.as_ref().map(|found| found.0);
    let continued = continued.map(|(_, _, stored)| stored.run);
    let signals = tables.signals_for_run(&end.process, number)?;
    let cancel = signals.iter().find_map(|kind| RunSignal::from_name(kind)?.cancel_reason());
    let commit = commit::end_run(end, EndRows { run, continued, thread, known: known.clone(), cancel })?;
    tables.put_thread(Some(n), &key, &commit.thread)?;
    tables.insert_nodes(n, &commit.nodes)?;
    tables.update_run(number, &commit.run)?;
    if let (Some(number), Some(run)) = (continued_number, &commit.continued) {
        tables.update_run(number, run)?;
    }
    let has_context = match &end.context {
        Some(sent) => tables.put_context(n, &commit.run.turn_id, sent)?,
        None => false,
    };
    for chunk in &end.log.chunks {
        tables.insert_chunk(number, chunk)?;
    }
    if let Some(inputs) = &end.log.inputs {
        tables.insert_inputs(number, inputs)?;
    }
    if !signals.is_empty() {
        tables.delete_signals_for_run(&end.process, number)?;
    }
    let links = commit::links(&commit.nodes);
    let nodes = commit::nodes_on_wire(commit.nodes, &known);
    let context = end.context.clone().filter(|_| has_context);
    Ok(EndedRun { thread: commit.thread, run: commit.run, nodes, links, context })
}

pub(super) fn change_run(
    tables: &ConversationTables<'_>,
    change: &ChangeRunRequest,
) -> Result<ChangedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let owner = &change.run.owner;
    let (number, _, stored) = tables.run(owner, &change.run.id)?.ok_or_else(missing)?;
    let key = owner.thread(&stored.run.thread_id);
    let (n, thread) = tables.thread(&key)?.ok_or_else(missing)?;
    let continuing = match &stored.run.continued_by {
        Some(id) => tables.run(owner, id)?.map(|(_, _, stored)| stored),
        None => None,
    };
    let known = match commit::last_node(change, &stored.run) {
        Some(node) => tables.known(n, &[], Some(node))?,
        None => Default::default(),
    };
    let asking = commit::added_run(change);
    let used_run = match asking {
        Some(asking) => tables.run(owner, &asking.run_id)?.map(|(_, _, stored)| stored.run),
        None => None,
    };
    let rows = ChangeRows { run: stored.run, continuing, thread: thread.clone(), known, used_run };
    let commit = commit::change_run(change, rows)?;
    tables.insert_nodes(n, &commit.nodes)?;
    tables.update_run(number, &commit.run)?;
    if let (Some(asking), Some(added)) = (asking, &commit.added) {
        tables.insert_run(owner, n, added)?;
        let (number, ..) = tables.run(owner, &asking.run_id)?.ok_or_else(missing)?;
        for chunk in &asking.log.chunks {
            tables.insert_chunk(number, chunk)?;
        }
    }
    if commit.thread != thread {
        tables.put_thread(Some(n), &key, &commit.thread)?;
    }
    Ok(ChangedRun { run: commit.run, is_changed: commit.is_changed })
}

/// Returns true if the run is live and its process's lease has expired.
pub(super) fn is_lost(
    tables: &ConversationTables<'_>,
    owner: &ThreadOwner,
    id: &RunId,
    clock: RunClock,
) -> Result<bool, TableError> {
    let Some((_, _, stored)) = tables.run(owner, id)? else { return Ok(false) };
    let lease = tables.lease(&stored.process)?;
    Ok(interrupt_run(owner, &stored, lease, &[], clock).is_some())
}

/// Interrupts a run if its process's lease has expired. Returns the size of its log if it was.
pub(super) fn interrupt(
    tables: &ConversationTables<'_>,
    owner: &ThreadOwner,
    id: &RunId,
    clock: RunClock,
) -> Result<Option<usize>, TableError> {
    // Before the log is read, which can be large.
    if !is_lost(tables, owner, id, clock)? {
        return Ok(None);
    }
    let Some((n, _, stored)) = tables.run(owner, id)? else { return Ok(None) };
    let chunks = tables.log(n, 0, usize::MAX)?;
    let lease = tables.lease(&stored.process)?;
    let Some(end) = interrupt_run(owner, &stored, lease, &chunks, clock) else { return Ok(None) };
    end_run(tables, &end)?;
    Ok(Some(chunks.iter().map(|chunk| chunk.body.len()).sum()))
}

/// Outcome of the writes of several runs.
#[derive(Debug, Default)]
pub(super) struct RunBatch {
    /// Number of the given runs that need no further call.
    pub(super) done: usize,
    /// Number of written runs.
    pub(super) written: usize,
    /// Error of the first run that could not be written.
    pub(super) error: Option<ConversationError>,
}

/// Writes runs until their logs have [`BATCH_LOG_BYTES`]. `write` returns the size of the log of a run that it has written. A run
/// that cannot be written does not hinder the others.
fn write_batch(
    runs: &[RunKey],
    write: impl Fn(&RunKey) -> Result<Option<usize>, TableError>,
) -> Result<RunBatch, TableError> {
    let (mut batch, mut bytes) = (RunBatch::default(), 0);
    for run in runs {
        if bytes >= BATCH_LOG_BYTES {
            break;
        }
        batch.done += 1;
        match write(run) {
            Ok(Some(size)) => (batch.written, bytes) = (batch.written + 1, bytes + size),
            Ok(None) => {}
            Err(RowError::Rejected(error)) => batch.error = batch.error.or(Some(error)),
            Err(failed) => return Err(failed),
        }
    }
    Ok(batch)
}

/// Interrupts a batch of runs whose process's lease has expired.
pub(super) fn reap_batch(
    tables: &ConversationTables<'_>,
    runs: &[RunKey],
    clock: RunClock,
) -> Result<RunBatch, TableError> {
    let batch = write_batch(runs, |run| interrupt(tables, &run.owner, &run.id, clock))?;
    tables.delete_leases(clock.now)?;
    Ok(batch)
}

/// Appends chunks to the logs of a process's runs. Returns the runs that it does not have.
pub(super) fn append_events(
    tables: &ConversationTables<'_>,
    process: &str,
    chunks: &[RunChunk],
) -> Result<AppendedEvents, TableError> {
    let mut lost = Vec::new();
    for RunChunk { run, chunk } in chunks {
        match tables.live_run_of(process, run)? {
            Some(n) => tables.insert_chunk(n, chunk)?,
            None if lost.contains(run) => {}
            None => lost.push(run.clone()),
        }
    }
    Ok(AppendedEvents { lost, locked: Vec::new() })
}

pub(super) fn signal(
    tables: &ConversationTables<'_>,
    run: &RunKey,
    signal: RunSignal,
    until: Timestamp,
) -> Result<Option<Run>, TableError> {
    let Some((n, _, stored)) = tables.run(&run.owner, &run.id)? else { return Ok(None) };
    if stored.run.state.is_live() {
        tables.put_signal(n, &stored.process, signal, until)?;
    }
    Ok(Some(with_stored_events(stored.run, tables.last_event(n)?)))
}

/// Deletes the expired logs of a batch of runs.
pub(super) fn trim_batch(
    tables: &ConversationTables<'_>,
    runs: &[RunKey],
    now: Timestamp,
) -> Result<RunBatch, TableError> {
    write_batch(runs, |run| {
        let Some((n, _, stored)) = tables.run(&run.owner, &run.id)? else { return Ok(None) };
        let is_over = log_until_ms(&stored.run).is_some_and(|until| until <= now.as_millisecond());
        is_over.then(|| delete_log(tables, n, stored.run)).transpose()
    })
}

/// Deletes a run's log and returns its size.
fn delete_log(tables: &ConversationTables<'_>, n: i64, run: Run) -> Result<usize, TableError> {
    tables.update_run(n, &Run { events: RunLogState::default(), ..run })?;
    tables.delete_log(n)
}

pub(super) fn erase_node(
    tables: &ConversationTables<'_>,
    key: &ThreadKey,
    id: &NodeId,
) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key)?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id)?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq])?.pop().ok_or_else(missing)?;
    // The title is made of the first user message that has text.
    let seqs: Vec<u32> = tables.user_seqs(n, 100)?.into_iter().filter(|user| *user != seq).collect();
    let others = tables.nodes(n, &seqs)?;
    let run = node.run_id.as_ref().map_or(Ok(None), |id| tables.run(&key.thread_owner(), id))?;
    let (number, run) = run.map(|(number, _, stored)| (number, stored.run)).unzip();
    let others = others.iter().map(|node| &node.message);
    match commit::erase_node(thread.clone(), node, others, run) {
        None => Ok(thread),
        Some(EraseCommit { thread, node, run }) => {
            tables.put_thread(Some(n), key, &thread)?;
            tables.update_node(n, &node)?;
            // Later runs have sent the message, too.
            tables.delete_thread_inputs(n)?;
            // The run in progress may have them too, so its end stores no inputs.
            if let Some(active_run) = &thread.active_run_id
                && let Some((number, ..)) = tables.run(&key.thread_owner(), active_run)?
            {
                tables.insert_inputs(number, &[])?;
            }
            if let Some((number, run)) = number.zip(run) {
                delete_log(tables, number, run)?;
            }
            Ok(thread)
        }
    }
}

/// Deletes threads until [`DELETE_BATCH_NODES`] nodes or [`BATCH_LOG_BYTES`] of logs are deleted. Returns how many of
/// them need no further call.
pub(super) fn delete_batch(
    tables: &ConversationTables<'_>,
    owner: &ThreadOwner,
    ids: &[ThreadId],
    filter: &DeleteFilter,
) -> Result<(usize, DeletedThreads), TableError> {
    let mut deleted = DeletedThreads::default();
    let (mut remaining_nodes, mut remaining_bytes) = (DELETE_BATCH_NODES, BATCH_LOG_BYTES);
    for (at, id) in ids.iter().enumerate() {
        let key = owner.thread(id.clone());
        let Some((n, thread)) = tables.thread(&key)? else { continue };
        // It may have become active since it was chosen.
        if !filter.matches(&thread) {
            continue;
        }
        let removed = tables.delete_nodes(n)?;
        remaining_nodes = remaining_nodes.saturating_sub(removed);
        if removed == DELETE_BATCH_NODES {
            tables.put_thread(Some(n), &key, &commit::delete_part(thread))?;
            return Ok((at, deleted));
        }
        let logs = tables.delete_thread_logs(n, remaining_bytes)?;
        remaining_bytes = remaining_bytes.saturating_sub(logs.bytes);
        if logs.has_more {
            tables.put_thread(Some(n), &key, &commit::delete_part(thread))?;
            return Ok((at, deleted));
        }
        tables.delete_thread(n)?;
        deleted.add_thread(thread);
        if remaining_nodes == 0 || remaining_bytes == 0 {
            return Ok((at + 1, deleted));
        }
    }
    Ok((ids.len(), deleted))
}
