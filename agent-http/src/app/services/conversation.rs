//! The store of conversations, the stored runs of this process, and its lease on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::role::ConversationSettings;
use agent_platform::conversation::{
    BeginRunRequest, ConversationError, Conversations, RUN_LEASE_MS, Run, RunClock, RunLease, ThreadCache,
    ThreadOwner, ThreadRetention,
};
use agent_platform::run_observer::RunObservers;
use agent_platform::spawner::Spawner;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::live::{LeaseTerm, LiveRuns};
use crate::shutdown::{Shutdown, ShutdownStage};
use crate::timestamps::add_saturating;

/// Maximum part of a lease that has passed when a run begins under it. The lease is renewed before.
const MAX_USED_LEASE: f32 = 0.4;

/// Time within which the ends of runs are stored together, while at least [`MIN_GROUP_COMMIT_RUNS`] runs are live: most commits would
/// have one each otherwise. A client waits half of it for the last event of its run.
const GROUP_COMMIT_DELAY: Duration = Duration::from_millis(10);
const MIN_GROUP_COMMIT_RUNS: usize = 4;

/// Settings of the stored runs, their logs and threads.
#[derive(Debug, Clone, Copy)]
pub struct RunSettings {
    /// Time for which events wait in memory before they are stored; 500 ms.
    pub log_flush: Duration,
    /// Time after a process's last renewal at which its runs count as interrupted; 10 s.
    pub lease: Duration,
    /// Time for which a run's log is kept after its end; 24 h.
    pub log_retention: Duration,
    /// Times after the last activity at which threads are deleted, unless an agent's role sets a shorter time.
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
    pub(in crate::app) store: Option<Arc<dyn Conversations>>,
    /// Threads as turns of this process have read them.
    pub(in crate::app) threads: ThreadCache,
    /// Id of this process, another at every start.
    pub(in crate::app) process: String,
    pub(in crate::app) times: RunSettings,
    pub(in crate::app) clock: Arc<dyn Clock>,
    pub(in crate::app) spawner: Arc<dyn Spawner>,
    pub(in crate::app) shutdown: Shutdown,
    pub(in crate::app) runs: Arc<LiveRuns>,
    /// Number of runs whose end is not stored yet.
    pub(in crate::app) live: watch::Sender<usize>,
    pub(in crate::app) observers: Arc<RunObservers>,
    /// Signal to store the events of a large tail without delay.
    pub(in crate::app) large_tail: Notify,
    /// The lease of this process as it was last renewed.
    renewed: Mutex<Option<RenewedLease>>,
    /// Time from which the times are counted at which ends are stored together.
    started: Instant,
}

/// A lease that the store has, and its term by the clocks of this process.
struct RenewedLease {
    until: Timestamp,
    term: LeaseTerm,
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
            threads: ThreadCache::default(),
            process: Uuid::now_v7().to_string(),
            times,
            clock,
            observers,
            spawner,
            shutdown,
            runs: Arc::default(),
            live: watch::Sender::default(),
            large_tail: Notify::new(),
            renewed: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Returns the observers of the stored runs. The models report their calls to them.
    pub fn observers(&self) -> &Arc<RunObservers> {
        &self.observers
    }

    /// Returns true unless conversations are switched off.
    pub(in crate::app) fn is_on(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the store; `None` if conversations are switched off.
    pub(in crate::app) fn store(&self) -> Option<&Arc<dyn Conversations>> {
        self.store.as_ref()
    }

    pub(in crate::app) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    pub(in crate::app) fn clock(&self) -> RunClock {
        let now = self.now();
        RunClock { now, log_until: add_saturating(now, self.times.log_retention) }
    }

    /// Returns a lease that begins now.
    pub(in crate::app) fn lease(&self) -> RunLease {
        RunLease { process: self.process.clone(), until: add_saturating(self.now(), self.times.lease) }
    }

    /// Returns the lease under which a run begins: the stored lease while most of its time is left, so that the commit does not
    /// have to write it.
    pub(in crate::app) fn begin_lease(&self) -> RunLease {
        let max_used = self.times.lease.mul_f32(MAX_USED_LEASE);
        match &*self.renewed() {
            Some(renewed) if !renewed.term.has_lasted(&*self.clock, max_used) => {
                RunLease { process: self.process.clone(), until: renewed.until }
            }
            _ => self.lease(),
        }
    }

    /// Returns the term of a lease that begins now.
    pub(in crate::app) fn new_lease_term(&self) -> LeaseTerm {
        LeaseTerm::new(&*self.clock, self.times.lease)
    }

    /// Returns the term of a lease under which a run is stored from now on.
    pub(in crate::app) fn lease_term(&self, lease: &RunLease) -> LeaseTerm {
        match &*self.renewed() {
            Some(renewed) if renewed.until >= lease.until => renewed.term,
            _ => self.new_lease_term(),
        }
    }

    /// Records that the store has a renewed lease.
    pub(in crate::app) fn record_renewal(&self, lease: &RunLease, term: LeaseTerm) {
        *self.renewed() = Some(RenewedLease { until: lease.until, term });
    }

    /// Waits for the time at which the ends of other runs are stored, too, if that saves commits.
    pub(in crate::app) async fn wait_for_group_commit(&self, store: &dyn Conversations) {
        let is_worthwhile = store.has_group_commits() && *self.live.borrow() >= MIN_GROUP_COMMIT_RUNS;
        if is_worthwhile && !self.is_ending() {
            tokio::time::sleep(time_to_gather(self.started.elapsed())).await;
        }
    }

    /// Locks the renewed lease. No code panics while holding the lock.
    fn renewed(&self) -> MutexGuard<'_, Option<RenewedLease>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time after its last activity at which an owner's thread with an agent of these settings is deleted.
    pub(in crate::app) fn retention(
        &self,
        owner: &ThreadOwner,
        agent: &ConversationSettings,
    ) -> Option<SignedDuration> {
        let time = self.times.thread_retention.of(owner, agent)?;
        Some(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX))
    }

    /// Commits the beginning of a run.
    ///
    /// # Errors
    /// Errors of [`Conversations::begin_run`].
    pub(in crate::app) async fn begin_run(
        &self,
        store: &dyn Conversations,
        begin: BeginRunRequest,
    ) -> Result<Run, ConversationError> {
        let key = begin.key.clone();
        let begun_run = store.begin_run(begin).await?;
        self.threads.apply_begin(&key, &begun_run);
        Ok(begun_run.run)
    }

    pub(in crate::app) fn is_ending(&self) -> bool {
        self.shutdown.stage() >= ShutdownStage::Ending
    }

    /// Waits until the ends of all runs are stored.
    pub async fn drain(&self) {
        let mut live = self.live.subscribe();
        // This service owns the sender.
        let _ = live.wait_for(|count| *count == 0).await;
    }
}

/// Returns the time until the next multiple of [`GROUP_COMMIT_DELAY`], at which all tasks wake that wait.
fn time_to_gather(elapsed: Duration) -> Duration {
    let period = GROUP_COMMIT_DELAY.as_nanos();
    let rest = period - elapsed.as_nanos() % period;
    Duration::from_nanos(u64::try_from(rest).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;
    use futures_util::future::BoxFuture;

    use super::*;

    #[test]
    fn ends_are_stored_at_common_times() {
        let micros = Duration::from_micros;
        for (elapsed, expected) in [(0, 10_000), (1, 9_999), (9_999, 1), (10_000, 10_000), (123_456, 6_544)] {
            assert_eq!(time_to_gather(micros(elapsed)), micros(expected), "{elapsed}");
        }
    }

    #[test]
    fn runs_begin_under_the_renewed_lease_while_most_of_it_is_left() {
        let clock = Arc::new(ManualClock::new());
        let spawner = Arc::new(|_: BoxFuture<'static, ()>| ());
        let service = ConversationService::new(None, clock.clone(), spawner, Shutdown::default());
        let first = service.begin_lease();
        assert_eq!(first, service.lease(), "none is stored");
        let term = service.new_lease_term();
        service.record_renewal(&first, term);
        clock.advance(service.times.lease.mul_f32(0.3));
        assert_eq!(service.begin_lease(), first);
        clock.advance(service.times.lease.mul_f32(0.3));
        let later = service.begin_lease();
        assert_eq!(later, service.lease(), "too little of it is left");
        // The term of a run is that of the lease that the store has.
        clock.advance(service.times.lease.mul_f32(0.5));
        let is_over = |lease| service.lease_term(lease).has_lasted(&*clock, service.times.lease);
        assert_eq!([&first, &later].map(is_over), [true, false]);
    }
}
