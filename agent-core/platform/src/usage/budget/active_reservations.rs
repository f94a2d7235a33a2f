//! Reservations of the runs of this process, which it renews.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

use super::super::RunScope;
use super::reservation::ReservedAmount;

/// Reservation of a run that is in progress, or that is to be stored.
#[derive(Debug, Clone)]
pub(super) struct ActiveReservation {
    pub(super) id: String,
    pub(super) amounts: Arc<[ReservedAmount]>,
    /// The run that counts once it is stored; `None` for a run in progress.
    pub(super) run: Option<RunScope>,
}

/// Reservations of the runs of this process, by company. A task of the company renews them.
#[derive(Default)]
pub(super) struct ActiveReservations(Mutex<HashMap<CompanyId, CompanyReservations>>);

/// Reservations of a company's runs.
#[derive(Default)]
struct CompanyReservations {
    /// The reservations by their ids.
    active: HashMap<String, ActiveReservation>,
    /// True while a task renews them.
    is_renewed: bool,
}

impl ActiveReservations {
    /// Locks the reservations. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HashMap<CompanyId, CompanyReservations>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reservation. Returns true if the caller must start the company's task.
    pub(super) fn add(&self, company_id: &CompanyId, reservation: ActiveReservation) -> bool {
        let mut companies = self.lock();
        let reservations = companies.entry(company_id.clone()).or_default();
        reservations.active.insert(reservation.id.clone(), reservation);
        !std::mem::replace(&mut reservations.is_renewed, true)
    }

    /// Removes a reservation, if it is one of a run.
    pub(super) fn remove(&self, company_id: &CompanyId, id: &str) {
        if let Some(reservations) = self.lock().get_mut(company_id) {
            reservations.active.remove(id);
        }
    }

    /// Returns true for the reservation of a run that has not ended, or is not stored yet.
    pub(super) fn contains(&self, company_id: &CompanyId, id: &str) -> bool {
        self.lock().get(company_id).is_some_and(|reservations| reservations.active.contains_key(id))
    }

    /// Returns the reservations of a company. `None` ends its task if there are none.
    pub(super) fn renewed(&self, company_id: &CompanyId) -> Option<Vec<ActiveReservation>> {
        let mut companies = self.lock();
        let active = &companies.get(company_id)?.active;
        if active.is_empty() {
            companies.remove(company_id);
            return None;
        }
        Some(active.values().cloned().collect())
    }

    /// Records that the task of a company was dropped: its next run starts another one.
    pub(super) fn abandon(&self, company_id: &CompanyId) {
        if let Some(reservations) = self.lock().get_mut(company_id) {
            reservations.is_renewed = false;
        }
    }
}
