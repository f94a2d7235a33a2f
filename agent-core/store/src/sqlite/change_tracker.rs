//! Cache invalidation: writes of this process are tracked as they happen, those of other processes by polling
//! a counter in the file. See [`slots`](crate::slots) for the stamps.
//!
//! Every transaction that changes records increments the counter in the file. Each read and each write of this process reads the
//! counter in its own snapshot. A value that this process has not written, in its last commit or in the commit in progress, was
//! written by another process and invalidates all stamps. Cached results may be served for [`MAX_STALENESS`] after such a check.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;

use crate::slots::{SlotTable, Stamp, StampSource};

/// Maximum delay after which a write of another process is visible to cached reads.
pub const MAX_STALENESS: Duration = Duration::from_millis(100);

/// Tracker of changes of records, for validating cached reads.
///
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
    slots: SlotTable,
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
            slots: SlotTable::new(),
        };
        Self { clock, state: Mutex::new(state) }
    }

    /// Returns the current time, to be passed to [`record_counter`](Self::record_counter) as the start of a check.
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    /// Processes the counter value found by a check that started at `check_started`.
    pub(super) fn record_counter(&self, version: u64, check_started: Instant) {
        let mut state = self.state();
        let is_own = state.pending.as_ref().is_some_and(|pending| pending.version == version);
        // A smaller value comes from a snapshot before this process's last commit.
        if version > state.last_accounted && !is_own {
            state.last_accounted = version;
            state.slots.invalidate_all();
        }
        state.last_check = state.last_check.max(check_started);
    }

    /// Marks a commit as in progress, after which the counter will be `version`. `slots` are those of all
    /// changes, sorted and without duplicates.
    pub(super) fn begin_commit(&self, slots: Vec<usize>, version: u64) {
        let mut state = self.state();
        state.slots.begin_commit(&slots);
        state.pending = Some(PendingCommit { version, slots });
    }

    /// Marks the commit as done. Must be called before any caller is notified of it.
    pub(super) fn finish_commit(&self) {
        let mut state = self.state();
        if let Some(PendingCommit { version, slots }) = state.pending.take() {
            state.slots.end_commit(&slots);
            state.last_accounted = version;
        }
    }

    /// Marks the commit as failed, after its transaction has ended. Invalidates all stamps, because another
    /// process may have used the same counter value in the meantime, and it was then taken for this
    /// process's.
    pub(super) fn abort_commit(&self) {
        let mut state = self.state();
        if let Some(PendingCommit { slots, .. }) = state.pending.take() {
            state.slots.end_commit(&slots);
        }
        state.slots.invalidate_all();
    }

    /// Locks the state. No code panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StampSource for ChangeTracker {
    fn stamp(&self, of: &impl Hash) -> Option<Stamp> {
        let slot = SlotTable::slot(of);
        self.state().slots.stamp(slot)
    }

    fn is_valid(&self, stamp: Stamp) -> bool {
        self.state().slots.is_valid(stamp)
    }

    fn may_serve(&self, stamps: impl IntoIterator<Item = Stamp>) -> bool {
        let now = self.clock.monotonic();
        let state = self.state();
        let is_recent = now.saturating_duration_since(state.last_check) < MAX_STALENESS;
        is_recent && stamps.into_iter().all(|stamp| state.slots.is_valid(stamp))
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
        let slots = [SlotTable::slot(&"a")];
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
        let slots = [SlotTable::slot(&"a")];
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
        let slots = [SlotTable::slot(&"a")];
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
        assert!(!freshness.may_serve([]), "the time at which a check began decides");
        freshness.record_counter(10, freshness.now());
        assert!(freshness.may_serve([]));
    }
}
