//! [`RunTable`]: values by run, for the runs in progress in this process.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::tool::ExecutionContext;

/// Company, user and run.
pub(crate) type TableKey = (CompanyId, UserId, RunId);

/// Returns the key of a context's run.
pub(crate) fn table_key(context: &ExecutionContext) -> TableKey {
    (context.company_id.clone(), context.user_id.clone(), context.run_id.clone())
}

/// Values of runs, each for as long as its run is open.
pub(crate) struct RunTable<T> {
    open: Mutex<HashMap<TableKey, Arc<T>>>,
}

impl<T> Default for RunTable<T> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<T> RunTable<T> {
    /// Locks the values. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, HashMap<TableKey, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the value of a run, in place of that of an earlier attempt. It is found until the returned value is dropped.
    pub(crate) fn open(self: &Arc<Self>, key: TableKey, value: Arc<T>) -> OpenRun<T> {
        self.lock().insert(key.clone(), value.clone());
        OpenRun { table: self.clone(), key, value }
    }

    /// Returns the value of a run.
    pub(crate) fn find(&self, key: &TableKey) -> Option<Arc<T>> {
        self.lock().get(key).cloned()
    }
}

/// Guard that keeps a run and its value in the table until it is dropped.
pub(crate) struct OpenRun<T> {
    table: Arc<RunTable<T>>,
    key: TableKey,
    value: Arc<T>,
}

impl<T> Deref for OpenRun<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Drop for OpenRun<T> {
    fn drop(&mut self) {
        let mut open = self.table.lock();
        // A later attempt at the same run has a separate value.
        if open.get(&self.key).is_some_and(|found| Arc::ptr_eq(found, &self.value)) {
            open.remove(&self.key);
        }
    }
}
