//! Sizes of a company's uploads, and the quota that limits them.

use std::collections::HashSet;

use async_trait::async_trait;
use serde::Deserialize;

use super::pieces::PENDING_COLLECTION;
use super::sweep::STORED_COLLECTION;
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Quota, Record, Records, RecordsExt, StoreError, quota_key,
};
use crate::workspace::WorkspaceError;
use agent_core::ids::CompanyId;

/// Collection of users' files.
pub const USER_FILE_COLLECTION: &str = "files";
/// Collections whose records [`UploadUsage`] sums. Stores read their pages from the database and not from a cache, so that
/// a sum has every addition that preceded it, in any process.
pub const SUMMED_COLLECTIONS: [&str; 3] = [PENDING_COLLECTION, STORED_COLLECTION, USER_FILE_COLLECTION];

/// Sizes of a company's stored originals and files, and of those that are being stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UploadUsage {
    /// Total size in bytes.
    pub bytes: u64,
}

/// Fields that the records of all [`SUMMED_COLLECTIONS`] have.
#[derive(Deserialize)]
struct StoredOriginal {
    generation: String,
    #[serde(default, alias = "originalBytes")]
    bytes: u64,
}

impl UploadUsage {
    /// Reads the sizes.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn load(records: &dyn Records, company_id: &CompanyId) -> Result<Self, StoreError> {
        Self::load_without(records, company_id, None).await
    }

    /// Reads the sizes without that of a document's present original.
    ///
    /// Uploads that are being stored are read first. An original that is attached meanwhile is then known by its generation when it
    /// is found again; in the other order it could be found in neither place.
    async fn load_without(
        records: &dyn Records,
        company_id: &CompanyId,
        document_id: Option<&str>,
    ) -> Result<Self, StoreError> {
        let (mut bytes, mut pending) = (0_u64, HashSet::<String>::new());
        let collection = Collection::new(company_id, PENDING_COLLECTION)?;
        visit(records, &collection, |record| {
            bytes += record.value.bytes;
            pending.insert(record.value.generation);
        })
        .await?;
        for path in [STORED_COLLECTION, USER_FILE_COLLECTION] {
            let collection = Collection::new(company_id, path)?;
            let replaced = document_id.filter(|_| path == STORED_COLLECTION);
            visit(records, &collection, |record| {
                if replaced != Some(record.id.as_str()) && !pending.contains(&record.value.generation) {
                    bytes += record.value.bytes;
                }
            })
            .await?;
        }
        Ok(Self { bytes })
    }
}

/// Calls `visit` with each record of a collection.
async fn visit(
    records: &dyn Records,
    collection: &Collection,
    mut visit: impl FnMut(Record<StoredOriginal>) + Send,
) -> Result<(), StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = records.list_as::<StoredOriginal>(collection, &list).await?;
        page.records.into_iter().for_each(&mut visit);
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

/// Quota of the sizes, for one upload.
pub(in crate::workspace) struct UploadQuota<'u> {
    pub(in crate::workspace) company_id: &'u CompanyId,
    /// Document whose present original the upload replaces.
    pub(in crate::workspace) document_id: Option<&'u str>,
    /// Size of the upload, in bytes.
    pub(in crate::workspace) bytes: u64,
    /// Maximum total size, in bytes.
    pub(in crate::workspace) limit: u64,
}

#[async_trait]
impl Quota for UploadQuota<'_> {
    type Error = WorkspaceError;

    fn key(&self) -> Result<Key, StoreError> {
        quota_key(self.company_id, "uploads")
    }

    async fn check(&self, records: &dyn Records) -> Result<(), WorkspaceError> {
        let used = UploadUsage::load_without(records, self.company_id, self.document_id).await?.bytes;
        if used.saturating_add(self.bytes) <= self.limit {
            return Ok(());
        }
        Err(WorkspaceError::UploadsExceeded { used, limit: self.limit })
    }
}
