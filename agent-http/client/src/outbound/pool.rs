//! Pool of idle connections, reused for the next request to the same origin.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use super::connection::Connection;

/// Maximum number of idle connections over all origins, since requests may name any number of hosts.
const MAX_IDLE_CONNECTIONS: usize = 1024;

/// Safety margin subtracted from the server's keep-alive time: a request may still be in flight when the server's timer
/// expires.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Pool key: scheme, host and port, and the tokio runtime that drives the socket, since reuse from another runtime
/// would add a cross-runtime wake to each event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    address: Arc<str>,
    runtime: Option<runtime::Id>,
}

impl PoolKey {
    /// Returns the origin for `address` and the current runtime.
    pub(super) fn for_current_runtime(address: &Arc<str>) -> Self {
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        Self { address: address.clone(), runtime }
    }
}

/// The idle connections. They are not polled while idle; `take` finds out whether one is still open.
pub(super) struct Pool {
    kept: Mutex<PoolState>,
    max_per_origin: usize,
    max_age: Duration,
}

#[derive(Default)]
struct PoolState {
    /// Oldest first per origin: the newest is at the back.
    idle: HashMap<PoolKey, VecDeque<Idle>>,
    count: usize,
    sweeping: bool,
}

struct Idle {
    connection: Connection,
    since: Instant,
    max_age: Duration,
}

impl Idle {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < self.max_age
    }
}

impl Pool {
    pub(super) fn new(max_per_origin: usize, max_age: Duration) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), max_per_origin, max_age })
    }

    /// Takes the newest connection to `origin` that the remote side has not closed.
    pub(super) fn take(&self, origin: &PoolKey) -> Option<Connection> {
        loop {
            let mut idle = self.lock().pop(origin)?;
            if idle.is_fresh() && idle.connection.is_reusable() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a reusable connection if there is room, for less than the keep-alive time that the server announced: a
    /// request that races with the server's close may or may not have been processed, so it could not be
    /// retried.
    pub(super) fn put(self: &Arc<Self>, origin: PoolKey, connection: Connection) {
        // Without a runtime no sweep task can run.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut kept = self.lock();
        let here = kept.idle.get(&origin).map_or(0, VecDeque::len);
        if kept.count >= MAX_IDLE_CONNECTIONS || here >= self.max_per_origin {
            return;
        }
        kept.count += 1;
        let announced = connection.keep_alive_timeout();
        let theirs = announced.map_or(Duration::MAX, |time| time.saturating_sub(KEEP_ALIVE_MARGIN));
        let idle = Idle { connection, since: Instant::now(), max_age: self.max_age.min(theirs) };
        kept.idle.entry(origin).or_default().push_back(idle);
        if !kept.sweeping {
            kept.sweeping = true;
            runtime.spawn(sweep(Arc::downgrade(self), self.max_age));
        }
    }

    /// Closes connections that have been idle for too long; returns `false` if none are left.
    fn close_expired(&self) -> bool {
        let mut kept = self.lock();
        let mut count = 0;
        kept.idle.retain(|_, idle| {
            idle.retain(Idle::is_fresh);
            count += idle.len();
            !idle.is_empty()
        });
        kept.count = count;
        kept.sweeping = count > 0;
        kept.sweeping
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn pop(&mut self, origin: &PoolKey) -> Option<Idle> {
        let idle = self.idle.get_mut(origin)?;
        let newest = idle.pop_back();
        if idle.is_empty() {
            self.idle.remove(origin);
        }
        self.count -= usize::from(newest.is_some());
        newest
    }
}

/// Expires idle connections periodically; ends when the pool is empty or dropped.
async fn sweep(pool: Weak<Pool>, max_age: Duration) {
    loop {
        tokio::time::sleep(max_age).await;
        if !pool.upgrade().is_some_and(|pool| pool.close_expired()) {
            return;
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.lock().count).finish_non_exhaustive()
    }
}
