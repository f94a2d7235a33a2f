//! [`UsageRecorder`]: takes entries at the ends of calls, and writes them to the store in the background.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use agent_core::clock::Clock;
use agent_core::error::AgentError;
use agent_core::ids::{CompanyId, TraceContext};
use agent_core::select::BackendKind;
use agent_core::tool::ExecutionContext;
use futures_channel::oneshot;
use futures_util::future::join_all;
use jiff::Timestamp;

use super::admission::{StartingRun, StartingRuns};
use super::budget::RunAdmission;
use super::prices::CallBilling;
use super::sums::caller_name;
use super::{
    AdmittedRun, Budgets, ModelPrice, NanoUsd, PriceTable, ReservationGuard, RunScope, RunSummary,
    TokenCounts, UsageEntry, UsageObserver, UsageOperation, UsageStore,
};
use crate::spawner::Spawner;

use queue::QueuedEntry;
use state::{MAX_BATCH_ENTRIES, QueueState, QueuedFlush, RecorderState, RunTotals};

pub use queue::MAX_QUEUED_ENTRIES;

mod queue;
mod state;
mod writer;

/// Maximum number of runs whose calls are summed up for their line in the log. Tool calls of further ones are booked
/// one by one.
const MAX_OPEN_RUNS: usize = 100_000;
/// Provider name under which a call is reported if its provider may belong to a company.
const OTHER_PROVIDER: &str = "other";

/// Books the calls of models and tools. Clones share the queue.
#[derive(Clone)]
pub struct UsageRecorder {
    shared: Arc<RecorderState>,
}

impl std::fmt::Debug for UsageRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsageRecorder").finish_non_exhaustive()
    }
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
        let (starting, queue) = (StartingRuns::default(), Mutex::default());
        let state = RecorderState { store, clock, spawner, prices, observer, budgets, starting, queue };
        Self { shared: Arc::new(state) }
    }

    /// Returns the budgets that limit the calls, if there are any.
    pub fn budgets(&self) -> Option<&Budgets> {
        self.shared.budgets.as_ref()
    }

    /// Admits a run before its beginning is stored and its backend starts, which takes the admission by the run's ids.
    ///
    /// # Errors
    /// A budget is spent, as many runs as permitted are in progress, or the store failed.
    pub async fn admit_run(&self, context: &ExecutionContext) -> Result<AdmittedRun, AgentError> {
        let admission = match self.budgets() {
            Some(budgets) => budgets.admit_unstored_run(&RunScope::from(context)).await?,
            None => RunAdmission::default(),
        };
        Ok(self.shared.starting.add(context, admission))
    }

    /// Takes the admission of a run whose backend starts, or admits the run now.
    ///
    /// # Errors
    /// As [`admit_run`](Self::admit_run).
    pub(super) async fn take_admission(
        &self,
        context: &ExecutionContext,
    ) -> Result<RunAdmission, AgentError> {
        match (self.shared.starting.take_admission(context), self.budgets()) {
            (Some(admission), _) => Ok(admission),
            (None, Some(budgets)) => budgets.admit_run(&RunScope::from(context)).await,
            (None, None) => Ok(RunAdmission::default()),
        }
    }

    /// Returns a context's run, if its beginning may not be stored yet.
    pub(super) fn starting_run(&self, context: &ExecutionContext) -> Option<Arc<StartingRun>> {
        self.shared.starting.find(context)
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
        reservation: Option<ReservationGuard>,
        billing: Option<&CallBilling>,
    ) {
        let now = self.now();
        for entry in &mut entries {
            entry.ended_at = now;
            match billing {
                // Names that a company has chosen have no catalogue price, and a price in the role replaces the catalogue's.
                Some(billing) => set_price(entry, billing.price.as_ref()),
                None => self.set_price(entry),
            }
        }
        let mut settlement = reservation.and_then(|reservation| reservation.settle_with(&entries));
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

    /// Reports a call of a process that has ended. The entry does not say if its provider is one of a company, which no metric
    /// names: a provider that is not in the catalogue is reported as another one.
    pub(super) fn report_lost_call(&self, entry: &UsageEntry) {
        let Some(observer) = &self.shared.observer else { return };
        let is_known = self.shared.prices.price(&entry.provider, &entry.model).is_some();
        observer.on_model_call(entry, if is_known { entry.provider.as_str() } else { OTHER_PROVIDER });
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
        let dropped = queue.entries.push_back(entry);
        if is_settled || queue.entries.ready_len() >= MAX_BATCH_ENTRIES {
            queue.gathering = None;
        }
        self.shared.ensure_writers(queue);
        if let Some(dropped) = dropped {
            let entry = serde_json::to_string(&dropped.entry).unwrap_or_default();
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

    /// Waits until all booked entries are in the store, and the reservations of their calls are settled.
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
        // Zero tokens cost nothing at any price.
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
