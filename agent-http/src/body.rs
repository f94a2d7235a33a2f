//! Request and response bodies.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;

/// Error that ends a body early. It is logged; the client sees the connection close before the message is complete.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// Boxed response body. An error in it closes the connection.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// Returns an empty response body.
#[must_use]
pub fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a response body with the given bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a streaming response body. Each item is one chunk. An error closes the connection, so that the client can
/// tell a broken stream from a complete one.
#[must_use]
pub fn streaming<E: Into<BodyError> + 'static>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> ResponseBody {
    StreamBody::new(stream.map_ok(Frame::data).map_err(Into::into)).boxed_unsync()
}

/// Request body. It is read through [`http_body::Body`]; `request::read_body` collects it within limits.
#[derive(Debug)]
pub struct Body(BodySource);

#[derive(Debug)]
enum BodySource {
    Connection(FromConnection),
    Boxed(UnsyncBoxBody<Bytes, BodyError>),
}

#[derive(Debug)]
struct FromConnection {
    incoming: Incoming,
    has_ended: bool,
    /// Set on drop if the body was not read to its end, so that the connection closes with a lingering close.
    unread: Arc<AtomicBool>,
}

impl Body {
    /// Creates a body from any source, for requests that do not come from a connection.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        Self(BodySource::Boxed(body.map_err(Into::into).boxed_unsync()))
    }

    /// Creates an empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self(BodySource::Boxed(empty()))
    }

    pub(crate) fn from_connection(incoming: Incoming, unread: Arc<AtomicBool>) -> Self {
        Self(BodySource::Connection(FromConnection { incoming, has_ended: false, unread }))
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(BodySource::Boxed(full(bytes)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            BodySource::Connection(body) => {
                let frame = ready!(Pin::new(&mut body.incoming).poll_frame(cx));
                body.has_ended |= frame.is_none();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            BodySource::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Connection(body) => body.incoming.is_end_stream(),
            BodySource::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Connection(body) => body.incoming.size_hint(),
            BodySource::Boxed(body) => body.size_hint(),
        }
    }
}

impl Drop for FromConnection {
    fn drop(&mut self) {
        use http_body::Body as _;
        if !self.has_ended && !self.incoming.is_end_stream() {
            self.unread.store(true, Ordering::Relaxed);
        }
    }
}

/// Marker in a response's extensions: the body enters the request's span by itself, and only where it does work.
#[derive(Clone, Copy)]
pub(crate) struct EntersSpan;
