//! Decisions about requests, by the meters and reservations that one commit changes.

use std::collections::{BTreeMap, HashMap};

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::Timestamp;

use super::defaults::minute_refusal;
use super::demand::AppliedLimit;
use super::meter::{METERS, MeterState};
use super::reservation::{BudgetReservation, RESERVATIONS, ReservedAmount};
use super::state::{Admission, AdmissionSubject, BudgetState, QueuedSettlement};
use super::{BudgetExceededError, BudgetLimit, BudgetTimeZone, BudgetUnit, BudgetWindow, Settlement};
use crate::records::{Collection, Key, Precondition, RecordsExt, Write, to_json};
use crate::user_rates::RunCount;

/// Decision about a request.
pub(super) enum AdmissionDecision {
    Admit {
        output: u64,
        /// Id of the reservation and what it holds, if something is reserved.
        reservation: Option<(String, Vec<ReservedAmount>)>,
        /// Id and amounts of the reservation that counts the run once it is stored, if there is one.
        pending: Option<(String, Vec<ReservedAmount>)>,
    },
    /// The request waits: this limit does not admit it while others have reserved, and may admit it later.
    Wait(Box<BudgetExceededError>),
    Refuse(Box<BudgetExceededError>),
}

/// Meters and reservations that a commit changes.
pub(super) struct Batch {
    pub(super) now: Timestamp,
    /// Zone of the company, in which reservations are settled.
    zone: BudgetTimeZone,
    company_id: CompanyId,
    meters: BTreeMap<String, LoadedMeter>,
    reservations: HashMap<String, (Key, u64, BudgetReservation)>,
    /// Count of the company's runs per minute, if some must be counted.
    run_count: Option<RunCount>,
    writes: Vec<Write>,
    keys: (Collection, Collection),
}

struct LoadedMeter {
    version: Option<u64>,
    state: MeterState,
    is_changed: bool,
}

impl Batch {
    pub(super) async fn load(
        state: &BudgetState,
        company_id: &CompanyId,
        settlements: &[QueuedSettlement],
        admissions: &[Admission],
    ) -> Result<Self, StoreError> {
        let collection = |name| Collection::of_platform(name)?.within(company_id);
        let keys = (collection(METERS)?, collection(RESERVATIONS)?);
        let ids = settlements.iter().map(|queued| queued.settlement.id.clone());
        let reserved = ids.map(|id| keys.1.key(id)).collect::<Result<Vec<_>, _>>()?;
        let found = state.records.get_many_as::<BudgetReservation>(&reserved).await?;
        let reservations: HashMap<_, _> = reserved
            .into_iter()
            .zip(found)
            .filter_map(|(key, found)| {
                found.map(|found| (key.id().to_owned(), (key, found.version, found.value)))
            })
            .collect();
        let mut limits: BTreeMap<String, Option<&AppliedLimit>> = BTreeMap::new();
        for (_, _, reservation) in reservations.values() {
            limits.extend(reservation.amounts.iter().map(|amount| (amount.meter.clone(), None)));
        }
        let demands = admissions.iter().flat_map(|admission| &admission.demands);
        limits.extend(demands.map(|(applied, _)| (applied.meter.clone(), Some(applied))));
        let metered = limits.keys().map(|id| keys.0.key(id.clone())).collect::<Result<Vec<_>, _>>()?;
        let found = state.records.get_many_as::<MeterState>(&metered).await?;
        let requested = admissions.iter().flat_map(|admission| &admission.demands).next();
        let zone = match requested {
            Some((applied, _)) => applied.zone.clone(),
            None => state.zone(company_id).await?,
        };
        let now = state.now();
        let mut meters = BTreeMap::new();
        for ((id, applied), found) in limits.into_iter().zip(found) {
            let (version, state) = match (found, applied) {
                (Some(found), _) => (Some(found.version), found.value),
                (None, Some(applied)) => {
                    let used = state.used_before(company_id, applied, now).await?;
                    (None, MeterState::beginning(&applied.limit, &applied.zone, now, used))
                }
                // The meter was deleted together with its reserved amounts.
                (None, None) => continue,
            };
            meters.insert(id, LoadedMeter { version, state, is_changed: false });
        }
        let run_count = match admissions.iter().find_map(|admission| admission.uncounted.as_ref()) {
            Some(run) => Some(RunCount::load(run).await?),
            None => None,
        };
        let company_id = company_id.clone();
        Ok(Self { now, zone, company_id, meters, reservations, run_count, writes: Vec::new(), keys })
    }

    /// Replaces reserved amounts by used ones. A reservation with another version than the settlement's has been renewed and is
    /// left alone. A missing reservation is settled already, or the commit that creates it is still in progress and its answer
    /// was lost: a check of the record waits for that commit and conflicts if it has created the reservation.
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Result<(), StoreError> {
        let found_version = self.reservations.get(&settlement.id).map(|(_, version, _)| *version);
        if settlement.version.is_some() && settlement.version != found_version {
            return Ok(());
        }
        let Some((key, version, reservation)) = self.reservations.remove(&settlement.id) else {
            let key = self.keys.1.key(settlement.id.clone())?;
            self.writes.push(Write::Check { key, precondition: Precondition::Absent });
            return Ok(());
        };
        for reserved_amount in &reservation.amounts {
            let Some(meter) = self.meters.get_mut(&reserved_amount.meter) else { continue };
            meter.state = meter.state.at(reserved_amount.window, &self.zone, self.now);
            let used = settlement.used.amount(
                reserved_amount,
                meter.state.started_ms(reserved_amount.window, &self.zone, self.now),
            );
            if used > reserved_amount.amount {
                tracing::warn!(
                    company_id = %self.company_id,
                    meter = reserved_amount.meter,
                    reserved = reserved_amount.amount,
                    used,
                    "a call has used more than was reserved for it"
                );
            }
            meter.state.reserved = meter.state.reserved.saturating_sub(reserved_amount.amount).max(0);
            meter.state.used = meter.state.used.saturating_add(used);
            meter.is_changed = true;
        }
        self.writes.push(Write::Delete { key, precondition: Precondition::Version(version) });
        Ok(())
    }

    /// Decides on a request, and reserves the amounts that it may use.
    pub(super) fn decide(
        &mut self,
        admission: &Admission,
        expires: Timestamp,
    ) -> Result<AdmissionDecision, StoreError> {
        let mut output = admission.output.requested;
        for (applied, demand) in &admission.demands {
            let Some(meter) = self.meters.get_mut(&applied.meter) else { continue };
            meter.state = meter.state.at(applied.limit.window, &applied.zone, self.now);
            let remaining = applied.remaining(&meter.state);
            let min_amount = demand.amount(admission.output.minimum);
            if min_amount > remaining {
                let refusal = Box::new(applied.exceeded(&meter.state, self.now));
                // A limit without an amount left is not waited for, nor are the ends of runs. Runs that others have reserved
                // are counted or given back in a moment.
                let is_short = matches!(admission.subject, AdmissionSubject::Call(_))
                    || applied.limit.unit == BudgetUnit::Runs;
                let may_wait = is_short && min_amount <= remaining.saturating_add(meter.state.reserved);
                return Ok(if may_wait {
                    AdmissionDecision::Wait(refusal)
                } else {
                    AdmissionDecision::Refuse(refusal)
                });
            }
            output = output.min(demand.max_output(remaining, admission.output));
        }
        if let Some((run, run_count)) = admission.uncounted.as_ref().zip(self.run_count.as_mut())
            && let Err(error) = run_count.admit()
        {
            let refusal = minute_refusal(run.per_minute(), error, self.now);
            return Ok(AdmissionDecision::Refuse(Box::new(refusal)));
        }
        let (reserved_amounts, run_amounts) = self.take_amounts(admission, output);
        let call = match &admission.subject {
            AdmissionSubject::Call(call) => Some(call.reserve(output)),
            _ => None,
        };
        let reservation = BudgetReservation::new(reserved_amounts, expires, call, None);
        let pending = BudgetReservation::new(run_amounts, expires, None, admission.subject.run());
        let (pending, reservation) = (self.reserve(pending)?, self.reserve(reservation)?);
        Ok(AdmissionDecision::Admit { output, reservation, pending })
    }

    /// Adds the amounts of an admitted request to the meters. Returns the amounts to reserve until the request's end, and the
    /// amounts to reserve until the run is stored.
    fn take_amounts(
        &mut self,
        admission: &Admission,
        output: u64,
    ) -> (Vec<ReservedAmount>, Vec<ReservedAmount>) {
        let (mut reserved_amounts, mut run_amounts) = (Vec::new(), Vec::new());
        let is_unstored = matches!(admission.subject, AdmissionSubject::UnstoredRun(_));
        for (applied, demand) in &admission.demands {
            let Some(meter) = self.meters.get_mut(&applied.meter) else { continue };
            let amount = demand.amount(output);
            meter.is_changed = true;
            let (unit, window) = (applied.limit.unit, applied.limit.window);
            let before = meter.state.total_used().saturating_add(meter.state.reserved);
            let is_used = unit.is_used_at_once() && !is_unstored;
            let sum = if is_used { &mut meter.state.used } else { &mut meter.state.reserved };
            *sum = sum.saturating_add(amount);
            if meter.state.reaches_warning(&applied.limit, before) {
                log_warning(&self.company_id, applied, before.saturating_add(amount));
            }
            if !is_used {
                let amounts = if unit.is_used_at_once() { &mut run_amounts } else { &mut reserved_amounts };
                amounts.push(ReservedAmount { meter: applied.meter.clone(), unit, window, amount });
            }
        }
        (reserved_amounts, run_amounts)
    }

    /// Writes a reservation, and returns its id and what it holds; `None` if it holds nothing.
    fn reserve(
        &mut self,
        reservation: BudgetReservation,
    ) -> Result<Option<(String, Vec<ReservedAmount>)>, StoreError> {
        if reservation.amounts.is_empty() {
            return Ok(None);
        }
        let id = agent_core::new_id();
        let (key, value) = (self.keys.1.key(id.clone())?, to_json(&reservation)?);
        self.writes.push(Write::Put { key, value, precondition: Precondition::Absent });
        Ok(Some((id, reservation.amounts)))
    }

    pub(super) fn into_writes(mut self) -> Result<(Vec<Write>, Option<RunCount>), StoreError> {
        for (id, meter) in self.meters.into_iter().filter(|(_, meter)| meter.is_changed) {
            let precondition = Precondition::unchanged_since(meter.version);
            let (key, value) = (self.keys.0.key(id)?, to_json(&meter.state)?);
            self.writes.push(Write::Put { key, value, precondition });
        }
        self.writes.extend(self.run_count.as_ref().map(RunCount::write).transpose()?.flatten());
        Ok((self.writes, self.run_count))
    }
}

/// Logs that a limit has reached the part from which it warns.
fn log_warning(company_id: &CompanyId, applied: &AppliedLimit, used: i64) {
    let BudgetLimit { unit, window, amount, .. } = applied.limit;
    tracing::warn!(
        %company_id,
        kind = applied.kind.as_str(),
        subject = applied.subject,
        unit = unit.as_str(),
        window = window.map_or("", BudgetWindow::as_str),
        amount,
        used,
        "a budget is nearly spent"
    );
}
