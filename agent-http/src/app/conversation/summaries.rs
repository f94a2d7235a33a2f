//! Deletion of summaries of deleted threads, and of summaries that have not been used for a long time.

use std::time::Duration;

use agent_platform::conversation::ThreadOwner;

use super::super::App;

/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes the summaries of an owner's deleted threads. After an error, the next sweep deletes them.
pub(in super::super) async fn delete_obsolete_summaries(app: &App, owner: &ThreadOwner) {
    let ThreadOwner { company, owner } = owner;
    if let Err(error) = app.compaction.summaries().delete_obsolete(company, owner).await {
        tracing::warn!(%error, "failed to delete summaries of deleted threads; trying again later");
    }
}

/// Deletes summaries that are no longer needed. Runs until the future is dropped.
pub(in super::super) async fn sweep_summaries(app: &App) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match app.compaction.summaries().sweep(&*app.pulse.inventory).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "deleted unused summaries"),
            Err(error) => tracing::warn!(%error, "failed to delete unused summaries"),
        }
    }
}
