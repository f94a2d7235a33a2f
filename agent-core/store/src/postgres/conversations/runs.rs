//! Writes of runs and their logs, each within one transaction under the lock on the owner.

use agent_core::ids::{RunId, ThreadId};
use agent_platform::conversation::commit::{
    self, BeginCommit, BeginRows, ChangeRows, EndCommit, EndRows, EraseCommit, QueueCommit, QueueRows,
    StoredRun, referenced_ids,
};
use agent_platform::conversation::{
    BeginRunRequest, BegunRun, ChangeRunRequest, ChangedRun, ConversationError, DeleteFilter, DeletedThreads,
    EndRunRequest, EndedRun, LogEnd, NodeId, QueueRunRequest, Run, RunClock, RunEndKind, RunKey, RunLogState,
    RunSignal, Thread, ThreadKey, ThreadOwner, interrupt_run,
};
use futures_util::future::{try_join, try_join3, try_join4, try_join5};
use jiff::Timestamp;

use super::tables::{ConversationTables, TableError};
use crate::conversation_row::{BATCH_LOG_BYTES, DELETE_BATCH_NODES, log_until_ms};

/// Begins a run. Statements that do not need the results of earlier ones are sent together, in one network round trip.
pub(super) async fn begin_run(
    tables: &ConversationTables,
    begin: &BeginRunRequest,
) -> Result<BegunRun, TableError> {
    let owner = begin.key.thread_owner();
    let (found, used, continued) = try_join3(
        tables.thread(&begin.key),
        tables.run(&owner, &begin.run_id),
        tables.optional_run(&owner, begin.continues.as_ref()),
    )
    .await?;
    let (known, thread_count) = match &found {
        Some((n, _)) => {
            let ids = referenced_ids(&begin.nodes, begin.parent_id.as_ref());
            (tables.known(*n, &ids).await?, 0)
        }
        None => (Default::default(), tables.thread_count(&owner).await?),
    };
    let numbers = [&used, &continued].map(|found| found.as_ref().map(|(number, ..)| *number));
    let (thread_number, thread) = found.unzip();
    let rows = BeginRows {
        thread,
        thread_count,
        used_run: used.map(|(_, _, stored)| stored),
        continued: continued.map(|(_, _, stored)| stored.run),
        known: known.clone(),
    };
    let BeginCommit { thread, nodes, run, continued } = commit::begin_run(begin, rows)?;
    let stored = StoredRun { run, process: begin.lease.process.clone() };
    let n = match thread_number {
        Some(n) => n,
        None => tables.put_thread(None, &begin.key, &thread).await?,
    };
    let [queued_number, continued_number] = numbers;
    let put_run = async {
        match queued_number {
            Some(number) => tables.update_run(number, &stored.run).await,
            None => tables.insert_run(&owner, n, &stored).await,
        }
    };
    let put_thread = async {
        match thread_number {
            Some(_) => tables.put_thread(Some(n), &begin.key, &thread).await.map(drop),
            None => Ok(()),
        }
    };
    try_join5(
        put_thread,
        tables.insert_nodes(n, &nodes),
        tables.update_optional_run(continued_number, continued.as_ref()),
        put_run,
        tables.put_lease(&begin.lease, false),
    )
    .await?;
    let links = commit::links(&nodes);
    let nodes = commit::nodes_on_wire(nodes, &known);
    Ok(BegunRun { thread, run: stored.run, nodes, links })
}

/// Queues a run; `None` if it need not wait. Statements are sent together as those of [`begin_run`] are.
pub(super) async fn queue_run(
    tables: &ConversationTables,
    queue: &QueueRunRequest,
) -> Result<Option<Run>, TableError> {
    let owner = queue.key.thread_owner();
    let (found, used) = try_join(tables.thread(&queue.key), tables.run(&owner, &queue.run_id)).await?;
    let (number, thread) = found.unzip();
    let rows = QueueRows { thread, used_run: used.map(|(_, _, stored)| stored.run) };
    let commit = commit::queue_run(queue, rows)?;
    // A run waits for other runs of its thread, so the thread has a run.
    let Some((n, QueueCommit { thread, run })) = number.zip(commit) else { return Ok(None) };
    let stored = StoredRun { run, process: queue.lease.process.clone() };
    try_join3(
        tables.put_thread(Some(n), &queue.key, &thread),
        tables.insert_run(&owner, n, &stored),
        tables.put_lease(&queue.lease, false),
    )
    .await?;
    Ok(Some(stored.run))
}

/// Ends a run. Statements are sent together as those of [`begin_run`] are.
pub(super) async fn end_run(
    tables: &ConversationTables,
    end: &EndRunRequest,
) -> Result<EndedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let (number, n, run) = tables.run(&end.owner, &end.run_id).await?.ok_or_else(missing)?;
    let key = end.owner.thread(&run.run.thread_id);
    let (found, known, continued) = try_join3(
        tables.thread(&key),
        tables.known(n, &referenced_ids(&end.nodes, run.run.parent_id.as_ref())),
        tables.optional_run(&end.owner, run.run.continues.as_ref()),
    )
    .await?;
    let (_, thread) = found.ok_or_else(missing)?;
    let continued_number = continued.as_ref().map(|(number, ..)| *number);
    let continued = continued.map(|(_, _, stored)| stored.run);
    let cancel = match end.ending.kind {
        RunEndKind::Suspended(_) => {
            tables.lock_run(&end.owner, &end.run_id).await?;
            tables.cancel_signal(&end.process, number).await?
        }
        _ => None,
    };
    let rows = EndRows { run, continued, thread, known: known.clone(), cancel };
    let EndCommit { thread, nodes, run, continued } = commit::end_run(end, rows)?;
    let put_context = async {
        match &end.context {
            Some(sent) => tables.put_context(n, &run.turn_id, sent).await,
            None => Ok(false),
        }
    };
    let puts = try_join4(
        tables.put_thread(Some(n), &key, &thread),
        tables.insert_nodes(n, &nodes),
        tables.update_run(number, &run),
        tables.update_optional_run(continued_number, continued.as_ref()),
    );
    let signals = tables.delete_signals_for_run(&end.process, number);
    let logs = try_join(tables.insert_log_end(number, &end.log), signals);
    let (_, has_context, _) = try_join3(puts, put_context, logs).await?;
    let links = commit::links(&nodes);
    let nodes = commit::nodes_on_wire(nodes, &known);
    let context = end.context.clone().filter(|_| has_context);
    Ok(EndedRun { thread, run, nodes, links, context })
}

/// Changes a run. Statements are sent together as those of [`begin_run`] are.
pub(super) async fn change_run(
    tables: &ConversationTables,
    change: &ChangeRunRequest,
) -> Result<ChangedRun, TableError> {
    let missing = || ConversationError::RunNotFound;
    let owner = &change.run.owner;
    let (number, n, stored) = tables.run(owner, &change.run.id).await?.ok_or_else(missing)?;
    let key = owner.thread(&stored.run.thread_id);
    let find_known = async {
        match commit::last_node(change, &stored.run) {
            Some(node) => tables.known(n, &referenced_ids(&[], Some(node))).await,
            None => Ok(Default::default()),
        }
    };
    let asking = commit::added_run(change);
    let (found, continuing, known, used) = try_join4(
        tables.thread(&key),
        tables.optional_run(owner, stored.run.continued_by.as_ref()),
        find_known,
        tables.optional_run(owner, asking.map(|asking| &asking.run_id)),
    )
    .await?;
    let (_, thread) = found.ok_or_else(missing)?;
    let continuing = continuing.map(|(_, _, stored)| stored);
    let used_run = used.map(|(_, _, stored)| stored.run);
    let rows = ChangeRows { run: stored.run, continuing, thread: thread.clone(), known, used_run };
    let commit = commit::change_run(change, rows)?;
    let put_thread = async {
        match commit.thread == thread {
            true => Ok(()),
            false => tables.put_thread(Some(n), &key, &commit.thread).await.map(drop),
        }
    };
    try_join3(tables.insert_nodes(n, &commit.nodes), tables.update_run(number, &commit.run), put_thread)
        .await?;
    if let (Some(asking), Some(added)) = (asking, &commit.added) {
        tables.insert_run(owner, n, added).await?;
        let (number, ..) = tables.run(owner, &asking.run_id).await?.ok_or_else(missing)?;
        tables.insert_log_end(number, &asking.log).await?;
    }
    Ok(ChangedRun { run: commit.run, is_changed: commit.is_changed })
}

/// Returns true if the run is live and its process's lease has expired.
pub(super) async fn is_lost(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    id: &RunId,
    clock: RunClock,
) -> Result<bool, TableError> {
    let Some((_, _, stored)) = tables.run(owner, id).await? else { return Ok(false) };
    let lease = tables.lease(&stored.process).await?;
    Ok(interrupt_run(owner, &stored, lease, &[], clock).is_some())
}

/// Interrupts a run if its process's lease has expired. Returns true if it was.
pub(super) async fn interrupt(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    id: &RunId,
    clock: RunClock,
) -> Result<bool, TableError> {
    // The process may only be suspended. What it appends before the lock is in the log that is read here; afterwards,
    // it finds that the run has ended.
    let Some(n) = tables.lock_run(owner, id).await? else { return Ok(false) };
    let Some((_, _, stored)) = tables.run(owner, id).await? else { return Ok(false) };
    let lease = tables.lease(&stored.process).await?;
    // Before the log is read, which can be large.
    if interrupt_run(owner, &stored, lease, &[], clock).is_none() {
        return Ok(false);
    }
    let chunks = tables.log(n).await?;
    let Some(end) = interrupt_run(owner, &stored, lease, &chunks, clock) else { return Ok(false) };
    end_run(tables, &end).await.map(|_| true)
}

pub(super) async fn signal(
    tables: &ConversationTables,
    run: &RunKey,
    signal: RunSignal,
    until: Timestamp,
) -> Result<Option<Run>, TableError> {
    let found = tables.run_for_client(&run.owner, &run.id).await?;
    let is_live = found.as_ref().is_some_and(|run| run.state.is_live());
    if !is_live || tables.put_signal(run, signal, until).await? {
        return Ok(found);
    }
    // It has ended meanwhile.
    tables.run_for_client(&run.owner, &run.id).await
}

/// Deletes a run's log if it has expired. Returns true if it was.
pub(super) async fn trim(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    id: &RunId,
    now: Timestamp,
) -> Result<bool, TableError> {
    let Some((n, _, stored)) = tables.run(owner, id).await? else { return Ok(false) };
    let is_over = log_until_ms(&stored.run).is_some_and(|until| until <= now.as_millisecond());
    if is_over {
        delete_log(tables, n, stored.run).await?;
    }
    Ok(is_over)
}

/// Deletes a run's log.
async fn delete_log(tables: &ConversationTables, n: i64, run: Run) -> Result<(), TableError> {
    tables.update_run(n, &Run { events: RunLogState::default(), ..run }).await?;
    tables.delete_log(n).await
}

pub(super) async fn erase_node(
    tables: &ConversationTables,
    key: &ThreadKey,
    id: &NodeId,
) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id).await?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq]).await?.pop().ok_or_else(missing)?;
    // The title is made of the first user message that has text.
    let seqs: Vec<u32> = tables.user_seqs(n, 100).await?.into_iter().filter(|user| *user != seq).collect();
    let others = tables.nodes(n, &seqs).await?;
    let run = tables.optional_run(&key.thread_owner(), node.run_id.as_ref()).await?;
    let (number, run) = run.map(|(number, _, stored)| (number, stored.run)).unzip();
    let others = others.iter().map(|node| &node.message);
    match commit::erase_node(thread.clone(), node, others, run) {
        None => Ok(thread),
        Some(EraseCommit { thread, node, run }) => {
            tables.put_thread(Some(n), key, &thread).await?;
            tables.update_node(n, &node).await?;
            // Later runs have sent the message, too.
            tables.delete_thread_inputs(n).await?;
            // The run in progress may have them too, so its end stores no inputs.
            if let Some(active_run) = &thread.active_run_id
                && let Some((number, ..)) = tables.run(&key.thread_owner(), active_run).await?
            {
                let without_inputs = LogEnd { inputs: Some(Vec::new()), ..LogEnd::default() };
                tables.insert_log_end(number, &without_inputs).await?;
            }
            if let Some((number, run)) = number.zip(run) {
                delete_log(tables, number, run).await?;
            }
            Ok(thread)
        }
    }
}

/// Deletes threads until [`DELETE_BATCH_NODES`] nodes or [`BATCH_LOG_BYTES`] of logs are deleted. Returns how many of
/// them need no further call.
pub(super) async fn delete_batch(
    tables: &ConversationTables,
    owner: &ThreadOwner,
    ids: &[ThreadId],
    filter: &DeleteFilter,
) -> Result<(usize, DeletedThreads), TableError> {
    tables.lock_live_runs(owner, ids).await?;
    let mut deleted = DeletedThreads::default();
    let (mut remaining_nodes, mut remaining_bytes) = (DELETE_BATCH_NODES, BATCH_LOG_BYTES);
    for (at, id) in ids.iter().enumerate() {
        let key = owner.thread(id.clone());
        let Some((n, thread)) = tables.thread(&key).await? else { continue };
        // It may have become active since it was chosen.
        if !filter.matches(&thread) {
            continue;
        }
        let removed = tables.delete_nodes(n).await?;
        remaining_nodes = remaining_nodes.saturating_sub(removed);
        if removed == DELETE_BATCH_NODES {
            tables.put_thread(Some(n), &key, &commit::delete_part(thread)).await?;
            return Ok((at, deleted));
        }
        let logs = tables.delete_thread_logs(n, remaining_bytes).await?;
        remaining_bytes = remaining_bytes.saturating_sub(logs.bytes);
        if logs.has_more {
            tables.put_thread(Some(n), &key, &commit::delete_part(thread)).await?;
            return Ok((at, deleted));
        }
        tables.delete_thread(n).await?;
        deleted.add_thread(thread);
        if remaining_nodes == 0 || remaining_bytes == 0 {
            return Ok((at + 1, deleted));
        }
    }
    Ok((ids.len(), deleted))
}
