//! The accept loop, its connection limit, and the drain at shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_platform::backoff::Backoff;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{self, Instant};

use super::connection::ConnectionSpawner;
use super::eviction::EvictionQueue;
use super::{ServeLimits, Workers};
use crate::service::HttpService;
use crate::shutdown::{Shutdown, ShutdownStage};

/// Pauses after failed accepts in a row.
const ACCEPT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));

/// Time in which runs that outlive the drain write their terminal events and their connections close. It is taken from
/// the end of the drain, of which it is at most half.
pub const FINAL_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum time between two warnings that the connection limit is reached. At the limit, every connection that ends
/// makes room for one that reaches it again.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout for dropping the connections that outlived the drain. Each task needs to be polled only once for that.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Source of connections: the TCP listener, or a source of errors in tests.
pub(super) trait Accept {
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send {
        TcpListener::accept(self)
    }
}

/// Accepts connections until the lame-duck time after the begin of `shutdown` is over, then drains.
///
/// The semaphore is both the connection limit and the count of running connections: a connection releases its permit
/// when its task ends, so acquiring all permits means that no connection is left.
pub(super) async fn run<S: HttpService>(
    source: impl Accept,
    service: S,
    limits: ServeLimits,
    workers: Option<Workers>,
    shutdown: Shutdown,
) {
    let (lame_duck, drain) = (limits.lame_duck, limits.drain);
    let max_connections = limits.connections.max(1);
    let slots = Arc::new(Semaphore::new(max_connections as usize));
    // A message starts the drain. Closing the channel, also by dropping this future, ends all connections at once.
    let (drain_all, draining) = watch::channel(());
    let connections = ConnectionSpawner::new(service, limits, draining, shutdown.clone(), workers);

    let lame_duck_over = async {
        shutdown.wait_for(ShutdownStage::LameDuck).await;
        let _ = time::timeout(lame_duck, shutdown.wait_for(ShutdownStage::Draining)).await;
    };
    accept_until(lame_duck_over, &source, &slots, &connections).await;
    drop(source);

    shutdown.advance(ShutdownStage::Draining);
    drain_all.send_replace(());
    let graceful = drain - FINAL_EVENT_TIMEOUT.min(drain / 2);
    tokio::select! {
        biased;
        _ = slots.acquire_many(max_connections) => return,
        () = shutdown.wait_for(ShutdownStage::Ending) => {}
        () = time::sleep(graceful) => {}
    }
    let running = max_connections as usize - slots.available_permits();
    tracing::warn!(connections = running, "ending exchanges that exceeded the drain timeout");
    shutdown.end();
    if time::timeout(FINAL_EVENT_TIMEOUT, slots.acquire_many(max_connections)).await.is_err() {
        let remaining = max_connections as usize - slots.available_permits();
        tracing::warn!(connections = remaining, "closing connections that exceeded the drain timeout");
        drop(drain_all);
        // A task that blocks its thread cannot be dropped; the timeout keeps it from delaying shutdown.
        let _ = time::timeout(ABORT_TIMEOUT, slots.acquire_many(max_connections)).await;
    }
}

async fn accept_until<S: HttpService>(
    shutdown: impl Future<Output = ()>,
    source: &impl Accept,
    slots: &Arc<Semaphore>,
    connections: &ConnectionSpawner<S>,
) {
    let mut shutdown = pin!(shutdown);
    let mut backoff = ACCEPT_BACKOFF;
    let mut last_warning = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => return,
            accepted = source.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                backoff = ACCEPT_BACKOFF;
                let slot = tokio::select! {
                    biased;
                    () = &mut shutdown => return,
                    slot = acquire_slot(slots, connections.evictions(), &mut last_warning) => slot,
                };
                connections.spawn(stream, peer, slot);
            }
            Err(error) if is_connection_error(&error) => {
                tracing::debug!(%error, "a connection was closed before it was accepted");
            }
            Err(error) => {
                let pause = backoff.next_pause();
                tracing::error!(%error, pause_ms = pause.as_millis() as u64, "failed to accept a connection; pausing");
                tokio::select! {
                    biased;
                    () = &mut shutdown => return,
                    () = time::sleep(pause) => {}
                }
            }
        }
    }
}

/// Acquires the place of a connection. At the limit, it evicts a connection without a request, or waits if none may be
/// evicted.
async fn acquire_slot(
    slots: &Arc<Semaphore>,
    evictions: &EvictionQueue,
    last_warning: &mut Option<Instant>,
) -> OwnedSemaphorePermit {
    loop {
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            return slot;
        }
        let spared = evictions.wait_until_spared();
        let is_evicted = evictions.evict();
        if last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            tracing::warn!(is_evicted, "connection limit reached; further clients wait");
            *last_warning = Some(Instant::now());
        }
        tokio::select! {
            biased;
            slot = slots.clone().acquire_owned() => return slot.expect("the semaphore is never closed"),
            // The evicted connection stays open.
            () = spared, if is_evicted => {}
        }
    }
}

/// Returns true if an accept error concerns only the connection being accepted, so that accepting can continue at once.
/// Errors of the process (such as exhausted file descriptors) would repeat at once and turn the loop into a busy
/// loop.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
