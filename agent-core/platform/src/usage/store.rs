//! The [`UsageStore`] trait.

use std::collections::HashSet;

use agent_core::ids::{AgentId, CompanyId, RunId, UserId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use jiff::Timestamp;

use super::{RunScope, UsageEntry, UsagePage, UsageQuery};

/// Maximum number of entries or scopes of a run that are returned.
pub const MAX_RUN_ENTRIES: usize = 1_000;
/// Maximum number of entries that one call deletes.
pub const MAX_TRIMMED_ENTRIES: usize = 1_000;

/// Owner of a run: the ids of runs are unique for a user or a visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOwner {
    /// The user to whom the run is booked.
    pub user_id: UserId,
    /// Hash of the visitor's key, for a run of a visitor with one.
    pub visitor: Option<String>,
    /// The agent; entries of all agents if absent.
    pub agent_id: Option<AgentId>,
}

impl RunOwner {
    /// Returns true if an entry is of a run of this owner.
    pub(super) fn matches(&self, scope: &RunScope) -> bool {
        self.user_id == scope.user_id
            && self.visitor == scope.visitor
            && self.agent_id.as_ref().is_none_or(|agent| *agent == scope.agent_id)
    }
}

/// Entries of a run in the order in which they were booked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunEntries {
    /// The first [`MAX_RUN_ENTRIES`] entries.
    pub entries: Vec<UsageEntry>,
    /// True if there are more.
    pub truncated: bool,
}

impl RunEntries {
    /// Creates the entries from those that a store has read, one more than [`MAX_RUN_ENTRIES`] if there are more.
    pub fn from_overfetch(mut entries: Vec<UsageEntry>) -> Self {
        let truncated = entries.len() > MAX_RUN_ENTRIES;
        entries.truncate(MAX_RUN_ENTRIES);
        Self { entries, truncated }
    }
}

/// Source of the stored runs, for runs that count once they are stored.
#[async_trait]
pub trait StoredRuns: Send + Sync {
    /// Returns true if a user or visitor has a run with an id that is stored and has started.
    ///
    /// # Errors
    /// The store failed.
    async fn has_run(&self, company: &CompanyId, owner: &UserId, run: &RunId) -> Result<bool, StoreError>;
}

/// Ledger of calls, with their sums by day.
///
/// The contract is the suite `conformance::usage`, which every store runs.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Books entries, and adds them to the sums of their days in the same commit. An entry whose id is booked already in
    /// its company is left out. Returns the number of entries that were booked.
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError>;

    /// Books entries as [`book`](Self::book) does, except those of companies whose ledgers other transactions have locked for
    /// more than a moment. Returns these companies, whose entries must be booked again.
    ///
    /// # Errors
    /// Errors of the store. Some entries may be booked.
    async fn book_unlocked(&self, entries: Vec<UsageEntry>) -> Result<HashSet<CompanyId>, StoreError> {
        self.book(entries).await.map(|_| HashSet::new())
    }

    /// Returns a page of a company's sums.
    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError>;

    /// Returns the entries of the run of an owner, or of the runs of all owners with this id.
    async fn run_entries(
        &self,
        company: &CompanyId,
        run: &RunId,
        owner: Option<&RunOwner>,
    ) -> Result<RunEntries, StoreError>;

    /// Returns the scopes of the runs with an id, one for each user, visitor and agent, in the order of their first entries, at
    /// most [`MAX_RUN_ENTRIES`].
    async fn run_scopes(&self, company: &CompanyId, run: &RunId) -> Result<Vec<RunScope>, StoreError>;

    /// Returns the entries of the runs of all owners with an id, at most [`MAX_RUN_ENTRIES`].
    async fn run_usage(&self, company: &CompanyId, run: &RunId) -> Result<Vec<UsageEntry>, StoreError> {
        Ok(self.run_entries(company, run, None).await?.entries)
    }

    /// Returns the entries with some of these ids, in the order in which they were booked.
    async fn usage_entries(&self, company: &CompanyId, ids: &[String])
    -> Result<Vec<UsageEntry>, StoreError>;

    /// Deletes entries that ended before a time, at most [`MAX_TRIMMED_ENTRIES`]; the sums of the days stay. Returns the
    /// number of deleted entries.
    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError>;
}
