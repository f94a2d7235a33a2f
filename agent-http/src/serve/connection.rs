//! One task per connection: hyper over the guard, told when the server drains and when it ends.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::exchange::Exchanges;
use super::guard::Guard;
use super::{HttpService, ServeLimits};

/// hyper's smallest buffer; it refuses a smaller one by panicking.
const SMALLEST_BUFFER: usize = 8 * 1024;

/// Makes connections' tasks, all alike.
pub(super) struct Connections<S> {
    service: S,
    limits: Arc<ServeLimits>,
    protocol: Arc<http1::Builder>,
    draining: watch::Receiver<()>,
}

impl<S: HttpService> Connections<S> {
    pub(super) fn new(service: S, limits: ServeLimits, draining: watch::Receiver<()>) -> Self {
        let mut protocol = http1::Builder::new();
        protocol
            // Without a timer hyper's head time-out does nothing.
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_read)
            .max_header_size(limits.head_bytes)
            // The same number bounds what is buffered for a client that reads slowly.
            .max_buf_size(limits.head_bytes.max(SMALLEST_BUFFER));
        Self { service, limits: Arc::new(limits), protocol: Arc::new(protocol), draining }
    }

    /// Serves `stream` in a task that keeps `slot` until it ends.
    pub(super) fn spawn(&self, stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
        // A token is a small write, and must not wait for the acknowledgement of the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let unread = Arc::new(AtomicBool::new(false));
        let guard = Guard::new(stream, self.limits.write_stall, unread.clone());
        let exchanges = Exchanges::new(self.service.clone(), peer, unread);
        let connection = drive(self.protocol.serve_connection(guard, exchanges), self.draining.clone());
        tokio::spawn(async move {
            // A service's panic is caught at its exchange; this is for one in a response body.
            if AssertUnwindSafe(connection).catch_unwind().await.is_err() {
                tracing::error!(%peer, "a response body panicked; its connection is dropped");
            }
            drop(slot);
        });
    }
}

async fn drive<S: HttpService>(
    connection: http1::Connection<Guard, Exchanges<S>>,
    mut draining: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            changed = draining.changed() => match changed {
                Ok(()) => connection.as_mut().graceful_shutdown(),
                Err(_) => return,
            }
        }
    }
}
