//! An HTTP/1.1 connection that is driven by the task that awaits its response.
//!
//! hyper returns a connection and its response as two futures that wake each other. Here both are polled together, and
//! wake-ups between the two are handled in the same poll, so that the task is woken by the network only.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::rt::{Read, Write};

use super::body::Segments;
use crate::keep_alive;
use crate::relay::{RelayOptions, RelayWaker};

/// Boxed transport of a connection, plain TCP or TLS. Boxed because the TLS state is far larger than a bare socket and
/// lives as long as the connection.
pub(super) type BoxedIo = Box<dyn IoStream>;

pub(super) trait IoStream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> IoStream for T {}

/// Maximum number of times that response and connection are polled per task poll, for wake-ups that arrive meanwhile,
/// before the task yields.
const MAX_POLL_ROUNDS: usize = 3;

/// An open connection. Dropping it closes it.
pub(super) struct Connection {
    sender: http1::SendRequest<Segments>,
    /// The hyper connection; `None` once it is closed. Dropping it ends the response and the body.
    driver: Option<Box<http1::Connection<BoxedIo, Segments>>>,
    relay: RelayOptions,
    /// Waker that is passed to polls of the connection, its request and its response.
    waker: RelayWaker,
    /// Keep-alive time that the server announced, if any.
    keep_alive_timeout: Option<Duration>,
}

impl Connection {
    pub(super) async fn open(io: BoxedIo, relay: RelayOptions) -> hyper::Result<Self> {
        let (sender, driver) = http1::handshake(io).await?;
        Ok(Self {
            sender,
            driver: Some(Box::new(driver)),
            relay,
            waker: RelayWaker::new(relay.coalescing_waker),
            keep_alive_timeout: None,
        })
    }

    /// Sends a request and waits for the response head. If nothing was sent, the error contains the request.
    pub(super) async fn send(
        &mut self,
        request: Request<Segments>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Segments>>> {
        let mut response = pin!(self.sender.try_send_request(request));
        let response = poll_fn(|cx| self.poll_with(cx, |cx| response.as_mut().poll(cx))).await?;
        self.keep_alive_timeout = keep_alive::parse_keep_alive(response.headers());
        Ok(response)
    }

    /// Polls `awaited`, a future or body of this connection, together with the connection until neither makes progress.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut awaited: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for _ in 0..MAX_POLL_ROUNDS {
            self.waker.begin_poll();
            let ready = awaited(&mut Context::from_waker(self.waker.waker(cx.waker())));
            if ready.is_ready() {
                return ready;
            }
            self.drive(cx.waker());
            // Anything that the connection has received wakes `awaited`.
            if self.waker.register(cx.waker()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the connection once in the task that `task` wakes, so that it reads and writes what it can.
    fn drive(&mut self, task: &Waker) {
        let Some(driver) = &mut self.driver else { return };
        // An error is ignored here because the response or the body returns it.
        if Pin::new(&mut **driver).poll(&mut Context::from_waker(self.waker.waker(task))).is_ready() {
            self.driver = None;
        }
    }

    /// Returns the options of the client that opened the connection.
    pub(super) fn relay(&self) -> RelayOptions {
        self.relay
    }

    /// Returns true if another request can be sent, as far as is known without waiting.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.waker.begin_poll();
        // No task waits for an idle connection; its next use registers one.
        self.drive(Waker::noop());
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Returns the keep-alive time that the server announced, if any.
    pub(super) fn keep_alive_timeout(&self) -> Option<Duration> {
        self.keep_alive_timeout
    }

    /// Drops the stored waker, so that an idle connection does not keep a finished task alive.
    pub(super) fn clear_waker(&mut self) {
        self.waker.clear();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}
