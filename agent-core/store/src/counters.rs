//! Counters of a store.

#[cfg(feature = "sqlite")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a store since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Acknowledged commits that changed something.
    pub commits: u64,
    /// Transactions of those commits.
    pub transactions: u64,
    /// Reads that ran statements, excluding cache hits.
    pub reads: u64,
}

#[derive(Default)]
pub(crate) struct AtomicCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// True from a failed write until the next successful one.
    #[cfg(feature = "sqlite")]
    pub(crate) is_failing: AtomicBool,
}

impl AtomicCounters {
    pub(crate) fn read(&self) -> StoreCounters {
        StoreCounters {
            commits: self.commits.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
        }
    }
}
