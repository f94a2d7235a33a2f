//! Streaming response body: encodes all events that are ready into one buffer, and returns it as one frame.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use agent_client::relay::{FrameBatch, FrameStep, RelayOptions, RelayWaker};
use agent_core::event::Event;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tracing::Span;

use super::{Encoder, TimeoutStream};

/// Body of a response: the stream of a run, or a complete text.
///
/// The buffer is written at the first `Pending` of the source: a source with more ready events, such as an upstream
/// body that this task drives, yields them before that. [`FrameBatch`] has the exceptions.
///
/// A run that returned `Pending` is not polled again before it has woken the task, as far as [`RelayWaker`] knows, since
/// hyper polls a pending body repeatedly while it writes earlier frames. The run is polled in the span in which the body
/// was created.
///
/// It never fails: an error of the run is an event. It holds no buffer while it waits for the run, and does not poll
/// the run while the connection does not poll for frames.
pub struct StreamBody {
    run: Option<Run>,
    pub(super) buffer: Vec<u8>,
    span: Span,
}

struct Run {
    events: TimeoutStream,
    encoder: Encoder,
    batch: FrameBatch,
    waker: RelayWaker,
}

impl StreamBody {
    pub(super) fn new(events: TimeoutStream, encoder: Encoder, relay: &RelayOptions) -> Self {
        let (batch, waker) = (FrameBatch::new(relay), RelayWaker::new(relay.coalescing_waker));
        // Otherwise the server enters the span in each poll of the body.
        let span = if relay.lazy_span { Span::current() } else { Span::none() };
        Self { run: Some(Run { events, encoder, batch, waker }), buffer: Vec::new(), span }
    }

    /// Creates a body with the complete text.
    pub(super) fn complete(text: Vec<u8>) -> Self {
        Self { run: None, buffer: text, span: Span::none() }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { run: active, buffer, span } = &mut *self;
        if active.as_ref().is_some_and(|run| run.waker.is_asleep(cx.waker())) {
            return Poll::Pending;
        }
        let _entered = span.enter();
        while let Some(Run { events, encoder, batch, waker }) = active {
            if batch.is_full(buffer.len()) {
                break;
            }
            waker.begin_poll();
            let mut relay_cx = Context::from_waker(waker.waker(cx.waker()));
            match events.poll_event(&mut relay_cx) {
                Poll::Ready(Some(event)) => {
                    if buffer.capacity() == 0 {
                        buffer.reserve_exact(batch.buffer_capacity());
                    }
                    let is_delta = encode_event(events, encoder, &event, buffer);
                    match batch.after_event(is_delta) {
                        FrameStep::Continue => {}
                        FrameStep::Flush => break,
                        FrameStep::Yield => {
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                    }
                }
                Poll::Ready(None) => {
                    encoder.finish(buffer);
                    *active = None;
                }
                Poll::Pending => {
                    batch.after_pending();
                    if events.poll_limits(&mut relay_cx).is_ready() {
                        continue;
                    }
                    if events.poll_keep_alive(&mut relay_cx).is_ready() {
                        encoder.keep_alive(events.is_queued(), buffer);
                    }
                    let asleep = waker.register(cx.waker());
                    if !buffer.is_empty() {
                        break;
                    }
                    if !asleep {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
            }
        }
        if buffer.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(mem::take(buffer).into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.run.is_none() && self.buffer.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.run {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.buffer.len() as u64),
        }
    }
}

/// Encodes an event. Returns true if it is a delta for which the format has something: some formats leave out events, and an
/// empty frame would end the body.
fn encode_event(
    events: &mut TimeoutStream,
    encoder: &mut Encoder,
    event: &Event,
    buffer: &mut Vec<u8>,
) -> bool {
    let encoded_bytes = buffer.len();
    encoder.encode(event, buffer);
    let is_written = buffer.len() > encoded_bytes;
    if !is_written {
        events.record_unwritten_event();
    }
    is_written && event.delta().is_some()
}

impl Drop for StreamBody {
    /// Detaches from a run that has not ended.
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.events.client_disconnected();
        }
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streaming = self.run.is_some();
        f.debug_struct("StreamBody").field("streaming", &streaming).finish_non_exhaustive()
    }
}
