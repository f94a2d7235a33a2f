//! Deletion of the notifications that quote runs whose threads or messages are deleted, and of the references to the approvals
//! of such runs.

use std::collections::HashMap;
use std::time::Duration;

use agent_core::ids::{CompanyId, ThreadId};
use agent_platform::conversation::{ConversationError, Conversations, NodeId, ThreadKey, ThreadOwner};
use agent_platform::workspace::{
    Notification, delete_notifications, list_notified_users, list_thread_notifications,
};

use super::super::App;
use super::decided_approvals::delete_obsolete_decisions;

/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes the notifications of a thread's runs.
///
/// # Errors
/// Errors of the store.
pub(in super::super) async fn delete_thread_notifications(
    app: &App,
    key: &ThreadKey,
) -> Result<(), ConversationError> {
    let Some(store) = app.conversations.store() else { return Ok(()) };
    let found = thread_notifications(app, &**store, key).await?;
    let ids: Vec<String> = found.into_iter().map(|notification| notification.id).collect();
    Ok(delete_notifications(&*app.records, (&key.company, &key.owner), &ids).await?)
}

/// Deletes the notifications of the runs that have written a message, or for which it was sent.
///
/// # Errors
/// Errors of the store.
pub(in super::super) async fn delete_message_notifications(
    app: &App,
    store: &dyn Conversations,
    key: &ThreadKey,
    node: &NodeId,
) -> Result<(), ConversationError> {
    let owner = key.thread_owner();
    let mut ids = Vec::new();
    for Notification { id, run_id, .. } in thread_notifications(app, store, key).await? {
        let Some(run_id) = run_id else { continue };
        if store.run(&owner, &run_id).await?.is_none_or(|run| run.node_ids.contains(node)) {
            ids.push(id);
        }
    }
    Ok(delete_notifications(&*app.records, (&key.company, &key.owner), &ids).await?)
}

/// Returns the notifications of a thread's runs. Visitors have none.
async fn thread_notifications(
    app: &App,
    store: &dyn Conversations,
    key: &ThreadKey,
) -> Result<Vec<Notification>, ConversationError> {
    let owner = key.thread_owner();
    let mut found = Vec::new();
    if owner.is_visitor() {
        return Ok(found);
    }
    for notification in list_thread_notifications(&*app.records, (&key.company, &key.owner)).await? {
        let is_of_thread = match (&notification.thread_id, &notification.run_id) {
            (Some(thread_id), _) => *thread_id == key.id,
            (None, Some(run_id)) => {
                store.run(&owner, run_id).await?.is_some_and(|run| run.thread_id == key.id)
            }
            (None, None) => false,
        };
        found.extend(is_of_thread.then_some(notification));
    }
    Ok(found)
}

/// Deletes an owner's notifications of runs in deleted threads. After an error, the next sweep deletes them.
pub(in super::super) async fn delete_obsolete_notifications(app: &App, owner: &ThreadOwner) {
    let Some(store) = app.conversations.store() else { return };
    if let Err(error) = delete_obsolete(app, &**store, owner).await {
        tracing::warn!(%error, "failed to delete notifications of deleted threads; trying again later");
    }
}

async fn delete_obsolete(
    app: &App,
    store: &dyn Conversations,
    owner: &ThreadOwner,
) -> Result<usize, ConversationError> {
    if owner.is_visitor() {
        return Ok(0);
    }
    let user = (&owner.company, &owner.owner);
    let (mut ids, mut is_deleted) = (Vec::new(), HashMap::<ThreadId, bool>::new());
    for Notification { id, thread_id, run_id, .. } in list_thread_notifications(&*app.records, user).await? {
        let is_obsolete = match (thread_id, run_id) {
            (Some(thread_id), _) => match is_deleted.get(&thread_id) {
                Some(known) => *known,
                None => {
                    let found = store.thread(&owner.thread(thread_id.clone())).await?.is_none();
                    is_deleted.insert(thread_id, found);
                    found
                }
            },
            // A run is deleted with its thread.
            (None, Some(run_id)) => store.run(owner, &run_id).await?.is_none(),
            (None, None) => false,
        };
        ids.extend(is_obsolete.then_some(id));
    }
    delete_notifications(&*app.records, user, &ids).await?;
    Ok(ids.len())
}

/// Deletes the notifications of runs in deleted threads: notifications that a run sent while its thread was
/// deleted, and notifications of threads that another program deleted. Also deletes what other people's lists of decided
/// approvals have of such runs. Runs until the future is dropped.
pub(in super::super) async fn sweep_notifications(app: &App) {
    let Some(store) = app.conversations.store() else { return };
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match sweep(app, &**store).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "deleted notifications and decisions of deleted threads"),
            Err(error) => {
                tracing::warn!(%error, "failed to delete notifications and decisions of deleted threads");
            }
        }
    }
}

async fn sweep(app: &App, store: &dyn Conversations) -> Result<usize, ConversationError> {
    let inventory = &*app.pulse.inventory;
    let (mut deleted, mut after) = (0, None::<String>);
    loop {
        let companies = inventory.companies(after.as_deref()).await?;
        let Some(last) = companies.last().cloned() else { return Ok(deleted) };
        for company in companies.iter().filter(|company| !company.is_empty()) {
            let (company, mut cursor) = (CompanyId::from(company.as_str()), None::<String>);
            deleted += delete_obsolete_decisions(app, store, &company).await?;
            loop {
                let (users, next) = list_notified_users(inventory, &company, cursor.as_deref()).await?;
                for user in users {
                    deleted += delete_obsolete(app, store, &ThreadOwner::new(company.clone(), user)).await?;
                }
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        after = Some(last);
    }
}
