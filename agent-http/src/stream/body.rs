//! Streaming response body: encodes all events that are ready into one buffer, and returns it as one frame.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use agent_client::relay::CoalescingWaker;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tracing::Span;

use super::{Encoder, TimeoutStream};

/// Initial capacity of the first buffer, in bytes: room for the events up to the first token.
const FIRST_BUFFER_BYTES: usize = 1024;

/// Initial capacity of later buffers, in bytes: room for one token with its event, which is most frames of a paced
/// stream. Kept small because allocators do periodic maintenance per allocated bytes.
const BUFFER_BYTES: usize = 256;

/// Size in bytes at which a buffer is returned although more events are ready.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Body of a response: the stream of a run, or a complete text.
///
/// The buffer is written at the first `Pending` of the source: a source with more ready events, such as an upstream
/// body that this task drives, yields them before that. The first delta is not delayed by further ready events: it is
/// written by itself.
///
/// A run that returned `Pending` is not polled again before it has woken the task, since hyper polls a pending body
/// repeatedly while it writes earlier frames. The run is polled in the span in which the body was created.
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
    first: FirstChunk,
    wakes: Arc<CoalescingWaker>,
    /// Waker that records wake-ups in `wakes`.
    waker: Waker,
}

/// Progress of writing the first delta.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstChunk {
    /// Not encoded yet.
    Awaited,
    /// Returned to the connection, which writes it once the body returns `Pending`.
    HandedOut,
    /// Written.
    Written,
}

impl StreamBody {
    pub(super) fn new(events: TimeoutStream, encoder: Encoder) -> Self {
        let wakes = Arc::new(CoalescingWaker::default());
        let waker = wakes.clone().into();
        let run = Run { events, encoder, first: FirstChunk::Awaited, wakes, waker };
        Self { run: Some(run), buffer: Vec::new(), span: Span::current() }
    }

    /// Creates a body with the complete text.
    pub(super) fn complete(text: Vec<u8>) -> Self {
        Self { run: None, buffer: text, span: Span::none() }
    }
}

/// Allocates the buffer of the next frame. The first one is small, since it holds the start of the run alone.
fn reserve_buffer(buffer: &mut Vec<u8>, first: FirstChunk) {
    if buffer.capacity() == 0 {
        let is_first = first == FirstChunk::Awaited;
        buffer.reserve_exact(if is_first { FIRST_BUFFER_BYTES } else { BUFFER_BYTES });
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { run: under_way, buffer, span } = &mut *self;
        if under_way.as_ref().is_some_and(|run| run.wakes.is_asleep(cx.waker())) {
            return Poll::Pending;
        }
        let _entered = span.enter();
        while buffer.len() < MAX_FRAME_BYTES {
            let Some(Run { events, encoder, first, wakes, waker }) = under_way else { break };
            wakes.begin_poll();
            let mut own = Context::from_waker(waker);
            match events.poll_event(&mut own) {
                Poll::Ready(Some(event)) => {
                    reserve_buffer(buffer, *first);
                    encoder.encode(&event, buffer);
                    match *first {
                        FirstChunk::Awaited if event.delta().is_some() => {
                            *first = FirstChunk::HandedOut;
                            break;
                        }
                        FirstChunk::HandedOut => {
                            // More events are ready; they follow once the connection has written the first delta.
                            *first = FirstChunk::Written;
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        FirstChunk::Awaited | FirstChunk::Written => {}
                    }
                }
                Poll::Ready(None) => {
                    encoder.finish(buffer);
                    *under_way = None;
                }
                Poll::Pending => {
                    if *first == FirstChunk::HandedOut {
                        *first = FirstChunk::Written;
                    }
                    if events.poll_idle_timeout(&mut own).is_ready() {
                        continue;
                    }
                    let asleep = wakes.register(cx.waker());
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

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streaming = self.run.is_some();
        f.debug_struct("StreamBody").field("streaming", &streaming).finish_non_exhaustive()
    }
}
