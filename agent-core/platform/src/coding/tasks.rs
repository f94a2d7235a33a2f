//! Tasks that outlive their callers, at most one at a time for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use futures_util::lock::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::company_permits::{CompanyPermit, CompanyPermits};
use crate::spawner::Spawner;

/// Divisor of the maximum number of tasks: those of one company.
const COMPANY_SHARE: usize = 4;

/// Key of a task, which names a company.
pub(super) trait TaskKey: Clone + Eq + Hash + Send + 'static {
    /// Returns the company.
    fn company_id(&self) -> &CompanyId;
}

/// Outcome of a task, `None` until it ends. The task holds the lock while it runs.
type TaskOutcome<T> = Arc<AsyncMutex<Option<T>>>;

/// Error of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TaskError {
    /// The maximum number of tasks runs, of the company or in all.
    #[error("too many tasks are running")]
    Full,
    /// The task was dropped before its end: the process stops, or the task panicked.
    #[error("the task was interrupted")]
    Interrupted,
}

/// The running tasks, by key. A caller joins the task of its key, or starts it.
pub(super) struct SharedTasks<K, T> {
    spawner: Arc<dyn Spawner>,
    running: Arc<RunningTasks<K, T>>,
    permits: Arc<CompanyPermits>,
}

type RunningTasks<K, T> = Mutex<HashMap<K, TaskOutcome<T>>>;

/// Outcome of a task, as one of its callers gets it.
pub(super) struct SharedOutcome<T> {
    /// The outcome.
    pub(super) value: T,
    /// True for the caller that has started the task.
    pub(super) is_own: bool,
}

impl<K, T> SharedTasks<K, T>
where
    K: TaskKey,
    T: Clone + Send + 'static,
{
    /// Creates the table of at most `capacity` tasks, at most a quarter of them for one company.
    pub(super) fn new(spawner: Arc<dyn Spawner>, capacity: usize) -> Self {
        let permits = CompanyPermits::new(capacity, capacity.div_ceil(COMPANY_SHARE));
        Self { spawner, running: Arc::default(), permits }
    }

    /// Waits for the task of `key`, which does `work` if none is running. Dropping the returned future does not cancel
    /// the task.
    pub(super) async fn run(
        &self,
        key: K,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<SharedOutcome<T>, TaskError> {
        let (outcome, is_own) = self.join_or_start(key, work)?;
        let value = outcome.lock().await.clone();
        Ok(SharedOutcome { value: value.ok_or(TaskError::Interrupted)?, is_own })
    }

    /// Starts the task of `key`, unless it is running or there is no room.
    pub(super) fn start(&self, key: K, work: impl Future<Output = T> + Send + 'static) {
        let _ = self.join_or_start(key, work);
    }

    fn join_or_start(
        &self,
        key: K,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(TaskOutcome<T>, bool), TaskError> {
        let outcome = TaskOutcome::default();
        let Some(guard) = outcome.try_lock_owned() else { return Err(TaskError::Interrupted) };
        let permit = {
            let mut running = lock(&self.running);
            if let Some(outcome) = running.get(&key) {
                return Ok((outcome.clone(), false));
            }
            let permit = self.permits.try_acquire(key.company_id()).ok_or(TaskError::Full)?;
            running.insert(key.clone(), outcome.clone());
            permit
        };
        let entry = RunningEntry { running: self.running.clone(), key, _permit: permit };
        self.spawner.spawn(Box::pin(complete(guard, entry, work)));
        Ok((outcome, true))
    }

    /// Waits until no task is running.
    pub(super) async fn drain(&self) {
        loop {
            let outcome = lock(&self.running).values().next().cloned();
            match outcome {
                Some(outcome) => drop(outcome.lock().await),
                None => return,
            }
        }
    }
}

/// Executes a task. If the future is dropped, the task's entry is removed and its callers are woken as well.
async fn complete<K: Eq + Hash, T>(
    mut outcome: OwnedMutexGuard<Option<T>>,
    entry: RunningEntry<K, T>,
    work: impl Future<Output = T>,
) {
    let value = work.await;
    // Removed first: a caller that comes now must not get an outcome that is older than its call.
    drop(entry);
    *outcome = Some(value);
}

/// Entry of a running task; removed on drop.
struct RunningEntry<K: Eq + Hash, T> {
    running: Arc<RunningTasks<K, T>>,
    key: K,
    _permit: CompanyPermit,
}

impl<K: Eq + Hash, T> Drop for RunningEntry<K, T> {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.key);
    }
}

/// Locks the table. No code panics while holding the lock, so the data behind a poisoned one is intact.
fn lock<K, T>(running: &RunningTasks<K, T>) -> MutexGuard<'_, HashMap<K, TaskOutcome<T>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
