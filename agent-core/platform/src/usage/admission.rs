//! Admissions of runs that are asked for before the backends of the runs start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::tool::ExecutionContext;

use super::budget::RunAdmission;
use crate::run_table::{OpenRun, RunTable, table_key};

/// Admission of a run, until its backend takes it.
type AdmissionSlot = Mutex<Option<RunAdmission>>;

/// Locks a slot. No code panics while holding the lock, so the data behind a poisoned one is intact.
fn lock(slot: &AdmissionSlot) -> MutexGuard<'_, Option<RunAdmission>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Admissions of this process's runs whose backends have not started.
#[derive(Default)]
pub(super) struct RunAdmissions(Arc<RunTable<AdmissionSlot>>);

impl RunAdmissions {
    /// Adds the admission of a context's run.
    pub(super) fn add(&self, context: &ExecutionContext, admission: RunAdmission) -> AdmittedRun {
        let slot = Arc::new(Mutex::new(Some(admission)));
        AdmittedRun { slot: Some(self.0.open(table_key(context), slot)) }
    }

    /// Takes the admission of a context's run; `None` if the run was not admitted before, or its backend starts again.
    pub(super) fn take(&self, context: &ExecutionContext) -> Option<RunAdmission> {
        let slot = self.0.find(&table_key(context))?;
        let mut admission = lock(&slot);
        admission.take()
    }
}

/// A run that was admitted before its backend starts, which takes the admission. An admission that is not taken ends when this
/// is dropped.
#[derive(Default)]
#[must_use]
pub struct AdmittedRun {
    /// `None` if runs have no limits.
    slot: Option<OpenRun<AdmissionSlot>>,
}

impl AdmittedRun {
    /// Returns true if no backend has taken the admission, so that another attempt to begin the run needs no further one.
    pub fn is_unused(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| lock(slot).is_some())
    }
}
