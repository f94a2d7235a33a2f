//! Task of a company that decides about its requests: all that wait, in one commit.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use futures_util::future::select;
use jiff::Timestamp;

use super::Settlement;
use super::active_reservations::ActiveReservation;
use super::decision::{AdmissionDecision, Batch};
use super::demand::AppliedLimit;
use super::meter::{METERS, MeterState};
use super::reservation::ReservedAmount;
use super::state::{
    Admission, AdmissionSubject, AdmittedRequest, BudgetError, BudgetQueue, BudgetState, PendingCounts,
    QueuedSettlement, ReservationGuard,
};
use crate::records::{Collection, Precondition, RecordsExt, UPDATE_ATTEMPTS, UpdateAttempts, to_json};
use crate::user_rates::UncountedRun;

/// Maximum numbers of admissions and of settlements in a commit.
const MAX_BATCH: usize = 128;
/// Maximum number of writes in a commit of several requests: the most that PostgreSQL locks one by one. For more, it would lock
/// all that the platform has, and the requests of other companies would wait.
pub(super) const MAX_BATCH_WRITES: usize = 256;
/// Maximum number of refused requests' reservations that wait to be released.
const MAX_QUEUED_RELEASES: usize = 1_000;
/// Time after which a request that waits looks for settlements of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time until the next attempt after an error of the store.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The task. If it is dropped before its end, the next request starts another one.
pub(super) struct BatchTask {
    state: Arc<BudgetState>,
    company_id: CompanyId,
    waiting: BudgetQueue,
    is_done: bool,
}

impl BatchTask {
    pub(super) fn new(state: Arc<BudgetState>, company_id: CompanyId) -> Self {
        Self { state, company_id, waiting: BudgetQueue::default(), is_done: false }
    }

    pub(super) async fn run(mut self) {
        let mut limit = MAX_BATCH;
        // Number of requests that were found to wait since the last change.
        let mut tried = 0;
        loop {
            let known = self.waiting.admissions.len();
            if !self.state.take(&self.company_id, &mut self.waiting) {
                break;
            }
            // Those that are new are behind the others.
            if self.waiting.admissions.len() > known {
                tried = 0;
            }
            let settlements = take_first(&mut self.waiting.settlements, limit);
            let admissions = take_first(&mut self.waiting.admissions, limit);
            let (count, is_settling) = (admissions.len(), !settlements.is_empty());
            match self.state.commit(&self.company_id, &settlements, &admissions).await {
                Ok(decisions) => {
                    limit = MAX_BATCH.min(limit + MAX_BATCH / 8);
                    answer_all(settlements, || Ok(()));
                    let still_waiting = self.state.answer(&self.company_id, admissions, decisions);
                    let is_stuck = still_waiting.len() == count && !is_settling;
                    self.waiting.admissions.extend(still_waiting);
                    tried = if is_stuck { tried + count } else { 0 };
                    // Requests beyond those of one commit may be admitted while these wait.
                    if is_stuck && tried >= self.waiting.admissions.len() {
                        self.pause(POLL_INTERVAL).await;
                        tried = 0;
                    }
                }
                Err(BatchError::TooLarge) => {
                    requeue(&mut self.waiting.settlements, settlements);
                    requeue(&mut self.waiting.admissions, admissions);
                    limit = (limit / 2).max(1);
                }
                Err(BatchError::Store { error, reservations }) => {
                    self.fail(settlements, admissions, &error);
                    self.release(reservations);
                    self.pause(RETRY_INTERVAL).await;
                }
            }
        }
        self.is_done = true;
    }

    /// Waits for further requests, `duration` at most.
    async fn pause(&self, duration: Duration) {
        if let Some(woken) = self.state.next_addition(&self.company_id) {
            select(woken, self.state.clock.sleep(duration)).await;
        }
    }

    /// Fails the requests and settlements of a commit that has failed, except the settlements that are tried again.
    fn fail(&mut self, settlements: Vec<QueuedSettlement>, admissions: Vec<Admission>, error: &StoreError) {
        tracing::warn!(%error, company_id = %self.company_id, "failed to read or write budgets; waiting requests are refused");
        let unavailable = || StoreError::unavailable(error.to_string());
        for queued in settlements {
            if queued.is_retried {
                self.waiting.settlements.push(queued);
            } else if let Some(answer) = queued.answer {
                // Fails only if the caller was cancelled.
                let _ = answer.send(Err(unavailable()));
            }
        }
        for admission in admissions {
            let _ = admission.answer.send(Err(unavailable().into()));
        }
    }

    /// Releases the reservations of refused requests that the store may have taken although its answer was an error. Those beyond
    /// [`MAX_QUEUED_RELEASES`] are held until the end of their leases.
    fn release(&mut self, reservations: Vec<String>) {
        let room = MAX_QUEUED_RELEASES.saturating_sub(self.waiting.settlements.len());
        for id in reservations.into_iter().take(room) {
            let settlement = Settlement::of_unused(self.company_id.clone(), id);
            self.waiting.settlements.push(QueuedSettlement { settlement, answer: None, is_retried: true });
        }
    }
}

impl Drop for BatchTask {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.abandon(&self.company_id);
        }
    }
}

fn take_first<T>(queue: &mut Vec<T>, limit: usize) -> Vec<T> {
    let later = queue.split_off(queue.len().min(limit));
    std::mem::replace(queue, later)
}

/// Puts items that were taken from a queue back to its front.
fn requeue<T>(queue: &mut Vec<T>, items: Vec<T>) {
    let later = std::mem::replace(queue, items);
    queue.extend(later);
}

fn answer_all(settlements: Vec<QueuedSettlement>, result: impl Fn() -> Result<(), StoreError>) {
    for answer in settlements.into_iter().filter_map(|settlement| settlement.answer) {
        // Fails only if the caller was cancelled.
        let _ = answer.send(result());
    }
}

/// Error of a commit.
enum BatchError {
    /// It has more writes than [`MAX_BATCH_WRITES`], and was not made.
    TooLarge,
    /// The store has failed, and may have made the reservations with these ids nevertheless.
    Store { error: StoreError, reservations: Vec<String> },
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> Self {
        Self::Store { error, reservations: Vec::new() }
    }
}

impl BudgetState {
    /// Decides about requests and settles reservations by one commit.
    async fn commit(
        &self,
        company_id: &CompanyId,
        settlements: &[QueuedSettlement],
        admissions: &[Admission],
    ) -> Result<Vec<AdmissionDecision>, BatchError> {
        let mut attempt = 1;
        loop {
            let mut batch = Batch::load(self, company_id, settlements, admissions).await?;
            for QueuedSettlement { settlement, .. } in settlements {
                batch.settle(settlement)?;
            }
            let (call_expires, run_expires) = self.lease_ends(batch.now);
            let decide = |admission: &Admission| {
                let is_call = matches!(admission.subject, AdmissionSubject::Call(_));
                batch.decide(admission, if is_call { call_expires } else { run_expires })
            };
            let decisions = admissions.iter().map(decide).collect::<Result<Vec<_>, StoreError>>()?;
            let (writes, run_count) = batch.into_writes()?;
            if writes.is_empty() {
                return Ok(decisions);
            }
            // One of each is committed regardless of its size.
            if writes.len() > MAX_BATCH_WRITES && settlements.len().max(admissions.len()) > 1 {
                return Err(BatchError::TooLarge);
            }
            match self.records.commit(writes).await {
                Ok(_) => {
                    let runs = admissions.iter().filter_map(|admission| admission.uncounted.as_ref());
                    if let Some(run_count) = run_count {
                        run_count.publish(runs);
                    }
                    return Ok(decisions);
                }
                // Another process has reserved, settled or counted meanwhile.
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                // Such as after a lost connection, when it is not known whether the database has committed.
                Err(error) => {
                    return Err(BatchError::Store { error, reservations: reserved_ids(decisions) });
                }
            }
        }
    }

    /// Sends the decisions to their callers, and returns the requests that wait.
    fn answer(
        self: &Arc<Self>,
        company_id: &CompanyId,
        admissions: Vec<Admission>,
        decisions: Vec<AdmissionDecision>,
    ) -> Vec<Admission> {
        let now = self.clock.monotonic();
        let mut waiting = Vec::new();
        for (admission, decision) in admissions.into_iter().zip(decisions) {
            let result = match decision {
                AdmissionDecision::Admit { output, reservation, pending } => {
                    let is_call = matches!(admission.subject, AdmissionSubject::Call(_));
                    let new_guard = |(id, amounts): (String, Vec<ReservedAmount>), run| {
                        if !is_call {
                            self.start_renewal(
                                company_id,
                                ActiveReservation { id: id.clone(), amounts: amounts.into(), run },
                            );
                        }
                        ReservationGuard::new(self.clone(), company_id.clone(), id)
                    };
                    let reservation = reservation.map(|reserved| new_guard(reserved, None));
                    let pending = PendingCounts {
                        reservation: pending.map(|reserved| new_guard(reserved, admission.subject.run())),
                        per_minute: admission.uncounted.as_ref().map(UncountedRun::counted),
                    };
                    Ok(AdmittedRequest { output, reservation, pending })
                }
                AdmissionDecision::Wait(_) if admission.deadline > now => {
                    waiting.push(admission);
                    continue;
                }
                AdmissionDecision::Wait(refusal) | AdmissionDecision::Refuse(refusal) => {
                    Err(BudgetError::Refused(refusal))
                }
            };
            // Fails if the caller was cancelled; what is returned gives back its reservation.
            drop(admission.answer.send(result));
        }
        waiting
    }

    /// Sets the meter of a limit that did not apply for some time to the ledger's sums of the current window. A meter
    /// that does not exist begins with these sums anyway.
    pub(super) async fn renew(
        &self,
        company_id: &CompanyId,
        applied: &AppliedLimit,
    ) -> Result<(), StoreError> {
        let key = Collection::of_platform(METERS)?.within(company_id)?.key(applied.meter.clone())?;
        let mut attempts = UpdateAttempts::new(&*self.records, &key);
        loop {
            let Some(found) = self.records.get_as::<MeterState>(&key).await? else { return Ok(()) };
            let now = self.now();
            let meter = found.value.at(applied.limit.window, &applied.zone, now);
            let used = self.used_before(company_id, applied, now).await?;
            if used <= meter.used {
                return Ok(());
            }
            let meter = to_json(&MeterState { used, ..meter })?;
            match self.records.put(&key, meter, Precondition::Version(found.version)).await {
                Ok(_) => return Ok(()),
                Err(error) => attempts.retry(error).await?,
            }
        }
    }

    /// Returns the amount in the ledger for a limit's current window.
    pub(super) async fn used_before(
        &self,
        company_id: &CompanyId,
        applied: &AppliedLimit,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let Some(query) = applied.ledger_query(now) else { return Ok(0) };
        let page = self.usage.usage(company_id, &query).await?;
        Ok(page.rows.first().map_or(0, |row| applied.amount_of(&row.sums)))
    }
}

/// Returns the ids of the reservations of decided requests.
fn reserved_ids(decisions: Vec<AdmissionDecision>) -> Vec<String> {
    let reserved = decisions.into_iter().flat_map(|decision| match decision {
        AdmissionDecision::Admit { reservation, pending, .. } => {
            [reservation, pending].map(|reserved| reserved.map(|(id, _)| id))
        }
        AdmissionDecision::Wait(_) | AdmissionDecision::Refuse(_) => [None, None],
    });
    reserved.flatten().collect()
}
