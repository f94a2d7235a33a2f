//! Conversations kept on the server: the store, the runs of this process, and the lease under which it has them.

mod error;
mod kept_run;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_platform::conversation::{
    ConversationError, Conversations, MAX_REAPED_RUNS, RUN_LEASE_MS, RunLease,
};
use agent_platform::spawner::Spawner;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use uuid::Uuid;

use crate::shutdown::{Shutdown, ShutdownStage};

pub(super) use turn::{KeptTurn, ThreadRequest};

/// Time between two renewals of the lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// Time between two searches for runs of ended processes.
const REAP_INTERVAL: Duration = Duration::from_secs(5);

/// The store of conversations, and the runs of this process that are kept in it.
pub struct ConversationService {
    /// The store; `None` if conversations are switched off.
    store: Option<Arc<dyn Conversations>>,
    /// Id of this process, another at every start.
    process: String,
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    shutdown: Shutdown,
    /// Number of runs whose end is not stored yet.
    live: watch::Sender<usize>,
}

impl ConversationService {
    /// Creates the service over a store; `None` switches conversations off.
    pub fn new(
        store: Option<Arc<dyn Conversations>>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let (process, live) = (Uuid::now_v7().to_string(), watch::Sender::default());
        Arc::new(Self { store, process, clock, spawner, shutdown, live })
    }

    /// Returns true unless conversations are switched off.
    pub(super) fn is_on(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the store; `None` if conversations are switched off.
    pub(super) fn store(&self) -> Option<&Arc<dyn Conversations>> {
        self.store.as_ref()
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    fn lease(&self) -> RunLease {
        let until = self.now().saturating_add(SignedDuration::from_millis(RUN_LEASE_MS));
        RunLease { process: self.process.clone(), until: until.unwrap_or(Timestamp::MAX) }
    }

    fn is_ending(&self) -> bool {
        self.shutdown.stage() >= ShutdownStage::Ending
    }

    /// Renews the lease of this process, and interrupts the runs of ended processes. Runs until the future is dropped.
    pub(super) async fn run_upkeep(&self) {
        let Some(store) = &self.store else { return };
        tokio::join!(self.renew_leases(&**store), self.reap(&**store));
    }

    /// Renews the lease while runs are live: each begin of a run extends it too, and without runs there is nothing to
    /// lose.
    async fn renew_leases(&self, store: &dyn Conversations) {
        let mut live = self.live.subscribe();
        while live.wait_for(|count| *count > 0).await.is_ok() {
            if let Err(error) = store.renew_lease(&self.lease()).await {
                tracing::warn!(%error, "the lease of this process's runs was not renewed");
            }
            tokio::time::sleep(RENEWAL_INTERVAL).await;
        }
    }

    /// Interrupts runs of ended processes. This process's own lease is renewed first: it may have expired while the store
    /// was unavailable.
    async fn reap_once(&self, store: &dyn Conversations) -> Result<usize, ConversationError> {
        if *self.live.borrow() > 0 {
            store.renew_lease(&self.lease()).await?;
        }
        store.reap(self.now()).await
    }

    async fn reap(&self, store: &dyn Conversations) {
        loop {
            match self.reap_once(store).await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!(count, "runs of ended processes were interrupted");
                    if count >= MAX_REAPED_RUNS {
                        continue;
                    }
                }
                Err(error) => tracing::warn!(%error, "runs of ended processes were not looked for"),
            }
            tokio::time::sleep(REAP_INTERVAL).await;
        }
    }

    /// Waits until the ends of all runs are stored.
    pub async fn drain(&self) {
        let mut live = self.live.subscribe();
        // The sender is this service's own.
        let _ = live.wait_for(|count| *count == 0).await;
    }
}

/// A run whose end is not stored yet; the service waits for it at shutdown.
struct LiveRun(Arc<ConversationService>);

impl LiveRun {
    fn new(service: Arc<ConversationService>) -> Self {
        service.live.send_modify(|count| *count += 1);
        Self(service)
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.0.live.send_modify(|count| *count -= 1);
    }
}
