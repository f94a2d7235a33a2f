//! Store of a built-in tool during a journaled call: effect and record are one transaction.

use std::sync::Arc;

use async_trait::async_trait;

use super::{RunJournal, lock};
use crate::occurrence::OccurrenceState;
use crate::records::{Collection, Key, ListQuery, Page, Record, Records, StoreError, Write};
use agent_jobs::job::JobKind;

use super::entry::JournalEntry;

/// A tool call that is being made.
pub(super) struct OpenCall {
    pub(super) journal: Arc<RunJournal>,
    /// Name of the call's entry.
    pub(super) name: String,
}

impl OpenCall {
    /// Returns the writes that record the call as made. The call of a tool job is all of its occurrence, which is done
    /// with it; a turn goes on.
    fn marks(&self) -> Result<Vec<Write>, StoreError> {
        let journal = &self.journal;
        match journal.kind {
            JobKind::Tool => {
                let done = OccurrenceState::Done { at: journal.now() };
                Ok(vec![lock(&journal.claim).claim.state_write(&done)?])
            }
            JobKind::Agent => journal.entry_writes(&self.name, &JournalEntry::Committed),
        }
    }

    fn record_versions(&self, versions: &[Option<u64>]) {
        if self.journal.kind == JobKind::Tool {
            self.journal.set_version(versions.first().copied().flatten(), true);
        }
    }
}

/// [`Records`] that adds the record of a tool call to the tool's commit.
///
/// A tool makes one commit at most. One that makes several is recorded with the first.
pub struct JournaledRecords {
    records: Arc<dyn Records>,
    call: Arc<OpenCall>,
}

impl JournaledRecords {
    pub(super) fn new(records: Arc<dyn Records>, call: Arc<OpenCall>) -> Self {
        Self { records, call }
    }
}

#[async_trait]
impl Records for JournaledRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        self.records.versions(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, mut writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        if writes.is_empty() {
            return self.records.commit(writes).await;
        }
        let own = writes.len();
        writes.extend(self.call.marks()?);
        match self.records.commit(writes).await {
            Ok(mut versions) => {
                self.call.record_versions(&versions[own..]);
                versions.truncate(own);
                Ok(versions)
            }
            Err(error @ StoreError::Conflict { .. }) => {
                // A tool repeats its commit after a conflict, which is in vain if the conflict is that of the claim.
                Err(if self.call.journal.is_lost().await? { claim_lost() } else { error })
            }
            Err(error) => Err(error),
        }
    }
}

/// Error of a write under a claim that another process has taken over.
pub(super) fn claim_lost() -> StoreError {
    StoreError::unavailable("another process has taken the occurrence over")
}
