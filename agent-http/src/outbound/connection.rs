//! A connection that is driven by the task that waits for it.
//!
//! hyper gives a connection and the response on it as two futures that wake one another. Here both
//! are polled together, and a wake from one to the other is answered on the spot: the task is woken by
//! the network alone.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::connect::Io;
use super::pool::{Origin, Pool};
use super::request::Segments;
use crate::keep_alive;

/// How often the connection is polled for wakes that came while it was polled, before the task yields.
const ROUNDS: usize = 2;

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
            let ready = awaited(&mut Context::from_waker(&self.waker));
            if ready.is_ready() {
                return ready;
            }
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
            self.wakes.task.take();
            pool.put(self.origin.clone(), self.kept_for, self);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

/// Passes wakes on to the task, except those that come while the task polls anyway.
#[derive(Debug, Default)]
struct Wakes {
    task: AtomicWaker,
    state: AtomicU8,
}

/// The task polls, or will poll without being woken.
const AWAKE: u8 = 0;
/// As `AWAKE`, and there was a wake since the poll began.
const WOKEN: u8 = 1;
/// The task waits for a wake.
const ASLEEP: u8 = 2;

impl Wakes {
    fn begin(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Has `task` woken from now on; `false` if there was a wake since the poll began.
    fn sleep(&self, task: &Waker) -> bool {
        self.task.register(task);
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            self.task.wake();
        }
    }
}
