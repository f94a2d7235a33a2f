//! Invalidation of cached reads by slots.
//!
//! A cached result is valid until its key or collection is written. A [`Stamp`], taken before the read, records the
//! state of a slot and shows later whether it changed. Slots are a fixed array indexed by the hash of the key: two keys
//! may share a slot, and a write to either then invalidates both, which costs an unnecessary read. While a commit is in
//! progress, readers may already see its changes in the database while the cache has the old values, so the keys of its
//! changes are neither cached nor served from the cache until the commit is done.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of slots: enough that keys in use seldom share one, in 48 KiB.
const SLOT_COUNT: usize = 4096;

/// State of a slot before a read, to detect later writes to the record or collection that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) slot: usize,
    /// Count of the slot.
    count: u64,
    generation: u64,
}

/// Source of stamps for a cache.
pub(crate) trait StampSource: Send + Sync {
    /// Takes a stamp. Must be called before `of` is read. Returns `None` while `of` is being written.
    fn stamp(&self, of: &impl Hash) -> Option<Stamp>;

    /// Returns true if no write is known since the stamp was taken.
    fn is_valid(&self, stamp: Stamp) -> bool;

    /// Returns true if all stamps are valid, and writes of other processes have been checked recently enough to
    /// serve from the cache.
    fn may_serve(&self, stamps: impl IntoIterator<Item = Stamp>) -> bool;
}

/// Counters of the commits that changed each slot.
pub(crate) struct SlotTable {
    /// Number of the commits that changed each slot.
    counts: Box<[u64]>,
    /// Number of the commits in progress that change each slot.
    writing: Box<[u32]>,
    /// Increased to invalidate all stamps.
    generation: u64,
}

impl SlotTable {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; SLOT_COUNT].into(), writing: vec![0; SLOT_COUNT].into(), generation: 0 }
    }

    /// Returns the slot index of a key or collection.
    pub(crate) fn slot(of: &impl Hash) -> usize {
        // The hash is not seeded: deliberately colliding keys only cause additional reads.
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        (hasher.finish() % SLOT_COUNT as u64) as usize
    }

    /// Takes a stamp of a slot; `None` while it is being written.
    pub(crate) fn stamp(&self, slot: usize) -> Option<Stamp> {
        (self.writing[slot] == 0).then(|| self.current(slot))
    }

    /// Returns true if the slot has not been written since the stamp was taken.
    pub(crate) fn is_valid(&self, stamp: Stamp) -> bool {
        self.current(stamp.slot) == stamp
    }

    /// Marks the beginning of a commit that changes these slots.
    pub(crate) fn begin_commit(&mut self, slots: &[usize]) {
        for slot in slots {
            self.counts[*slot] += 1;
            self.writing[*slot] += 1;
        }
    }

    /// Marks the end of a commit that changed these slots.
    pub(crate) fn end_commit(&mut self, slots: &[usize]) {
        slots.iter().for_each(|slot| self.writing[*slot] -= 1);
    }

    /// Invalidates the stamps of a slot.
    #[cfg(feature = "postgres")]
    pub(crate) fn invalidate(&mut self, slot: usize) {
        self.counts[slot] += 1;
    }

    /// Invalidates all stamps.
    pub(crate) fn invalidate_all(&mut self) {
        self.generation += 1;
    }

    fn current(&self, slot: usize) -> Stamp {
        Stamp { slot, count: self.counts[slot], generation: self.generation }
    }
}
