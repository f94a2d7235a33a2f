//! The store of conversations, the runs of this process that are kept in it, and the lease under which it has them.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::role::ConversationSettings;
use agent_platform::conversation::{
    BeginRun, BegunRun, ConversationError, Conversations, RUN_LEASE_MS, Run, RunClock, RunLease, ThreadCache,
    ThreadOwner, ThreadRetention,
};
use agent_platform::run_observer::RunObservers;
use agent_platform::spawner::Spawner;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::live::{LeaseTerm, LiveRuns};
use crate::shutdown::{Shutdown, ShutdownStage};
use crate::timestamps::add_saturating;

/// Number of steps of a lease's time to which its end is rounded up.
const LEASE_STEPS: u32 = 8;

/// Settings of the stored runs, their logs and threads.
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
    /// Asks for events to be stored without delay.
    pub(in crate::app) large_tail: Notify,
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

    /// Returns the lease of this process from now on. Its end is rounded up, so that the runs that begin within a short time
    /// have the same, which the store writes for the first of them only.
    pub(in crate::app) fn lease(&self) -> RunLease {
        let until = rounded_up(add_saturating(self.now(), self.times.lease), self.times.lease / LEASE_STEPS);
        RunLease { process: self.process.clone(), until }
    }

    /// Returns the term of a lease that is stored from now on.
    pub(in crate::app) fn lease_term(&self) -> LeaseTerm {
        LeaseTerm::new(&*self.clock, self.times.lease)
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
    /// Those of [`Conversations::begin_run`].
    pub(in crate::app) async fn begin_run(
        &self,
        store: &dyn Conversations,
        begin: BeginRun,
    ) -> Result<Run, ConversationError> {
        let key = begin.key.clone();
        let BegunRun { thread, run, links, .. } = store.begin_run(begin).await?;
        self.threads.apply(&key, &thread, &links);
        Ok(run)
    }

    pub(in crate::app) fn is_ending(&self) -> bool {
        self.shutdown.stage() >= ShutdownStage::Ending
    }

    /// Waits until the ends of all runs are stored.
    pub async fn drain(&self) {
        let mut live = self.live.subscribe();
        // The sender is this service's own.
        let _ = live.wait_for(|count| *count == 0).await;
    }
}

/// Returns the next time after `time` that is a multiple of a step, in milliseconds.
fn rounded_up(time: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX).max(1);
    let remaining = step - time.as_millisecond().rem_euclid(step);
    add_saturating(time, Duration::from_millis(remaining.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_a_short_time_have_one_end() {
        let until = |ms: i64, step_ms: u64| {
            let time = Timestamp::from_millisecond(ms).expect("a time");
            rounded_up(time, Duration::from_millis(step_ms)).as_millisecond()
        };
        assert_eq!([10_000, 10_001, 11_249].map(|ms| until(ms, 1_250)), [11_250; 3]);
        assert_eq!(until(11_250, 1_250), 12_500, "it is later than the time itself");
        assert_eq!([until(-1, 1_250), until(7, 0)], [0, 8]);
        let last = rounded_up(Timestamp::MAX, Duration::from_secs(1));
        assert_eq!(last, Timestamp::MAX);
    }
}
