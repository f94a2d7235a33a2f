//! [`EntryQueue`]: the entries that wait for the store, of all companies.

use std::collections::{HashMap, HashSet, VecDeque};

use agent_core::ids::CompanyId;

use crate::company_permits::subtract_one;
use crate::usage::UsageEntry;
use crate::usage::budget::Settlement;

/// Maximum number of entries that wait for the store. For a further one, the latest of the company that has the most is logged and
/// lost.
pub const MAX_QUEUED_ENTRIES: usize = 10_000;

/// Entries that wait for the store, those of a company first in, first out.
#[derive(Default)]
pub(super) struct EntryQueue {
    /// Entries of companies whose ledgers are not known to be locked.
    ready: EntryList,
    /// Entries of the other companies, which are written apart.
    locked: HashMap<CompanyId, EntryList>,
    /// The companies of `locked`, next one first.
    turns: VecDeque<CompanyId>,
    /// Numbers of entries by company.
    counts: HashMap<CompanyId, usize>,
}

/// Entries in the order in which they are written.
#[derive(Default)]
struct EntryList {
    entries: VecDeque<QueuedEntry>,
    /// Number of entries at the front that are in a writer's batch, and that stay until they are stored.
    batch_len: usize,
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

impl EntryList {
    /// Starts a batch of the first entries for a writer, and returns copies. The entries stay until they are removed.
    fn start_batch(&mut self, limit: usize) -> Vec<QueuedEntry> {
        self.batch_len = limit.min(self.entries.len());
        self.entries.iter().take(self.batch_len).cloned().collect()
    }

    fn pop_front(&mut self) -> Option<QueuedEntry> {
        self.batch_len = self.batch_len.saturating_sub(1);
        self.entries.pop_front()
    }

    /// Removes the latest entry of a company, unless it is in a writer's batch.
    fn remove_last(&mut self, company_id: &CompanyId) -> Option<QueuedEntry> {
        let position = self.entries.iter().rposition(|queued| queued.company_id() == company_id)?;
        if position < self.batch_len { None } else { self.entries.remove(position) }
    }
}

impl EntryQueue {
    /// Returns the number of entries, those of locked ledgers included.
    pub(super) fn len(&self) -> usize {
        self.ready.entries.len() + self.locked.values().map(|list| list.entries.len()).sum::<usize>()
    }

    /// Returns true if there are no entries, not even of locked ledgers.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries whose ledgers are not known to be locked.
    pub(super) fn ready_len(&self) -> usize {
        self.ready.entries.len()
    }

    /// Returns true if an entry whose ledger is not known to be locked settles a reservation.
    pub(super) fn has_settlement(&self) -> bool {
        self.ready.entries.iter().any(|queued| queued.settlement.is_some())
    }

    /// Returns the number of companies whose ledgers are locked.
    pub(super) fn locked_companies(&self) -> usize {
        self.turns.len()
    }

    /// Starts a batch of entries whose ledgers are not known to be locked. They stay in the queue until they are removed.
    pub(super) fn start_batch(&mut self, limit: usize) -> Vec<QueuedEntry> {
        self.ready.start_batch(limit)
    }

    /// Starts a batch of the company with a locked ledger whose turn it is. Its entries stay in the queue.
    pub(super) fn start_locked_batch(&mut self, limit: usize) -> Option<(CompanyId, Vec<QueuedEntry>)> {
        let company_id = self.turns.pop_front()?;
        self.turns.push_back(company_id.clone());
        let batch = self.locked.get_mut(&company_id)?.start_batch(limit);
        Some((company_id, batch))
    }

    /// Adds an entry. Returns the one that is lost for it if the queue is full: the new one, unless another company has more.
    pub(super) fn push_back(&mut self, entry: QueuedEntry) -> Option<QueuedEntry> {
        let mut dropped = None;
        if self.len() >= MAX_QUEUED_ENTRIES {
            let own_count = self.counts.get(entry.company_id()).copied().unwrap_or_default();
            dropped = self.evict(own_count);
            if dropped.is_none() {
                return Some(entry);
            }
        }
        *self.counts.entry(entry.company_id().clone()).or_default() += 1;
        self.list_of(&entry).entries.push_back(entry);
        dropped
    }

    /// Returns the list of an entry's company.
    fn list_of(&mut self, entry: &QueuedEntry) -> &mut EntryList {
        self.locked.get_mut(entry.company_id()).unwrap_or(&mut self.ready)
    }

    /// Removes the latest entry of the company that has the most, if these are more than `own_count` and it is in no writer's batch.
    fn evict(&mut self, own_count: usize) -> Option<QueuedEntry> {
        let (largest, largest_count) = self.counts.iter().max_by_key(|(_, count)| **count)?;
        if *largest_count <= own_count {
            return None;
        }
        let list = self.locked.get_mut(largest).unwrap_or(&mut self.ready);
        let evicted = list.remove_last(largest)?;
        subtract_one(&mut self.counts, evicted.company_id());
        Some(evicted)
    }

    /// Removes the first entry whose ledger is not known to be locked.
    pub(super) fn pop_front(&mut self) -> Option<QueuedEntry> {
        let first = self.ready.pop_front()?;
        subtract_one(&mut self.counts, first.company_id());
        Some(first)
    }

    /// Removes the first entries, which are stored. Entries of companies whose ledgers are locked are kept, and are written
    /// separately with later ones of these companies.
    pub(super) fn remove_first(&mut self, count: usize, locked: &HashSet<CompanyId>) {
        for company_id in locked {
            self.locked.entry(company_id.clone()).or_insert_with(|| {
                self.turns.push_back(company_id.clone());
                EntryList::default()
            });
        }
        for _ in 0..count {
            let Some(first) = self.ready.pop_front() else { break };
            match self.locked.get_mut(first.company_id()) {
                Some(list) => list.entries.push_back(first),
                None => subtract_one(&mut self.counts, first.company_id()),
            }
        }
        if !locked.is_empty() {
            for later in std::mem::take(&mut self.ready.entries) {
                self.list_of(&later).entries.push_back(later);
            }
        }
    }

    /// Removes the first entries of a company with a locked ledger, which are stored. The later ones are ready.
    pub(super) fn unlock(&mut self, company_id: &CompanyId, stored: usize) {
        let Some(mut list) = self.locked.remove(company_id) else { return };
        self.turns.retain(|turn| turn != company_id);
        for _ in 0..stored {
            if list.pop_front().is_some() {
                subtract_one(&mut self.counts, company_id);
            }
        }
        self.ready.entries.extend(list.entries);
    }
}
