//! Upkeep of conversations: the lease of this process, the logs of its runs, signals of other processes, and the runs
//! and logs of ended processes.

use std::time::{Duration, Instant};

use agent_platform::conversation::{
    AppendedEvents, CancelReason, ConversationError, Conversations, MAX_REAPED_RUNS, MAX_TRIMMED_LOGS, Run,
    RunChunk, RunKey, RunSignal,
};

use crate::app::services::ConversationService;
use crate::app::services::live::RunStop;

/// Time between two passes over the events that wait to be stored.
const FLUSH_TICK: Duration = Duration::from_millis(100);
/// Number of ticks between two queries for signals.
const TICKS_PER_SIGNAL: u32 = 2;
/// Maximum size of the chunks of a commit, in bytes, unless a single one is larger.
const MAX_COMMIT_BYTES: usize = 4 << 20;
/// Pause after the store was unavailable.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time between two searches for logs that have expired.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

impl ConversationService {
    /// Renews the lease of this process, stores the logs of its runs, interrupts the runs of ended processes, and deletes
    /// logs that have expired. Runs until the future is dropped.
    pub(in super::super) async fn run_upkeep(&self) {
        let Some(store) = &self.store else { return };
        let store = &**store;
        tokio::join!(self.renew_leases(store), self.store_logs(store), self.reap(store), self.trim(store));
    }

    /// Renews the lease while runs are live: the begin of a run extends one of which little is left, and without runs there is
    /// nothing to lose.
    async fn renew_leases(&self, store: &dyn Conversations) {
        let mut live = self.live.subscribe();
        while live.wait_for(|count| *count > 0).await.is_ok() {
            if let Err(error) = self.renew_lease(store).await {
                tracing::warn!(%error, "failed to renew the lease of runs; once it expires, they are interrupted");
            }
            tokio::time::sleep(self.times.lease.mul_f32(0.3)).await;
        }
    }

    /// Renews the lease once. If it had expired, stops the runs that other processes have ended meanwhile.
    async fn renew_lease(&self, store: &dyn Conversations) -> Result<(), ConversationError> {
        let (term, lease) = (self.new_lease_term(), self.lease());
        store.renew_lease(&lease).await?;
        self.record_renewal(&lease, term);
        for run in self.runs.all() {
            if run.has_lease(&*self.clock) || self.is_own(store, &run).await? {
                run.extend_lease(term);
            }
        }
        Ok(())
    }

    /// Stores the logs of live runs, and takes the signals for them.
    async fn store_logs(&self, store: &dyn Conversations) {
        let mut live = self.live.subscribe();
        let mut tick = 0_u32;
        while live.wait_for(|count| *count > 0).await.is_ok() {
            tick = tick.wrapping_add(1);
            let pass = async {
                if tick.is_multiple_of(TICKS_PER_SIGNAL) {
                    self.take_signals(store).await?;
                }
                self.flush_logs(store).await
            };
            if let Err(error) = pass.await {
                tracing::warn!(%error, "the logs of runs were not stored");
                self.runs.all().iter().for_each(|run| run.store_failed());
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            let _ = tokio::time::timeout(FLUSH_TICK, self.large_tail.notified()).await;
        }
    }

    /// Stores the events that have waited for long enough, of all runs in few commits.
    async fn flush_logs(&self, store: &dyn Conversations) -> Result<(), ConversationError> {
        let limit = Instant::now().checked_sub(self.times.log_flush);
        let mut chunks = Vec::new();
        let mut bytes = 0;
        let mut runs = self.runs.all().into_iter().peekable();
        while let Some(run) = runs.next() {
            let chunk = {
                let mut tail = run.tail();
                let is_due = run.is_watched() || limit.is_some_and(|limit| tail.is_due(limit));
                is_due.then(|| tail.begin_store()).flatten()
            };
            if let Some(chunk) = chunk {
                bytes += chunk.body.len();
                chunks.push(RunChunk { run: run.key().clone(), chunk });
            }
            if bytes >= MAX_COMMIT_BYTES || (runs.peek().is_none() && !chunks.is_empty()) {
                bytes = 0;
                self.append(store, std::mem::take(&mut chunks)).await?;
            }
        }
        Ok(())
    }

    async fn append(
        &self,
        store: &dyn Conversations,
        chunks: Vec<RunChunk>,
    ) -> Result<(), ConversationError> {
        let runs: Vec<_> = chunks.iter().map(|chunk| chunk.run.clone()).collect();
        let AppendedEvents { lost, locked } = store.append_events(&self.process, chunks).await?;
        for run in runs.iter().filter_map(|key| self.runs.get(key)) {
            if lost.contains(run.key()) {
                // A run whose end was stored in the meantime can no longer be stopped.
                let stored_run = store.run(&run.key().owner, &run.key().id).await?;
                let deleted = RunStop::Cancelled(CancelReason::Deleted);
                run.stop(stored_run.map_or(deleted, |_| RunStop::Lost));
            } else if locked.contains(run.key()) {
                // The next pass tries again.
                run.store_failed();
            } else {
                run.mark_stored();
            }
        }
        Ok(())
    }

    /// Takes the signals for the runs of this process. Others may learn of a run from the store before its process has the answer
    /// to the commit: the process gets the requests to cancel such a run again, and a queued one looks for its turn first.
    async fn take_signals(&self, store: &dyn Conversations) -> Result<(), ConversationError> {
        for (key, signal) in store.take_signals(&self.process, self.now()).await? {
            let Some(run) = self.runs.get(&key) else { continue };
            match signal {
                RunSignal::Watch => run.watch(),
                RunSignal::Start => run.wake_queued(),
                RunSignal::Cancel(reason) => run.stop(RunStop::Cancelled(reason)),
            }
        }
        Ok(())
    }

    /// Interrupts a run if its process has ended, and returns its state after that; `None` if it does not exist. A run that is live in
    /// this process continues, even if the lease could not be renewed in time.
    pub(in super::super) async fn interrupt_abandoned(
        &self,
        store: &dyn Conversations,
        key: &RunKey,
    ) -> Result<Option<Run>, ConversationError> {
        match self.runs.get(key) {
            Some(_) => store.run(&key.owner, &key.id).await,
            None => store.interrupt_expired(&key.owner, &key.id, self.clock()).await,
        }
    }

    /// Interrupts runs of ended processes. This process's own lease is renewed first: it may have expired while the store
    /// was unavailable.
    async fn reap_once(&self, store: &dyn Conversations) -> Result<usize, ConversationError> {
        if *self.live.borrow() > 0 {
            self.renew_lease(store).await?;
        }
        store.reap(self.clock()).await
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
                Err(error) => {
                    tracing::warn!(%error, "failed to read runs of ended processes; trying again later");
                }
            }
            // Together with the lease, a run ends within 14 s after its process by default.
            tokio::time::sleep(self.times.lease.mul_f32(0.4)).await;
        }
    }

    /// Deletes the logs that have expired.
    async fn trim(&self, store: &dyn Conversations) {
        loop {
            tokio::time::sleep(TRIM_INTERVAL).await;
            loop {
                match store.trim_logs(self.now()).await {
                    Ok(count) if count >= MAX_TRIMMED_LOGS => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "the logs of ended runs were not deleted");
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::testing::ManualClock;
    use agent_platform::conversation::MemoryConversations;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::app::conversation::test_runs::begin_in_new_thread;
    use crate::app::services::live::LiveRun;
    use crate::shutdown::Shutdown;
    use crate::timestamps::add_saturating;

    #[tokio::test]
    async fn a_signal_reaches_a_run_whose_process_learns_of_it_later() {
        let store = Arc::new(MemoryConversations::default());
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let conversations: Arc<dyn Conversations> = store.clone();
        let clock = Arc::new(ManualClock::new());
        let service = ConversationService::new(Some(conversations), clock, spawner, Shutdown::default());
        let begin = begin_in_new_thread(&service, "r");
        let key = RunKey { owner: begin.key.thread_owner(), id: "r".into() };
        store.begin_run(begin).await.expect("it begins");
        let cancel = RunSignal::Cancel(CancelReason::Requested);
        let until = add_saturating(service.now(), Duration::from_secs(60));
        store.signal(&key, cancel, until).await.expect("it is left").expect("a live run");
        // The process has no answer to the commit yet.
        service.take_signals(&*store).await.expect("they are read");
        let run = Arc::new(LiveRun::new(key, service.new_lease_term()));
        service.runs.insert(&run);
        service.take_signals(&*store).await.expect("they are read");
        assert_eq!(run.stop_reason(), Some(RunStop::Cancelled(CancelReason::Requested)));
    }
}
