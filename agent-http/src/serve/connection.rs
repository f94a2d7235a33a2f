//! One task per connection: hyper over the guard, told when the server drains and when it ends.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::HeaderValue;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::exchange::Exchanges;
use super::guard::Guard;
use super::{HttpService, ServeLimits, Workers};
use crate::keep_alive;

/// hyper's smallest buffer; it refuses a smaller one by panicking.
const SMALLEST_BUFFER: usize = 8 * 1024;

/// How long a connection is quiet before the kernel asks the other end for a sign of life, and how often it asks.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Makes connections' tasks, all alike.
pub(super) struct Connections<S> {
    service: Arc<S>,
    limits: Arc<ServeLimits>,
    protocol: Arc<http1::Builder>,
    keep_alive: Option<HeaderValue>,
    draining: watch::Receiver<()>,
    workers: Option<Workers>,
}

impl<S: HttpService> Connections<S> {
    /// Connections run on `workers`, or where they are made.
    pub(super) fn new(
        service: S,
        limits: ServeLimits,
        draining: watch::Receiver<()>,
        workers: Option<Workers>,
    ) -> Self {
        let mut protocol = http1::Builder::new();
        protocol
            // Without a timer hyper's head time-out does nothing.
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_read)
            .max_header_size(limits.head_bytes)
            // The same number bounds what is buffered for a client that reads slowly.
            .max_buf_size(limits.head_bytes.max(SMALLEST_BUFFER));
        let keep_alive = keep_alive::announcement(limits.head_read);
        let (service, limits, protocol) = (Arc::new(service), Arc::new(limits), Arc::new(protocol));
        Self { service, limits, protocol, keep_alive, draining, workers }
    }

    /// Serves `stream` in a task that keeps `slot` until it ends.
    pub(super) fn spawn(&self, stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
        if let Err(error) = set_options(&stream, &self.limits) {
            tracing::debug!(%error, "cannot set the socket's options");
        }
        let (service, protocol) = (self.service.clone(), self.protocol.clone());
        let (write_stall, draining) = (self.limits.write_stall, self.draining.clone());
        let keep_alive = self.keep_alive.clone();
        let serve = move |stream| {
            let unread = Arc::new(AtomicBool::new(false));
            let guard = Guard::new(stream, write_stall, unread.clone());
            let exchanges = Exchanges::new(service, peer, unread, keep_alive);
            // Futures keep what they were made of beside what they are at. Boxed before, a connection is there once.
            let connection = Box::pin(protocol.serve_connection(guard, exchanges));
            AssertUnwindSafe(drive(connection, draining)).catch_unwind().map(move |ended| {
                // A service's panic is caught at its exchange; this is for one in a response body.
                if ended.is_err() {
                    tracing::error!(%peer, "a response body panicked; its connection is dropped");
                }
                drop(slot);
            })
        };
        match &self.workers {
            Some(workers) => {
                if let Err(error) = workers.spawn(stream, serve) {
                    tracing::error!(%error, "a connection cannot be handed over");
                }
            }
            None => drop(tokio::spawn(serve(stream))),
        }
    }
}

/// What the kernel is asked to watch, since a peer that vanished without a word is not seen from up here.
fn set_options(stream: &TcpStream, limits: &ServeLimits) -> io::Result<()> {
    // A token is a small write, and must not wait for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    // What was written and is not acknowledged counts as a stall too (RFC 5482).
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.write_stall))?;
    #[cfg(not(target_os = "linux"))]
    let _ = limits;
    Ok(())
}

async fn drive<S: HttpService>(
    mut connection: Pin<Box<http1::Connection<Guard, Exchanges<S>>>>,
    mut draining: watch::Receiver<()>,
) {
    let news = draining.clone();
    loop {
        let mut change = pin!(draining.changed());
        let mut waits = false;
        let step = poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Step::Ended(ended));
            }
            // All connections wait for the same news, and to wait anew at each poll would have them queue for it.
            // A task wakes by the same waker all its life.
            if waits && matches!(news.has_changed(), Ok(false)) {
                return Poll::Pending;
            }
            waits = true;
            change.as_mut().poll(cx).map(Step::Changed)
        });
        match step.await {
            Step::Ended(Ok(())) => return,
            Step::Ended(Err(error)) => return tracing::debug!(%error, "connection ended"),
            Step::Changed(Ok(())) => connection.as_mut().graceful_shutdown(),
            Step::Changed(Err(_)) => return,
        }
    }
}

/// What a connection's task has come to.
enum Step {
    Ended(hyper::Result<()>),
    Changed(Result<(), watch::error::RecvError>),
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_watches_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        set_options(&stream, &ServeLimits::default()).expect("options");
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("an option"));
        assert!(socket.keepalive().expect("an option"));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(30)));
    }
}
