//! [`UsageRecorder`]: takes entries at the ends of calls, and writes them to the store in the background.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, TraceContext};
use agent_core::select::BackendKind;
use agent_core::store_error::StoreError;
use futures_channel::oneshot;
use futures_util::future::join_all;
use jiff::Timestamp;

use super::budget::SettlementOutcome;
use super::prices::CallBilling;
use super::sums::caller_name;
use super::{
    Budgets, Hold, ModelPrice, NanoUsd, PriceTable, RunScope, RunSummary, TokenCounts, UsageEntry,
    UsageObserver, UsageOperation, UsageStore, UsageSums,
};
use crate::spawner::Spawner;
use crate::trace::format_trace_id;

use queue::{EntryQueue, QueuedEntry};
use writer::{LockedWriter, Writer};

pub use queue::MAX_QUEUED_ENTRIES;

mod queue;
mod writer;

/// Maximum number of entries in a commit.
const MAX_BATCH_ENTRIES: usize = 200;
/// Maximum number of runs whose calls are summed up for their line in the log. Tool calls of further ones are booked
/// one by one.
const MAX_OPEN_RUNS: usize = 100_000;
/// Maximum number of models that the line of a run names.
const MAX_LOGGED_MODELS: usize = 8;

/// Books the calls of models and tools. Clones share the queue.
#[derive(Clone)]
pub struct UsageRecorder {
    shared: Arc<RecorderState>,
}

struct RecorderState {
    store: Arc<dyn UsageStore>,
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    prices: PriceTable,
    observer: Option<Arc<dyn UsageObserver>>,
    budgets: Option<Budgets>,
    queue: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    entries: EntryQueue,
    is_writing: bool,
    /// True while a task writes the entries of locked ledgers.
    is_retrying: bool,
    /// Present while the writer gathers entries; dropping it wakes the writer.
    gathering: Option<oneshot::Sender<()>>,
    /// Callers that wait until entries are written.
    flushing: Vec<QueuedFlush>,
    /// Settlements of stored entries that the writers have not waited for.
    settling: Vec<SettlementOutcome>,
    /// The runs in progress, by their companies and [keys](RunScope::run_key).
    runs: HashMap<(CompanyId, String), RunTotals>,
}

/// Caller that waits until entries are written.
struct QueuedFlush {
    /// True to wait for the entries of locked ledgers, too.
    includes_locked: bool,
    written: oneshot::Sender<()>,
}

/// Times and sums of a run in progress.
struct RunTotals {
    /// Number of streams of the run: a turn that is sent again has two.
    streams: usize,
    trace: Option<TraceContext>,
    started: Instant,
    first_content: Option<Instant>,
    sums: UsageSums,
    models: Vec<String>,
}

impl UsageRecorder {
    /// Creates a recorder over a store. `spawner` runs its writer, and `budgets` limit the calls.
    pub fn new(
        store: Arc<dyn UsageStore>,
        prices: PriceTable,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        observer: Option<Arc<dyn UsageObserver>>,
        budgets: Option<Budgets>,
    ) -> Self {
        let queue = Mutex::default();
        Self { shared: Arc::new(RecorderState { store, clock, spawner, prices, observer, budgets, queue }) }
    }

    /// Returns the budgets that limit the calls, if there are any.
    pub fn budgets(&self) -> Option<&Budgets> {
        self.shared.budgets.as_ref()
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn UsageStore> {
        &self.shared.store
    }

    /// Returns the prices.
    pub fn prices(&self) -> &PriceTable {
        &self.shared.prices
    }

    /// Returns the current time in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::try_from(self.shared.clock.now()).unwrap_or(Timestamp::MIN);
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// Sets the prices and the time of the end of a call's entries, and books them. The reservation for the call is settled
    /// afterwards.
    pub(super) fn book(
        &self,
        mut entries: Vec<UsageEntry>,
        hold: Option<Hold>,
        billing: Option<&CallBilling>,
    ) {
        let now = self.now();
        for entry in &mut entries {
            entry.ended_at = now;
            match billing {
                // Names of a company's choice have no price in the catalogue, and that of a role replaces it.
                Some(billing) => set_price(entry, billing.price.as_ref()),
                None => self.set_price(entry),
            }
        }
        let mut settlement = hold.and_then(|hold| hold.settle_with(&entries));
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.into_iter().enumerate() {
            if let Some(observer) = self.shared.observer.as_ref().filter(|_| entry.is_model_call()) {
                let provider = billing.map_or(&entry.provider, |billing| &billing.provider_type);
                observer.on_model_call(&entry, provider);
            }
            let mut queue = self.shared.lock();
            if let Some(totals) = queue.runs.get_mut(&run_key(&entry.scope)) {
                totals.add(&entry);
            }
            let settlement = settlement.take_if(|_| index == last);
            self.push(queue, QueuedEntry { entry, settlement });
        }
    }

    /// Sets the price of an entry.
    pub(super) fn set_price(&self, entry: &mut UsageEntry) {
        let price = self.shared.prices.price(&entry.provider, &entry.model);
        set_price(entry, price);
    }

    /// Counts the end of a tool call.
    pub(super) fn book_tool_call(&self, scope: RunScope, tool: Option<&str>, outcome: &'static str) {
        if let (Some(observer), Some(tool)) = (&self.shared.observer, tool) {
            observer.on_tool_call(tool, outcome);
        }
        let mut queue = self.shared.lock();
        match queue.runs.get_mut(&run_key(&scope)) {
            Some(totals) => totals.sums.tool_calls += 1,
            None => {
                let entry = tool_entry(scope, 1, self.now());
                self.push(queue, entry.into());
            }
        }
    }

    fn push(&self, mut queue: MutexGuard<'_, QueueState>, entry: QueuedEntry) {
        let is_settled = entry.settlement.is_some();
        let lost = queue.entries.push_back(entry);
        if is_settled || queue.entries.ready_len() >= MAX_BATCH_ENTRIES {
            queue.gathering = None;
        }
        self.shared.ensure_writers(queue);
        if let Some(lost) = lost {
            let entry = serde_json::to_string(&lost.entry).unwrap_or_default();
            tracing::error!(entry, "usage is lost: the store has not taken earlier entries");
        }
    }

    /// Begins to sum up the calls of a run's stream. Its line in the log names the trace.
    pub(super) fn open_run(&self, scope: &RunScope, trace: Option<TraceContext>) {
        let now = self.shared.clock.monotonic();
        let mut queue = self.shared.lock();
        let is_full = queue.runs.len() >= MAX_OPEN_RUNS;
        let key = run_key(scope);
        if !scope.run_id.is_empty() && (!is_full || queue.runs.contains_key(&key)) {
            queue.runs.entry(key).or_insert_with(|| RunTotals::new(now, trace)).streams += 1;
        }
    }

    /// Records the time of a run's first content.
    pub(super) fn record_first_content(&self, scope: &RunScope) {
        let now = self.shared.clock.monotonic();
        if let Some(totals) = self.shared.lock().runs.get_mut(&run_key(scope)) {
            totals.first_content.get_or_insert(now);
        }
    }

    /// Ends a stream of a run: books its tool calls, reports its end, and logs the sums.
    pub(super) fn close_run(&self, scope: &RunScope, backend: BackendKind, outcome: &str) {
        let now = self.shared.clock.monotonic();
        let key = run_key(scope);
        let mut queue = self.shared.lock();
        let Some(totals) = queue.runs.get_mut(&key) else { return };
        totals.streams -= 1;
        if totals.streams > 0 {
            return;
        }
        let Some(totals) = queue.runs.remove(&key) else { return };
        match totals.sums.tool_calls {
            0 => drop(queue),
            calls => self.push(queue, tool_entry(scope.clone(), calls, self.now()).into()),
        }
        if let Some(observer) = &self.shared.observer {
            let since_start = |time: Instant| time.saturating_duration_since(totals.started);
            observer.on_run_end(&RunSummary {
                backend,
                caller: caller_name(scope.caller),
                outcome,
                duration: since_start(now),
                first_content: totals.first_content.map(since_start),
            });
        }
        totals.log(scope, outcome);
    }

    /// Returns the number of entries that are not stored yet.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.shared.lock().entries.len()
    }

    /// Waits until all booked entries are in the store, and what was reserved for their calls is settled.
    pub async fn flush(&self) {
        self.wait_for_writers(true).await;
        let settling = std::mem::take(&mut self.shared.lock().settling);
        join_all(settling).await;
    }

    /// Waits until the booked entries are in the store, except those of companies whose ledgers another transaction has
    /// locked.
    pub async fn flush_unlocked(&self) {
        self.wait_for_writers(false).await;
    }

    async fn wait_for_writers(&self, includes_locked: bool) {
        let receiver = {
            let mut queue = self.shared.lock();
            let entries = &queue.entries;
            if entries.is_empty() || (entries.ready_len() == 0 && !includes_locked) {
                return;
            }
            let (written, receiver) = oneshot::channel();
            queue.flushing.push(QueuedFlush { includes_locked, written });
            queue.gathering = None;
            self.shared.ensure_writers(queue);
            receiver
        };
        // An error means that a writer was dropped, as at the end of the process.
        let _ = receiver.await;
    }
}

fn set_price(entry: &mut UsageEntry, price: Option<&ModelPrice>) {
    if let Some(price) = price {
        entry.cost = Some(price.prices.cost(&entry.tokens));
        entry.price_as_of = Some(price.as_of.clone());
    } else if entry.tokens == TokenCounts::default() {
        // No tokens cost nothing, whatever their price.
        entry.cost = Some(NanoUsd::ZERO);
    }
}

fn run_key(scope: &RunScope) -> (CompanyId, String) {
    (scope.company_id.clone(), scope.run_key())
}

/// Returns the entry of a number of tool calls.
fn tool_entry(scope: RunScope, tool_calls: u64, ended_at: Timestamp) -> UsageEntry {
    UsageEntry {
        id: agent_core::new_id(),
        scope,
        round: 0,
        attempt: 1,
        operation: UsageOperation::Tools,
        provider: String::new(),
        model: String::new(),
        tokens: TokenCounts::default(),
        tool_calls,
        cost: Some(NanoUsd::ZERO),
        price_as_of: None,
        estimated: false,
        outcome: "ok".to_owned(),
        ended_at,
    }
}

impl RunTotals {
    fn new(started: Instant, trace: Option<TraceContext>) -> Self {
        let sums = UsageSums::default();
        Self { streams: 0, trace, started, first_content: None, sums, models: Vec::new() }
    }

    fn add(&mut self, entry: &UsageEntry) {
        self.sums.add(&UsageSums::of(entry, false));
        if self.models.len() < MAX_LOGGED_MODELS && !self.models.contains(&entry.model) {
            self.models.push(entry.model.clone());
        }
    }

    /// Writes the run's line in the log.
    fn log(&self, scope: &RunScope, outcome: &str) {
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
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the writers, unless they run. That of locked ledgers is started if there are any.
    fn ensure_writers(self: &Arc<Self>, mut queue: MutexGuard<'_, QueueState>) {
        let must_write = !std::mem::replace(&mut queue.is_writing, true);
        let must_retry =
            queue.entries.locked_companies() > 0 && !std::mem::replace(&mut queue.is_retrying, true);
        drop(queue);
        if must_write {
            self.spawner.spawn(Box::pin(Writer::new(self.clone()).run()));
        }
        if must_retry {
            self.spawner.spawn(Box::pin(LockedWriter::new(self.clone()).run()));
        }
    }

    /// Writes entries, and settles what was reserved for their calls. Both have no effect on what is written already. Returns the
    /// companies whose ledgers are locked, whose entries are not written.
    async fn book(&self, batch: Vec<QueuedEntry>) -> Result<HashSet<CompanyId>, StoreError> {
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
    /// Answers the callers that wait for no further entry.
    fn answer_flushes(&mut self) {
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
