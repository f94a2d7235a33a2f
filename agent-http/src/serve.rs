//! HTTP/1.1 server: accepts connections and serves them. The only module that uses hyper's server.
//!
//! Every resource that a client can hold is bounded, because streaming responses keep connections open for long: the
//! number of connections, the size of a request head and the time to read it, the time a write may stall because the
//! client does not read, and the time that shutdown waits. The bounds on bodies are in [`crate::request`], since only
//! a handler knows how large a body it accepts.
//!
//! Path of a request: `accept` acquires a permit of the semaphore with [`ServeLimits::connections`] permits;
//! `connection` drives hyper over a `guard`, which wraps the socket; `exchange` gives each request its id, tracing
//! span and access-log line, and converts a malformed target or a panic into a problem response; the caller's service
//! produces the response.
//!
//! Cancellation is drop. When a client closes its connection, or only its sending half, the service's future or the
//! response body is dropped at once, and with it everything that it was waiting for.
//!
//! A request head that is not valid HTTP is answered by hyper itself, with a bare 400, 414 or 431 and no problem
//! body.

mod accept;
mod connection;
mod exchange;
mod guard;
mod target;
#[cfg(test)]
mod tests;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use agent_client::relay::RelayOptions;
use tokio::net::TcpListener;

use crate::service::HttpService;
use crate::shutdown::Shutdown;

pub use accept::FINAL_EVENT_TIMEOUT;
pub use workers::Workers;

/// Limits and optimizations of a server. Every limit is finite; [`Default`] has the documented values.
#[derive(Clone, Debug)]
pub struct ServeLimits {
    /// Maximum number of open connections; 10,000. Further clients wait in the kernel's backlog.
    pub connections: u32,
    /// Timeout for reading a request head, counted from when the connection is ready for one; 10 s. It closes silent
    /// connections, clients that send heads slowly, and idle keep-alive connections.
    pub head_read: Duration,
    /// Maximum size of a request head in bytes, request line included; 64 KiB. A larger head is answered with 431.
    pub head_bytes: usize,
    /// Maximum time without progress while there is data to write; 30 s. The connection is then dropped.
    pub write_stall: Duration,
    /// Time from the shutdown signal in which new requests are still accepted, so that load balancers learn of it from
    /// `/readyz`; 0.
    pub lame_duck: Duration,
    /// Time that running exchanges have to finish after [`lame_duck`](Self::lame_duck); 10 s. Runs are ended with an
    /// error shortly before, see [`FINAL_EVENT_TIMEOUT`]. What is left then is dropped.
    pub drain: Duration,
    /// Optimizations of responses that stream; those of the build.
    pub relay: RelayOptions,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_read: Duration::from_secs(10),
            head_bytes: 64 * 1024,
            write_stall: Duration::from_secs(30),
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(10),
            relay: RelayOptions::default(),
        }
    }
}

/// Socket address of the client, in each request's extensions.
///
/// Behind a reverse proxy it is the proxy's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Serves HTTP/1.1 on `listener` until `shutdown` begins, then drains.
///
/// Each request carries a [`crate::request_id::RequestId`] and a [`Peer`] in its extensions. Draining closes the
/// listener and idle connections and lets running exchanges finish. [`FINAL_EVENT_TIMEOUT`] before
/// [`ServeLimits::drain`] is over, or when [`Shutdown::end`] is called, runs that share `shutdown` by
/// [`StreamLimits`](crate::stream::StreamLimits) end with an error, requests without a response are answered 503
/// `SERVER_SHUTTING_DOWN`, and what is left after that time is dropped. Dropping the returned future drops every
/// connection.
///
/// # Errors
///
/// Returns an error only if the listener has no local address, that is, if it never listened. A failed accept is
/// logged and retried after a pause, since most causes (such as exhausted file descriptors) are temporary.
pub async fn serve<S: HttpService>(
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> io::Result<()> {
    serve_on(None, listener, service, limits, shutdown).await
}

impl Workers {
    /// Serves like [`serve`], but runs connections on these threads instead of the caller's runtime.
    ///
    /// # Errors
    ///
    /// Same as [`serve`].
    pub async fn serve<S: HttpService>(
        self,
        listener: TcpListener,
        service: S,
        limits: ServeLimits,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        serve_on(Some(self), listener, service, limits, shutdown).await
    }
}

async fn serve_on<S: HttpService>(
    workers: Option<Workers>,
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::debug!(%address, "listening");
    accept::run(listener, service, limits, workers, shutdown).await;
    tracing::debug!(%address, "stopped");
    Ok(())
}
