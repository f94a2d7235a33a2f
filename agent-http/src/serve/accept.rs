//! The accept loop, its connection limit, and the drain at shutdown.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use agent_platform::backoff::Backoff;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::connection::ConnectionSpawner;
use super::eviction::EvictionQueue;
use super::slots::ConnectionSlots;
use super::waiting::WaitingConnections;
use super::{ServeLimits, Workers};
use crate::service::HttpService;
use crate::shutdown::{Shutdown, ShutdownStage};

/// Pauses after failed accepts in a row.
const ACCEPT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));

/// Time in which runs that outlive the drain write their terminal events and their connections close. It is taken from
/// the end of the drain and is at most half of it.
pub const FINAL_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum time between two warnings that the connection limit is reached. At the limit, each connection that ends
/// makes room for another one, which reaches the limit again.
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
/// The slots are both the connection limit and the count of running connections: a connection releases its slot when
/// its task ends, so no connection is left when all slots are free.
pub(super) async fn run<S: HttpService>(
    source: impl Accept,
    service: S,
    limits: ServeLimits,
    workers: Option<Workers>,
    shutdown: Shutdown,
) {
    let (lame_duck, drain) = (limits.lame_duck, limits.drain);
    let slots = ConnectionSlots::new(limits.connections.max(1));
    // A message starts the drain. Closing the channel, also by dropping this future, ends all connections at once.
    let (drain_all, draining) = watch::channel(());
    let connections = ConnectionSpawner::new(service, limits, draining, shutdown.clone(), workers);

    let lame_duck_over = async {
        shutdown.wait_for(ShutdownStage::LameDuck).await;
        let _ = time::timeout(lame_duck, shutdown.wait_for(ShutdownStage::Draining)).await;
    };
    let mut waiting = WaitingConnections::default();
    accept_until(lame_duck_over, &source, &slots, &mut waiting, &connections).await;
    drop(source);
    waiting.refuse_all();

    shutdown.advance(ShutdownStage::Draining);
    drain_all.send_replace(());
    let graceful = drain - FINAL_EVENT_TIMEOUT.min(drain / 2);
    tokio::select! {
        biased;
        () = slots.wait_until_free() => return,
        () = shutdown.wait_for(ShutdownStage::Ending) => {}
        () = time::sleep(graceful) => {}
    }
    tracing::warn!(connections = slots.taken_count(), "ending requests that exceeded the drain timeout");
    shutdown.end();
    if time::timeout(FINAL_EVENT_TIMEOUT, slots.wait_until_free()).await.is_err() {
        tracing::warn!(
            connections = slots.taken_count(),
            "closing connections that exceeded the drain timeout"
        );
        drop(drain_all);
        // A task that blocks its thread cannot be dropped; the timeout keeps it from delaying shutdown.
        let _ = time::timeout(ABORT_TIMEOUT, slots.wait_until_free()).await;
    }
}

async fn accept_until<S: HttpService>(
    shutdown: impl Future<Output = ()>,
    source: &impl Accept,
    slots: &ConnectionSlots,
    waiting: &mut WaitingConnections,
    connections: &ConnectionSpawner<S>,
) {
    let mut shutdown = pin!(shutdown);
    let mut backoff = ACCEPT_BACKOFF;
    let mut last_warning = None;
    loop {
        admit_waiting(waiting, slots, connections);
        if !waiting.is_empty() {
            let is_evicted = connections.evictions().evict_for(waiting.len(), || slots.free());
            warn_of_limit(is_evicted, &mut last_warning);
        }
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => return,
            accepted = next_connection(source, waiting, connections.evictions()) => accepted,
        };
        match accepted {
            None => {}
            Some(Ok((stream, peer))) => {
                backoff = ACCEPT_BACKOFF;
                waiting.push(stream, peer);
            }
            Some(Err(error)) if is_connection_error(&error) => {
                tracing::debug!(%error, "a connection was closed before it was accepted");
            }
            Some(Err(error)) => {
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

/// Accepts the next connection. Returns `None` if a connection that waits may have a slot now.
///
/// The branches are polled in random order, so that neither many new connections nor many freed slots starve the other branch.
async fn next_connection(
    source: &impl Accept,
    waiting: &mut WaitingConnections,
    evictions: &EvictionQueue,
) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    let is_any_waiting = !waiting.is_empty();
    tokio::select! {
        accepted = source.accept() => Some(accepted),
        () = evictions.changed(), if is_any_waiting => None,
        () = waiting.wait_for_input(), if is_any_waiting => None,
    }
}

/// Serves waiting connections while there are free slots: in the order of their arrival, then those
/// for which slots are reserved, then health probes.
fn admit_waiting<S: HttpService>(
    waiting: &mut WaitingConnections,
    slots: &ConnectionSlots,
    connections: &ConnectionSpawner<S>,
) {
    while !waiting.is_empty()
        && let Some(slot) = slots.try_take()
        && let Some(connection) = waiting.take_oldest()
    {
        connections.spawn(connection.stream, connection.peer, slot);
    }
    let has_few_connections =
        |address: IpAddr| connections.evictions().open_connections(address) < slots.reserved_share();
    while !waiting.is_empty()
        && let Some(slot) = slots.try_take_reserved()
        && let Some(connection) = waiting.take_from_address(has_few_connections)
    {
        connections.spawn(connection.stream, connection.peer, slot);
    }
    while !waiting.is_empty()
        && let Some(slot) = slots.try_take_for_probe()
        && let Some(connection) = waiting.take_probe()
    {
        connections.spawn(connection.stream, connection.peer, slot);
    }
}

fn warn_of_limit(is_evicted: bool, last_warning: &mut Option<Instant>) {
    if last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
        tracing::warn!(is_evicted, "connection limit reached; further clients wait");
        *last_warning = Some(Instant::now());
    }
}

/// Returns true if an accept error concerns only the connection being accepted, so that accepting can continue at once.
/// Errors of the process (such as exhausted file descriptors) would repeat at once and turn the loop into a busy
/// loop.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
