//! State of the budgets in a process: the requests of the companies that wait for a commit, and the reservations in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use futures_channel::oneshot;
use jiff::Timestamp;

use super::super::{RunScope, UsageEntry, UsageStore};
use super::active_reservations::ActiveReservations;
use super::demand::{AppliedLimit, Demand, OutputRange};
use super::reservation::{RequestedCall, UsedAmounts};
use super::{Budget, BudgetExceededError, BudgetKind, BudgetTimeZone, Settlement};
use crate::records::{Key, Records, RecordsExt};
use crate::spawner::Spawner;
use crate::user_rates::{CountedCompanyRun, UncountedRun};

/// Name of a company's collection of budgets.
pub(super) const BUDGETS: &str = "budgets";

/// Returns the key of the budget of a subject.
pub(super) fn budget_key(company: &CompanyId, kind: BudgetKind, subject: &str) -> Result<Key, StoreError> {
    Key::new(company.clone(), BUDGETS, format!("{}/{subject}", kind.as_str()))
}

/// Times of reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetOptions {
    /// Time after which the reservation of a call counts as lost. It must exceed the longest run. That of a run counts as lost
    /// after a minute without a renewal.
    pub lease: Duration,
    /// Time for which a call waits for the settlement of other calls' reservations, if it would be admitted without them; 10 s by
    /// default.
    pub max_wait: Duration,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(31 * 60), max_wait: Duration::from_secs(10) }
    }
}

/// State that the tasks of the companies share with the requests.
pub(super) struct BudgetState {
    pub(super) records: Arc<dyn Records>,
    pub(super) usage: Arc<dyn UsageStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawner: Arc<dyn Spawner>,
    /// Time after which a reservation counts as lost.
    pub(super) lease: Duration,
    /// Time for which a request waits until other reservations are settled.
    pub(super) max_wait: Duration,
    pub(super) active_reservations: ActiveReservations,
    queues: Mutex<Queues>,
}

#[derive(Default)]
pub(super) struct Queues {
    pub(super) companies: HashMap<CompanyId, BudgetQueue>,
    /// Callers that wait until all queues are empty.
    flushing: Vec<oneshot::Sender<()>>,
}

#[derive(Default)]
pub(super) struct BudgetQueue {
    pub(super) admissions: Vec<Admission>,
    pub(super) settlements: Vec<QueuedSettlement>,
    /// Number of requests that the task has taken and not answered.
    pub(super) in_progress: usize,
    /// Wakes the task while it waits for settlements.
    pub(super) woken: Option<oneshot::Sender<()>>,
}

/// Request to be admitted.
pub(super) struct Admission {
    pub(super) demands: Vec<(AppliedLimit, Demand)>,
    pub(super) output: OutputRange,
    pub(super) subject: AdmissionSubject,
    /// The run, if the commit is to count it per minute.
    pub(super) uncounted: Option<UncountedRun>,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Result<AdmittedRequest, BudgetError>>,
}

/// Subject of a request for admission.
pub(super) enum AdmissionSubject {
    /// A call of a model, for which its tokens are reserved.
    Call(RequestedCall),
    /// A run that counts once it is stored.
    UnstoredRun(RunScope),
    /// A run that counts already, and whose backend starts again.
    RestartedRun,
    /// A run that begins now, or a tool call.
    Other,
}

impl AdmissionSubject {
    /// Returns the run that counts once it is stored.
    pub(super) fn run(&self) -> Option<RunScope> {
        match self {
            Self::UnstoredRun(scope) => Some(scope.clone()),
            Self::Call(_) | Self::RestartedRun | Self::Other => None,
        }
    }
}

/// Admitted request.
pub(super) struct AdmittedRequest {
    /// Number of output tokens that are reserved.
    pub(super) output: u64,
    /// The reservation, if something is reserved.
    pub(super) reservation: Option<ReservationGuard>,
    /// Counts of a run that may not begin.
    pub(super) pending: PendingCounts,
}

/// Counts of a run that apply once it is stored, or its first call is not refused. Dropping them counts nothing.
#[derive(Default)]
pub(in crate::usage) struct PendingCounts {
    /// Reservation of the budgets.
    pub(super) reservation: Option<ReservationGuard>,
    /// Count of the default limit per minute.
    pub(super) per_minute: Option<CountedCompanyRun>,
}

impl PendingCounts {
    /// Counts the run, towards budgets in the background.
    pub(in crate::usage) fn count_run(self) {
        if let Some(reservation) = self.reservation {
            reservation.count_run();
        }
        if let Some(counted) = self.per_minute {
            counted.keep();
        }
    }

    /// Leaves the reservation to [`ReservationSweep`](super::super::ReservationSweep). The run counts per minute.
    pub(in crate::usage) fn abandon(self) {
        if let Some(reservation) = self.reservation {
            reservation.abandon();
        }
        if let Some(counted) = self.per_minute {
            counted.keep();
        }
    }
}

/// Error of a request for admission.
#[derive(Debug, thiserror::Error)]
pub(super) enum BudgetError {
    #[error(transparent)]
    Refused(Box<BudgetExceededError>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Settlement, and its caller if one waits.
pub(super) struct QueuedSettlement {
    pub(super) settlement: Settlement,
    pub(super) answer: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// True to try again after an error of the store, in place of answering with it.
    pub(super) is_retried: bool,
}

/// Receiver of the outcome of a settlement.
pub(in crate::usage) type SettlementOutcome = oneshot::Receiver<Result<(), StoreError>>;

impl BudgetQueue {
    fn is_empty(&self) -> bool {
        self.admissions.is_empty() && self.settlements.is_empty()
    }
}

impl BudgetState {
    pub(super) fn new(
        records: Arc<dyn Records>,
        usage: Arc<dyn UsageStore>,
        (clock, spawner): (Arc<dyn Clock>, Arc<dyn Spawner>),
        (lease, max_wait): (Duration, Duration),
    ) -> Self {
        let (active_reservations, queues) = (ActiveReservations::default(), Mutex::default());
        Self { records, usage, clock, spawner, lease, max_wait, active_reservations, queues }
    }

    /// Locks the queues. No code panics while holding the lock, so the data behind a poisoned one is intact.
    pub(super) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MIN)
    }

    /// Returns the time zone of a company, which its own budget has. A company whose id cannot be a key has no budget.
    pub(super) async fn zone(&self, company_id: &CompanyId) -> Result<BudgetTimeZone, StoreError> {
        let Ok(key) = budget_key(company_id, BudgetKind::Company, company_id.as_str()) else {
            return Ok(BudgetTimeZone::default());
        };
        let found = self.records.get_as::<Budget>(&key).await?;
        Ok(found.and_then(|found| found.value.timezone).unwrap_or_default())
    }

    /// Moves the requests and settlements that wait for the next commit of a company to those of its task. Removes the queue and
    /// returns false if there are none.
    pub(super) fn take(&self, company_id: &CompanyId, waiting: &mut BudgetQueue) -> bool {
        waiting.admissions.retain(|admission| !admission.answer.is_canceled());
        let mut queues = self.lock();
        let Some(queue) = queues.companies.get_mut(company_id) else { return false };
        waiting.admissions.append(&mut queue.admissions);
        waiting.settlements.append(&mut queue.settlements);
        queue.in_progress = waiting.admissions.len();
        if waiting.is_empty() {
            queues.remove(company_id);
            return false;
        }
        true
    }

    /// Returns the receiver of the next addition to a company's queue; `None` if it is not empty.
    pub(super) fn next_addition(&self, company_id: &CompanyId) -> Option<oneshot::Receiver<()>> {
        let mut queues = self.lock();
        let queue = queues.companies.get_mut(company_id)?;
        if !queue.is_empty() {
            return None;
        }
        let (sender, woken) = oneshot::channel();
        queue.woken = Some(sender);
        Some(woken)
    }

    /// Removes the queue of a company whose task was dropped. The waiting callers get an error.
    pub(super) fn abandon(&self, company_id: &CompanyId) {
        let abandoned = {
            let mut queues = self.lock();
            queues.remove(company_id)
        };
        // Dropped outside of the lock, since dropping a reservation uses the queue.
        drop(abandoned);
    }

    /// Waits until all settlements are in the store.
    pub(super) async fn flush(&self) {
        let flushed = {
            let mut queues = self.lock();
            if queues.companies.is_empty() {
                return;
            }
            let (sender, flushed) = oneshot::channel();
            queues.flushing.push(sender);
            flushed
        };
        // An error means that the tasks were dropped, as at the end of the process.
        let _ = flushed.await;
    }
}

impl Queues {
    fn remove(&mut self, company_id: &CompanyId) -> Option<BudgetQueue> {
        let removed = self.companies.remove(company_id);
        if self.companies.is_empty() {
            for flushing in self.flushing.drain(..) {
                // Fails only if the caller was cancelled.
                let _ = flushing.send(());
            }
        }
        removed
    }
}

/// A reservation in use. Dropping it releases the reserved amounts.
pub struct ReservationGuard {
    pub(super) state: Arc<BudgetState>,
    pub(super) settlement: Option<Settlement>,
}

impl std::fmt::Debug for ReservationGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservationGuard").finish_non_exhaustive()
    }
}

impl ReservationGuard {
    pub(super) fn new(state: Arc<BudgetState>, company_id: CompanyId, id: String) -> Self {
        Self { state, settlement: Some(Settlement::of_unused(company_id, id)) }
    }

    /// Returns the id, which the entry of the call in the ledger has too.
    pub(in crate::usage) fn id(&self) -> &str {
        self.settlement.as_ref().map_or("", |settlement| &settlement.id)
    }

    /// Returns the settlement with the amounts that the entries of the call have used.
    pub(in crate::usage) fn settle_with(mut self, entries: &[UsageEntry]) -> Option<Settlement> {
        let used = UsedAmounts::of_entries(entries);
        self.settlement.take().map(|settlement| Settlement { used, ..settlement })
    }

    /// Counts the run, which is stored, in the background.
    fn count_run(mut self) {
        if let Some(settlement) = &mut self.settlement {
            settlement.used = UsedAmounts::Run;
        }
    }

    /// Leaves the reservation to [`ReservationSweep`](super::super::ReservationSweep), which releases it when its lease has expired.
    fn abandon(mut self) {
        if let Some(settlement) = self.settlement.take() {
            self.state.active_reservations.remove(&settlement.company_id, &settlement.id);
        }
    }
}
