//! Pool of idle connections, reused for the next request to the same origin.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use super::connection::Connection;

/// Maximum number of idle connections over all origins, since requests may name any number of hosts. At the maximum, a new
/// connection closes the tenant's longest idle one, so that a tenant with many hosts takes no slots from other tenants.
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
    state: Mutex<PoolState>,
    max_per_origin: usize,
    max_age: Duration,
}

#[derive(Default)]
struct PoolState {
    /// Oldest first per origin: the newest is at the back.
    idle: HashMap<PoolKey, VecDeque<Idle>>,
    count: usize,
    is_sweeping: bool,
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
        Arc::new(Self { state: Mutex::default(), max_per_origin, max_age })
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

    /// Keeps a reusable connection if its origin has room, for less than the keep-alive time that the server announced.
    /// A request that races with the server's close could not be retried, since the server may have processed it.
    pub(super) fn put(self: &Arc<Self>, origin: PoolKey, connection: Connection) {
        // Without a runtime no sweep task can run.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.lock();
        let idle_of_origin = state.idle.get(&origin).map_or(0, VecDeque::len);
        if idle_of_origin >= self.max_per_origin {
            return;
        }
        if state.count >= MAX_IDLE_CONNECTIONS {
            state.close_oldest();
        }
        state.count += 1;
        let announced = connection.keep_alive_timeout();
        let server_limit = announced.map_or(Duration::MAX, |time| time.saturating_sub(KEEP_ALIVE_MARGIN));
        let idle = Idle { connection, since: Instant::now(), max_age: self.max_age.min(server_limit) };
        state.idle.entry(origin).or_default().push_back(idle);
        if !state.is_sweeping {
            state.is_sweeping = true;
            runtime.spawn(sweep(Arc::downgrade(self), self.max_age));
        }
    }

    /// Closes connections that have been idle for too long; returns `false` if none are left.
    fn close_expired(&self) -> bool {
        let mut state = self.lock();
        let mut count = 0;
        state.idle.retain(|_, idle| {
            idle.retain(Idle::is_fresh);
            count += idle.len();
            !idle.is_empty()
        });
        state.count = count;
        state.is_sweeping = count > 0;
        state.is_sweeping
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Removes the newest connection to an origin.
    fn pop(&mut self, origin: &PoolKey) -> Option<Idle> {
        self.remove(origin, VecDeque::pop_back)
    }

    /// Closes the connection that has been idle for the longest time.
    fn close_oldest(&mut self) {
        let oldest = self.idle.iter().filter_map(|(origin, idle)| Some((idle.front()?.since, origin)));
        let origin = oldest.min_by_key(|(since, _)| *since).map(|(_, origin)| origin.clone());
        if let Some(origin) = origin {
            self.remove(&origin, VecDeque::pop_front);
        }
    }

    fn remove(
        &mut self,
        origin: &PoolKey,
        take: impl FnOnce(&mut VecDeque<Idle>) -> Option<Idle>,
    ) -> Option<Idle> {
        let idle = self.idle.get_mut(origin)?;
        let removed = take(idle);
        if idle.is_empty() {
            self.idle.remove(origin);
        }
        self.count -= usize::from(removed.is_some());
        removed
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

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::relay::RelayOptions;

    /// Returns a connection, and its remote end, which keeps it open.
    async fn connection() -> (Connection, DuplexStream) {
        let (local, remote) = tokio::io::duplex(64);
        let opened = Connection::open(Box::new(TokioIo::new(local)), RelayOptions::default()).await;
        (opened.expect("a connection"), remote)
    }

    fn origin(address: &str) -> PoolKey {
        PoolKey::for_current_runtime(&address.into())
    }

    #[tokio::test(start_paused = true)]
    async fn many_hosts_keep_no_place_from_a_connection_that_was_used_later() {
        let pool = Pool::new(2, Duration::from_secs(30));
        let mut remotes = Vec::new();
        for number in 0..MAX_IDLE_CONNECTIONS {
            let (connection, remote) = connection().await;
            pool.put(origin(&format!("https://{number}.example")), connection);
            remotes.push(remote);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        for _ in 0..3 {
            let (connection, remote) = connection().await;
            pool.put(origin("https://shared.example"), connection);
            remotes.push(remote);
        }
        assert_eq!(pool.lock().count, MAX_IDLE_CONNECTIONS);
        let kept = |address: &str| pool.take(&origin(address)).is_some();
        let shared = [kept("https://shared.example"), kept("https://shared.example")];
        assert_eq!(
            (shared, kept("https://shared.example")),
            ([true; 2], false),
            "as many as an origin may have"
        );
        let oldest = ["0", "1", "2"].map(|number| kept(&format!("https://{number}.example")));
        assert_eq!(oldest, [false, false, true]);
        assert_eq!(pool.lock().count, MAX_IDLE_CONNECTIONS - 3);
    }
}
