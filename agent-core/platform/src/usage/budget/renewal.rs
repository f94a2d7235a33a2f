//! Renewal of the reservations of runs in progress.
//!
//! A run counts among the concurrent runs by a reservation, as long as it lasts. With the lease of a call, the reservations
//! of a killed process would count for the time of the longest run, and the company's further runs would be refused. So the
//! reservation of a run has a short lease, which the run's process extends. So it does for a run that is not stored yet: its
//! context may take as long as a model, and its commit as long as the store.
//!
//! A run whose reservation was settled as lost continues: after its process was stopped for longer than the lease, or could not
//! write while others could. Its process makes the reservation again, also beyond the limit, which then
//! admits no further run until enough have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::Timestamp;

use super::active_reservations::ActiveReservation;
use super::batch::MAX_BATCH_WRITES;
use super::meter::{METERS, MeterState};
use super::reservation::{BudgetReservation, RESERVATIONS, Settlement};
use super::state::BudgetState;
use crate::records::{Collection, Precondition, RecordsExt, UPDATE_ATTEMPTS, Write, to_json};
use crate::time::saturating_after;

/// Time after which the reservation of a run counts as lost, if its process does not extend it.
const RUN_LEASE: Duration = Duration::from_secs(60);
/// Time between two extensions.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Time between an extension that has failed and the next one: after a time without the store, other processes take the runs
/// for lost whose reservations are not extended within half a minute.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Task of a company that extends the reservations of its runs. If it is dropped before its end, the next run starts another
/// one.
struct RenewalTask {
    state: Arc<BudgetState>,
    company_id: CompanyId,
    is_done: bool,
}

impl RenewalTask {
    async fn run(mut self) {
        let mut pause = RENEWAL_INTERVAL;
        loop {
            self.state.clock.sleep(pause).await;
            let Some(runs) = self.state.active_reservations.renewed(&self.company_id) else { break };
            pause = RENEWAL_INTERVAL;
            let mut later = &runs[..];
            while !later.is_empty() {
                let (batch, rest) = later.split_at(batch_len(later));
                if let Err(error) = self.state.renew_runs(&self.company_id, batch).await {
                    pause = RETRY_INTERVAL;
                    let company_id = &self.company_id;
                    tracing::warn!(%error, %company_id, "failed to renew the reservations of runs; trying again later");
                }
                later = rest;
            }
        }
        self.is_done = true;
    }
}

/// Returns the number of the first reservations that one commit can make again, with the meters of each.
fn batch_len(runs: &[ActiveReservation]) -> usize {
    let mut writes = 0;
    let fits = |run: &&ActiveReservation| {
        writes += 1 + run.amounts.len();
        writes <= MAX_BATCH_WRITES
    };
    runs.iter().take_while(fits).count().max(1)
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.active_reservations.abandon(&self.company_id);
        }
    }
}

impl BudgetState {
    /// Returns the ends of the leases of a call's and of a run's reservation that is made now.
    pub(super) fn lease_ends(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        (saturating_after(now, self.lease), saturating_after(now, self.lease.min(RUN_LEASE)))
    }

    /// Extends the reservation of a run until it is released, counted or abandoned.
    pub(super) fn start_renewal(self: &Arc<Self>, company_id: &CompanyId, run: ActiveReservation) {
        if self.active_reservations.add(company_id, run) {
            let (state, company_id) = (self.clone(), company_id.clone());
            let task = RenewalTask { state, company_id, is_done: false };
            self.spawner.spawn(Box::pin(task.run()));
        }
    }

    /// Extends reservations of runs by one commit, and repeats reservations that were settled as lost.
    async fn renew_runs(
        self: &Arc<Self>,
        company_id: &CompanyId,
        runs: &[ActiveReservation],
    ) -> Result<(), StoreError> {
        let mut attempt = 1;
        loop {
            let (writes, expired_runs) = self.renewal(company_id, runs).await?;
            if writes.is_empty() {
                return Ok(());
            }
            match self.records.commit(writes).await {
                Ok(_) => {
                    for run in expired_runs {
                        tracing::warn!(%company_id, "the reservation of a run had expired while the run continued; it was made again");
                        // It may have ended before the commit, when there was nothing to release.
                        if !self.active_reservations.contains(company_id, &run.id) {
                            Self::release(self, Settlement::of_unused(company_id.clone(), run.id.clone()));
                        }
                    }
                    return Ok(());
                }
                // One of the runs has ended meanwhile.
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the writes that extend reservations of runs, and the runs whose reservations they make again.
    async fn renewal<'r>(
        &self,
        company_id: &CompanyId,
        runs: &'r [ActiveReservation],
    ) -> Result<(Vec<Write>, Vec<&'r ActiveReservation>), StoreError> {
        let reservations = Collection::of_platform(RESERVATIONS)?.within(company_id)?;
        let keys = runs.iter().map(|run| reservations.key(run.id.clone())).collect::<Result<Vec<_>, _>>()?;
        let found = self.records.get_many_as::<BudgetReservation>(&keys).await?;
        let (_, lease_end) = self.lease_ends(self.now());
        let (mut writes, mut expired_runs) = (Vec::with_capacity(runs.len()), Vec::new());
        for ((run, key), record) in runs.iter().zip(keys).zip(found) {
            let (amounts, precondition) = match record {
                Some(record) => (record.value.amounts, Precondition::Version(record.version)),
                // A run that has ended or counts is not among the active ones any more when its reservation is settled.
                None if self.active_reservations.contains(company_id, &run.id) => {
                    expired_runs.push(run);
                    (run.amounts.to_vec(), Precondition::Absent)
                }
                None => continue,
            };
            let renewed = BudgetReservation::new(amounts, lease_end, None, run.run.clone());
            writes.push(Write::Put { key, value: to_json(&renewed)?, precondition });
        }
        if !expired_runs.is_empty() {
            writes.extend(self.reserve_again(company_id, &expired_runs).await?);
        }
        Ok((writes, expired_runs))
    }

    /// Returns the writes that add the amounts held by these runs to the reserved amounts of the limits.
    async fn reserve_again(
        &self,
        company_id: &CompanyId,
        runs: &[&ActiveReservation],
    ) -> Result<Vec<Write>, StoreError> {
        let mut amounts: BTreeMap<&str, i64> = BTreeMap::new();
        for run in runs {
            for reserved in &*run.amounts {
                let amount = amounts.entry(reserved.meter.as_str()).or_default();
                *amount = amount.saturating_add(reserved.amount);
            }
        }
        let meters = Collection::of_platform(METERS)?.within(company_id)?;
        let keys = amounts.keys().map(|meter| meters.key(*meter)).collect::<Result<Vec<_>, _>>()?;
        let found = self.records.get_many_as::<MeterState>(&keys).await?;
        let mut writes = Vec::with_capacity(keys.len());
        for ((key, amount), record) in keys.into_iter().zip(amounts.into_values()).zip(found) {
            // A meter that was deleted has nothing reserved.
            let Some(record) = record else { continue };
            let reserved = record.value.reserved.saturating_add(amount);
            let value = to_json(&MeterState { reserved, ..record.value })?;
            writes.push(Write::Put { key, value, precondition: Precondition::Version(record.version) });
        }
        Ok(writes)
    }
}
