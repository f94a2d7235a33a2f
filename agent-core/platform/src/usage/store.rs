//! The [`UsageStore`] trait.

use agent_core::ids::{CompanyId, RunId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use jiff::Timestamp;

use super::{UsageEntry, UsagePage, UsageQuery};

/// Maximum number of entries of a run that are returned.
pub const MAX_RUN_ENTRIES: usize = 1_000;
/// Maximum number of entries that one call deletes.
pub const MAX_TRIMMED_ENTRIES: usize = 1_000;

/// Ledger of calls, with their sums by day.
///
/// The contract is the suite `conformance::usage`, which every store runs.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Books entries, and adds them to the sums of their days in the same commit. An entry whose id is booked already in
    /// its company is left out. Returns the number of entries that were booked.
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError>;

    /// Returns a page of a company's sums.
    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError>;

    /// Returns the entries of a run in the order in which they were booked, at most [`MAX_RUN_ENTRIES`].
    async fn run_usage(&self, company: &CompanyId, run: &RunId) -> Result<Vec<UsageEntry>, StoreError>;

    /// Returns the entries with some of these ids, in the order in which they were booked.
    async fn usage_entries(&self, company: &CompanyId, ids: &[String])
    -> Result<Vec<UsageEntry>, StoreError>;

    /// Deletes entries that ended before a time, at most [`MAX_TRIMMED_ENTRIES`]; the sums of the days stay. Returns the
    /// number of deleted entries.
    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError>;
}
