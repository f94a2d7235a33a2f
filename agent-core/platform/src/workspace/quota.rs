//! Quotas that concurrent additions cannot exceed together.
//!
//! A quota has a record. An addition reads the record's version, then the usage, and writes the record in its own commit
//! under that version. Of two additions that have read the same usage, one therefore fails and checks the usage again.
//! Deletions do not write the record, since they only make room, and neither do imports, which no quota limits.
//!
//! The version is read from the store, and what is summed in [`SUMMED_COLLECTIONS`](super::SUMMED_COLLECTIONS) and counted
//! has to be, too: from a cache, the usage could be older than the version.

use async_trait::async_trait;
use serde::Serialize;

use super::{WorkspaceError, collection};
use crate::records::{Collection, Key, Precondition, Records, StoreError, UpdateAttempts, Write, to_json};
use agent_core::ids::CompanyId;

/// Limit on what a company or a user stores.
#[async_trait]
pub(super) trait Quota: Send + Sync {
    /// Returns the key of the quota's record.
    fn key(&self) -> Result<Key, StoreError>;

    /// Reads the usage, and fails if the addition would exceed the quota.
    async fn check(&self, records: &dyn Records) -> Result<(), WorkspaceError>;
}

/// Value of a quota's record, of which only the version matters.
#[derive(Serialize)]
struct QuotaRecord {}

/// Returns the key of a company's quota record.
pub(super) fn quota_key(company_id: &CompanyId, name: &str) -> Result<Key, StoreError> {
    Key::new(company_id, collection::QUOTAS, name)
}

/// Commits an addition, of which the first write is a put, and returns its version.
///
/// # Errors
/// The error of [`Quota::check`]; [`StoreError::Conflict`] if a precondition of `writes` does not hold.
pub(super) async fn put_within(
    records: &dyn Records,
    quota: &dyn Quota,
    writes: &[Write],
) -> Result<u64, WorkspaceError> {
    let key = quota.key()?;
    let mut attempts = UpdateAttempts::new(records, &key);
    let mut version = version_of(records, &key).await?;
    loop {
        quota.check(records).await?;
        let mut writes = writes.to_vec();
        writes.push(Write::Put {
            key: key.clone(),
            value: to_json(&QuotaRecord {})?,
            precondition: Precondition::unchanged_since(version),
        });
        let error = match records.commit(writes).await {
            Ok(versions) => {
                let version = versions.into_iter().next().flatten();
                return version.ok_or_else(|| StoreError::unavailable("a version is missing").into());
            }
            Err(error) => error,
        };
        if version_of(records, &key).await? == version {
            // There was no other addition: a precondition of the addition itself does not hold, or the store has failed.
            return Err(error.into());
        }
        attempts.retry(error).await?;
        version = version_of(records, &key).await?;
    }
}

/// Returns the current version of a quota's record.
async fn version_of(records: &dyn Records, key: &Key) -> Result<Option<u64>, StoreError> {
    Ok(records.versions(std::slice::from_ref(key)).await?.into_iter().next().flatten())
}

/// Returns the error of an addition whose caller checks the quota when it repeats the addition: one that exceeds the quota
/// fails as if a precondition did not hold.
pub(super) fn exceeded_as_conflict(error: WorkspaceError) -> StoreError {
    match error {
        WorkspaceError::Store(error) => error,
        _ => StoreError::Conflict { expected: None, found: None },
    }
}

/// Quota of a company's documents.
pub(super) struct DocumentQuota<'d> {
    pub(super) company_id: &'d CompanyId,
    /// Maximum number of documents.
    pub(super) limit: u64,
}

#[async_trait]
impl Quota for DocumentQuota<'_> {
    fn key(&self) -> Result<Key, StoreError> {
        quota_key(self.company_id, "documents")
    }

    async fn check(&self, records: &dyn Records) -> Result<(), WorkspaceError> {
        let documents = Collection::new(self.company_id, collection::DOCUMENTS)?;
        if records.count(&documents).await? < self.limit {
            return Ok(());
        }
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Err(WorkspaceError::Full { what: "collection of documents", limit })
    }
}
