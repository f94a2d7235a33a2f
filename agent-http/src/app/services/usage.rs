//! The ledger of the calls of models and tools, and its upkeep.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{CompanyId, RunId, UserId};
use agent_platform::conversation::{ConversationError, Conversations, ThreadOwner};
use agent_platform::records::{Inventory, StoreError};
use agent_platform::usage::{
    Budgets, MAX_TRIMMED_ENTRIES, ReservationSweep, StoredRuns, UsageRecorder, UsageStore,
};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::error::{Code, HttpError};

/// Time between two passes that settle the reservations of ended processes. The next pass begins sooner after one that has
/// found runs that may be lost.
const SETTLE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for which a reader waits for the calls that have just ended.
const MAX_READER_WAIT: Duration = Duration::from_secs(1);
/// Time between two deletions of old entries.
const TRIM_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Runs in a store of conversations.
struct ConversationRuns(Arc<dyn Conversations>);

#[async_trait]
impl StoredRuns for ConversationRuns {
    async fn has_run(&self, company: &CompanyId, owner: &UserId, run: &RunId) -> Result<bool, StoreError> {
        match self.0.run(&ThreadOwner::new(company.clone(), owner.clone()), run).await {
            Ok(run) => Ok(run.is_some_and(|run| run.started_at.is_some())),
            Err(ConversationError::Store(error)) => Err(error),
            // No run can have such an id.
            Err(_) => Ok(false),
        }
    }
}

/// The ledger of the calls of models and tools.
pub struct UsageService {
    pub(in crate::app) recorder: UsageRecorder,
    retention: SignedDuration,
}

impl UsageService {
    /// Creates the service. Entries are deleted after `retention`; the sums of their days stay.
    pub fn new(recorder: UsageRecorder, retention: SignedDuration) -> Self {
        Self { recorder, retention }
    }

    /// Waits until the calls that have ended are stored, and their reservations are settled.
    pub async fn flush(&self) {
        self.recorder.flush().await;
        if let Some(budgets) = self.recorder.budgets() {
            budgets.flush().await;
        }
    }

    /// Returns the store, for a reader. It has the calls that ended before in this process, unless it takes none now.
    pub(in crate::app) async fn read(&self) -> &dyn UsageStore {
        // A store that takes no entries answers the reader with its error, and a company's locked ledger delays no reader.
        let _ = tokio::time::timeout(MAX_READER_WAIT, self.recorder.flush_unlocked()).await;
        &**self.recorder.store()
    }

    /// Returns the budgets.
    ///
    /// # Errors
    /// 503 if the recorder has none.
    pub(in crate::app) fn budgets(&self) -> Result<&Budgets, HttpError> {
        let not_configured = || HttpError::new(Code::NotConfigured, "this server has no budgets");
        self.recorder.budgets().ok_or_else(not_configured)
    }

    /// Settles the reservations of ended processes, and deletes old meters. Runs until the future is dropped.
    /// `runs` has the runs that count once they are stored.
    pub(in crate::app) async fn settle_lost_calls(
        &self,
        inventory: &dyn Inventory,
        runs: Option<Arc<dyn Conversations>>,
    ) {
        let Some(budgets) = self.recorder.budgets() else { return };
        let runs = runs.map(|runs| Arc::new(ConversationRuns(runs)) as Arc<dyn StoredRuns>);
        let mut sweep = ReservationSweep::new(runs);
        loop {
            let pass = async {
                while sweep.settle_page(inventory, budgets, &self.recorder).await? {}
                while sweep.delete_meters_page(inventory, self.recorder.now()).await? {}
                Ok::<_, StoreError>(())
            };
            if let Err(error) = pass.await {
                tracing::warn!(%error, "failed to settle reservations of ended processes; trying again later");
            }
            tokio::time::sleep(sweep.next_pass_after().unwrap_or(SETTLE_INTERVAL)).await;
        }
    }

    /// Deletes old entries. Runs until the future is dropped.
    pub(in crate::app) async fn run_upkeep(&self) {
        loop {
            tokio::time::sleep(TRIM_INTERVAL).await;
            let before = self.recorder.now().saturating_sub(self.retention).unwrap_or(Timestamp::MIN);
            loop {
                match self.recorder.store().trim_usage(before).await {
                    Ok(MAX_TRIMMED_ENTRIES..) => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "failed to delete old usage entries; trying again later");
                        break;
                    }
                }
            }
        }
    }
}
