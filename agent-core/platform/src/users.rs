//! Users' settings, read from the workspace's records.

use std::sync::Arc;

use agent_core::ids::{CompanyId, UserId};
use agent_core::store_error::StoreError;
use agent_core::users::{UserDirectory, UserProfile};
use async_trait::async_trait;

use crate::records::Records;
use crate::workspace;

/// A [`UserDirectory`] over the workspace's `users` collection.
pub struct RecordUsers(Arc<dyn Records>);

impl std::fmt::Debug for RecordUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordUsers").finish_non_exhaustive()
    }
}

impl RecordUsers {
    /// Reads users from `records`.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self(records)
    }
}

#[async_trait]
impl UserDirectory for RecordUsers {
    async fn profile(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<Option<UserProfile>, StoreError> {
        let user = workspace::get_user(&*self.0, company_id, user_id).await?;
        Ok(user.map(|user| UserProfile { timezone: user.timezone }))
    }
}
