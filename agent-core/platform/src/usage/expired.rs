//! Settlement of the reservations of lost processes, and deletion of old meters.

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::{SignedDuration, Timestamp};

use super::budget::{
    BudgetReservation, METERS, MeterState, RESERVATIONS, ReservedCall, Settlement, UsedAmounts,
};
use super::call::entry_ids;
use super::{Budgets, UsageEntry, UsageOperation, UsageRecorder};
use crate::records::{Collection, Inventory, PlatformWalk, Precondition, Record, Write, delete_unchanged};

/// Time after its last change for which a meter is kept: longer than the longest window, with which it begins again.
const METER_RETENTION: SignedDuration = SignedDuration::from_hours(24 * 40);
/// Outcome of a call whose process was lost.
const LOST: &str = "lost";

/// Position of the settlement among the companies. After the last one it begins again.
#[derive(Debug)]
pub struct ExpiredReservations {
    reservations: PlatformWalk,
    meters: PlatformWalk,
}

impl Default for ExpiredReservations {
    fn default() -> Self {
        Self { reservations: PlatformWalk::new(RESERVATIONS), meters: PlatformWalk::new(METERS) }
    }
}

impl ExpiredReservations {
    /// Settles the expired reservations of the next page. A call that is in the ledger counts with what it has used, and
    /// another one is booked with all that was reserved. Those that the store does not settle now are left to the next walk.
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
        let Some((collection, page)) = self.reservations.next_page(inventory).await? else {
            return Ok(false);
        };
        let Some(company) = collection.parts().nth(1) else { return Ok(true) };
        let company_id = CompanyId::from(company.as_str());
        // A record in an unknown format is kept.
        let parse = |record: Record| record.parse::<BudgetReservation>(&collection).ok();
        let found = page.records.into_iter().filter_map(parse);
        let now = budgets.now().as_millisecond();
        let expired = found.filter(|record| record.value.expires_ms < now).collect();
        if let Err(error) = settle_records(&company_id, expired, budgets, recorder).await {
            // Such as a locked row, which delays no other company. The next walk tries again.
            tracing::warn!(%error, %company_id, "failed to settle reservations of ended processes");
        }
        Ok(true)
    }

    /// Deletes the meters of the next page that have no effect any more. Returns false after the last company.
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

/// Settles expired reservations of a company.
async fn settle_records(
    company_id: &CompanyId,
    expired: Vec<Record<BudgetReservation>>,
    budgets: &Budgets,
    recorder: &UsageRecorder,
) -> Result<(), StoreError> {
    let mut settlements = Vec::new();
    for record in expired {
        let used = match &record.value.call {
            Some(call) => book_lost_call(call, &record, recorder).await?,
            // It is renewed as soon as the store takes it.
            None if budgets.holds_run(company_id, &record.id) => continue,
            None => UsedAmounts::Nothing,
        };
        settlements.push(Settlement { company_id: company_id.clone(), id: record.id, used });
    }
    budgets.settle(settlements).await
}

/// Returns what the call has used, by the ledger. Books it if the ledger does not have it, at the price with which it was
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
        outcome: LOST.to_owned(),
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
