//! HTTP/1.1 server: accepts connections and serves them. The only module that uses hyper's server.
//!
//! Streaming responses keep connections open for long, so every resource that a client can hold is bounded: the number of
//! connections, the size of a request head and the time to read it, the time for which a write may stall, and the time that
//! shutdown waits. The bounds on bodies are in [`crate::request`], since only a handler knows how large a body it accepts.
//!
//! Path of a request: `accept` takes one of the `slots`, whose number is [`ServeLimits::connections`]. Without a free
//! one the connection is `waiting`: `eviction` may close an idle connection for it, and a health probe is answered
//! beyond the limit. `connection` drives hyper over a `guard`, which wraps the socket; `exchange` gives each request its
//! id, tracing span and access-log line, and converts a malformed target or a panic into a problem response; the
//! caller's service produces the response.
//!
//! Cancellation is drop. When a client closes its connection, or only its sending half, the service's future or the
//! response body is dropped at once, and with it everything that it was waiting for.
//!
//! A request head that is not valid HTTP is answered by hyper itself, with a bare 400, 414 or 431 and no problem
//! body. A request whose connection waits for a slot is answered with a bare 503 if a later connection replaces it, or
//! if the server stops.

mod accept;
mod connection;
mod eviction;
mod exchange;
mod guard;
mod limits;
mod peer;
mod slots;
mod target;
#[cfg(test)]
mod tests;
mod waiting;
mod workers;

use std::io;

use tokio::net::TcpListener;

use crate::service::HttpService;
use crate::shutdown::Shutdown;

pub use accept::FINAL_EVENT_TIMEOUT;
pub use limits::ServeLimits;
pub use peer::Peer;
pub(crate) use waiting::PROBE_PATHS;
pub use workers::Workers;

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
