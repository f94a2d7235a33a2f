//! Deletion of users with what belongs to them alone.

use super::memories::{MemorySelection, clear, delete_memories};
use super::user_files::delete_user_files;
use super::user_jobs::request_cancellation;
use super::{Assignment, TodoList, collection};
use crate::coding;
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, RecordsExt,
    StoreError,
};
use agent_core::ids::{CompanyId, UserId};

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
    /// The user's assignments.
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
/// shares. The application cancels the user's jobs at its next maintenance. Repeating it after an error deletes what is left.
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
    request_cancellation(inventory, company_id, user_id).await?;
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
        subscriptions: usize::from(coding::delete_subscription(inventory, company_id, user_id).await?),
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
