//! Cache invalidation: writes of this process are tracked as they happen, those of other processes by polling
//! a counter in the file.
//!
//! A cached result is valid until its key or collection is written. A [`Stamp`], taken before the read,
//! records the state of a slot and shows later whether it changed. Slots are a fixed array indexed by the
//! hash of the key: two keys may share a slot, and a write to either then invalidates both, which costs an
//! unnecessary read. While a transaction is being committed, readers may already see the change in the file
//! while the cache has the old value, so the keys of its changes are neither cached nor served from the cache
//! until the commit is done.
//!
//! Every transaction that changes records increments the counter in the file. Each read and each write of
//! this process reads the counter in its own snapshot; a value that is neither that of its last commit nor
//! that of the commit in progress was written by another process and invalidates all stamps. Cached results
//! may be served for [`MAX_STALENESS`] after such a check.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;

/// Maximum delay after which a write of another process is visible to cached reads.
pub const MAX_STALENESS: Duration = Duration::from_millis(100);

/// Number of slots: enough that keys in use seldom share one, in 32 KiB.
const SLOT_COUNT: usize = 4096;

/// State of a slot before a read, to detect later writes to what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    slot: usize,
    /// Count of the slot.
    count: u64,
    generation: u64,
}

/// One lock protects all state: it is held for a few loads and stores, and for a stamp of each of the records
/// that are served together.
pub(super) struct ChangeTracker {
    clock: Arc<dyn Clock>,
    state: Mutex<TrackerState>,
}

struct TrackerState {
    /// Start of the last counter check.
    last_check: Instant,
    /// Highest counter value whose changes have been accounted for.
    last_accounted: u64,
    /// The commit in progress, if any.
    pending: Option<PendingCommit>,
    /// Number of the commits that changed each slot.
    counts: Box<[u64]>,
    /// Increased to invalidate all stamps.
    generation: u64,
}

struct PendingCommit {
    /// Counter value after the commit.
    version: u64,
    /// Slots of its changes, sorted.
    slots: Vec<usize>,
}

impl ChangeTracker {
    /// Creates the state for a file whose counter is `version`.
    pub(super) fn new(clock: Arc<dyn Clock>, version: u64) -> Self {
        let state = TrackerState {
            last_check: clock.monotonic(),
            last_accounted: version,
            pending: None,
            counts: vec![0; SLOT_COUNT].into(),
            generation: 0,
        };
        Self { clock, state: Mutex::new(state) }
    }

    /// Returns the slot index of a key or collection.
    pub(super) fn slot(&self, of: &impl Hash) -> usize {
        // The hash is not seeded: deliberately colliding keys only cause additional reads.
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        (hasher.finish() % SLOT_COUNT as u64) as usize
    }

    /// Takes a stamp. Must be called before `of` is read. Returns `None` while `of` is being written.
    pub(super) fn stamp(&self, of: &impl Hash) -> Option<Stamp> {
        let slot = self.slot(of);
        let state = self.state();
        let is_pending = |pending: &PendingCommit| pending.slots.binary_search(&slot).is_ok();
        (!state.pending.as_ref().is_some_and(is_pending)).then(|| state.stamp(slot))
    }

    /// Returns true if no write is known since the stamp was taken.
    pub(super) fn is_valid(&self, stamp: Stamp) -> bool {
        self.state().is_valid(stamp)
    }

    /// Returns true if all stamps are valid, and the last counter check is recent enough to serve from the cache.
    pub(super) fn may_serve(&self, stamps: impl IntoIterator<Item = Stamp>) -> bool {
        let now = self.clock.monotonic();
        let state = self.state();
        let is_recent = now.saturating_duration_since(state.last_check) < MAX_STALENESS;
        is_recent && stamps.into_iter().all(|stamp| state.is_valid(stamp))
    }

    /// Returns the current time, to be passed to [`record_counter`](Self::record_counter) as the start of a check.
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    /// Processes the counter value found by a check that started at `begun`.
    pub(super) fn record_counter(&self, version: u64, begun: Instant) {
        let mut state = self.state();
        let is_own = state.pending.as_ref().is_some_and(|pending| pending.version == version);
        // A smaller value comes from a snapshot before this process's last commit.
        if version > state.last_accounted && !is_own {
            state.last_accounted = version;
            state.generation += 1;
        }
        state.last_check = state.last_check.max(begun);
    }

    /// Marks a commit as in progress, after which the counter will be `version`. `slots` are those of all
    /// changes, sorted and without duplicates.
    pub(super) fn begin_commit(&self, slots: Vec<usize>, version: u64) {
        let mut state = self.state();
        for slot in &slots {
            state.counts[*slot] += 1;
        }
        state.pending = Some(PendingCommit { version, slots });
    }

    /// Marks the commit as done. Must be called before any caller is notified of it.
    pub(super) fn finish_commit(&self) {
        let mut state = self.state();
        if let Some(PendingCommit { version, .. }) = state.pending.take() {
            state.last_accounted = version;
        }
    }

    /// Marks the commit as failed, after its transaction has ended. Invalidates all stamps, because another
    /// process may have used the same counter value in the meantime, and it was then taken for this
    /// process's.
    pub(super) fn abort_commit(&self) {
        let mut state = self.state();
        state.pending = None;
        state.generation += 1;
    }

    /// Locks the state. No code panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackerState {
    fn stamp(&self, slot: usize) -> Stamp {
        Stamp { slot, count: self.counts[slot], generation: self.generation }
    }

    fn is_valid(&self, stamp: Stamp) -> bool {
        self.stamp(stamp.slot) == stamp
    }
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;

    use super::*;

    fn freshness() -> (ChangeTracker, ManualClock) {
        let clock = ManualClock::new();
        (ChangeTracker::new(Arc::new(clock.clone()), 10), clock)
    }

    #[test]
    fn a_stamp_ends_with_a_commit_and_none_is_given_meanwhile() {
        let (freshness, _) = freshness();
        let before = freshness.stamp(&"a").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        freshness.begin_commit(slots.to_vec(), 11);
        assert!(!freshness.is_valid(before));
        assert_eq!(freshness.stamp(&"a"), None);
        freshness.finish_commit();
        assert!(!freshness.is_valid(before));
        let after = freshness.stamp(&"a").expect("nobody writes");
        freshness.record_counter(11, freshness.now());
        freshness.record_counter(10, freshness.now());
        assert!(freshness.is_valid(after), "a look at our own commit ends nothing");
    }

    #[test]
    fn a_commit_of_ours_that_is_seen_before_its_end_is_not_anothers() {
        let (freshness, _) = freshness();
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        assert_ne!(slots[0], elsewhere.slot, "the keys of this test have slots of their own");
        freshness.begin_commit(slots.to_vec(), 11);
        freshness.record_counter(11, freshness.now());
        assert!(freshness.is_valid(elsewhere));
        freshness.finish_commit();
        freshness.record_counter(12, freshness.now());
        assert!(!freshness.is_valid(elsewhere), "another's change ends all stamps");
    }

    #[test]
    fn a_commit_that_failed_ends_all_stamps() {
        let (freshness, _) = freshness();
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        freshness.begin_commit(slots.to_vec(), 11);
        freshness.abort_commit();
        assert!(!freshness.is_valid(elsewhere));
        assert!(freshness.stamp(&"a").is_some());
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        freshness.record_counter(11, freshness.now());
        assert!(!freshness.is_valid(elsewhere), "the number that was not used is another's");
    }

    #[test]
    fn a_look_is_recent_for_a_while() {
        let (freshness, clock) = freshness();
        assert!(freshness.may_serve([]));
        let begun = freshness.now();
        clock.advance(MAX_STALENESS - Duration::from_millis(1));
        assert!(freshness.may_serve([]));
        clock.advance(Duration::from_millis(1));
        assert!(!freshness.may_serve([]));
        freshness.record_counter(10, begun);
        assert!(!freshness.may_serve([]), "what counts is when a look began");
        freshness.record_counter(10, freshness.now());
        assert!(freshness.may_serve([]));
    }
}
