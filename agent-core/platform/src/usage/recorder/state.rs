//! State that a [`UsageRecorder`](super::UsageRecorder) shares with its writers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, TraceContext};
use agent_core::store_error::StoreError;
use futures_channel::oneshot;

use super::queue::{EntryQueue, QueuedEntry};
use crate::spawner::Spawner;
use crate::trace::format_trace_id;
use crate::usage::admission::StartingRuns;
use crate::usage::budget::SettlementOutcome;
use crate::usage::sums::caller_name;
use crate::usage::{Budgets, PriceTable, RunScope, UsageEntry, UsageObserver, UsageStore, UsageSums};

/// Maximum number of entries in a commit.
pub(super) const MAX_BATCH_ENTRIES: usize = 200;
/// Maximum number of models that the line of a run names.
const MAX_LOGGED_MODELS: usize = 8;

/// State of a recorder.
pub(super) struct RecorderState {
    pub(super) store: Arc<dyn UsageStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawner: Arc<dyn Spawner>,
    pub(super) prices: PriceTable,
    pub(super) observer: Option<Arc<dyn UsageObserver>>,
    pub(super) budgets: Option<Budgets>,
    pub(super) starting: StartingRuns,
    pub(super) queue: Mutex<QueueState>,
}

/// Entries that wait for the store, the tasks that write them, and the runs in progress.
#[derive(Default)]
pub(super) struct QueueState {
    pub(super) entries: EntryQueue,
    pub(super) is_writing: bool,
    /// True while a task writes the entries of locked ledgers.
    pub(super) is_retrying: bool,
    /// Present while the writer gathers entries; dropping it wakes the writer.
    pub(super) gathering: Option<oneshot::Sender<()>>,
    /// Callers that wait until entries are written.
    pub(super) flushing: Vec<QueuedFlush>,
    /// Settlements of stored entries that the writers have not waited for.
    pub(super) settling: Vec<SettlementOutcome>,
    /// The runs in progress, by their companies and [keys](RunScope::run_key).
    pub(super) runs: HashMap<(CompanyId, String), RunTotals>,
}

/// Caller that waits until entries are written.
pub(super) struct QueuedFlush {
    /// True to wait for the entries of locked ledgers, too.
    pub(super) includes_locked: bool,
    pub(super) written: oneshot::Sender<()>,
}

/// Times and sums of a run in progress.
pub(super) struct RunTotals {
    /// Number of streams of the run: a turn that is sent again has two.
    pub(super) streams: usize,
    trace: Option<TraceContext>,
    pub(super) started: Instant,
    pub(super) first_content: Option<Instant>,
    pub(super) sums: UsageSums,
    models: Vec<String>,
}

impl RunTotals {
    pub(super) fn new(started: Instant, trace: Option<TraceContext>) -> Self {
        let sums = UsageSums::default();
        Self { streams: 0, trace, started, first_content: None, sums, models: Vec::new() }
    }

    pub(super) fn add(&mut self, entry: &UsageEntry) {
        self.sums.add(&UsageSums::of(entry, false));
        if self.models.len() < MAX_LOGGED_MODELS && !self.models.contains(&entry.model) {
            self.models.push(entry.model.clone());
        }
    }

    /// Writes the run's line in the log.
    pub(super) fn log(&self, scope: &RunScope, outcome: &str) {
        let RunScope { company_id, run_id, agent_id, user_id, caller, .. } = scope;
        let UsageSums { calls, tokens, tool_calls, cost, unpriced_calls, .. } = &self.sums;
        tracing::info!(
            company = %company_id,
            user = %user_id,
            agent = %agent_id,
            run = %run_id,
            caller = caller_name(*caller),
            model = self.models.join(","),
            calls,
            input_tokens = tokens.input_tokens,
            cached_input_tokens = tokens.cached_input_tokens,
            output_tokens = tokens.output_tokens,
            tool_calls,
            cost = %cost,
            unpriced_calls,
            outcome,
            trace_id = self.trace.as_ref().map(format_trace_id),
            "run ended"
        );
    }
}

impl RecorderState {
    /// Locks the queue. No code panics while holding the lock, so the data behind a poisoned one is intact.
    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes entries, and settles the reservations of their calls. Both are idempotent. Returns the
    /// companies whose ledgers are locked; their entries are not written.
    pub(super) async fn book(&self, batch: Vec<QueuedEntry>) -> Result<HashSet<CompanyId>, StoreError> {
        let (mut entries, mut settlements) = (Vec::with_capacity(batch.len()), Vec::new());
        for QueuedEntry { entry, settlement } in batch {
            entries.push(entry);
            settlements.extend(settlement);
        }
        let locked = self.store.book_unlocked(entries).await?;
        settlements.retain(|settlement| !locked.contains(&settlement.company_id));
        if let Some(budgets) = self.budgets.as_ref().filter(|_| !settlements.is_empty()) {
            let pending = budgets.settle_or_retry(settlements).await;
            let mut queue = self.lock();
            queue.settling.retain_mut(|settled| matches!(settled.try_recv(), Ok(None)));
            queue.settling.extend(pending);
        }
        Ok(locked)
    }
}

impl QueueState {
    /// Wakes the callers that wait for no further entry.
    pub(super) fn answer_flushes(&mut self) {
        let (is_empty, has_ready) = (self.entries.is_empty(), self.entries.ready_len() > 0);
        for flush in std::mem::take(&mut self.flushing) {
            if is_empty || (!has_ready && !flush.includes_locked) {
                // Fails only if the caller was cancelled.
                let _ = flush.written.send(());
            } else {
                self.flushing.push(flush);
            }
        }
    }
}
