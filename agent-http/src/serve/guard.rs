//! Socket wrapper that detects four conditions that hyper does not handle, joins small vectored writes, and records
//! when a response has been written.
//!
//! - A client that stops reading. A write that makes no progress for the stall limit fails, which drops the
//!   connection. The timer is re-armed lazily: a successful write only clears the stall, and the timer, when it
//!   fires, checks whether there still is one. So a stream of small writes never touches the timer wheel.
//! - A client that disconnects while hyper is not reading, because of a pipelined request or an unread body. hyper
//!   sees the end of input only by reading, so the guard peeks when hyper flushes.
//! - A request head that has arrived when a drain begins or the connection is evicted, but that the runtime has not
//!   reported yet. hyper would take the connection for idle and close it, which resets the request. So the guard then
//!   peeks at the socket itself.
//! - A client that still sends a request body after the response, which the handler did not read to its end. Closing
//!   then makes the kernel send a reset, which can destroy the response before the client has read it. So the guard
//!   shuts down its sending half and discards input for a while (lingering close, RFC 9112 section 9.6).

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_client::relay::{MAX_JOINED_WRITE_BYTES, join_slices};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ServeLimits;
use super::eviction::Evictable;
use crate::connection_permit::ConnectionPermit;

/// Maximum time that a lingering close discards input.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Watch for input of a connection that is about to close, shared by its guard and its task.
#[derive(Debug, Default)]
pub(super) struct InputWatch {
    is_watching: AtomicBool,
    has_unread_input: AtomicBool,
}

impl InputWatch {
    /// Begins to watch for input that was not read.
    pub(super) fn begin(&self) {
        self.is_watching.store(true, Ordering::Relaxed);
    }

    /// Ends watching.
    pub(super) fn end(&self) {
        self.is_watching.store(false, Ordering::Relaxed);
    }

    /// Returns true if the last read found no input although the socket has some. The task is woken then.
    pub(super) fn take_unread_input(&self) -> bool {
        self.has_unread_input.swap(false, Ordering::Relaxed)
    }
}

pub(super) struct Guard {
    stream: TokioIo<TcpStream>,
    stall: WriteStallTimer,
    /// True if the last read since the last flush was pending, so that the read will report the end of input.
    reading: bool,
    /// Set once a request body was dropped before its end.
    unread: Arc<AtomicBool>,
    input: Arc<InputWatch>,
    evictable: Arc<Evictable>,
    linger: Option<Pin<Box<Sleep>>>,
    joins_writes: bool,
}

impl Guard {
    pub(super) fn new(
        stream: TcpStream,
        limits: &ServeLimits,
        unread: Arc<AtomicBool>,
        input: Arc<InputWatch>,
        evictable: Arc<Evictable>,
    ) -> Self {
        Self {
            stream: TokioIo::new(stream),
            stall: WriteStallTimer::new(limits.write_stall),
            reading: false,
            unread,
            input,
            evictable,
            linger: None,
            joins_writes: limits.relay.joined_writes,
        }
    }

    /// Returns an error if the client has closed its sending half while no read is pending. Otherwise the task is
    /// woken when that happens, unless unread input precedes the end.
    fn check_open(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut byte = [0];
        match self.stream.inner().poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0)) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client disconnected"))
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
        }
    }

    /// Passes a write's result on, or returns an error once writes have stalled for too long. Before that, the connection makes room
    /// for other clients if no limit of a company counts it.
    fn check_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let permit = self.evictable.connection_permit();
        let written = self.stall.check(cx, written, permit);
        if self.stall.since.is_some() && permit.is_uncounted() {
            self.evictable.begin_stall();
        }
        written
    }

    /// Returns true if the kernel has input for this socket, whether or not the runtime has reported it.
    fn has_input(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(self.stream.inner()).peek(&mut byte).is_ok_and(|bytes| bytes > 0)
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.evictable.connection_permit().is_uncounted() {
            self.evictable.begin_stall();
        }
        let timer = self.linger.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + LINGER_TIMEOUT)));
        let mut discarded = [0; 4096];
        // The deadline is compared with the clock, because the timer is not polled as long as there is input.
        while Instant::now() < timer.deadline() {
            let mut buffer = ReadBuf::new(&mut discarded);
            match Pin::new(self.stream.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return timer.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl Read for Guard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.reading = read.is_pending();
        if self.reading && self.input.is_watching.load(Ordering::Relaxed) && self.has_input() {
            self.input.has_unread_input.store(true, Ordering::Relaxed);
            cx.waker().wake_by_ref();
        }
        read
    }
}

impl Write for Guard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.check_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = [0; MAX_JOINED_WRITE_BYTES];
        let this = &mut *self;
        let joined = if this.joins_writes { join_slices(bufs, &mut buffer) } else { None };
        let stream = Pin::new(&mut this.stream);
        let written = match joined {
            Some(small) => stream.poll_write(cx, small),
            None => stream.poll_write_vectored(cx, bufs),
        };
        this.check_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::take(&mut self.reading) {
            self.check_open(cx)?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.stall.end();
        self.evictable.end_stall();
        // hyper flushes only what it has written whole. A connection with an unread body closes after the response.
        if !self.unread.load(Ordering::Relaxed) {
            self.evictable.record_flush();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.unread.load(Ordering::Relaxed) {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

/// Timeout of stalled writes.
struct WriteStallTimer {
    limit: Duration,
    /// Start of the current stall.
    since: Option<Instant>,
    /// Kept after a stall, so that a client that stalls repeatedly does not cost a timer each time.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WriteStallTimer {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: None }
    }

    /// Ends a stall: everything was written.
    fn end(&mut self) {
        self.since = None;
    }

    /// Passes a write's result on, or returns a timeout error once writes have stalled for longer than the limit. Progress ends a
    /// stall, unless the sender of the request is not authenticated: a client of many addresses would hold as many connections
    /// for as long as it reads a byte from time to time. Its responses are small or files, and must be read within the limit.
    fn check(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        permit: &ConnectionPermit,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            if self.since.is_some() && !permit.is_anonymous() {
                self.end();
            }
            return written;
        }
        let deadline = *self.since.get_or_insert_with(Instant::now) + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client does not read the response",
                )));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Reads a byte after each 20 s of a limit of 30 s, for two minutes. Returns true if the connection stands.
    async fn stands_with_slow_reads(permit: &ConnectionPermit, writes_all: bool) -> bool {
        let mut timer = WriteStallTimer::new(Duration::from_secs(30));
        for _ in 0..6 {
            let blocked = poll_fn(|cx| Poll::Ready(timer.check(cx, Poll::Pending, permit))).await;
            if blocked.is_ready() {
                return false;
            }
            tokio::time::advance(Duration::from_secs(20)).await;
            let progress = poll_fn(|cx| timer.check(cx, Poll::Ready(Ok(1)), permit)).await;
            assert_eq!(progress.expect("written"), 1);
            if writes_all {
                timer.end();
            }
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_a_credential_is_read_within_the_limit() {
        let permit = ConnectionPermit::default();
        assert!(stands_with_slow_reads(&permit, false).await);
        permit.begin_request();
        assert!(!stands_with_slow_reads(&permit, false).await);
        assert!(stands_with_slow_reads(&permit, true).await, "each response has the limit of its own");
        permit.mark_authenticated();
        assert!(stands_with_slow_reads(&permit, false).await);
    }
}
