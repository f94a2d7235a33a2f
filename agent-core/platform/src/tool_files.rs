//! Stored files of users as parts of the requests of tools.

use std::sync::Arc;

use agent_core::ids::{CompanyId, UserId};
use async_trait::async_trait;
use bytes::Bytes;

use crate::own_tools::{ToolFile, ToolFiles};
use crate::records::{Records, StoreError};
use crate::workspace::{UserFile, get_user_files};

/// [`ToolFiles`] over the files that users have uploaded.
pub struct RecordToolFiles(pub Arc<dyn Records>);

impl std::fmt::Debug for RecordToolFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordToolFiles").finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolFiles for RecordToolFiles {
    async fn find(
        &self,
        owner: (&CompanyId, &UserId),
        ids: &[&str],
    ) -> Result<Vec<Option<ToolFile>>, StoreError> {
        let found = get_user_files(&*self.0, owner, ids).await?;
        let describe = |file: UserFile| {
            let UserFile { id, name, media_type, bytes, sha256, .. } = file;
            ToolFile { id, name, media_type, bytes, sha256 }
        };
        Ok(found.into_iter().map(|record| record.map(|record| describe(record.value))).collect())
    }

    async fn read(&self, owner: (&CompanyId, &UserId), id: &str) -> Result<Option<Bytes>, StoreError> {
        let found = get_user_files(&*self.0, owner, &[id]).await?;
        match found.into_iter().flatten().next() {
            Some(record) => record.value.read(&*self.0, owner.0).await,
            None => Ok(None),
        }
    }
}
