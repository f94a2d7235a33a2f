//! Deletion of threads without activity.

use std::collections::HashSet;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId};
use agent_platform::conversation::{
    ActiveThread, ConversationError, Conversations, DeleteFilter, RunKey, ThreadOwner,
};
use jiff::{SignedDuration, Timestamp};

use super::super::App;
use super::{delete_obsolete_notifications, delete_obsolete_summaries};

/// Maximum time between two sweeps.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Minimum time between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of companies that a sweep passes over, since one of their threads cannot be deleted. More of them mean that
/// the store is away.
const MAX_FAILED_COMPANIES: usize = 10;

/// Deletes threads whose retention has ended. Runs until the future is dropped.
pub(in super::super) async fn sweep_threads(app: &App) {
    let Some(store) = app.conversations.store() else { return };
    let shortest = app.conversations.times.thread_retention.shortest();
    let interval = (shortest / 2).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL);
    loop {
        tokio::time::sleep(interval).await;
        match sweep(app, &**store).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "threads without activity were deleted"),
            Err(error) => {
                tracing::warn!(%error, "failed to delete threads whose retention is over; trying again later");
            }
        }
    }
}

/// Deletes the threads whose retention has ended, and returns their number.
async fn sweep(app: &App, store: &dyn Conversations) -> Result<usize, ConversationError> {
    let (mut deleted, mut cursor) = (0, None);
    let mut failed: HashSet<CompanyId> = HashSet::new();
    let now = app.conversations.now();
    let shortest = SignedDuration::try_from(app.conversations.times.thread_retention.shortest());
    let cutoff = sub_saturating(now, shortest.unwrap_or(SignedDuration::MAX));
    loop {
        let page = store.scan_threads(cursor.as_deref()).await?;
        let inactive = page.threads.into_iter().filter(|thread| thread.last_activity_at < cutoff);
        // Threads of the same owner and agent are deleted together.
        let groups: HashSet<(ThreadOwner, AgentId)> =
            inactive.map(|ActiveThread { owner, agent_id, .. }| (owner, agent_id)).collect();
        for (owner, agent) in groups {
            if failed.contains(&owner.company) {
                continue;
            }
            match sweep_owner(app, store, &owner, agent, now).await {
                Ok(count) => deleted += count,
                // Such as a locked thread. The next sweep tries again.
                Err(error) if failed.len() < MAX_FAILED_COMPANIES => {
                    tracing::warn!(%error, company = %owner.company, "failed to delete a company's threads");
                    failed.insert(owner.company);
                }
                Err(error) => return Err(error),
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(deleted);
        }
    }
}

/// Deletes an owner's threads with an agent whose retention has ended, and returns their number.
async fn sweep_owner(
    app: &App,
    store: &dyn Conversations,
    owner: &ThreadOwner,
    agent: AgentId,
    now: Timestamp,
) -> Result<usize, ConversationError> {
    // The threads of a deleted agent have the server's retention.
    let role = app.roles.role(&owner.company, &agent).await?;
    let settings = role.and_then(|role| role.content.conversations).unwrap_or_default();
    let Some(retention) = app.conversations.retention(owner, &settings) else { return Ok(0) };
    let filter = DeleteFilter { agent: Some(agent), before: Some(sub_saturating(now, retention)) };
    let mut count = 0;
    loop {
        let batch = store.delete_many(owner, &filter).await;
        app.conversations.threads.remove_owner(owner);
        let batch = batch?;
        count += batch.deleted;
        let key = |id| RunKey { owner: owner.clone(), id };
        app.conversations.stop_deleted(batch.active_runs.into_iter().map(key));
        if !batch.has_more || batch.deleted == 0 {
            if count > 0 {
                delete_obsolete_summaries(app, owner).await;
                delete_obsolete_notifications(app, owner).await;
            }
            return Ok(count);
        }
    }
}

fn sub_saturating(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}
