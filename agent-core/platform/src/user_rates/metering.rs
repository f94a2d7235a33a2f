//! State of the meters that the tasks of the companies share with the requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use agent_core::clock::Clock;

use super::limits::SessionLimits;
use super::table::MeterTable;
use crate::records::Records;
use crate::spawner::Spawner;

/// State that the tasks of the companies share with the requests.
pub(super) struct Metering {
    pub(super) records: Arc<dyn Records>,
    pub(super) limits: SessionLimits,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawner: Arc<dyn Spawner>,
    pub(super) table: Mutex<MeterTable>,
}

impl Metering {
    /// Locks the meters. No code panics while holding the lock, so the data behind a poisoned one is intact.
    pub(super) fn lock(&self) -> MutexGuard<'_, MeterTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since 1970-01-01.
    pub(super) fn now(&self) -> Duration {
        self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
