//! Deletion of users and the data that belong only to them.

use std::collections::HashSet;

use super::decided_approvals::person_collection;
use super::memories::{MemorySelection, delete_memories};
use super::plans::list_id_of;
use super::record_deletion::{clear, delete_records};
use super::user_files::delete_user_files;
use super::user_jobs::request_cancellation;
use super::{Assignment, FreeFormItem, TodoList, collection};
use crate::coding;
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, RecordsExt, StoreError,
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
    /// The user's todo lists, which are deleted with their plans.
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

/// Deletes a user and the data that belong only to the user: memory, notifications, files, todo lists with their plans,
/// assignments and the sign-in to a subscription. Agents and documents stay with the company, and so do the entries of a
/// memory that the company shares. The application cancels the user's jobs at its next maintenance. Repeating it after an
/// error deletes what is left.
pub async fn delete_user(
    inventory: &dyn Inventory,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<UserDeletion, StoreError> {
    let user = Key::new(company_id, collection::USERS, user_id.as_str())?;
    let notifications = Collection::new(company_id, collection::NOTIFICATIONS)?.within(user_id)?;
    let summaries = Collection::new(company_id, collection::SUMMARIES)?.within(user_id)?;
    request_cancellation(inventory, company_id, user_id).await?;
    clear(inventory, &person_collection(company_id, user_id)?).await?;
    Ok(UserDeletion {
        memories: delete_memories(inventory, company_id, MemorySelection::User(user_id)).await?,
        notifications: clear(inventory, &notifications).await?,
        files: delete_user_files(inventory, (company_id, user_id)).await?,
        todo_lists: delete_todo_lists(inventory, company_id, user_id).await?,
        assignments: delete_assignments(inventory, company_id, user_id).await?,
        summaries: clear(inventory, &summaries).await?,
        subscriptions: usize::from(coding::delete_subscription(inventory, company_id, user_id).await?),
        users: usize::from(inventory.delete(&user, Precondition::Any).await?),
    })
}

/// Deletes the todo lists of a user with their plans, and returns the number of lists. The plans are deleted first, so that
/// a deletion after an error finds the rest of them by their lists.
async fn delete_todo_lists(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<usize, StoreError> {
    let lists = Collection::new(company_id, collection::TODO_LISTS)?;
    let plans = Collection::new(company_id, collection::PLANS)?;
    let own_lists = ids_where(records, &lists, |list: &TodoList| list.owner_id == *user_id).await?;
    if own_lists.is_empty() {
        return Ok(0);
    }
    let list_ids: HashSet<&str> = own_lists.iter().map(String::as_str).collect();
    let own_plans = ids_where(records, &plans, |plan: &FreeFormItem| {
        list_id_of(plan).is_some_and(|list_id| list_ids.contains(list_id))
    })
    .await?;
    delete_records(records, &plans, own_plans).await?;
    delete_records(records, &lists, own_lists).await
}

/// Deletes the assignments that run for a user, and returns their number.
async fn delete_assignments(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<usize, StoreError> {
    let assignments = Collection::new(company_id, collection::ASSIGNMENTS)?;
    let is_own = |assignment: &Assignment| assignment.user_id == *user_id;
    let own_assignments = ids_where(records, &assignments, is_own).await?;
    delete_records(records, &assignments, own_assignments).await
}

/// Returns the ids of the records of a collection for which `is_wanted` returns true.
async fn ids_where<T: serde::de::DeserializeOwned + Send>(
    records: &dyn Records,
    collection: &Collection,
    is_wanted: impl Fn(&T) -> bool + Send,
) -> Result<Vec<String>, StoreError> {
    let mut ids = Vec::new();
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = records.list_as::<T>(collection, &list).await?;
        ids.extend(
            page.records.into_iter().filter(|record| is_wanted(&record.value)).map(|record| record.id),
        );
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(ids);
        }
    }
}
