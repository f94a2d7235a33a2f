//! The streamed body: drains what is ready into one buffer and hands it out in few, large frames.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{Encoder, Watched};

/// What a buffer begins with; most frames of a paced stream fit.
const INITIAL_BYTES: usize = 2 * 1024;

/// When a buffer is full and handed out although more is ready.
const FULL_BYTES: usize = 64 * 1024;

/// How often an empty-handed source is asked again before what is in hand is written.
///
/// An HTTP client hands its body over about one frame a poll, from another task. Whoever writes at
/// the first `Pending` writes once a frame; one yield lets the other task run, and the second finds
/// what it has brought. An event in a burst is late by two turns of the scheduler, not by a timer.
const YIELDS_BEFORE_WRITING: u8 = 2;

/// How soon after a write more is taken for a burst. What comes later, as a model's tokens do, comes
/// alone: it is written at once, for yielding would bring nothing and costs as much as the write.
const BURST_GAP: Duration = Duration::from_millis(5);

/// The body of an answer: a run under way, or a whole text.
///
/// It never fails: a run's failure is an event. Between frames it holds no buffer, and while the
/// connection does not ask for frames it does not ask the run for events.
pub struct StreamBody {
    run: Option<Run>,
    pub(super) buffer: Vec<u8>,
    yields: u8,
    written: Option<Instant>,
}

struct Run {
    events: Watched,
    encoder: Encoder,
}

impl StreamBody {
    pub(super) fn new(events: Watched, encoder: Encoder) -> Self {
        Self { run: Some(Run { events, encoder }), buffer: Vec::new(), yields: 0, written: None }
    }

    /// A body that is known whole.
    pub(super) fn whole(text: Vec<u8>) -> Self {
        Self { run: None, buffer: text, yields: 0, written: None }
    }

    fn take_frame(&mut self) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.yields = 0;
        if self.buffer.is_empty() {
            return Poll::Ready(None);
        }
        self.written = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.buffer).into()))))
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        while this.buffer.len() < FULL_BYTES {
            let Some(Run { events, encoder }) = &mut this.run else { break };
            match events.poll_event(cx) {
                Poll::Ready(Some(event)) => {
                    if this.buffer.capacity() == 0 {
                        this.buffer.reserve(INITIAL_BYTES);
                    }
                    this.yields = 0;
                    encoder.encode(&event, &mut this.buffer);
                }
                Poll::Ready(None) => {
                    encoder.finish(&mut this.buffer);
                    this.run = None;
                }
                Poll::Pending if this.buffer.is_empty() => ready!(events.poll_silence(cx)),
                Poll::Pending if this.yields < YIELDS_BEFORE_WRITING && in_burst(this.written) => {
                    this.yields += 1;
                    yield_once(cx);
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        this.take_frame()
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

fn in_burst(written: Option<Instant>) -> bool {
    written.is_some_and(|written| written.elapsed() < BURST_GAP)
}

/// Has the task polled again after others, as a yield does. A plain wake of the running task would call
/// a sleeping worker to its help, which costs more than all else that is done for a chunk.
fn yield_once(cx: &mut Context<'_>) {
    let again = pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(again.is_pending(), "a yield is pending at first");
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streaming = self.run.is_some();
        f.debug_struct("StreamBody").field("streaming", &streaming).finish_non_exhaustive()
    }
}
