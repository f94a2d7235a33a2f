//! Users of the platform.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::memories::{MemorySelection, clear, delete_memories};
use super::user_files::delete_user_files;
use super::{Assignment, TodoList, collection};
use crate::coding;
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, RecordsExt,
    StoreError,
};
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

/// Role of a user in the company, which decides what the user may change besides own items.
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
        // An invalid id is that of no user.
        Err(StoreError::Invalid(_)) => Ok(CompanyRole::default()),
        Err(error) => Err(error),
    }
}

/// Numbers of records that [`delete_user`] has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserDeletion {
    /// Entries of agents' memory that belonged to the user.
    pub memories: usize,
    /// The user's notifications.
    pub notifications: usize,
    /// The user's files.
    pub files: usize,
    /// The user's todo lists.
    pub todo_lists: usize,
    /// The user's assignments. The application cancels their jobs at its next maintenance.
    pub assignments: usize,
    /// Summaries of the user's conversations.
    pub summaries: usize,
    /// 1 if something of a subscription was stored, such as its tokens. They are not revoked.
    pub subscriptions: usize,
    /// 1 if the user had a record.
    pub users: usize,
}

/// Deletes a user and what belongs to the user alone: memory, notifications, files, todo lists, assignments and the
/// sign-in to a subscription. Agents and documents stay with the company, and so do the entries of a memory that the company
/// shares. Repeating it after an error deletes what is left.
pub async fn delete_user(
    inventory: &dyn Inventory,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<UserDeletion, StoreError> {
    let user = Key::new(company_id, collection::USERS, user_id.as_str())?;
    let notifications = Collection::new(company_id, collection::NOTIFICATIONS)?.within(user_id)?;
    let summaries = Collection::new(company_id, collection::SUMMARIES)?.within(user_id)?;
    let todo_lists = Collection::new(company_id, collection::TODO_LISTS)?;
    let assignments = Collection::new(company_id, collection::ASSIGNMENTS)?;
    Ok(UserDeletion {
        memories: delete_memories(inventory, company_id, MemorySelection::User(user_id)).await?,
        notifications: clear(inventory, &notifications).await?,
        files: delete_user_files(inventory, (company_id, user_id)).await?,
        todo_lists: delete_where(inventory, &todo_lists, |list: &TodoList| list.owner_id == *user_id).await?,
        assignments: delete_where(inventory, &assignments, |assignment: &Assignment| {
            assignment.user_id == *user_id
        })
        .await?,
        summaries: clear(inventory, &summaries).await?,
        subscriptions: usize::from(coding::erase(inventory, company_id, user_id).await?),
        users: usize::from(inventory.delete(&user, Precondition::Any).await?),
    })
}

/// Deletes the records of a collection for which `is_wanted` returns true, and returns their number.
async fn delete_where<T: serde::de::DeserializeOwned + Send>(
    records: &dyn Records,
    collection: &Collection,
    is_wanted: impl Fn(&T) -> bool + Send,
) -> Result<usize, StoreError> {
    let mut deleted = 0;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = records.list_as::<T>(collection, &list).await?;
        for Record { id, value, .. } in page.records {
            if is_wanted(&value) {
                deleted += usize::from(records.delete(&collection.key(id)?, Precondition::Any).await?);
            }
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(deleted);
        }
    }
}
