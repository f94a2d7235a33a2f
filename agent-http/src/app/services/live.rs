//! Runs of this process that have not ended: their logs' tails, their readers, and requests to stop them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use agent_core::clock::Clock;
use agent_core::event::{Event, RunEnd};
use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits, subtract_one};
use agent_platform::conversation::{CancelReason, OnDisconnect, PublicRunError, RunKey};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select};
use futures_util::task::AtomicWaker;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio::time::Instant;

use super::tail::Tail;

/// Maximum number of runs of a process that continue without their own clients, of all companies and of one.
const MAX_DETACHED_RUNS: usize = 4_096;
const MAX_COMPANY_DETACHED_RUNS: usize = 1_024;
/// Time for which a run counts as watched after the store has reported a reader in another process.
const WATCH_TTL: Duration = Duration::from_secs(1);

/// Reason why a run is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum RunStop {
    /// The run was cancelled.
    Cancelled(CancelReason),
    /// Another process ended the run after this process's lease had expired, or the thread was deleted.
    Lost,
}

impl RunStop {
    pub(in crate::app) fn end(self) -> RunEnd {
        match self {
            Self::Cancelled(_) => RunEnd::cancelled(),
            Self::Lost => {
                let PublicRunError { code, message } = PublicRunError::interrupted();
                RunEnd::Failed { message, code, usage: Vec::new() }
            }
        }
    }
}

/// Time of a lease, by the wall clock and the monotonic one. A process that was suspended sees it by either.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct LeaseTerm {
    began: SystemTime,
    began_monotonic: std::time::Instant,
    length: Duration,
}

impl LeaseTerm {
    /// Creates a term that begins now.
    pub(in crate::app) fn new(clock: &dyn Clock, length: Duration) -> Self {
        Self { began: clock.now(), began_monotonic: clock.monotonic(), length }
    }

    fn is_over(&self, clock: &dyn Clock) -> bool {
        self.has_lasted(clock, self.length)
    }

    /// Returns true if the term began `time` ago.
    pub(in crate::app) fn has_lasted(&self, clock: &dyn Clock, time: Duration) -> bool {
        let elapsed = clock.monotonic().saturating_duration_since(self.began_monotonic);
        let wall_elapsed = clock.now().duration_since(self.began).unwrap_or_default();
        elapsed.max(wall_elapsed) >= time
    }
}

/// A run of this process.
pub(in crate::app) struct LiveRun {
    key: RunKey,
    tail: Mutex<Tail>,
    /// Wakes readers of the tail.
    grown: Notify,
    /// Number of readers of the tail.
    readers: AtomicUsize,
    clients: watch::Sender<AttachedClients>,
    /// Time until which another process's readers count as attached.
    watched_until: Mutex<Option<Instant>>,
    /// Wakes the run while it is queued.
    next: Notify,
    /// Held while the beginning of a queued run, or the end of a run, is being stored.
    storing: Arc<tokio::sync::Mutex<()>>,
    stop: Mutex<Option<RunStop>>,
    stop_waker: AtomicWaker,
    /// True while the run waits until events are stored. Written under the lock on the tail.
    is_lagging: AtomicBool,
    /// True after events could not be stored: the run does not wait for the store then.
    is_store_unavailable: AtomicBool,
    stored_waker: AtomicWaker,
    /// Term of the lease of the run's process, as it was last known to be stored.
    lease: Mutex<LeaseTerm>,
}

impl LiveRun {
    pub(in crate::app) fn new(key: RunKey, lease: LeaseTerm) -> Self {
        Self {
            key,
            lease: Mutex::new(lease),
            tail: Mutex::new(Tail::new()),
            grown: Notify::new(),
            readers: AtomicUsize::new(0),
            clients: watch::Sender::new(AttachedClients::new()),
            watched_until: Mutex::default(),
            next: Notify::new(),
            storing: Arc::default(),
            stop: Mutex::default(),
            stop_waker: AtomicWaker::new(),
            is_lagging: AtomicBool::new(false),
            is_store_unavailable: AtomicBool::new(false),
            stored_waker: AtomicWaker::new(),
        }
    }

    pub(in crate::app) fn key(&self) -> &RunKey {
        &self.key
    }

    /// Returns true while the lease of the process holds. Once it has expired, another process may have ended the run.
    pub(in crate::app) fn has_lease(&self, clock: &dyn Clock) -> bool {
        !lock(&self.lease).is_over(clock)
    }

    /// Records that the lease was renewed, and that no other process has ended the run before.
    pub(in crate::app) fn extend_lease(&self, lease: LeaseTerm) {
        *lock(&self.lease) = lease;
    }

    /// Locks the tail. No code panics while holding the lock.
    pub(in crate::app) fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    /// Logs an event. Returns true if the tail must be stored at once.
    pub(in crate::app) fn record(&self, event: &Event) -> bool {
        let is_large = {
            let mut tail = self.tail();
            let is_large = tail.push(event);
            if tail.is_lagging() {
                self.update_lagging(&tail);
            }
            is_large
        };
        self.wake_readers();
        is_large
    }

    /// Records that the waiting chunk was stored.
    pub(in crate::app) fn mark_stored(&self) {
        let mut tail = self.tail();
        tail.mark_stored();
        self.is_store_unavailable.store(false, Ordering::SeqCst);
        self.update_lagging(&tail);
    }

    /// Records that events could not be stored: the run continues without waiting for the store.
    pub(in crate::app) fn store_failed(&self) {
        let tail = self.tail();
        self.is_store_unavailable.store(true, Ordering::SeqCst);
        self.update_lagging(&tail);
    }

    fn update_lagging(&self, tail: &Tail) {
        let is_lagging = tail.is_lagging() && !self.is_store_unavailable.load(Ordering::SeqCst);
        if self.is_lagging.swap(is_lagging, Ordering::SeqCst) && !is_lagging {
            self.stored_waker.wake();
        }
    }

    /// Polls until no more events wait to be stored than may.
    pub(in crate::app) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_lagging.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        self.stored_waker.register(cx.waker());
        if self.is_lagging.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Wakes the tail's readers.
    pub(in crate::app) fn wake_readers(&self) {
        if self.readers.load(Ordering::SeqCst) > 0 {
            self.grown.notify_waiters();
        }
    }

    /// Returns a future that is ready when the tail has grown after this call.
    pub(in crate::app) fn wait_for_growth(&self) -> Notified<'_> {
        self.grown.notified()
    }

    /// Wakes the run if it is queued, since it may be the next to begin.
    pub(in crate::app) fn wake_queued(&self) {
        self.next.notify_one();
    }

    /// Waits for a call of [`wake_queued`](Self::wake_queued), or for one since the last wait.
    pub(in crate::app) fn wait_for_wake(&self) -> Notified<'_> {
        self.next.notified()
    }

    /// Waits until no beginning or end of the run is being stored, and keeps others away until the guard is dropped.
    pub(in crate::app) async fn lock_storing(&self) -> OwnedMutexGuard<()> {
        self.storing.clone().lock_owned().await
    }

    /// Returns the number of attached clients.
    pub(in crate::app) fn attached_clients(&self) -> u32 {
        self.clients.borrow().count
    }

    /// Counts the client of the run's own request as gone. Further calls have no effect.
    pub(in crate::app) fn detach_own_client(&self) {
        self.clients.send_if_modified(|clients| {
            let is_first = std::mem::replace(&mut clients.has_own_client, false);
            if is_first {
                clients.subtract_one();
            }
            is_first
        });
    }

    /// Counts a reader of the tail as an attached client, until the guard is dropped.
    pub(in crate::app) fn attach(self: &Arc<Self>) -> AttachedReader {
        self.readers.fetch_add(1, Ordering::SeqCst);
        self.clients.send_modify(|clients| clients.count += 1);
        AttachedReader(self.clone())
    }

    /// Records that another process reads the log.
    pub(in crate::app) fn watch(&self) {
        *lock(&self.watched_until) = Some(Instant::now() + WATCH_TTL);
    }

    /// Returns true if another process reads the log.
    pub(in crate::app) fn is_watched(&self) -> bool {
        lock(&self.watched_until).is_some_and(|until| until > Instant::now())
    }

    /// Stops the run. The first reason counts.
    pub(in crate::app) fn stop(&self, stop: RunStop) {
        lock(&self.stop).get_or_insert(stop);
        self.stop_waker.wake();
    }

    /// Returns the reason why the run is stopped.
    pub(in crate::app) fn stop_reason(&self) -> Option<RunStop> {
        *lock(&self.stop)
    }

    /// Polls for a stop.
    pub(in crate::app) fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<RunStop> {
        if let Some(stop) = self.stop_reason() {
            return Poll::Ready(stop);
        }
        self.stop_waker.register(cx.waker());
        self.stop_reason().map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns true if the run is cancelled as soon as its own client disconnects.
    fn ends_without_client(&self, on_disconnect: OnDisconnect, grace: Duration) -> bool {
        let is_alone = self.attached_clients() == 0 && !self.is_watched();
        on_disconnect == OnDisconnect::Cancel && grace.is_zero() && is_alone
    }

    /// Waits until no client has been attached for `grace`. The time before this call counts.
    fn wait_until_abandoned(self: &Arc<Self>, grace: Duration) -> BoxFuture<'static, ()> {
        let run = self.clone();
        async move {
            let mut clients = run.clients.subscribe();
            loop {
                // The run owns the sender.
                let empty = clients.wait_for(|clients| clients.count == 0).await;
                let Ok(last_left) = empty.map(|clients| clients.last_left) else { return };
                let mut deadline = last_left + grace;
                if run.is_watched() {
                    deadline = deadline.max(Instant::now() + WATCH_TTL);
                }
                let elapsed = {
                    let returned = clients.wait_for(|clients| clients.count > 0).map(|_| false).boxed();
                    let elapsed = tokio::time::sleep_until(deadline).map(|()| true).boxed();
                    select(returned, elapsed).await.factor_first().0
                };
                if elapsed && !run.is_watched() {
                    return;
                }
            }
        }
        .boxed()
    }
}

/// Clients that are attached to a run in this process.
struct AttachedClients {
    /// Number of attached clients, including the client of the run's own request.
    count: u32,
    /// True until the client of the run's own request has left.
    has_own_client: bool,
    /// Time at which a client left last.
    last_left: Instant,
}

impl AttachedClients {
    fn new() -> Self {
        Self { count: 1, has_own_client: true, last_left: Instant::now() }
    }

    fn subtract_one(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.last_left = Instant::now();
    }
}

/// A client that reads a run's log in this process.
pub(in crate::app) struct AttachedReader(Arc<LiveRun>);

impl AttachedReader {
    pub(in crate::app) fn run(&self) -> &Arc<LiveRun> {
        &self.0
    }
}

impl Drop for AttachedReader {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::SeqCst);
        self.0.clients.send_modify(AttachedClients::subtract_one);
    }
}

/// Runs of this process, and the number of readers of every run in this process.
pub(in crate::app) struct LiveRuns {
    runs: Mutex<HashMap<RunKey, Arc<LiveRun>>>,
    readers: Mutex<HashMap<RunKey, usize>>,
    /// Permits of the runs without their own client.
    detached: Arc<CompanyPermits>,
}

impl Default for LiveRuns {
    fn default() -> Self {
        let detached = CompanyPermits::new(MAX_DETACHED_RUNS, MAX_COMPANY_DETACHED_RUNS);
        Self { runs: Mutex::default(), readers: Mutex::default(), detached }
    }
}

impl LiveRuns {
    /// Acquires a permit for a run of the company that continues without its own client; `None` at the limit.
    pub(in crate::app) fn acquire_detached(&self, company: &CompanyId) -> Option<CompanyPermit> {
        self.detached.try_acquire(company)
    }

    pub(in crate::app) fn insert(&self, run: &Arc<LiveRun>) {
        lock(&self.runs).insert(run.key.clone(), run.clone());
    }

    pub(in crate::app) fn remove(&self, run: &Arc<LiveRun>) {
        let mut runs = lock(&self.runs);
        if runs.get(&run.key).is_some_and(|found| Arc::ptr_eq(found, run)) {
            runs.remove(&run.key);
        }
    }

    pub(in crate::app) fn get(&self, key: &RunKey) -> Option<Arc<LiveRun>> {
        lock(&self.runs).get(key).cloned()
    }

    pub(in crate::app) fn all(&self) -> Vec<Arc<LiveRun>> {
        lock(&self.runs).values().cloned().collect()
    }

    /// Acquires a permit for a reader of a run; `None` if there are `max` already.
    pub(in crate::app) fn acquire_reader(self: &Arc<Self>, key: &RunKey, max: usize) -> Option<ReaderPermit> {
        let mut readers = lock(&self.readers);
        let count = readers.entry(key.clone()).or_default();
        (*count < max).then(|| {
            *count += 1;
            ReaderPermit { runs: self.clone(), key: key.clone() }
        })
    }
}

/// Treatment of a run whose own client has disconnected and that continues.
pub(in crate::app) struct UnattendedRun {
    run: Arc<LiveRun>,
    /// Ready once the run has had no client for too long; absent for a run that needs no client.
    abandoned: Option<BoxFuture<'static, ()>>,
    _permit: CompanyPermit,
}

impl UnattendedRun {
    /// Decides about a run whose own client has disconnected; `None` if it ends, for example because too many runs continue.
    pub(in crate::app) fn new(
        runs: &Arc<LiveRuns>,
        run: &Arc<LiveRun>,
        on_disconnect: OnDisconnect,
        grace: Duration,
    ) -> Option<Self> {
        if run.ends_without_client(on_disconnect, grace) {
            return None;
        }
        let permit = runs.acquire_detached(&run.key().owner.company)?;
        let abandoned = (on_disconnect == OnDisconnect::Cancel).then(|| run.wait_until_abandoned(grace));
        Some(Self { run: run.clone(), abandoned, _permit: permit })
    }

    /// Polls until no client has been attached for the run's grace, and then stops the run.
    pub(in crate::app) fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(abandoned) = &mut self.abandoned else { return Poll::Pending };
        ready!(abandoned.poll_unpin(cx));
        self.abandoned = None;
        self.run.stop(RunStop::Cancelled(CancelReason::Disconnected));
        Poll::Ready(())
    }
}

/// Permit of a reader of a run; released on drop.
pub(in crate::app) struct ReaderPermit {
    runs: Arc<LiveRuns>,
    key: RunKey,
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        subtract_one(&mut lock(&self.runs.readers), &self.key);
    }
}

/// Locks a value that no code leaves inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_company_has_a_share_of_the_runs_without_clients() {
        let runs = LiveRuns::default();
        let acquire = |company: &str| runs.acquire_detached(&company.into());
        let mut permits: Vec<_> = std::iter::from_fn(|| acquire("one")).collect();
        assert_eq!(permits.len(), MAX_COMPANY_DETACHED_RUNS);
        permits.extend(
            ["two", "three", "four"]
                .into_iter()
                .flat_map(|company| std::iter::from_fn(move || acquire(company))),
        );
        assert_eq!(permits.len(), MAX_DETACHED_RUNS);
        assert!(acquire("five").is_none());
        permits.truncate(MAX_COMPANY_DETACHED_RUNS - 1);
        assert!(acquire("one").is_some() && acquire("five").is_some());
    }
}
