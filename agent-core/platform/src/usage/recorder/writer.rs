//! Tasks that write the queue: one for most companies, and one for those whose ledgers another transaction has locked.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use futures_channel::oneshot;
use futures_util::future::select;

use super::queue::QueuedEntry;
use super::state::{MAX_BATCH_ENTRIES, QueueState, RecorderState};

/// Time for which entries wait for further entries to share a commit with, so that consecutive runs do not cost a commit each.
/// Entries with a settlement do not wait: what they reserved is not free until it is settled.
const BATCHING_DELAY: Duration = Duration::from_millis(20);
/// Time until the next attempt after an error of the store, and of those at locked ledgers.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl RecorderState {
    /// Starts the writers, unless they run. That of locked ledgers is started if there are any.
    pub(super) fn ensure_writers(self: &Arc<Self>, mut queue: MutexGuard<'_, QueueState>) {
        let must_write = !std::mem::replace(&mut queue.is_writing, true);
        let must_retry =
            queue.entries.locked_companies() > 0 && !std::mem::replace(&mut queue.is_retrying, true);
        drop(queue);
        if must_write {
            self.spawner.spawn(Box::pin(Writer::new(self.clone()).run()));
        }
        if must_retry {
            self.spawner.spawn(Box::pin(LockedWriter::new(self.clone()).run()));
        }
    }
}

/// Task that writes the entries whose ledgers are not known to be locked, until there are none. If it is dropped before, the
/// next entry starts another one.
struct Writer {
    shared: Arc<RecorderState>,
    /// True once the task has found no entries; another task may then run.
    is_done: bool,
}

impl Writer {
    fn new(shared: Arc<RecorderState>) -> Self {
        Self { shared, is_done: false }
    }

    /// Waits for more entries, unless one of those in the queue must not wait.
    async fn gather(&self) {
        let gathered = {
            let mut queue = self.shared.lock();
            let entries = &queue.entries;
            let count = entries.ready_len();
            let is_full = count >= MAX_BATCH_ENTRIES;
            if count == 0 || is_full || entries.has_settlement() || !queue.flushing.is_empty() {
                return;
            }
            let (sender, gathered) = oneshot::channel();
            queue.gathering = Some(sender);
            gathered
        };
        select(gathered, self.shared.clock.sleep(BATCHING_DELAY)).await;
    }

    async fn run(mut self) {
        let mut limit = MAX_BATCH_ENTRIES;
        self.gather().await;
        while let Some(batch) = self.next_batch(limit) {
            let count = batch.len();
            match self.shared.book(batch).await {
                Ok(locked) => {
                    self.remove_batch(count, &locked);
                    limit = (limit * 2).min(MAX_BATCH_ENTRIES);
                    self.gather().await;
                }
                Err(error @ StoreError::Unavailable(_)) => {
                    tracing::warn!(%error, "failed to store usage; trying again");
                    self.shared.clock.sleep(RETRY_INTERVAL).await;
                }
                // One entry must not keep the others from the store.
                Err(_) if count > 1 => limit = 1,
                Err(error) => {
                    let entry = self.shared.lock().entries.pop_front();
                    let entry = entry.and_then(|queued| serde_json::to_string(&queued.entry).ok());
                    tracing::error!(%error, entry, "usage is lost: the store does not take it");
                }
            }
        }
    }

    /// Removes the entries of a batch that is stored, except those of locked ledgers.
    fn remove_batch(&self, count: usize, locked: &HashSet<CompanyId>) {
        let mut queue = self.shared.lock();
        queue.entries.remove_first(count, locked);
        if !locked.is_empty() {
            let companies = locked.len();
            tracing::warn!(companies, "usage of companies whose ledgers are locked is stored later");
            self.shared.ensure_writers(queue);
        }
    }

    /// Returns the first entries, which stay in the queue; `None` and the end of the task if there are none.
    fn next_batch(&mut self, limit: usize) -> Option<Vec<QueuedEntry>> {
        let mut queue = self.shared.lock();
        if queue.entries.ready_len() > 0 {
            return Some(queue.entries.start_batch(limit));
        }
        queue.is_writing = false;
        self.is_done = true;
        queue.answer_flushes();
        None
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = self.shared.lock();
            queue.is_writing = false;
            queue.flushing.clear();
        }
    }
}

/// Task that writes the entries of companies whose ledgers are locked, one company at a time, until no ledger is. If it is
/// dropped before, the next entry starts another one.
struct LockedWriter {
    shared: Arc<RecorderState>,
    /// True once the task has found no locked ledger; another task may then run.
    is_done: bool,
}

impl LockedWriter {
    fn new(shared: Arc<RecorderState>) -> Self {
        Self { shared, is_done: false }
    }

    async fn run(mut self) {
        while let Some(companies) = self.count_companies() {
            self.shared.clock.sleep(RETRY_INTERVAL).await;
            for _ in 0..companies {
                self.write_company().await;
            }
        }
    }

    /// Returns the number of companies whose ledgers are locked; `None` and the end of the task if there are none.
    fn count_companies(&mut self) -> Option<usize> {
        let mut queue = self.shared.lock();
        let companies = queue.entries.locked_companies();
        if companies == 0 {
            queue.is_retrying = false;
            self.is_done = true;
            return None;
        }
        Some(companies)
    }

    /// Writes the first entries of a company whose ledger was locked. Its later entries are then written together with those of
    /// other companies.
    async fn write_company(&self) {
        let locked_batch = self.shared.lock().entries.start_locked_batch(MAX_BATCH_ENTRIES);
        let Some((company_id, batch)) = locked_batch else { return };
        let count = batch.len();
        let stored = match self.shared.book(batch).await {
            Ok(locked) if locked.is_empty() => count,
            // The next batch of the company tries again.
            Ok(_) | Err(StoreError::Unavailable(_)) => return,
            // The other task finds the entry that the store does not take.
            Err(_) => 0,
        };
        let mut queue = self.shared.lock();
        queue.entries.unlock(&company_id, stored);
        queue.answer_flushes();
        self.shared.ensure_writers(queue);
    }
}

impl Drop for LockedWriter {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = self.shared.lock();
            queue.is_retrying = false;
            queue.flushing.clear();
        }
    }
}
