//! Streaming response body: encodes all events that are ready into one buffer, and returns it as one frame.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tracing::Span;

use super::{Encoder, Watched};
use crate::wakes::Wakes;

/// Initial capacity of the first buffer, in bytes: room for the events up to the first token.
const FIRST_BYTES: usize = 1024;

/// Initial capacity of later buffers, in bytes: room for one token with its event, which is most frames of a paced
/// stream. Kept small because allocators do periodic maintenance per allocated bytes.
const INITIAL_BYTES: usize = 256;

/// Size in bytes at which a buffer is returned although more events are ready.
const FULL_BYTES: usize = 64 * 1024;

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
    events: Watched,
    encoder: Encoder,
    first: FirstPiece,
    wakes: Arc<Wakes>,
    /// Waker that records wake-ups in `wakes`.
    waker: Waker,
}

/// Progress of writing the first delta.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstPiece {
    /// Not encoded yet.
    Awaited,
    /// Returned to the connection, which writes it once the body returns `Pending`.
    HandedOut,
    /// Written.
    Written,
}

impl StreamBody {
    pub(super) fn new(events: Watched, encoder: Encoder) -> Self {
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let run = Run { events, encoder, first: FirstPiece::Awaited, wakes, waker };
        Self { run: Some(run), buffer: Vec::new(), span: Span::current() }
    }

    /// Creates a body with the complete text.
    pub(super) fn whole(text: Vec<u8>) -> Self {
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
        let Self { run: under_way, buffer, span } = &mut *self;
        if under_way.as_ref().is_some_and(|run| run.wakes.still_asleep(cx.waker())) {
            return Poll::Pending;
        }
        let _entered = span.enter();
        while buffer.len() < FULL_BYTES {
            let Some(Run { events, encoder, first, wakes, waker }) = under_way else { break };
            wakes.begin();
            let mut own = Context::from_waker(waker);
            match events.poll_event(&mut own) {
                Poll::Ready(Some(event)) => {
                    if buffer.capacity() == 0 {
                        let is_first = *first == FirstPiece::Awaited;
                        *buffer = Vec::with_capacity(if is_first { FIRST_BYTES } else { INITIAL_BYTES });
                    }
                    encoder.encode(&event, buffer);
                    match *first {
                        FirstPiece::Awaited if event.delta().is_some() => {
                            *first = FirstPiece::HandedOut;
                            break;
                        }
                        FirstPiece::HandedOut => {
                            // More events are ready; they follow once the connection has written the first delta.
                            *first = FirstPiece::Written;
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        FirstPiece::Awaited | FirstPiece::Written => {}
                    }
                }
                Poll::Ready(None) => {
                    encoder.finish(buffer);
                    *under_way = None;
                }
                Poll::Pending => {
                    if *first == FirstPiece::HandedOut {
                        *first = FirstPiece::Written;
                    }
                    if events.poll_silence(&mut own).is_ready() {
                        continue;
                    }
                    let asleep = wakes.sleep(cx.waker());
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
