//! What the process knows of changes: its own as they happen, and other processes' by looking.
//!
//! What was read may be kept as long as nobody has written there since. A [`Stamp`] is taken before the
//! read and says whether that is so. Its slot is one of a fixed number, found by the hash of what is read:
//! two keys may share one, and then a write to either ends the stamps of both, which costs a read and harms
//! nothing. While a transaction is being committed, the slots of what it changes are odd: readers of the
//! database may see the change already while what is kept still says otherwise, so such keys are neither
//! kept nor answered from what is kept until the commit is done.
//!
//! Other processes raise the counter in the file with every transaction. Every read and every write of
//! ours looks at it, in the same snapshot; a number that is neither the one of our last commit nor the one
//! of the commit that is under way was another's, and ends all stamps. What is kept may answer for
//! [`MAX_STALENESS`] after a look.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;

/// How long after its commit a write of another process may be missing from what the cache answers.
pub const MAX_STALENESS: Duration = Duration::from_millis(100);

/// How many slots there are: enough that keys in use seldom share one, at 32 KiB.
const SLOTS: usize = 4096;

/// Says whether anything was written to what it is of, since it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    slot: usize,
    /// Always even.
    count: u64,
}

pub(super) struct Freshness {
    clock: Arc<dyn Clock>,
    began: Instant,
    /// When the last look began, in microseconds since the store was opened.
    looked: AtomicU64,
    versions: Mutex<Versions>,
    slots: Box<[AtomicU64]>,
}

struct Versions {
    /// The counter, as far as its changes are accounted for.
    known: u64,
    /// What the counter will be when the commit that is under way is done.
    coming: Option<u64>,
}

impl Freshness {
    /// `version` is the counter as it was when the file was opened.
    pub(super) fn new(clock: Arc<dyn Clock>, version: u64) -> Self {
        Self {
            began: clock.monotonic(),
            clock,
            looked: AtomicU64::new(0),
            versions: Mutex::new(Versions { known: version, coming: None }),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Where what is written to `of` is noted.
    pub(super) fn slot(&self, of: &impl Hash) -> usize {
        // Without a random seed: whoever makes keys that share a slot has gained nothing but slower reads.
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        (hasher.finish() % self.slots.len() as u64) as usize
    }

    /// To be taken before `of` is read; `None` while it is being written.
    pub(super) fn stamp(&self, of: &impl Hash) -> Option<Stamp> {
        let slot = self.slot(of);
        let count = self.slots[slot].load(Ordering::SeqCst);
        count.is_multiple_of(2).then_some(Stamp { slot, count })
    }

    /// Whether nobody has written since the stamp was taken, as far as is known.
    pub(super) fn holds(&self, stamp: Stamp) -> bool {
        self.slots[stamp.slot].load(Ordering::SeqCst) == stamp.count
    }

    /// Whether the last look at other processes' changes is recent enough to answer without another.
    pub(super) fn is_recent(&self) -> bool {
        let looked = Duration::from_micros(self.looked.load(Ordering::SeqCst));
        self.since_began(self.clock.monotonic()).saturating_sub(looked) < MAX_STALENESS
    }

    /// When a look begins.
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    /// Takes note of the counter as a look has found it that began at `begun`.
    pub(super) fn observe(&self, version: u64, begun: Instant) {
        let mut versions = self.versions();
        // One that is smaller is of a snapshot from before our last commit.
        if version > versions.known && versions.coming != Some(version) {
            versions.known = version;
            self.end_all();
        }
        drop(versions);
        // After the stamps have ended, so that nobody takes the look for one that has found nothing.
        let begun = u64::try_from(self.since_began(begun).as_micros()).unwrap_or(u64::MAX);
        self.looked.fetch_max(begun, Ordering::SeqCst);
    }

    /// Before a commit after which the counter is `version`. The slots are those of all that it changes,
    /// each once.
    pub(super) fn committing(&self, slots: &[usize], version: u64) {
        self.turn(slots);
        self.versions().coming = Some(version);
    }

    /// After that commit, and before anybody is told of it.
    pub(super) fn committed(&self, slots: &[usize], version: u64) {
        *self.versions() = Versions { known: version, coming: None };
        self.turn(slots);
    }

    /// After a commit that failed, with the transaction at its end. Another process may have used the same
    /// number since, which then was taken for ours.
    pub(super) fn failed(&self, slots: &[usize]) {
        self.versions().coming = None;
        self.turn(slots);
        self.end_all();
    }

    fn turn(&self, slots: &[usize]) {
        for slot in slots {
            self.slots[*slot].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether a slot is odd stays as it is.
    fn end_all(&self) {
        for slot in &self.slots {
            slot.fetch_add(2, Ordering::SeqCst);
        }
    }

    fn since_began(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.began)
    }

    /// No code panics while it holds the lock.
    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;

    use super::*;

    fn freshness() -> (Freshness, ManualClock) {
        let clock = ManualClock::new();
        (Freshness::new(Arc::new(clock.clone()), 10), clock)
    }

    #[test]
    fn a_stamp_ends_with_a_commit_and_none_is_given_meanwhile() {
        let (freshness, _) = freshness();
        let before = freshness.stamp(&"a").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        freshness.committing(&slots, 11);
        assert!(!freshness.holds(before));
        assert_eq!(freshness.stamp(&"a"), None);
        freshness.committed(&slots, 11);
        assert!(!freshness.holds(before));
        let after = freshness.stamp(&"a").expect("nobody writes");
        freshness.observe(11, freshness.now());
        freshness.observe(10, freshness.now());
        assert!(freshness.holds(after), "a look at our own commit ends nothing");
    }

    #[test]
    fn a_commit_of_ours_that_is_seen_before_its_end_is_not_anothers() {
        let (freshness, _) = freshness();
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        assert_ne!(slots[0], elsewhere.slot, "the keys of this test have slots of their own");
        freshness.committing(&slots, 11);
        freshness.observe(11, freshness.now());
        assert!(freshness.holds(elsewhere));
        freshness.committed(&slots, 11);
        freshness.observe(12, freshness.now());
        assert!(!freshness.holds(elsewhere), "another's change ends all stamps");
    }

    #[test]
    fn a_commit_that_failed_ends_all_stamps() {
        let (freshness, _) = freshness();
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        let slots = [freshness.slot(&"a")];
        freshness.committing(&slots, 11);
        freshness.failed(&slots);
        assert!(!freshness.holds(elsewhere));
        assert!(freshness.stamp(&"a").is_some());
        let elsewhere = freshness.stamp(&"b").expect("nobody writes");
        freshness.observe(11, freshness.now());
        assert!(!freshness.holds(elsewhere), "the number that was not used is another's");
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
        freshness.observe(10, begun);
        assert!(!freshness.is_recent(), "what counts is when a look began");
        freshness.observe(10, freshness.now());
        assert!(freshness.is_recent());
    }
}
