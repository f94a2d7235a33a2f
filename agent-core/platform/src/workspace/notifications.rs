//! Notifications from agents to users. The newest [`MAX_NOTIFICATIONS_PER_USER`] of each user are kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::text::{self, MAX_TITLE_BYTES, checked_line, checked_text};
use super::view::{ListPage, list_projected};
use super::{WorkspaceError, collection, utc_time};
use crate::records::{
    Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, Order, Precondition, Record, Records, StoreError,
    Write, to_json,
};
use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId, UserId};
use agent_core::tool::ExecutionContext;

/// Maximum number of notifications per user; the oldest are deleted.
pub(crate) const MAX_NOTIFICATIONS_PER_USER: usize = MAX_PAGE_RECORDS;
/// Maximum size of the text of a notification, in bytes.
pub const MAX_NOTIFICATION_BYTES: usize = 4 * 1024;

/// Notification from an agent to a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// Identifier of the notification.
    pub id: String,
    /// Company of the user.
    pub company_id: CompanyId,
    /// User who is notified.
    pub user_id: UserId,
    /// Agent that sent the notification.
    pub agent_id: AgentId,
    /// Subject.
    pub title: String,
    /// Body text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Time of sending, RFC 3339.
    pub at: String,
    /// Thread of the run that sent it, if the run is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The run that sent it, if it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// True if the user has read it.
    #[serde(default)]
    pub read: bool,
}

/// Sends a notification to the context's user at the time `now`.
pub async fn send_notification(
    records: &dyn Records,
    context: &ExecutionContext,
    title: &str,
    text: Option<&str>,
    now: Timestamp,
) -> Result<Notification, WorkspaceError> {
    let (notification, writes) = prepare_notification(records, context, title, text, now).await?;
    records.commit(writes).await?;
    Ok(notification)
}

/// Returns the notification and the writes of [`send_notification`], for callers that commit them together with
/// others.
pub async fn prepare_notification(
    records: &dyn Records,
    context: &ExecutionContext,
    title: &str,
    text: Option<&str>,
    now: Timestamp,
) -> Result<(Notification, Vec<Write>), WorkspaceError> {
    let title = checked_line(title, MAX_TITLE_BYTES).map_err(text::invalid_field("title"))?;
    let text = text.map(|text| checked_text(text, MAX_NOTIFICATION_BYTES));
    let text = text.transpose().map_err(text::invalid_field("text"))?;
    let notification = Notification {
        id: agent_core::new_id(),
        company_id: context.company_id.clone(),
        user_id: context.user_id.clone(),
        agent_id: context.agent_id.clone(),
        title: title.to_owned(),
        text: text.map(str::to_owned),
        at: utc_time(now),
        // A call with the run's token does not know the thread.
        thread_id: Some(context.thread_id.clone()).filter(|id| context.can_suspend && !id.is_empty()),
        run_id: context.can_suspend.then(|| context.run_id.clone()),
        read: false,
    };
    let own = collection_of_user(context)?;
    let mut writes = eviction_writes(records, &own, MAX_NOTIFICATIONS_PER_USER).await?;
    writes.push(Write::Put {
        key: own.key(notification.id.as_str())?,
        value: to_json(&notification)?,
        precondition: Precondition::Absent,
    });
    Ok((notification, writes))
}

/// Returns the deletions of the oldest records that make room for one more among `max`, which is a page at most. Concurrent calls
/// may exceed the limit; the next call corrects it.
pub(super) async fn eviction_writes(
    records: &dyn Records,
    own: &Collection,
    max: usize,
) -> Result<Vec<Write>, StoreError> {
    let staying = ListQuery { limit: Some(max - 1), order: Order::Descending, ..ListQuery::default() };
    let Some(cursor) = records.list(own, &staying).await?.next_cursor else { return Ok(Vec::new()) };
    let older = ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor: Some(cursor), ..staying };
    let remove =
        |record: Record| Ok(Write::Delete { key: own.key(record.id)?, precondition: Precondition::Any });
    records.list(own, &older).await?.records.into_iter().map(remove).collect()
}

/// Returns one page of the notifications of the context's user, newest first.
pub async fn list_notifications(
    records: &dyn Records,
    context: &ExecutionContext,
    unread_only: bool,
    list: ListQuery,
) -> Result<ListPage<Record<Notification>>, StoreError> {
    let list = ListQuery { order: Order::Descending, ..list };
    let if_unread = |record: Record<Notification>| (!unread_only || !record.value.read).then_some(record);
    list_projected(records, &collection_of_user(context)?, &list, if_unread).await
}

/// Marks the unread ones of the listed notifications as read, all or none.
///
/// # Errors
/// [`StoreError::Conflict`] if one was changed or deleted since it was listed.
pub(crate) async fn mark_read(
    records: &dyn Records,
    context: &ExecutionContext,
    listed: &[Record<Notification>],
) -> Result<(), StoreError> {
    let own = collection_of_user(context)?;
    let mark = |record: &Record<Notification>| {
        let read = Notification { read: true, ..record.value.clone() };
        let (key, precondition) = (own.key(record.id.as_str())?, Precondition::Version(record.version));
        Ok(Write::Put { key, value: to_json(&read)?, precondition })
    };
    let unread = listed.iter().filter(|record| !record.value.read);
    let writes = unread.map(mark).collect::<Result<Vec<_>, StoreError>>()?;
    if !writes.is_empty() {
        records.commit(writes).await?;
    }
    Ok(())
}

/// Returns the notifications of a user from runs in threads, newest first. Notifications that were sent with a run's token have
/// only the run.
///
/// # Errors
/// Errors of the store.
pub async fn list_thread_notifications(
    records: &dyn Records,
    (company, user): (&CompanyId, &UserId),
) -> Result<Vec<Notification>, StoreError> {
    let own = user_collection(company, user)?;
    let mut list =
        ListQuery { limit: Some(MAX_PAGE_RECORDS), order: Order::Descending, ..ListQuery::default() };
    let of_run = |record: Record<Notification>| {
        let thread_id = record.value.thread_id.clone().filter(|id| !id.is_empty());
        Some(Notification { thread_id, ..record.value }).filter(|found| found.run_id.is_some())
    };
    let mut notifications = Vec::new();
    loop {
        let page = list_projected(records, &own, &list, of_run).await?;
        notifications.extend(page.items);
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(notifications);
        }
    }
}

/// Deletes notifications of a user by their ids.
///
/// # Errors
/// Errors of the store. Some of the notifications may be deleted then.
pub async fn delete_notifications(
    records: &dyn Records,
    (company, user): (&CompanyId, &UserId),
    ids: &[String],
) -> Result<(), StoreError> {
    let own = user_collection(company, user)?;
    let delete =
        |id: &String| Ok(Write::Delete { key: own.key(id.as_str())?, precondition: Precondition::Any });
    for page in ids.chunks(MAX_PAGE_RECORDS) {
        let writes = page.iter().map(delete).collect::<Result<Vec<_>, StoreError>>()?;
        records.commit(writes).await?;
    }
    Ok(())
}

/// Returns a page of the users of a company who have notifications, and the cursor of the next page.
///
/// # Errors
/// Errors of the store.
pub async fn list_notified_users(
    inventory: &dyn Inventory,
    company: &CompanyId,
    cursor: Option<&str>,
) -> Result<(Vec<UserId>, Option<String>), StoreError> {
    list_users(inventory, company, collection::NOTIFICATIONS, cursor).await
}

/// Returns a page of the users of a company who have a collection below `name`, and the cursor of the next page.
pub(super) async fn list_users(
    inventory: &dyn Inventory,
    company: &CompanyId,
    name: &str,
    cursor: Option<&str>,
) -> Result<(Vec<UserId>, Option<String>), StoreError> {
    let all_users = format!("{name}/");
    let page = inventory.collections(company.as_str(), Some(cursor.unwrap_or(&all_users))).await?;
    let of_users: Vec<&Collection> =
        page.iter().filter(|found| found.path().starts_with(&all_users)).collect();
    let users = of_users.iter().filter_map(|found| found.parts().nth(1)).map(UserId::from).collect();
    let last = of_users.last().filter(|_| of_users.len() == page.len());
    Ok((users, last.map(|last| last.path().to_owned())))
}

fn collection_of_user(context: &ExecutionContext) -> Result<Collection, StoreError> {
    user_collection(&context.company_id, &context.user_id)
}

fn user_collection(company: &CompanyId, user: &UserId) -> Result<Collection, StoreError> {
    Collection::new(company.as_str(), collection::NOTIFICATIONS)?.within(user)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    fn context(user: &str, company: &str) -> ExecutionContext {
        ExecutionContext {
            user_id: user.into(),
            company_id: company.into(),
            agent_id: "a".into(),
            ..ExecutionContext::default()
        }
    }

    fn titles(records: &MemoryRecords, context: &ExecutionContext, unread_only: bool) -> Vec<String> {
        let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let listed_notifications =
            list_notifications(records, context, unread_only, list).now_or_never().expect("no wait");
        listed_notifications.expect("read").items.into_iter().map(|record| record.value.title).collect()
    }

    fn send(records: &MemoryRecords, context: &ExecutionContext, title: &str) -> Result<(), String> {
        let sent = send_notification(records, context, title, Some("x"), Timestamp::UNIX_EPOCH);
        sent.now_or_never().expect("no wait").map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_person_has_the_newest_of_the_own() {
        let records = MemoryRecords::default();
        let ada = context("ada", "c");
        for n in 0..MAX_NOTIFICATIONS_PER_USER + 3 {
            send(&records, &ada, &n.to_string()).expect("sent");
        }
        let expected: Vec<_> = (3..MAX_NOTIFICATIONS_PER_USER + 3).rev().map(|n| n.to_string()).collect();
        assert_eq!(titles(&records, &ada, false), expected);
        for other in [context("bob", "c"), context("ada", "d")] {
            assert_eq!(titles(&records, &other, false), Vec::<String>::new());
        }
        assert_eq!(send(&records, &ada, ""), Err("title: is blank".to_owned()));
    }

    #[test]
    fn notifications_of_threads_are_found_by_their_users_and_deleted() {
        let records = MemoryRecords::default();
        for user in ["ada", "bob"] {
            let of_thread =
                ExecutionContext { can_suspend: true, thread_id: "t".into(), ..context(user, "c") };
            send(&records, &of_thread, "of a thread").expect("sent");
            send(&records, &context(user, "c"), "of none").expect("sent");
        }
        let (company, ada): (CompanyId, UserId) = ("c".into(), "ada".into());
        let users = |cursor: Option<&str>| {
            let page = list_notified_users(&records, &company, cursor).now_or_never().expect("no wait");
            page.expect("read")
        };
        let (found, cursor) = users(None);
        assert_eq!(found, ["ada", "bob"].map(UserId::from));
        assert_eq!(users(cursor.as_deref()), (Vec::new(), None));
        let listed = || {
            let list = list_thread_notifications(&records, (&company, &ada)).now_or_never();
            list.expect("no wait").expect("read")
        };
        let ids: Vec<String> = listed().into_iter().map(|found| found.id).collect();
        assert_eq!(ids.len(), 1);
        let deleted = delete_notifications(&records, (&company, &ada), &ids).now_or_never();
        deleted.expect("no wait").expect("deleted");
        assert!(listed().is_empty());
        assert_eq!(titles(&records, &context("ada", "c"), false), ["of none"]);
        assert_eq!(titles(&records, &context("bob", "c"), false).len(), 2);
    }

    #[test]
    fn a_notification_that_is_sent_with_a_runs_token_has_the_run_and_no_thread() {
        let records = MemoryRecords::default();
        let by_token = ExecutionContext { can_suspend: true, run_id: "r".into(), ..context("ada", "c") };
        send(&records, &by_token, "by the token").expect("sent");
        let (company, ada): (CompanyId, UserId) = ("c".into(), "ada".into());
        let listed = list_thread_notifications(&records, (&company, &ada)).now_or_never();
        let listed = listed.expect("no wait").expect("read");
        let of: Vec<_> =
            listed.iter().map(|sent| (sent.thread_id.as_deref(), sent.run_id.as_deref())).collect();
        assert_eq!(of, [(None, Some("r"))]);
    }

    #[test]
    fn read_marks_are_kept_and_evicted_notifications_stay_deleted() {
        let records = MemoryRecords::default();
        let ada = context("ada", "c");
        for title in ["one", "two", "three"] {
            send(&records, &ada, title).expect("sent");
        }
        let first = ListQuery { limit: Some(2), ..ListQuery::default() };
        let listed =
            list_notifications(&records, &ada, true, first).now_or_never().expect("no wait").expect("read");
        let mark = || mark_read(&records, &ada, &listed.items).now_or_never().expect("no wait");
        mark().expect("marked");
        assert_eq!(titles(&records, &ada, true), ["one"]);
        assert_eq!(titles(&records, &ada, false), ["three", "two", "one"]);
        assert!(matches!(mark(), Err(StoreError::Conflict { .. })));
    }
}
