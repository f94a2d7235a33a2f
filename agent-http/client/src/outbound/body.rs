//! Request bodies.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A request body, made from [`Bytes`] or from a `Vec<Bytes>`.
#[derive(Debug)]
pub struct OutboundBody(pub(super) Segments);

impl From<Bytes> for OutboundBody {
    fn from(bytes: Bytes) -> Self {
        Self(Segments::new(vec![bytes]))
    }
}

impl From<Vec<Bytes>> for OutboundBody {
    fn from(segments: Vec<Bytes>) -> Self {
        Self(Segments::new(segments))
    }
}

/// A body of several segments with a known total length.
#[derive(Debug)]
pub(super) struct Segments {
    rest: VecDeque<Bytes>,
    remaining: u64,
}

impl Segments {
    pub(super) fn new(segments: Vec<Bytes>) -> Self {
        let mut rest = VecDeque::from(segments);
        rest.retain(|segment| !segment.is_empty());
        let remaining = rest.iter().map(|segment| segment.len() as u64).sum();
        Self { rest, remaining }
    }
}

impl Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let segment = self.rest.pop_front();
        self.remaining -= segment.as_ref().map_or(0, |segment| segment.len() as u64);
        Poll::Ready(segment.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
