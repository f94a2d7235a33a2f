//! The streamed body: drains what is ready into one buffer and hands it out in few, large frames.

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

/// What the first buffer begins with: room for the events up to the first token.
const FIRST_BYTES: usize = 1024;

/// What the others begin with: room for one token with its event. Most frames of a paced stream are that, and what an
/// allocator does now and then it does by the bytes that it has given.
const INITIAL_BYTES: usize = 256;

/// When a buffer is full and handed out although more is ready.
const FULL_BYTES: usize = 64 * 1024;

/// The body of an answer: a run under way, or a whole text.
///
/// What is in hand is written at the first `Pending`: a source that has more ready, such as an upstream
/// body that is driven by this task, gives it before that. The first piece of the answer is not kept waiting for
/// what else is ready: it is written by itself.
///
/// A run that has nothing is not asked again before it has woken the task: hyper asks a body that had nothing once and
/// again while it writes what came before. When it is asked, it is within the span in which the body was made.
///
/// It never fails: a run's failure is an event. While it waits for the run it holds no buffer, and while the
/// connection does not ask for frames it does not ask the run for events.
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
    /// Wakes by `wakes`.
    waker: Waker,
}

/// How far the first piece of the answer has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstPiece {
    /// It is still to come.
    Awaited,
    /// It was handed to the connection, which writes once there is nothing more to be had.
    HandedOut,
    /// It was written.
    Written,
}

impl StreamBody {
    pub(super) fn new(events: Watched, encoder: Encoder) -> Self {
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let run = Run { events, encoder, first: FirstPiece::Awaited, wakes, waker };
        Self { run: Some(run), buffer: Vec::new(), span: Span::current() }
    }

    /// A body that is known whole.
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
                            // There is more at once. It follows when the connection has written.
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
