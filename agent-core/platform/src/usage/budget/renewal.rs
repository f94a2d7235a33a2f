//! Renewal of the reservations of runs in progress.
//!
//! A run holds its place among the concurrent ones by a reservation, as long as it lasts. With the lease of a call, the
//! places of a killed process would be taken for the time of the longest run, and the company's runs be refused. So the
//! reservation of a run has a short lease, which the run's process extends.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::{SignedDuration, Timestamp};

use super::reservation::{BudgetReservation, RESERVATIONS};
use super::state::BudgetState;
use crate::records::{Collection, Precondition, RecordsExt, UPDATE_ATTEMPTS, Write, to_json};

/// Time after which the reservation of a run counts as lost, if its process does not extend it.
const RUN_LEASE: Duration = Duration::from_secs(60);
/// Time between two extensions.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum number of reservations in a commit.
const MAX_BATCH: usize = 128;

/// Task of a company that extends the reservations of its runs. If it is dropped before its end, the next run starts another
/// one.
struct RenewalTask {
    state: Arc<BudgetState>,
    company_id: CompanyId,
    is_done: bool,
}

impl RenewalTask {
    async fn run(mut self) {
        loop {
            self.state.clock.sleep(RENEWAL_INTERVAL).await;
            let Some(ids) = self.state.held_runs.renewed_ids(&self.company_id) else { break };
            for ids in ids.chunks(MAX_BATCH) {
                if let Err(error) = self.state.renew_runs(&self.company_id, ids).await {
                    let company_id = &self.company_id;
                    tracing::warn!(%error, %company_id, "failed to renew the reservations of runs; trying again later");
                }
            }
        }
        self.is_done = true;
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.held_runs.abandon(&self.company_id);
        }
    }
}

impl BudgetState {
    /// Returns the ends of the leases of a call's and of a run's reservation that is made now.
    pub(super) fn lease_ends(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let end = |lease: Duration| {
            let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
            now.saturating_add(lease).unwrap_or(Timestamp::MAX)
        };
        (end(self.lease), end(self.lease.min(RUN_LEASE)))
    }

    /// Extends the reservation of a run until it is released.
    pub(super) fn hold_run(self: &Arc<Self>, company_id: &CompanyId, id: &str) {
        if self.held_runs.add(company_id, id) {
            let (state, company_id) = (self.clone(), company_id.clone());
            let task = RenewalTask { state, company_id, is_done: false };
            self.spawner.spawn(Box::pin(task.run()));
        }
    }

    /// Extends reservations of runs by one commit. One that is not found is released, or was settled as lost.
    async fn renew_runs(&self, company_id: &CompanyId, ids: &[String]) -> Result<(), StoreError> {
        let reservations = Collection::of_platform(RESERVATIONS)?.within(company_id)?;
        let keys = ids.iter().map(|id| reservations.key(id.clone())).collect::<Result<Vec<_>, _>>()?;
        let mut attempt = 1;
        loop {
            let found = self.records.get_many_as::<BudgetReservation>(&keys).await?;
            let (_, lease_end) = self.lease_ends(self.now());
            let mut writes = Vec::with_capacity(keys.len());
            for (key, record) in keys.iter().zip(found) {
                let Some(record) = record else { continue };
                let precondition = Precondition::Version(record.version);
                let renewed = BudgetReservation { expires_ms: lease_end.as_millisecond(), ..record.value };
                writes.push(Write::Put { key: key.clone(), value: to_json(&renewed)?, precondition });
            }
            if writes.is_empty() {
                return Ok(());
            }
            match self.records.commit(writes).await {
                Ok(_) => return Ok(()),
                // One of the runs has ended meanwhile.
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }
}
