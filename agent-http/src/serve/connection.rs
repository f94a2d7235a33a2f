//! Connection tasks: each drives one hyper connection over a guard, and handles eviction, drain and shutdown.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use agent_client::keep_alive;
use futures_util::FutureExt;
use http::header::HeaderValue;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::eviction::{Evictable, EvictionQueue};
use super::exchange::ExchangeService;
use super::guard::{Guard, InputWatch};
use super::slots::ConnectionSlot;
use super::{Peer, ServeLimits, Workers};
use crate::service::HttpService;
use crate::shutdown::Shutdown;

/// hyper's minimum buffer size; hyper panics on a smaller one.
const MIN_BUFFER_BYTES: usize = 8 * 1024;

/// TCP keep-alive: idle time before the first probe, and the interval between probes.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Spawns connection tasks, with the state that they share.
pub(super) struct ConnectionSpawner<S> {
    service: Arc<S>,
    limits: Arc<ServeLimits>,
    protocol: Arc<http1::Builder>,
    /// Serves one exchange of each connection.
    probe_protocol: Arc<http1::Builder>,
    keep_alive: Option<HeaderValue>,
    draining: watch::Receiver<()>,
    shutdown: Shutdown,
    workers: Option<Workers>,
    evictions: Arc<EvictionQueue>,
}

impl<S: HttpService> ConnectionSpawner<S> {
    /// Creates the spawner. Connections run on `workers`, or, without them, on the current runtime.
    pub(super) fn new(
        service: S,
        limits: ServeLimits,
        draining: watch::Receiver<()>,
        shutdown: Shutdown,
        workers: Option<Workers>,
    ) -> Self {
        let mut protocol = http1::Builder::new();
        protocol
            // Without a timer hyper ignores its head timeout.
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_read)
            .max_header_size(limits.head_bytes)
            // This also bounds the write buffer for a client that reads slowly.
            .max_buf_size(limits.head_bytes.max(MIN_BUFFER_BYTES));
        let keep_alive = keep_alive::keep_alive_value(limits.head_read);
        let evictions = EvictionQueue::new(limits.connections);
        let mut probe_protocol = protocol.clone();
        probe_protocol.keep_alive(false);
        let (protocol, probe_protocol) = (Arc::new(protocol), Arc::new(probe_protocol));
        let (service, limits) = (Arc::new(service), Arc::new(limits));
        Self { service, limits, protocol, probe_protocol, keep_alive, draining, shutdown, workers, evictions }
    }

    /// Returns the open connections by address. Idle ones can be evicted.
    pub(super) fn evictions(&self) -> &EvictionQueue {
        &self.evictions
    }

    /// Serves `stream` in a task that holds `slot` until it ends.
    pub(super) fn spawn(&self, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
        if let Err(error) = set_socket_options(&stream, &self.limits) {
            tracing::debug!(%error, "failed to set socket options");
        }
        let (protocol, keep_alive) = if slot.is_for_probe() {
            (self.probe_protocol.clone(), None)
        } else {
            (self.protocol.clone(), self.keep_alive.clone())
        };
        let (service, limits) = (self.service.clone(), self.limits.clone());
        let (draining, shutdown) = (self.draining.clone(), self.shutdown.clone());
        // Inserted here, so that connections that wait for their worker thread count. Dropped in this order, also if
        // the connection is never served: the slot is freed before waiting clients are notified.
        let evictable = self.evictions.insert(Peer(peer).network(), slot.is_common());
        let reservation = (slot, Arc::new(evictable));
        let serve = move |stream| {
            let unread = Arc::new(AtomicBool::new(false));
            let input = Arc::<InputWatch>::default();
            let evictable = reservation.1.clone();
            let guard = Guard::new(stream, &limits, unread.clone(), input.clone(), evictable.clone());
            let (relay, recorder) = (&limits.relay, evictable.clone());
            let exchanges =
                ExchangeService::new(service, peer, unread, keep_alive, relay, shutdown, recorder);
            // A future stores its captured arguments beside its current state; boxing first keeps the connection from
            // being stored twice.
            let connection = Box::pin(protocol.serve_connection(guard, exchanges));
            AssertUnwindSafe(drive(connection, draining, input, evictable)).catch_unwind().map(move |ended| {
                // A panic in a service is caught by its exchange; this one catches a panic in a response body.
                if ended.is_err() {
                    tracing::error!(%peer, "a response body panicked; the connection is closed");
                }
                drop(reservation);
            })
        };
        match &self.workers {
            Some(workers) => {
                if let Err(error) = workers.spawn(stream, serve) {
                    tracing::error!(%error, "failed to pass a connection to a worker thread; it is closed");
                }
            }
            None => drop(tokio::spawn(serve(stream))),
        }
    }
}

/// Sets TCP options that let the kernel detect a peer that vanished without closing the connection.
fn set_socket_options(stream: &TcpStream, limits: &ServeLimits) -> io::Result<()> {
    // TCP_NODELAY: a token is a small write and must not wait for the acknowledgement of the previous one.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(TCP_KEEPALIVE_INTERVAL).with_interval(TCP_KEEPALIVE_INTERVAL),
    )?;
    // Written data that is not acknowledged counts as a write stall too (RFC 5482).
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.write_stall))?;
    #[cfg(not(target_os = "linux"))]
    let _ = limits;
    Ok(())
}

async fn drive<S: HttpService>(
    mut connection: Pin<Box<http1::Connection<Guard, ExchangeService<S>>>>,
    mut draining: watch::Receiver<()>,
    input: Arc<InputWatch>,
    evictable: Arc<Evictable>,
) {
    let drain_signal = draining.clone();
    let mut closing: Option<CloseReason> = None;
    loop {
        let mut change = pin!(draining.changed());
        let mut is_registered = false;
        let step = poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Step::Ended(ended));
            }
            if let Some(reason) = closing {
                // Input that has arrived is read first; the guard has woken the task for it.
                return if input.take_unread_input() {
                    Poll::Pending
                } else {
                    Poll::Ready(Step::InputRead(reason))
                };
            }
            if evictable.poll_evicted(cx).is_ready() {
                return Poll::Ready(Step::Evicted);
            }
            // All connections wait on the same channel; registering again on each poll would contend for its lock. A
            // task keeps the same waker for its lifetime, so one registration is enough.
            if is_registered && matches!(drain_signal.has_changed(), Ok(false)) {
                return Poll::Pending;
            }
            is_registered = true;
            change.as_mut().poll(cx).map(Step::Changed)
        });
        let reason = match step.await {
            Step::Ended(Ok(())) => return,
            Step::Ended(Err(error)) => return tracing::debug!(%error, "connection ended"),
            Step::Changed(Err(_)) => return,
            Step::Changed(Ok(())) => CloseReason::Drain,
            Step::Evicted => CloseReason::Eviction,
            Step::InputRead(CloseReason::Drain) => {
                connection.as_mut().graceful_shutdown();
                closing = None;
                continue;
            }
            Step::InputRead(CloseReason::Eviction) if !evictable.is_evicted() => {
                input.end();
                closing = None;
                continue;
            }
            Step::InputRead(CloseReason::Eviction) => {
                return tracing::debug!("idle connection closed for another client");
            }
        };
        input.begin();
        closing = Some(reason);
    }
}

/// Reason why a connection is about to close.
#[derive(Clone, Copy, Debug)]
enum CloseReason {
    /// The server drains.
    Drain,
    /// Another client gets the slot, unless a request head has arrived.
    Eviction,
}

/// Outcome of waiting in a connection task: the connection ended, all input that had arrived was read after the
/// connection was to close, it was evicted, or the drain channel changed.
enum Step {
    Ended(hyper::Result<()>),
    InputRead(CloseReason),
    Evicted,
    Changed(Result<(), watch::error::RecvError>),
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use http::{Request, Response};
    use tokio::net::TcpListener;

    use super::*;
    use crate::body::{Body, full};
    use crate::service::service_fn;

    /// Drives a connection whose request head has arrived without a turn of the runtime's driver, so that the task
    /// cannot know of it. Returns the bytes that the client reads.
    async fn drive_with_an_unreported_head(
        head: &str,
        draining: watch::Receiver<()>,
        evictable: Evictable,
    ) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client =
            std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        client.write_all(head.as_bytes()).expect("sent");
        let (stream, peer) = listener.accept().expect("accepted");
        stream.set_nonblocking(true).expect("set");
        let stream = TcpStream::from_std(stream).expect("registered");

        let limits = ServeLimits::default();
        let service = Arc::new(service_fn(|_: Request<Body>| async { Ok(Response::new(full("hello"))) }));
        let (unread, input) = (Arc::new(AtomicBool::new(false)), Arc::<InputWatch>::default());
        let (shutdown, evictable) = (Shutdown::default(), Arc::new(evictable));
        let guard = Guard::new(stream, &limits, unread.clone(), input.clone(), evictable.clone());
        let exchanges =
            ExchangeService::new(service, peer, unread, None, &limits.relay, shutdown, evictable.clone());
        let connection = Box::pin(http1::Builder::new().serve_connection(guard, exchanges));
        let driven = drive(connection, draining, input, evictable);
        tokio::time::timeout(Duration::from_secs(30), driven).await.expect("it ends after the exchange");
        let mut answer = String::new();
        // A connection that closes before its input was read is reset.
        let _ = client.read_to_string(&mut answer);
        answer
    }

    fn evictable(queue: &Arc<EvictionQueue>) -> Evictable {
        queue.insert([127, 0, 0, 1].into(), true)
    }

    #[tokio::test]
    async fn a_head_that_has_arrived_is_read_when_the_drain_begins() {
        let (drain_all, draining) = watch::channel(());
        drain_all.send_replace(());
        let evictable = evictable(&EvictionQueue::new(1));
        let head = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = drive_with_an_unreported_head(head, draining, evictable).await;
        assert!(answer.ends_with("hello"), "{answer:?}");
    }

    #[tokio::test]
    async fn only_a_whole_head_that_has_arrived_is_read_when_the_connection_is_evicted() {
        for (head, is_answered) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n", false),
            ("", false),
        ] {
            let queue = EvictionQueue::new(1);
            let evicted = evictable(&queue);
            let _next = evictable(&queue);
            assert!(queue.evict_for(1, || 0));
            let (_drain_all, draining) = watch::channel(());
            let answer = drive_with_an_unreported_head(head, draining, evicted).await;
            assert_eq!(answer.ends_with("hello"), is_answered, "{head:?}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn the_kernel_watches_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        set_socket_options(&stream, &ServeLimits::default()).expect("options");
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("an option"));
        assert!(socket.keepalive().expect("an option"));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(30)));
    }
}
