//! Per-user settings that a turn reads.

use async_trait::async_trait;

use crate::ids::{CompanyId, UserId};
use crate::store_error::StoreError;

/// The settings of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserProfile {
    /// The user's IANA time zone.
    pub timezone: Option<String>,
}

/// Looks up users' settings.
#[async_trait]
pub trait UserDirectory: Send + Sync + 'static {
    /// Returns the user's settings; `None` for an unknown user. Fails if the store does.
    async fn profile(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<Option<UserProfile>, StoreError>;
}
