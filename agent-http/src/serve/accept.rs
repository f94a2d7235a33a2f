//! The accept loop, its limit on connections, and the drain at its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time;

use super::connection::Connections;
use super::{HttpService, ServeLimits, Workers};

/// How long the loop pauses after an accept that failed for want of something; it doubles up to the last value.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long cut connections get to be dropped. Their tasks need only be polled once for that.
const CUT: Duration = Duration::from_secs(1);

/// Where connections come from. Apart from the listener itself there is only the tests' source of errors.
pub(super) trait Accept {
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send {
        TcpListener::accept(self)
    }
}

/// Accepts until `shutdown`, then drains.
///
/// The semaphore is both the limit and the count of what still runs: a connection gives its permit back when its
/// task is gone, so holding all permits means that none is left.
pub(super) async fn run<S: HttpService>(
    source: impl Accept,
    service: S,
    limits: ServeLimits,
    workers: Option<Workers>,
    shutdown: impl Future<Output = ()>,
) {
    let drain = limits.drain;
    let places = limits.connections.max(1);
    let slots = Arc::new(Semaphore::new(places as usize));
    // A message says drain. The channel's end says stop at once, also if this very future is dropped.
    let (drain_all, draining) = watch::channel(());
    let connections = Connections::new(service, limits, draining, workers);

    accept_until(shutdown, &source, &slots, &connections).await;
    drop(source);

    drain_all.send_replace(());
    if time::timeout(drain, slots.acquire_many(places)).await.is_err() {
        let cut = places as usize - slots.available_permits();
        tracing::warn!(connections = cut, "cutting connections that outlived the drain");
        drop(drain_all);
        // A task that blocks its thread cannot be cut; it does not hold up the end.
        let _ = time::timeout(CUT, slots.acquire_many(places)).await;
    }
}

async fn accept_until<S: HttpService>(
    shutdown: impl Future<Output = ()>,
    source: &impl Accept,
    slots: &Arc<Semaphore>,
    connections: &Connections<S>,
) {
    let mut shutdown = pin!(shutdown);
    let mut pause = PAUSE;
    loop {
        if slots.available_permits() == 0 {
            tracing::warn!("at the limit of connections; further clients wait");
        }
        let slot = tokio::select! {
            biased;
            () = &mut shutdown => return,
            slot = slots.clone().acquire_owned() => slot.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => return,
            accepted = source.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = PAUSE;
                connections.spawn(stream, peer, slot);
            }
            Err(error) if is_of_one_connection(&error) => {
                tracing::debug!(%error, "a connection was gone before it was accepted");
            }
            Err(error) => {
                tracing::error!(%error, pause_ms = pause.as_millis() as u64, "cannot accept");
                tokio::select! {
                    biased;
                    () = &mut shutdown => return,
                    () = time::sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Tells errors of the connection that was about to be accepted from those of the process, which would repeat at
/// once and turn the loop into a busy one.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
