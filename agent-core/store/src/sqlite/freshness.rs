//! Cache invalidation: writes of this process are tracked as they happen, those of other processes by polling
//! a counter in the file.
//!
//! A cached result is valid until its key or collection is written. A [`Stamp`], taken before the read,
//! records the state of a slot and shows later whether it changed. Slots are a fixed array indexed by the
//! hash of the key: two keys may share a slot, and a write to either then invalidates both, which costs an
//! unnecessary read. While a transaction is being committed, the slots of its changes have odd counts:
//! readers may already see the change in the file while the cache has the old value, so such keys are neither
//! cached nor served from the cache until the commit is done.
//!
//! Every transaction that changes records increments the counter in the file. Each read and each write of
//! this process reads the counter in its own snapshot; a value that is neither that of its last commit nor
//! that of the commit in progress was written by another process and invalidates all stamps. Cached results
//! may be served for [`MAX_STALENESS`] after such a check.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Count of the slot; always even.
    count: u64,
}

pub(super) struct ChangeTracker {
    clock: Arc<dyn Clock>,
    opened_at: Instant,
    /// Start of the last counter check, in microseconds since the store was opened.
    last_check_us: AtomicU64,
    versions: Mutex<CounterState>,
    slots: Box<[AtomicU64]>,
}

struct CounterState {
    /// Highest counter value whose changes have been accounted for.
    last_accounted: u64,
    /// Counter value after the commit in progress, if any.
    pending: Option<u64>,
}

impl ChangeTracker {
    /// Creates the state for a file whose counter is `version`.
    pub(super) fn new(clock: Arc<dyn Clock>, version: u64) -> Self {
        Self {
            opened_at: clock.monotonic(),
            clock,
            last_check_us: AtomicU64::new(0),
            versions: Mutex::new(CounterState { last_accounted: version, pending: None }),
            slots: (0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the slot index of a key or collection.
    pub(super) fn slot(&self, of: &impl Hash) -> usize {
        // The hash is not seeded: deliberately colliding keys only cause additional reads.
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        (hasher.finish() % self.slots.len() as u64) as usize
    }

    /// Takes a stamp. Must be called before `of` is read. Returns `None` while `of` is being written.
    pub(super) fn stamp(&self, of: &impl Hash) -> Option<Stamp> {
        let slot = self.slot(of);
        let count = self.slots[slot].load(Ordering::SeqCst);
        count.is_multiple_of(2).then_some(Stamp { slot, count })
    }

    /// Returns true if no write is known since the stamp was taken.
    pub(super) fn is_valid(&self, stamp: Stamp) -> bool {
        self.slots[stamp.slot].load(Ordering::SeqCst) == stamp.count
    }

    /// Returns true if the last counter check is recent enough to serve from the cache.
    pub(super) fn is_recent(&self) -> bool {
        let looked = Duration::from_micros(self.last_check_us.load(Ordering::SeqCst));
        self.since_began(self.clock.monotonic()).saturating_sub(looked) < MAX_STALENESS
    }

    /// Returns the current time, to be passed to [`record_counter`](Self::record_counter) as the start of a check.
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    /// Processes the counter value found by a check that started at `begun`.
    pub(super) fn record_counter(&self, version: u64, begun: Instant) {
        let mut versions = self.versions();
        // A smaller value comes from a snapshot before this process's last commit.
        if version > versions.last_accounted && versions.pending != Some(version) {
            versions.last_accounted = version;
            self.invalidate_all();
        }
        drop(versions);
        // Updated after the invalidation, so that no reader takes this check for one that found no change.
        let begun = u64::try_from(self.since_began(begun).as_micros()).unwrap_or(u64::MAX);
        self.last_check_us.fetch_max(begun, Ordering::SeqCst);
    }

    /// Marks a commit as in progress, after which the counter will be `version`. `slots` are those of all
    /// changes, without duplicates.
    pub(super) fn begin_commit(&self, slots: &[usize], version: u64) {
        self.flip_parity(slots);
        self.versions().pending = Some(version);
    }

    /// Marks the commit as done. Must be called before any caller is notified of it.
    pub(super) fn finish_commit(&self, slots: &[usize], version: u64) {
        *self.versions() = CounterState { last_accounted: version, pending: None };
        self.flip_parity(slots);
    }

    /// Marks the commit as failed, after its transaction has ended. Invalidates all stamps, because another
    /// process may have used the same counter value in the meantime, and it was then taken for this
    /// process's.
    pub(super) fn abort_commit(&self, slots: &[usize]) {
        self.versions().pending = None;
        self.flip_parity(slots);
        self.invalidate_all();
    }

    fn flip_parity(&self, slots: &[usize]) {
        for slot in slots {
            self.slots[*slot].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Invalidates all stamps. The parity of each slot is unchanged.
    fn invalidate_all(&self) {
        for slot in &self.slots {
            slot.fetch_add(2, Ordering::SeqCst);
        }
    }

    fn since_began(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.opened_at)
    }

    /// Locks the versions. No code panics while it holds the lock.
    fn versions(&self) -> MutexGuard<'_, CounterState> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
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
        freshness.begin_commit(&slots, 11);
        assert!(!freshness.is_valid(before));
        assert_eq!(freshness.stamp(&"a"), None);
        freshness.finish_commit(&slots, 11);
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
        freshness.begin_commit(&slots, 11);
        freshness.record_counter(11, freshness.now());
        assert!(freshness.is_valid(elsewhere));
        freshness.finish_commit(&slots, 11);
        freshness.record_counter(12, freshness.now());
        assert!(!freshness.is_valid(elsewhere), "another's change ends all stamps");
    }

    #[test]
    fn a_commit_that_failed_ends_all_stamps() {
        let (freshness, _) = freshness();
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        freshness.begin_commit(&slots, 11);
        freshness.abort_commit(&slots);
        assert!(!freshness.is_valid(elsewhere));
        assert!(freshness.stamp(&"a").is_some());
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        freshness.record_counter(11, freshness.now());
        assert!(!freshness.is_valid(elsewhere), "the number that was not used is another's");
    }

    #[test]
    fn a_look_is_recent_for_a_while() {
        let (freshness, clock) = freshness();
        assert!(freshness.is_recent());
        let begun = freshness.now();
        clock.advance(MAX_STALENESS - Duration::from_millis(1));
        assert!(freshness.is_recent());
        clock.advance(Duration::from_millis(1));
        assert!(!freshness.is_recent());
        freshness.record_counter(10, begun);
        assert!(!freshness.is_recent(), "what counts is when a look began");
        freshness.record_counter(10, freshness.now());
        assert!(freshness.is_recent());
    }
}
