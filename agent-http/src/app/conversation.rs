//! Conversations kept on the server: the store, the runs of this process with the ends of their logs, and the lease under
//! which it has them.

mod approval;
mod begin_error;
mod contexts;
mod continue_run;
mod continued;
mod detach;
mod error;
mod expiry;
mod job;
mod kept_run;
mod kept_turn;
mod live;
mod log_reader;
mod plan;
mod planning;
mod preview;
mod queue;
mod queued_begin;
mod resume;
mod retention;
mod starting_client;
mod stop;
mod summaries;
mod tail;
mod turn;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::role::ConversationSettings;
use agent_platform::conversation::{
    Conversations, RUN_LEASE_MS, RunClock, RunLease, ThreadOwner, ThreadRetention,
};
use agent_platform::run_observer::RunObservers;
use agent_platform::spawner::Spawner;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::shutdown::{Shutdown, ShutdownStage};
use live::LiveRuns;

pub use approval::ApprovedCalls;
pub(super) use continue_run::continue_run;
pub(super) use error::events_path;
pub(super) use expiry::sweep_approvals;
pub(super) use job::start_job_turn;
pub(super) use kept_turn::KeptTurn;
pub(super) use log_reader::{LogReader, MAX_RUN_READERS};
pub(super) use preview::load_preview_messages;
pub(super) use retention::sweep_threads;
pub(super) use summaries::{delete_obsolete_summaries, sweep_summaries};
pub(super) use turn::ThreadRequest;

/// Settings of what is kept.
#[derive(Debug, Clone, Copy)]
pub struct RunSettings {
    /// Time for which events wait in memory before they are stored; 500 ms.
    pub log_flush: Duration,
    /// Time after a process's last renewal at which its runs count as interrupted; 10 s.
    pub lease: Duration,
    /// Time for which a run's log is kept after its end; 24 h.
    pub log_retention: Duration,
    /// Times after the last activity at which threads are deleted, unless an agent's role sets a shorter one.
    pub thread_retention: ThreadRetention,
    /// True if the inputs of runs are kept as long as their logs; false.
    pub keeps_inputs: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            log_flush: Duration::from_millis(500),
            lease: Duration::from_millis(RUN_LEASE_MS.unsigned_abs()),
            log_retention: Duration::from_secs(24 * 60 * 60),
            thread_retention: ThreadRetention::default(),
            keeps_inputs: false,
        }
    }
}

/// The store of conversations, and the runs of this process that are kept in it.
pub struct ConversationService {
    /// The store; `None` if conversations are switched off.
    store: Option<Arc<dyn Conversations>>,
    /// Id of this process, another at every start.
    process: String,
    times: RunSettings,
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    shutdown: Shutdown,
    runs: Arc<LiveRuns>,
    /// Number of runs whose end is not stored yet.
    live: watch::Sender<usize>,
    observers: Arc<RunObservers>,
    /// Asks for events to be stored without delay.
    large_tail: Notify,
}

impl ConversationService {
    /// Creates the service over a store; `None` switches conversations off.
    pub fn new(
        store: Option<Arc<dyn Conversations>>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        Self::with_settings(store, clock, spawner, shutdown, RunSettings::default())
    }

    /// Creates the service with other times than the default ones.
    pub fn with_settings(
        store: Option<Arc<dyn Conversations>>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        shutdown: Shutdown,
        times: RunSettings,
    ) -> Arc<Self> {
        let observers = Arc::new(RunObservers::new(clock.clone(), times.keeps_inputs));
        Arc::new(Self {
            store,
            process: Uuid::now_v7().to_string(),
            times,
            clock,
            observers,
            spawner,
            shutdown,
            runs: Arc::default(),
            live: watch::Sender::default(),
            large_tail: Notify::new(),
        })
    }

    /// Returns the observers of the runs that are kept, of which their models must know.
    pub fn observers(&self) -> &Arc<RunObservers> {
        &self.observers
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

    pub(super) fn clock(&self) -> RunClock {
        let now = self.now();
        RunClock { now, log_until: later(now, self.times.log_retention) }
    }

    fn lease(&self) -> RunLease {
        RunLease { process: self.process.clone(), until: later(self.now(), self.times.lease) }
    }

    /// Returns the time after its last activity at which an owner's thread with an agent of these settings is deleted.
    pub(super) fn retention(
        &self,
        owner: &ThreadOwner,
        agent: &ConversationSettings,
    ) -> Option<SignedDuration> {
        let time = self.times.thread_retention.of(owner, agent)?;
        Some(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX))
    }

    fn is_ending(&self) -> bool {
        self.shutdown.stage() >= ShutdownStage::Ending
    }

    /// Waits until the ends of all runs are stored.
    pub async fn drain(&self) {
        let mut live = self.live.subscribe();
        // The sender is this service's own.
        let _ = live.wait_for(|count| *count == 0).await;
    }
}

fn later(now: Timestamp, time: Duration) -> Timestamp {
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    now.saturating_add(time).unwrap_or(Timestamp::MAX)
}
