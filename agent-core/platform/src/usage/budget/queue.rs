//! Addition to the queues of the companies' requests, and start of the tasks that empty them.

use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use futures_channel::oneshot;
use futures_util::future::{join_all, select};

use super::Settlement;
use super::batch::BatchTask;
use super::state::{
    Admission, AdmittedRequest, BudgetError, BudgetQueue, BudgetState, QueuedSettlement, ReservationGuard,
    SettlementOutcome,
};

/// Maximum number of requests of a company that wait in a process.
const MAX_WAITING: usize = 1_000;
/// Maximum time for which settlements of several companies are waited for. One of them must not delay the others.
const MAX_SETTLEMENT_WAIT: Duration = Duration::from_millis(50);

impl BudgetState {
    /// Adds a request to the next commit of its company, and waits for the decision.
    ///
    /// # Errors
    /// Too many requests wait, or the request was dropped with the process's runtime.
    pub(super) async fn admit(
        self: &Arc<Self>,
        company_id: &CompanyId,
        request: impl FnOnce(oneshot::Sender<Result<AdmittedRequest, BudgetError>>) -> Admission,
    ) -> Result<AdmittedRequest, BudgetError> {
        let (answer, decided) = oneshot::channel();
        let is_full = {
            let queues = self.lock();
            let count = |queue: &BudgetQueue| queue.admissions.len() + queue.in_progress;
            queues.companies.get(company_id).is_some_and(|queue| count(queue) >= MAX_WAITING)
        };
        if is_full {
            return Err(
                StoreError::unavailable("too many requests of the company wait for its budgets").into()
            );
        }
        self.push(company_id, |queue| queue.admissions.push(request(answer)));
        decided.await.unwrap_or_else(|_| Err(StoreError::unavailable("the request was dropped").into()))
    }

    /// Settles a reservation in the background.
    pub(super) fn release(state: &Arc<Self>, settlement: Settlement) {
        let company_id = settlement.company_id.clone();
        state.push(&company_id, |queue| {
            queue.settlements.push(QueuedSettlement { settlement, answer: None, is_retried: true });
        });
    }

    /// Settles reservations.
    ///
    /// # Errors
    /// Errors of the store; some may be settled.
    pub(super) async fn settle(self: &Arc<Self>, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        for settled in self.push_settlements(settlements, false) {
            settled.await.unwrap_or_else(|_| Err(StoreError::unavailable("the request was dropped")))?;
        }
        Ok(())
    }

    /// Settles reservations, and waits for that for [`MAX_SETTLEMENT_WAIT`] at most: those that the store does not take are tried
    /// again in the background. Returns the receivers of the outcomes that are not known yet.
    pub(super) async fn settle_or_retry(
        self: &Arc<Self>,
        settlements: Vec<Settlement>,
    ) -> Vec<SettlementOutcome> {
        let mut waiting = self.push_settlements(settlements, true);
        {
            let settled = pin!(join_all(waiting.iter_mut()));
            select(settled, self.clock.sleep(MAX_SETTLEMENT_WAIT)).await;
        }
        waiting.retain_mut(|settled| matches!(settled.try_recv(), Ok(None)));
        waiting
    }

    /// Adds settlements to the queues of their companies, and returns the receivers of their outcomes.
    fn push_settlements(
        self: &Arc<Self>,
        settlements: Vec<Settlement>,
        is_retried: bool,
    ) -> Vec<SettlementOutcome> {
        let mut waiting = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let (answer, settled) = oneshot::channel();
            let company_id = settlement.company_id.clone();
            self.push(&company_id, |queue| {
                queue.settlements.push(QueuedSettlement { settlement, answer: Some(answer), is_retried });
            });
            waiting.push(settled);
        }
        waiting
    }

    /// Adds to a company's queue, and starts its task if none runs.
    fn push(self: &Arc<Self>, company_id: &CompanyId, add: impl FnOnce(&mut BudgetQueue)) {
        let mut queues = self.lock();
        match queues.companies.entry(company_id.clone()) {
            Entry::Occupied(mut queue) => {
                add(queue.get_mut());
                if let Some(woken) = queue.get_mut().woken.take() {
                    // Fails if the task is running already.
                    let _ = woken.send(());
                }
            }
            Entry::Vacant(entry) => {
                add(entry.insert(BudgetQueue::default()));
                drop(queues);
                // Created here, since a runtime that shuts down drops the task before its first poll.
                let task = BatchTask::new(self.clone(), company_id.clone());
                self.spawner.spawn(Box::pin(task.run()));
            }
        }
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            self.state.active_reservations.remove(&settlement.company_id, &settlement.id);
            BudgetState::release(&self.state, settlement);
        }
    }
}
