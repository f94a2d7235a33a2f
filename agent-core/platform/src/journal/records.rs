//! Store of a built-in tool during a journaled call: effect and record are one transaction.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Journals, OpenCall};
use crate::records::{Records, RecordsWrapper, StoreError, Write};
use agent_core::tool::ExecutionContext;

/// [`Records`] that adds the record of a tool call to the tool's commit.
///
/// A tool makes one commit at most. One that makes several is recorded with the first.
pub struct JournaledRecords {
    records: Arc<dyn Records>,
    call: Arc<OpenCall>,
}

impl std::fmt::Debug for JournaledRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournaledRecords").finish_non_exhaustive()
    }
}

impl Journals {
    /// Returns the store for a built-in tool: within a journaled call, one that commits the tool's writes and the
    /// record of the call together.
    pub(crate) fn store_for(&self, context: &ExecutionContext) -> Option<Arc<dyn Records>> {
        let call = self.find(context)?.open_call(context.idempotency_key.as_deref()?)?;
        Some(Arc::new(JournaledRecords { records: self.records.clone(), call }))
    }
}

#[async_trait]
impl RecordsWrapper for JournaledRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
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
                // A tool repeats its commit after a conflict. That is useless if the claim has the conflict.
                Err(if self.call.journal.is_lost().await? { claim_lost() } else { error })
            }
            Err(error) => Err(error),
        }
    }
}

/// Creates the error of a write under a claim that another process has taken over.
pub(super) fn claim_lost() -> StoreError {
    StoreError::unavailable("another process has taken over the occurrence")
}
