//! The bodies of requests and responses.

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

/// Why a body ended early. It goes to the log; a client sees a connection that ends in the middle of a message.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// A response's body, boxed once. An error in it cuts the connection.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// A response body of no bytes.
#[must_use]
pub fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A response body of known bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response body that is sent as it is made. Each item is one chunk; an error cuts the connection, so that the
/// client can tell a broken stream from one that has ended.
#[must_use]
pub fn streaming<E: Into<BodyError> + 'static>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> ResponseBody {
    StreamBody::new(stream.map_ok(Frame::data).map_err(Into::into)).boxed_unsync()
}

/// A request's body. It is read through [`http_body::Body`]; [`crate::request::read_body`] reads it whole, bounded.
#[derive(Debug)]
pub struct Body(Source);

#[derive(Debug)]
enum Source {
    Connection(FromConnection),
    Boxed(UnsyncBoxBody<Bytes, BodyError>),
}

#[derive(Debug)]
struct FromConnection {
    incoming: Incoming,
    ended: bool,
    /// Tells the connection that it is closing on a client that may still be sending.
    unread: Arc<AtomicBool>,
}

impl Body {
    /// A body of any source, for requests that do not come from a connection.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        Self(Source::Boxed(body.map_err(Into::into).boxed_unsync()))
    }

    /// A body of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self(Source::Boxed(empty()))
    }

    pub(super) fn from_connection(incoming: Incoming, unread: Arc<AtomicBool>) -> Self {
        Self(Source::Connection(FromConnection { incoming, ended: false, unread }))
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(Source::Boxed(full(bytes)))
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
            Source::Connection(body) => {
                let frame = ready!(Pin::new(&mut body.incoming).poll_frame(cx));
                body.ended |= frame.is_none();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Source::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Connection(body) => body.incoming.is_end_stream(),
            Source::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Connection(body) => body.incoming.size_hint(),
            Source::Boxed(body) => body.size_hint(),
        }
    }
}

impl Drop for FromConnection {
    fn drop(&mut self) {
        use http_body::Body as _;
        if !self.ended && !self.incoming.is_end_stream() {
            self.unread.store(true, Ordering::Relaxed);
        }
    }
}
