//! Runs whose approvals have expired, and decided runs that were not continued.

use std::sync::Arc;

use agent_platform::conversation::{
    ChangeRunRequest, ConversationError, Conversations, Run, RunChange, RunKey, ThreadOwner,
};
use agent_platform::trace::begin_trace;
use jiff::Timestamp;

use super::super::App;
use super::continue_run::continue_run;

/// Ends runs whose approvals have expired, so that their threads are free. Runs until the future is dropped.
pub(in super::super) async fn sweep_approvals(app: &Arc<App>) {
    let Some(store) = app.conversations.store().cloned() else { return };
    loop {
        match sweep(app, &*store).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "ended runs with expired approvals"),
            Err(error) => {
                tracing::warn!(%error, "failed to read runs with expired approvals; trying again later");
            }
        }
        tokio::time::sleep(app.conversations.times.lease / 2).await;
    }
}

/// Ends the runs whose approvals have expired, and returns their number.
async fn sweep(app: &Arc<App>, store: &dyn Conversations) -> Result<usize, ConversationError> {
    let (mut expired_count, mut cursor) = (0, None);
    let now = app.conversations.now();
    loop {
        let page = store.due_runs(now, cursor.as_deref()).await?;
        for (owner, run) in page.runs {
            // An error with one run does not stop the others.
            match expire(app, store, &owner, &run, now).await {
                Ok(is_ended) => expired_count += usize::from(is_ended),
                Err(error) => {
                    tracing::warn!(run_id = %run.id, %error, "failed to end an expired run; trying again later");
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(expired_count);
        }
    }
}

/// Ends a run if all its open approvals have expired; one with an approved call continues. Returns true if this call has
/// ended its wait for decisions.
async fn expire(
    app: &Arc<App>,
    store: &dyn Conversations,
    owner: &ThreadOwner,
    run: &Run,
    now: Timestamp,
) -> Result<bool, ConversationError> {
    let is_decided = !run.is_undecided();
    if is_decided && !is_abandoned(app, run, now) {
        return Ok(false);
    }
    if is_decided || !run.has_expired(now) {
        // The run that makes the approved calls refuses the expired ones.
        return match continue_run(app, owner, run, begin_trace()).await {
            Ok(()) => {
                if is_decided {
                    tracing::info!(run_id = %run.id, "a decided run was continued");
                } else {
                    app.record_expiry(owner, run);
                }
                Ok(!is_decided)
            }
            Err(error) => {
                tracing::warn!(run_id = %run.id, error = %error.detail(), "a decided run was not continued");
                Ok(false)
            }
        };
    }
    let key = RunKey { owner: owner.clone(), id: run.id.clone() };
    let ended = store.change_run(ChangeRunRequest { run: key, change: RunChange::Expire, now }).await?;
    // Another process may have ended it before.
    if ended.is_changed {
        app.record_expiry(owner, run);
    }
    Ok(ended.is_changed)
}

/// Returns true if a run whose calls are all decided was not continued, because its process ended between the last decision and
/// the beginning of the next run.
fn is_abandoned(app: &App, run: &Run, now: Timestamp) -> bool {
    let decided = run.approvals.iter().filter_map(|approval| approval.decided_at).max();
    decided.is_some_and(|at| now.duration_since(at).unsigned_abs() >= app.conversations.times.lease)
}
