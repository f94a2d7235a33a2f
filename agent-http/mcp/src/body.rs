//! Response bodies.

use std::error::Error;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};

type BodyError = Box<dyn Error + Send + Sync>;

/// Boxed response body. An error in it closes the connection.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

pub(crate) fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn streaming<E: Into<BodyError> + 'static>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> ResponseBody {
    StreamBody::new(stream.map_ok(Frame::data).map_err(Into::into)).boxed_unsync()
}
