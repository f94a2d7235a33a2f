//! Accepting connections and serving HTTP/1.1 on them: the only place that knows hyper's server.
//!
//! What a connection may cost is bounded on every side, because a server of long streams is held open by its
//! clients: the number of connections, the head's size and the time it may take, the time a client may go without
//! reading what is written to it, and the time that a shutdown waits. The body's bounds are in [`crate::request`],
//! since only a handler knows how much body it wants.
//!
//! A request's way: `accept` takes a place among [`ServeLimits::connections`], `connection` drives hyper over a
//! `guard` that watches the socket, `exchange` gives each request its id, span and access-log line and turns a
//! malformed target or a panic into a problem, and the caller's service answers.
//!
//! Cancellation is drop. A client that closes its connection, or only its sending half, has gone: the service's
//! future and the response body are dropped at once, and with them whatever they were waiting for.
//!
//! Heads that are no HTTP at all are answered by hyper itself, with a bare 400, 414 or 431 and no problem body.

mod accept;
mod body;
mod connection;
mod exchange;
mod guard;
mod target;
#[cfg(test)]
mod tests;
mod workers;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use tokio::net::TcpListener;

pub use body::{Body, BodyError, ResponseBody, empty, full, streaming};
pub(crate) use exchange::EntersSpan;
pub use workers::Workers;

/// What a server allows its clients. Every bound is finite; [`Default`] gives the documented values.
#[derive(Clone, Debug)]
pub struct ServeLimits {
    /// Connections open at once; 10,000. Further ones wait in the kernel's backlog.
    pub connections: u32,
    /// Time for a request's whole head, counted from when the connection is ready for one; 10 s. It closes silent
    /// connections, slow senders of heads and idle kept-alive connections alike.
    pub head_read: Duration,
    /// Size of a request's head in bytes, request line included; 64 KiB. A larger one is 431.
    pub head_bytes: usize,
    /// Time without any progress while there is something to write; 30 s. Then the connection is dropped.
    pub write_stall: Duration,
    /// Time that running exchanges get to finish after the shutdown signal; 10 s. Then they are cut.
    pub drain: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_read: Duration::from_secs(10),
            head_bytes: 64 * 1024,
            write_stall: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }
}

/// The address of the connection's other end, in each request's extensions.
///
/// Behind a reverse proxy it is the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// What [`serve`] asks of a service. It is implemented for every matching [`tower_service::Service`], so that
/// layers of tower and tower-http compose with it; nothing implements it by hand. All connections share one, of which
/// each request has a clone.
pub trait HttpService:
    tower_service::Service<
        Request<Body>,
        Response = Response<ResponseBody>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> HttpService for S where
    S: tower_service::Service<
            Request<Body>,
            Response = Response<ResponseBody>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Serves HTTP/1.1 on `listener` until `shutdown` completes, then drains.
///
/// Each request carries a [`crate::request::RequestId`] and a [`Peer`] in its extensions. Draining closes the
/// listener, tells idle connections to close, lets running exchanges finish for at most [`ServeLimits::drain`] and
/// drops the rest. Dropping the returned future drops every connection.
///
/// # Errors
///
/// Only if the listener has no local address, which says that it never listened. A failed accept is logged and
/// waited out instead, since most (a full table of file descriptors, say) pass.
pub async fn serve<S: HttpService>(
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_on(None, listener, service, limits, shutdown).await
}

impl Workers {
    /// As [`serve`], with connections on these threads instead of the caller's runtime.
    ///
    /// # Errors
    ///
    /// As [`serve`].
    pub async fn serve<S: HttpService>(
        self,
        listener: TcpListener,
        service: S,
        limits: ServeLimits,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        serve_on(Some(self), listener, service, limits, shutdown).await
    }
}

async fn serve_on<S: HttpService>(
    workers: Option<Workers>,
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::debug!(%address, "listening");
    accept::run(listener, service, limits, workers, shutdown).await;
    tracing::debug!(%address, "stopped");
    Ok(())
}
