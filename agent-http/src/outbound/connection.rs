//! A connection that is driven by the task that waits for it.
//!
//! hyper gives a connection and the response on it as two futures that wake one another. Here both
//! are polled together, and a wake from one to the other is answered on the spot: the task is woken by
//! the network alone.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::connect::Io;
use super::pool::{Origin, Pool};
use super::request::Segments;
use crate::keep_alive;
use crate::wakes::Wakes;

/// How often the connection is polled for wakes that came while it was polled, before the task yields.
const ROUNDS: usize = 3;

/// An open connection. Dropping it closes it.
pub(super) struct Connection {
    sender: http1::SendRequest<Segments>,
    /// `None` once it is closed. Dropping it tells the response and the body that nothing more comes.
    driver: Option<Box<http1::Connection<Io, Segments>>>,
    wakes: Arc<Wakes>,
    /// Wakes by `wakes`.
    waker: Waker,
    origin: Origin,
    /// Weak, because the pool owns its idle connections.
    pool: Weak<Pool>,
    /// How long the other side keeps it without a request, where it has said so.
    kept_for: Option<Duration>,
}

impl Connection {
    pub(super) async fn open(io: Io, origin: Origin, pool: Weak<Pool>) -> hyper::Result<Self> {
        let (sender, driver) = http1::handshake(io).await?;
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        Ok(Self { sender, driver: Some(Box::new(driver)), wakes, waker, origin, pool, kept_for: None })
    }

    /// Sends a request and waits for the response head. A request of which nothing was sent is in
    /// the error.
    pub(super) async fn send(
        &mut self,
        request: Request<Segments>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Segments>>> {
        let mut response = pin!(self.sender.try_send_request(request));
        let response = poll_fn(|cx| self.poll_with(cx, |cx| response.as_mut().poll(cx))).await?;
        self.kept_for = keep_alive::announced(response.headers());
        Ok(response)
    }

    /// Polls what comes of this connection, and the connection for it, until neither gets further.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut awaited: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for _ in 0..ROUNDS {
            self.wakes.begin();
            let ready = awaited(&mut Context::from_waker(&self.waker));
            if ready.is_ready() {
                return ready;
            }
            self.drive();
            // Whatever the connection has brought wakes who awaits it.
            if self.wakes.sleep(cx.waker()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets the connection read and write what it can.
    fn drive(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        // An error is for the response or the body, which have it when there is one.
        if Pin::new(&mut **driver).poll(&mut Context::from_waker(&self.waker)).is_ready() {
            self.driver = None;
        }
    }

    /// Whether another request can be sent, as far as is known without waiting.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.wakes.begin();
        self.drive();
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Keeps the connection for the next request if it can take one; closes it otherwise.
    pub(super) fn give_back(mut self) {
        if !self.is_reusable() {
            return;
        }
        if let Some(pool) = self.pool.upgrade() {
            // An idle connection keeps no finished task alive.
            self.wakes.forget();
            pool.put(self.origin.clone(), self.kept_for, self);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}
