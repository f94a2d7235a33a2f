//! Response head and body of an outbound request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::media_type::essence;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use super::agent_error;
use super::pooled::PooledConnection;
use super::timeout::timeout;
use crate::relay::RelayOptions;

/// A response head and its unread body.
#[derive(Debug)]
pub struct OutboundResponse {
    /// The status, never a redirection.
    pub status: StatusCode,
    /// The headers as received.
    pub headers: HeaderMap,
    /// The body.
    pub body: BodyStream,
}

impl OutboundResponse {
    pub(super) fn new(connection: PooledConnection, response: http::Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = BodyStream::new(connection, body);
        Self { status: head.status, headers: head.headers, body }
    }

    /// Returns the media type of `Content-Type` in lower case and without parameters; empty if there is none.
    pub fn media_type(&self) -> String {
        media_type(&self.headers)
    }

    /// Returns true if the body is compressed, although no request allows it. It is not decompressed.
    pub fn is_encoded(&self) -> bool {
        // Some servers name no coding, or `none`, to keep proxies from compressing a stream.
        let is_plain = |coding: &[u8]| {
            let coding = coding.trim_ascii();
            coding.is_empty()
                || coding.eq_ignore_ascii_case(b"identity")
                || coding.eq_ignore_ascii_case(b"none")
        };
        let values = self.headers.get_all(CONTENT_ENCODING).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|coding| !is_plain(coding))
    }

    /// Returns true if the response is a page for a browser, such as the challenge of a proxy that protects the server
    /// from robots: HTML, or a response with the header `cf-mitigated`.
    pub fn is_page(&self) -> bool {
        let media_type = self.media_type();
        matches!(media_type.as_str(), "text/html" | "application/xhtml+xml")
            || self.headers.contains_key("cf-mitigated")
    }

    /// Returns the server's id of the request (`x-request-id`) for the log, if it consists of at most 128 letters, digits,
    /// hyphens and underscores.
    pub fn request_id(&self) -> Option<&str> {
        let id = self.headers.get("x-request-id")?.to_str().ok()?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        ((1..=128).contains(&id.len()) && id.bytes().all(allowed)).then_some(id)
    }

    /// Returns the body as a stream.
    pub fn into_stream(self) -> BodyStream {
        self.body
    }

    /// Reads the whole body; see [`BodyStream::read_limited`].
    pub async fn read_limited(self, max_bytes: usize, timeout: Duration) -> Result<Bytes, AgentError> {
        self.body.read_limited(max_bytes, timeout).await
    }
}

/// A response body as a stream of the chunks that the network delivers; no chunk is empty.
///
/// It has no timeout of its own. Dropping it before its end has arrived closes the connection; a body that was read to
/// its end returns the connection to the pool. A failure is the last item: `Truncated` if the connection was closed
/// before the body was complete, else `Failed` or `Timeout`.
#[derive(Debug)]
pub struct BodyStream {
    /// `None` after the end or a failure, so that the connection is released before the stream is dropped.
    open: Option<OpenBody>,
    relay: RelayOptions,
}

/// A body that is still arriving, with the connection that carries it and makes progress only when polled.
#[derive(Debug)]
struct OpenBody {
    body: Incoming,
    connection: PooledConnection,
}

impl BodyStream {
    fn new(connection: PooledConnection, body: Incoming) -> Self {
        let relay = connection.connection.relay();
        let mut stream = Self { open: Some(OpenBody { body, connection }), relay };
        if stream.open.as_ref().is_some_and(|open| open.body.is_end_stream()) {
            stream.finish();
        }
        stream
    }

    /// Returns the options of the client that received the body.
    pub(crate) fn relay(&self) -> RelayOptions {
        self.relay
    }

    /// Drops the body and returns the connection to the pool, if the whole response has arrived.
    fn finish(&mut self) {
        if let Some(OpenBody { body, connection }) = self.open.take() {
            drop(body);
            connection.return_to_pool();
        }
    }

    /// Reads the whole body, at most `max_bytes`, within `limit`.
    ///
    /// Fails with `Timeout`, with `OutputTooLarge` if the body is larger (at once if `Content-Length` says so), and with the
    /// stream's own failures.
    pub async fn read_limited(self, max_bytes: usize, limit: Duration) -> Result<Bytes, AgentError> {
        let late = || Err(AgentError::new(AgentErrorKind::Timeout, "the response did not arrive in time"));
        timeout(limit, self.collect_limited(max_bytes)).await.unwrap_or_else(late)
    }

    async fn collect_limited(mut self, max_bytes: usize) -> Result<Bytes, AgentError> {
        let min_bytes = self.open.as_ref().map_or(0, |open| open.body.size_hint().lower());
        if min_bytes > max_bytes as u64 {
            return Err(too_large(max_bytes));
        }
        let mut collected = BytesMut::new();
        while let Some(chunk) = self.next().await.transpose()? {
            if chunk.len() > max_bytes - collected.len() {
                return Err(too_large(max_bytes));
            }
            collected.extend_from_slice(&chunk);
        }
        Ok(collected.freeze())
    }
}

impl Stream for BodyStream {
    type Item = Result<Bytes, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(OpenBody { body, connection }) = &mut self.open else { return Poll::Ready(None) };
            match ready!(connection.connection.poll_with(cx, |cx| Pin::new(&mut *body).poll_frame(cx))) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    // An empty frame, or trailers, which are not used.
                    _ => continue,
                },
                Some(Err(error)) => {
                    self.open = None;
                    return Poll::Ready(Some(Err(agent_error::from_body_error(error))));
                }
                None => {
                    self.finish();
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl Drop for BodyStream {
    /// Returns the connection if the body has ended: readers often stop at the last event of interest, when the end has
    /// already arrived.
    fn drop(&mut self) {
        self.finish();
    }
}

/// Returns the media type of `Content-Type` in lower case and without parameters; empty if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    essence(value)
}

fn too_large(max_bytes: usize) -> AgentError {
    AgentError::new(AgentErrorKind::OutputTooLarge, format!("the response exceeds {max_bytes} bytes"))
}
