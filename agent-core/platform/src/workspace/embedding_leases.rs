//! Leases on the embedding of companies' documents, which keep several processes from embedding the same chunks.

use std::time::Duration;

use agent_core::ids::CompanyId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::collection;
use crate::records::{Key, Precondition, Records, RecordsExt, StoreError, to_json};
use crate::time::saturating_after;

/// Lease on the embedding of a company's documents.
#[derive(Serialize, Deserialize)]
struct EmbeddingLease {
    /// The process.
    owner: String,
    until: Timestamp,
}

/// A lease that this process has taken.
pub(crate) struct EmbeddingClaim {
    key: Key,
    version: u64,
}

/// Takes the lease on the embedding of a company's documents; `None` if another process has it.
pub(crate) async fn claim_embedding(
    records: &dyn Records,
    company_id: &CompanyId,
    owner: &str,
    now: Timestamp,
    lease: Duration,
) -> Result<Option<EmbeddingClaim>, StoreError> {
    let key = Key::new(company_id, collection::EMBEDDING_LEASES, "company")?;
    let found = records.get_as::<EmbeddingLease>(&key).await?;
    if found.as_ref().is_some_and(|found| found.value.owner != owner && found.value.until > now) {
        return Ok(None);
    }
    let precondition = found.map_or(Precondition::Absent, |found| Precondition::Version(found.version));
    let until = saturating_after(now, lease);
    let value = to_json(&EmbeddingLease { owner: owner.to_owned(), until })?;
    match records.put(&key, value, precondition).await {
        Ok(version) => Ok(Some(EmbeddingClaim { key, version })),
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a lease, unless another process has taken it.
pub(crate) async fn release_embedding(
    records: &dyn Records,
    claim: EmbeddingClaim,
) -> Result<(), StoreError> {
    match records.delete(&claim.key, Precondition::Version(claim.version)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
