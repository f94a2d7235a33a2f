//! Settlement of the reservations of lost processes, and deletion of old meters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::{SignedDuration, Timestamp};

use super::budget::{
    BudgetReservation, METERS, MeterState, RESERVATIONS, ReservedCall, Settlement, UsedAmounts,
};
use super::call::entry_ids;
use super::{Budgets, RunScope, StoredRuns, UsageEntry, UsageOperation, UsageRecorder};
use crate::records::{
    Collection, Inventory, NestedCollectionCursor, Precondition, Record, Write, delete_unchanged,
};

/// Time after its last change for which a meter is kept: longer than the longest window, after which it begins again.
const METER_RETENTION: SignedDuration = SignedDuration::from_hours(24 * 40);
/// Minimum time between the two passes that find the reservation of a run unchanged after the end of its lease. After a time
/// without the store, the process of a run renews its reservation sooner.
const MIN_LOST_RUN_TIME: Duration = Duration::from_secs(30);
/// Maximum number of such reservations in memory.
const MAX_TRACKED_RUNS: usize = 10_000;
/// Outcome of a call whose process was lost.
const LOST_OUTCOME: &str = "lost";

/// Sweep over the reservations of all companies: settles those of lost processes, a page at a time. After the last company it
/// begins again.
///
/// A run counts as lost if two passes find its reservation unchanged after the end of its lease. Between them, the store was
/// there for its process to renew it: the leases of all runs in progress end while the store is away, and a clock that is ahead
/// ends those of other processes. Both passes must be made with the same value.
pub struct ReservationSweep {
    /// Store of the runs that count once they are stored, if there is one.
    runs: Option<Arc<dyn StoredRuns>>,
    reservations: NestedCollectionCursor,
    meters: NestedCollectionCursor,
    /// Reservations of runs that the last pass has found after the end of their leases.
    unrenewed: UnrenewedRuns,
    /// Those that the current pass has found.
    found: UnrenewedRuns,
}

impl std::fmt::Debug for ReservationSweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservationSweep").finish_non_exhaustive()
    }
}

/// Reservations of runs, by company and id: their versions, and the times at which they were found first.
type UnrenewedRuns = HashMap<(CompanyId, String), (u64, Instant)>;

impl Default for ReservationSweep {
    fn default() -> Self {
        Self {
            runs: None,
            reservations: NestedCollectionCursor::new(RESERVATIONS),
            meters: NestedCollectionCursor::new(METERS),
            unrenewed: HashMap::new(),
            found: HashMap::new(),
        }
    }
}

impl ReservationSweep {
    /// Creates the value for the first pass. A run whose process has ended between its admission and its storing counts if
    /// `runs` has it; without a store, it counts.
    pub fn new(runs: Option<Arc<dyn StoredRuns>>) -> Self {
        Self { runs, ..Self::default() }
    }

    /// Settles the expired reservations of the next page. A call that is in the ledger counts with its usage; any other call is
    /// booked with everything that was reserved for it. Those that the store does not settle now are left to the next walk.
    /// Returns false after the last company.
    ///
    /// # Errors
    /// The reservations cannot be read.
    pub async fn settle_page(
        &mut self,
        inventory: &dyn Inventory,
        budgets: &Budgets,
        recorder: &UsageRecorder,
    ) -> Result<bool, StoreError> {
        // Before the page is read: a process that is stopped meanwhile finds no lease that was renewed since.
        let (now, found_at) = (budgets.now().as_millisecond(), budgets.monotonic());
        let next = match self.reservations.next_page(inventory).await {
            Ok(next) => next,
            Err(error) => {
                // The processes of the runs could not renew their reservations either.
                *self = Self::new(self.runs.take());
                return Err(error);
            }
        };
        let Some((collection, page)) = next else {
            self.unrenewed = std::mem::take(&mut self.found);
            return Ok(false);
        };
        let Some(company) = collection.parts().nth(1) else { return Ok(true) };
        let company_id = CompanyId::from(company.as_str());
        // A record in an unknown format is kept.
        let parse = |record: Record| record.parse::<BudgetReservation>(&collection).ok();
        let found = page.records.into_iter().filter_map(parse);
        let mut expired: Vec<_> = found.filter(|record| record.value.expires_ms < now).collect();
        expired
            .retain(|record| record.value.call.is_some() || self.is_lost_run(&company_id, record, found_at));
        if let Err(error) = self.settle_records(&company_id, expired, budgets, recorder).await {
            // Such as a locked row, which delays no other company. The next walk tries again.
            tracing::warn!(%error, %company_id, "failed to settle reservations of ended processes");
        }
        Ok(true)
    }

    /// Settles expired reservations of a company.
    async fn settle_records(
        &self,
        company_id: &CompanyId,
        expired: Vec<Record<BudgetReservation>>,
        budgets: &Budgets,
        recorder: &UsageRecorder,
    ) -> Result<(), StoreError> {
        let mut settlements = Vec::new();
        for record in expired {
            let used = match (&record.value.call, &record.value.run) {
                (Some(call), _) => book_lost_call(call, &record, recorder).await?,
                // It is renewed as soon as the store takes it.
                (None, _) if budgets.holds_run(company_id, &record.id) => continue,
                (None, Some(run)) => self.stored_run(run).await?,
                (None, None) => UsedAmounts::Nothing,
            };
            let (company_id, version) = (company_id.clone(), Some(record.version));
            settlements.push(Settlement { company_id, id: record.id, version, used });
        }
        budgets.settle(settlements).await
    }

    /// Returns the amounts of a run that was admitted before it was stored: none if it is not stored.
    async fn stored_run(&self, scope: &RunScope) -> Result<UsedAmounts, StoreError> {
        let Some(runs) = &self.runs else { return Ok(UsedAmounts::Run) };
        let is_stored = runs.has_run(&scope.company_id, &scope.owner(), &scope.run_id).await?;
        Ok(if is_stored { UsedAmounts::Run } else { UsedAmounts::Nothing })
    }

    /// Returns true if an earlier pass has found the reservation of a run as it is.
    fn is_lost_run(
        &mut self,
        company_id: &CompanyId,
        record: &Record<BudgetReservation>,
        found_at: Instant,
    ) -> bool {
        let run = (company_id.clone(), record.id.clone());
        let first_found = match self.unrenewed.get(&run) {
            Some((version, first_found)) if *version == record.version => *first_found,
            _ => found_at,
        };
        let is_lost = found_at.saturating_duration_since(first_found) >= MIN_LOST_RUN_TIME;
        // One that is lost and cannot be settled is found again: its process may not be able to write either.
        if !is_lost && self.found.len() < MAX_TRACKED_RUNS {
            self.found.insert(run, (record.version, first_found));
        }
        is_lost
    }

    /// Returns the time after which the next pass may find that runs are lost; `None` if the last one has found no reservation
    /// of a run after the end of its lease.
    pub fn next_pass_after(&self) -> Option<Duration> {
        (!self.unrenewed.is_empty()).then_some(MIN_LOST_RUN_TIME)
    }

    /// Deletes the meters of the next page that no longer have an effect. Returns false after the last company.
    ///
    /// # Errors
    /// The meters cannot be read.
    pub async fn delete_meters_page(
        &mut self,
        inventory: &dyn Inventory,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let Some((collection, page)) = self.meters.next_page(inventory).await? else { return Ok(false) };
        let oldest = now.saturating_sub(METER_RETENTION).unwrap_or(Timestamp::MIN);
        let mut deletes = Vec::new();
        for record in page.records {
            let is_old = Timestamp::try_from(record.updated).is_ok_and(|updated| updated < oldest);
            // A record in an unknown format is kept.
            let Ok(record) = record.parse::<MeterState>(&collection) else { continue };
            if is_old && record.value.reserved == 0 {
                deletes.push(delete(&collection, record)?);
            }
        }
        delete_unchanged(inventory, deletes).await;
        Ok(true)
    }
}

fn delete(collection: &Collection, record: Record<MeterState>) -> Result<Write, StoreError> {
    let precondition = Precondition::Version(record.version);
    Ok(Write::Delete { key: collection.key(record.id)?, precondition })
}

/// Returns the amounts that the call has used, by the ledger. Books the call if the ledger does not have it, at the price at which it was
/// reserved: the catalogue of this process may have another one, and has none for a company's provider.
async fn book_lost_call(
    call: &ReservedCall,
    record: &Record<BudgetReservation>,
    recorder: &UsageRecorder,
) -> Result<UsedAmounts, StoreError> {
    let ReservedCall { scope, provider, model, tokens, cost, price_as_of } = call;
    let ids: Vec<String> = entry_ids(&record.id).collect();
    let booked = recorder.store().usage_entries(&scope.company_id, &ids).await?;
    if !booked.is_empty() {
        return Ok(UsedAmounts::of_entries(&booked));
    }
    let mut entry = UsageEntry {
        id: record.id.clone(),
        scope: scope.clone(),
        round: 0,
        attempt: 1,
        operation: UsageOperation::Chat,
        provider: provider.clone(),
        model: model.clone(),
        tokens: *tokens,
        tool_calls: 0,
        cost: *cost,
        price_as_of: price_as_of.clone(),
        estimated: true,
        outcome: LOST_OUTCOME.to_owned(),
        ended_at: recorder.now(),
    };
    if entry.cost.is_none() {
        recorder.set_price(&mut entry);
    }
    // Another process may have booked it meanwhile.
    if recorder.store().book(vec![entry.clone()]).await? > 0 {
        recorder.report_lost_call(&entry);
    }
    Ok(UsedAmounts::of_entries([&entry]))
}
