//! Reservations of the runs in progress in this process.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;

/// Reservations of the runs in progress in this process, by company. A task of the company renews them.
#[derive(Default)]
pub(super) struct HeldRuns(Mutex<HashMap<CompanyId, CompanyRuns>>);

/// Reservations of a company's runs.
#[derive(Default)]
struct CompanyRuns {
    ids: HashSet<String>,
    /// True while a task renews them.
    is_renewed: bool,
}

impl HeldRuns {
    /// Locks the reservations. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HashMap<CompanyId, CompanyRuns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reservation. Returns true if the caller must start the company's task.
    pub(super) fn add(&self, company_id: &CompanyId, id: &str) -> bool {
        let mut companies = self.lock();
        let runs = companies.entry(company_id.clone()).or_default();
        runs.ids.insert(id.to_owned());
        !std::mem::replace(&mut runs.is_renewed, true)
    }

    /// Removes a reservation, if it is one of a run.
    pub(super) fn remove(&self, company_id: &CompanyId, id: &str) {
        if let Some(runs) = self.lock().get_mut(company_id) {
            runs.ids.remove(id);
        }
    }

    /// Returns the reservations of a company. `None` ends its task if there are none.
    pub(super) fn renewed_ids(&self, company_id: &CompanyId) -> Option<Vec<String>> {
        let mut companies = self.lock();
        let ids: Vec<String> = companies.get(company_id)?.ids.iter().cloned().collect();
        if ids.is_empty() {
            companies.remove(company_id);
            return None;
        }
        Some(ids)
    }

    /// Notes that the task of a company was dropped: its next run starts another one.
    pub(super) fn abandon(&self, company_id: &CompanyId) {
        if let Some(runs) = self.lock().get_mut(company_id) {
            runs.is_renewed = false;
        }
    }
}
