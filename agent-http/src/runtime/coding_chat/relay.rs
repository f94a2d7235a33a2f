//! Response body that passes on the bytes of an upstream body.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use agent_client::relay::{FrameBatch, RelayWaker};
use agent_core::error::{AgentError, AgentErrorKind};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body::{Body, Frame};
use tracing::Span;

use crate::body::BodyError;
use crate::stream::{StreamLimits, StreamTimeout, StreamTimer};

/// Initial capacity of a frame that joins chunks, in bytes.
const JOINED_FRAME_BYTES: usize = 8 * 1024;

/// Body of the bytes of `S`, a stream of non-empty chunks.
///
/// Chunks that are ready are joined into one frame, which is written at the first `Pending` of the source. A chunk that
/// arrives alone is passed on without a copy. As in [`StreamBody`](crate::stream::StreamBody), a source that returned
/// `Pending` is not polled again before it has woken the task, and it is polled in the span in which the body was
/// created.
///
/// A failure of the source, and a timeout, are the body's last item; the server then closes the connection, so that the
/// client does not take the body for complete. It drops what it has not written, so the body is `Pending` once between
/// the head or the last bytes and the failure, at which the server writes them.
pub(super) struct RelayBody<S> {
    /// `None` after the end, so that the connection is released before the last frame is written.
    source: Option<S>,
    timer: StreamTimer,
    waker: RelayWaker,
    batch: FrameBatch,
    frame: FrameBuffer,
    /// True from the head, and from each frame, until the next `Pending`.
    is_unwritten: bool,
    failure: Option<AgentError>,
    span: Span,
}

impl<S> RelayBody<S> {
    /// Creates a body with the timeouts and optimizations of `limits`.
    pub(super) fn new(source: S, limits: &StreamLimits) -> Self {
        Self {
            source: Some(source),
            timer: StreamTimer::new(limits),
            waker: RelayWaker::new(limits.relay.coalescing_waker),
            batch: FrameBatch::new(&limits.relay),
            frame: FrameBuffer::default(),
            is_unwritten: true,
            failure: None,
            // Otherwise the server enters the span in each poll of the body.
            span: if limits.relay.lazy_span { Span::current() } else { Span::none() },
        }
    }
}

impl<S: Stream<Item = Result<Bytes, AgentError>> + Unpin> Body for RelayBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { source: open, timer, waker, batch, frame, is_unwritten, failure, span } = &mut *self;
        if open.is_some() && waker.is_asleep(cx.waker()) {
            *is_unwritten = false;
            return Poll::Pending;
        }
        let _entered = span.enter();
        while let Some(source) = open {
            if batch.is_full(frame.len()) {
                break;
            }
            waker.begin_poll();
            let mut relay_cx = Context::from_waker(waker.waker(cx.waker()));
            if timer.is_check_due()
                && let Poll::Ready(timeout) = timer.poll_busy(&mut relay_cx)
            {
                (*open, *failure) = (None, Some(timeout_error(timeout)));
                break;
            }
            match source.poll_next_unpin(&mut relay_cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    timer.record_item();
                    frame.push(chunk);
                }
                Poll::Ready(Some(Err(error))) => (*open, *failure) = (None, Some(error)),
                Poll::Ready(None) => *open = None,
                Poll::Pending => {
                    if let Poll::Ready(timeout) = timer.poll_pending(&mut relay_cx) {
                        (*open, *failure) = (None, Some(timeout_error(timeout)));
                        break;
                    }
                    let asleep = waker.register(cx.waker());
                    if !frame.is_empty() {
                        break;
                    }
                    if !asleep {
                        cx.waker().wake_by_ref();
                    }
                    *is_unwritten = false;
                    return Poll::Pending;
                }
            }
        }
        if frame.is_empty() {
            if failure.is_some() && mem::take(is_unwritten) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(failure.take().map(|error| Err(error.into())));
        }
        *is_unwritten = true;
        Poll::Ready(Some(Ok(Frame::data(frame.take()))))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none() && self.frame.is_empty() && self.failure.is_none()
    }
}

fn timeout_error(timeout: StreamTimeout) -> AgentError {
    let (reason, limit) = match timeout {
        StreamTimeout::Idle(limit) => ("the upstream service sent nothing for", limit),
        StreamTimeout::Total(limit) => ("the response exceeded the time limit of", limit),
    };
    AgentError::new(AgentErrorKind::Timeout, format!("{reason} {} seconds", limit.as_secs_f64()))
}

/// Bytes of the next frame. The first chunk is copied only if another one follows.
#[derive(Default)]
struct FrameBuffer {
    first: Bytes,
    joined: Vec<u8>,
}

impl FrameBuffer {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, chunk: Bytes) {
        if self.is_empty() {
            self.first = chunk;
            return;
        }
        if self.joined.is_empty() {
            let first = mem::take(&mut self.first);
            self.joined.reserve(JOINED_FRAME_BYTES.max(first.len() + chunk.len()));
            self.joined.extend_from_slice(&first);
        }
        self.joined.extend_from_slice(&chunk);
    }

    fn take(&mut self) -> Bytes {
        match self.joined.is_empty() {
            true => mem::take(&mut self.first),
            false => mem::take(&mut self.joined).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_client::relay::RelayOptions;
    use futures_util::{FutureExt, stream};
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;

    use super::*;

    fn limits(relay: RelayOptions) -> StreamLimits {
        let (idle_timeout, run_timeout) = (Duration::from_secs(10), Duration::from_secs(60));
        StreamLimits { idle_timeout, run_timeout, relay, ..StreamLimits::default() }
    }

    type Item = Result<Bytes, AgentError>;

    /// Returns a channel, and a body of the chunks that are sent into it.
    fn channel(
        relay: RelayOptions,
    ) -> (mpsc::UnboundedSender<Item>, RelayBody<impl Stream<Item = Item> + Unpin>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (sender, RelayBody::new(stream::poll_fn(move |cx| receiver.poll_recv(cx)), &limits(relay)))
    }

    async fn next(body: &mut (impl Body<Data = Bytes, Error = BodyError> + Unpin)) -> Option<Bytes> {
        let frame = body.frame().await?.expect("no failure");
        Some(frame.into_data().expect("no trailers"))
    }

    fn failed() -> AgentError {
        AgentError::new(AgentErrorKind::Truncated, "cut")
    }

    #[tokio::test]
    async fn chunks_that_are_ready_are_one_frame_and_a_single_one_is_not_copied() {
        let (sender, mut body) = channel(RelayOptions::FAST);
        for chunk in ["a", "bc", "d"] {
            sender.send(Ok(chunk.into())).expect("open");
        }
        assert_eq!(next(&mut body).await.as_deref(), Some(&b"abcd"[..]));
        let single = Bytes::from(vec![b'x'; 300]);
        let address = single.as_ptr();
        sender.send(Ok(single)).expect("open");
        assert_eq!(next(&mut body).await.expect("a frame").as_ptr(), address);
        drop(sender);
        assert!(!body.is_end_stream());
        assert_eq!(next(&mut body).await, None);
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn both_implementations_pass_on_the_same_bytes() {
        let chunks: Vec<Bytes> =
            (1..700_usize).map(|n| Bytes::from(vec![n as u8; n * 7 % 1000 + 1])).collect();
        let expected = chunks.concat();
        let mut frames = Vec::new();
        for relay in [RelayOptions::FAST, RelayOptions::PLAIN] {
            let source = stream::iter(chunks.clone().into_iter().map(Ok));
            let mut body = RelayBody::new(source, &limits(relay));
            let mut received = Vec::new();
            let mut count = 0;
            while let Some(frame) = next(&mut body).await {
                received.extend_from_slice(&frame);
                count += 1;
            }
            assert!(received == expected);
            frames.push(count);
        }
        assert!(frames[0] < 20, "{frames:?}");
        assert_eq!(frames[1], chunks.len(), "the plain implementation joins nothing");
    }

    #[tokio::test]
    async fn a_failure_follows_the_bytes_before_it() {
        for relay in [RelayOptions::FAST, RelayOptions::PLAIN] {
            let source = stream::iter([Ok(Bytes::from("a")), Err(failed()), Ok(Bytes::from("b"))]);
            let mut body = RelayBody::new(source, &limits(relay));
            assert_eq!(next(&mut body).await.as_deref(), Some(&b"a"[..]));
            assert!(!body.is_end_stream());
            assert!(body.frame().now_or_never().is_none(), "the server writes the bytes first");
            body.frame().await.expect("an item").expect_err("the failure");
            assert!(body.frame().await.is_none() && body.is_end_stream());
        }
    }

    #[tokio::test]
    async fn a_failure_without_bytes_follows_the_head() {
        let mut body = RelayBody::new(stream::iter([Err(failed())]), &limits(RelayOptions::FAST));
        assert!(body.frame().now_or_never().is_none(), "the server writes the head first");
        body.frame().await.expect("an item").expect_err("the failure");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_body_and_each_chunk_restarts_it() {
        for relay in [RelayOptions::FAST, RelayOptions::PLAIN] {
            let (sender, mut body) = channel(relay);
            let start = tokio::time::Instant::now();
            tokio::spawn(async move {
                for _ in 0..2 {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                    sender.send(Ok("x".into())).expect("open");
                }
                sender.closed().await;
            });
            assert!(next(&mut body).await.is_some() && next(&mut body).await.is_some());
            let error = body.frame().await.expect("an item").expect_err("silence").to_string();
            assert_eq!(error, "the upstream service sent nothing for 10 seconds");
            assert_eq!(start.elapsed().as_secs(), 28);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_pauses_has_an_end() {
        for relay in [RelayOptions::FAST, RelayOptions::PLAIN] {
            let source = stream::repeat_with(|| Ok(Bytes::from_static(b"x")));
            let mut body = RelayBody::new(source, &limits(relay));
            let error = loop {
                tokio::time::advance(Duration::from_secs(1)).await;
                match body.frame().await.expect("no end") {
                    Ok(_) => {}
                    Err(error) => break error.to_string(),
                }
            };
            assert_eq!(error, "the response exceeded the time limit of 60 seconds");
        }
    }
}
