//! HTTP transport of the client: its caller sends the requests, since the server's address and the policy for it are
//! the caller's.

use std::fmt;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, StatusCode};

/// Body of a response, in chunks as they arrive. Dropping it cancels the exchange.
pub type ResponseStream = BoxStream<'static, Result<Bytes, AgentError>>;

/// Response of a tool server.
pub struct TransportResponse {
    /// Status of the response.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Body of the response.
    pub body: ResponseStream,
    /// Error that an unsuccessful status stands for; `None` for success.
    pub status_error: Option<AgentError>,
}

impl fmt::Debug for TransportResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// HTTP transport to one tool server. It knows the server's URL, which is a secret; the URI of its requests is empty.
#[async_trait]
pub trait ToolServerTransport: Send + Sync + 'static {
    /// Sends a request, and waits for the response head for at most `timeout`. A redirect is an error.
    ///
    /// # Errors
    /// There is no response. The error must not contain the server's URL.
    async fn send(&self, request: Request<Bytes>, timeout: Duration)
    -> Result<TransportResponse, AgentError>;

    /// Returns false if the request of a failed [`send`](Self::send) was certainly not sent, so that the call has no effect.
    fn was_sent(&self, _: &AgentError) -> bool {
        true
    }
}

/// Reads a whole body of at most `max_bytes` within `timeout`; fails at once if `Content-Length` exceeds the limit.
pub(super) async fn read_limited(
    headers: &HeaderMap,
    body: ResponseStream,
    max_bytes: usize,
    timeout: Duration,
) -> Result<Bytes, AgentError> {
    let content_length =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if content_length.is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large(max_bytes));
    }
    match tokio::time::timeout(timeout, collect_limited(body, max_bytes)).await {
        Ok(result) => result,
        Err(_) => Err(AgentError::new(AgentErrorKind::Timeout, "the response timed out")),
    }
}

async fn collect_limited(mut body: ResponseStream, max_bytes: usize) -> Result<Bytes, AgentError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await.transpose()? {
        if chunk.len() > max_bytes - bytes.len() {
            return Err(too_large(max_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn too_large(max_bytes: usize) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, format!("the response exceeds {max_bytes} bytes"))
}
