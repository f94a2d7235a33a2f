//! Quotas that concurrent additions cannot exceed together.
//!
//! A quota has a record. An addition reads the record's version, then the usage, and writes the record in its own commit under
//! that version. Of two additions that have read the same usage, one therefore fails and checks the usage again. Deletions do not
//! write the record, since they only free room. Imports do not either, since no quota limits them.
//!
//! The version is read from the store, and what is summed in [`SUMMED_COLLECTIONS`](crate::workspace::SUMMED_COLLECTIONS)
//! and counted has to be, too: from a cache, the usage could be older than the version.

use async_trait::async_trait;
use serde::Serialize;

use super::{Collection, Key, Precondition, Records, StoreError, UpdateAttempts, Write, commit_put, to_json};
use agent_core::ids::CompanyId;

/// Records of a company that are written by each addition that a quota limits.
pub(crate) const QUOTAS: &str = "quotas";

/// Limit on the data that a company, an agent or a user stores.
#[async_trait]
pub(crate) trait Quota: Send + Sync {
    /// Error of an addition.
    type Error: From<StoreError> + Send;

    /// Returns the key of the quota's record.
    fn key(&self) -> Result<Key, StoreError>;

    /// Reads the usage, and fails if the addition would exceed the quota.
    async fn check(&self, records: &dyn Records) -> Result<(), Self::Error>;
}

/// Value of a quota's record. Only the version of the record matters.
#[derive(Serialize)]
struct QuotaRecord {}

/// Returns the key of a company's quota record.
pub(crate) fn quota_key(company_id: &CompanyId, name: &str) -> Result<Key, StoreError> {
    Key::new(company_id, QUOTAS, name)
}

/// Commits an addition and returns the version of its first write, which is a put.
///
/// # Errors
/// The error of [`Quota::check`]; [`StoreError::Conflict`] if a precondition of `writes` does not hold.
pub(crate) async fn put_within<Q: Quota + ?Sized>(
    records: &dyn Records,
    quota: &Q,
    writes: &[Write],
) -> Result<u64, Q::Error> {
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
        let error = match commit_put(records, writes).await {
            Ok(version) => return Ok(version),
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

/// Error of an addition to a collection whose number of records is limited.
#[derive(Debug)]
pub(crate) enum CountQuotaError {
    /// The collection has as many records as it may.
    Exceeded,
    /// The store failed, or a precondition does not hold.
    Store(StoreError),
}

impl From<StoreError> for CountQuotaError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl CountQuotaError {
    /// Returns the error for a caller that checks the quota when it repeats the addition: one that exceeds the quota fails
    /// as if a precondition did not hold.
    pub(crate) fn into_conflict(self) -> StoreError {
        match self {
            Self::Exceeded => StoreError::Conflict { expected: None, found: None },
            Self::Store(error) => error,
        }
    }
}

/// Quota of the records of a collection of a company.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountQuota<'c> {
    pub(crate) company_id: &'c CompanyId,
    /// Name of the collection, and of the quota.
    pub(crate) collection: &'static str,
    /// Maximum number of records.
    pub(crate) limit: u64,
}

#[async_trait]
impl Quota for CountQuota<'_> {
    type Error = CountQuotaError;

    fn key(&self) -> Result<Key, StoreError> {
        quota_key(self.company_id, self.collection)
    }

    async fn check(&self, records: &dyn Records) -> Result<(), CountQuotaError> {
        let collection = Collection::new(self.company_id, self.collection)?;
        match records.count(&collection).await? < self.limit {
            true => Ok(()),
            false => Err(CountQuotaError::Exceeded),
        }
    }
}
