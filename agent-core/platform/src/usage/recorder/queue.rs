//! [`EntryQueue`]: the entries that wait for the store, of all companies.

use std::collections::{HashMap, VecDeque};

use agent_core::ids::CompanyId;

use crate::company_permits::subtract_one;
use crate::usage::UsageEntry;
use crate::usage::budget::Settlement;

/// Maximum number of entries that wait for the store. For a further one, the latest of the company that has the most is logged and
/// lost.
pub const MAX_QUEUED_ENTRIES: usize = 10_000;

/// Entries that wait for the store, first in, first out.
#[derive(Default)]
pub(super) struct EntryQueue {
    entries: VecDeque<QueuedEntry>,
    /// Number of entries at the front that the writer has taken, and that stay until they are stored.
    taken: usize,
    /// Numbers of entries by company.
    counts: HashMap<CompanyId, usize>,
}

/// Entry that waits for the store, with the reservation that is settled once the entry is stored.
#[derive(Clone)]
pub(super) struct QueuedEntry {
    pub(super) entry: UsageEntry,
    pub(super) settlement: Option<Settlement>,
}

impl From<UsageEntry> for QueuedEntry {
    fn from(entry: UsageEntry) -> Self {
        Self { entry, settlement: None }
    }
}

impl QueuedEntry {
    fn company_id(&self) -> &CompanyId {
        &self.entry.scope.company_id
    }
}

impl EntryQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if an entry settles a reservation.
    pub(super) fn has_settlement(&self) -> bool {
        self.entries.iter().any(|queued| queued.settlement.is_some())
    }

    /// Returns the first entries, which stay in the queue until they are removed.
    pub(super) fn take_first(&mut self, limit: usize) -> Vec<QueuedEntry> {
        self.taken = limit.min(self.entries.len());
        self.entries.iter().take(self.taken).cloned().collect()
    }

    /// Adds an entry. Returns the one that is lost for it if the queue is full: the new one, unless another company has more.
    pub(super) fn push_back(&mut self, entry: QueuedEntry) -> Option<QueuedEntry> {
        let mut lost = None;
        if self.entries.len() >= MAX_QUEUED_ENTRIES {
            let own_count = self.counts.get(entry.company_id()).copied().unwrap_or_default();
            lost = self.evict(own_count);
            if lost.is_none() {
                return Some(entry);
            }
        }
        *self.counts.entry(entry.company_id().clone()).or_default() += 1;
        self.entries.push_back(entry);
        lost
    }

    /// Removes the latest entry of the company that has the most, if these are more than `own_count` and the writer has not taken it.
    fn evict(&mut self, own_count: usize) -> Option<QueuedEntry> {
        let (largest, most) = self.counts.iter().max_by_key(|(_, count)| **count)?;
        if *most <= own_count {
            return None;
        }
        let position = self.entries.iter().rposition(|queued| queued.company_id() == largest)?;
        if position < self.taken {
            return None;
        }
        let evicted = self.entries.remove(position)?;
        subtract_one(&mut self.counts, evicted.company_id());
        Some(evicted)
    }

    /// Removes the first entry.
    pub(super) fn pop_front(&mut self) -> Option<QueuedEntry> {
        let first = self.entries.pop_front()?;
        self.taken = self.taken.saturating_sub(1);
        subtract_one(&mut self.counts, first.company_id());
        Some(first)
    }

    /// Removes the first entries, which are stored.
    pub(super) fn remove_first(&mut self, count: usize) {
        for _ in 0..count {
            self.pop_front();
        }
    }
}
