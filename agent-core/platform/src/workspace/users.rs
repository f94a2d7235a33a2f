//! Users of the platform.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::collection;
use crate::records::{Key, Records, RecordsExt, StoreError};
use agent_core::ids::{CompanyId, UserId};

/// User of the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Identifier of the user.
    pub id: UserId,
    /// Company of the user.
    pub company_id: CompanyId,
    /// IANA time zone in which dates are interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Enables document search in the user's turns; see [`User::allows_rag`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rag_enabled: Option<bool>,
    /// Role in the company; absent means `editor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<CompanyRole>,
}

/// Role of a user in the company, which decides which items of other users the user may change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CompanyRole {
    /// Chats with the company's agents and reads its documents.
    Viewer,
    /// Creates agents and documents, and changes those that the user owns.
    #[default]
    Editor,
    /// Changes all agents and documents of the company, and their owners.
    Admin,
}

impl CompanyRole {
    /// Returns true if a user of this role may change an item; `is_owner` is true if the user owns it.
    pub fn may_change(self, is_owner: bool) -> bool {
        match self {
            Self::Viewer => false,
            Self::Editor => is_owner,
            Self::Admin => true,
        }
    }
}

impl User {
    /// Returns true if documents may be searched in the user's turns, which is the default.
    pub fn allows_rag(&self) -> bool {
        self.rag_enabled.unwrap_or(true)
    }
}

/// Returns the user, or `None` if the company has no such user.
pub async fn get_user(
    records: &dyn Records,
    company_id: &CompanyId,
    id: &UserId,
) -> Result<Option<User>, StoreError> {
    let key = Key::new(company_id, collection::USERS, id.as_str())?;
    Ok(records.get_as(&key).await?.map(|record| record.value))
}

/// Returns the role of a user in the company; that of a user without a record is the default.
pub async fn get_company_role(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<CompanyRole, StoreError> {
    match get_user(records, company_id, user_id).await {
        Ok(user) => Ok(user.and_then(|user| user.role).unwrap_or_default()),
        // An invalid id belongs to no user.
        Err(StoreError::Invalid(_)) => Ok(CompanyRole::default()),
        Err(error) => Err(error),
    }
}
