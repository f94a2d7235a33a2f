//! One HTTP request to a tool server and its response, limited in size and time.

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::AgentError;
use agent_platform::media_type::essence;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use rmcp::model::{ErrorData, ServerJsonRpcMessage};
use tokio::time::Instant;

use super::errors::{AnswerError, MAX_RESULT_BYTES, failed};
use super::events::EventReader;
use super::transport::{ToolServerTransport, TransportResponse, read_limited};
use crate::headers::SESSION_ID;

/// Limits of an error response, which is read for its JSON-RPC error: size and read time.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends the requests of a connection.
#[derive(Clone)]
pub(super) struct Exchange {
    transport: Arc<dyn ToolServerTransport>,
    /// Timeout of one exchange.
    timeout: Duration,
}

/// Successful response to a JSON-RPC request.
pub(super) enum Answer {
    /// A single message.
    Json(Bytes),
    /// An event stream, whose last message is the answer.
    Events(EventReader),
}

impl Exchange {
    pub(super) fn new(transport: Arc<dyn ToolServerTransport>, timeout: Duration) -> Self {
        Self { transport, timeout }
    }

    /// Returns the time at which an exchange that begins now times out.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request without a URI, which is the transport's.
    pub(super) async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<TransportResponse, AnswerError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        if let Some(session) = session {
            let session = HeaderValue::from_str(session);
            let session = session.map_err(|_| AnswerError::not_run(failed("the session id is invalid")))?;
            request.headers_mut().insert(SESSION_ID, session);
        }
        for (name, value) in headers {
            request.headers_mut().insert(name, value);
        }
        self.transport.send(request, self.timeout).await.map_err(|failure| {
            let may_have_run = self.transport.was_sent(&failure);
            AnswerError { failure, may_have_run }
        })
    }

    /// Posts a message.
    pub(super) async fn post(
        &self,
        session: Option<&str>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Vec<u8>,
    ) -> Result<TransportResponse, AnswerError> {
        let content_headers = [
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ];
        self.send(Method::POST, session, headers.into_iter().chain(content_headers), body.into()).await
    }
}

/// Reads the response to a request; an event stream is returned unread.
pub(super) async fn read_answer(
    response: TransportResponse,
    deadline: Instant,
) -> Result<Answer, AgentError> {
    if matches!(response.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Err(failed("the call was accepted without a response"));
    }
    match content_type(&response.headers).as_str() {
        "application/json" => {
            let remaining_time = deadline.saturating_duration_since(Instant::now());
            read_limited(&response.headers, response.body, MAX_RESULT_BYTES, remaining_time)
                .await
                .map(Answer::Json)
        }
        "text/event-stream" => Ok(Answer::Events(EventReader::new(response.body, deadline))),
        _ => Err(failed("the response is neither JSON nor an event stream")),
    }
}

/// Returns the JSON-RPC error of a response with an unsuccessful status, if it has one. Rejected credentials have none,
/// regardless of the body.
pub(super) async fn read_error(response: TransportResponse) -> Option<ErrorData> {
    if rejects_credentials(response.status) || content_type(&response.headers) != "application/json" {
        return None;
    }
    let body = read_limited(&response.headers, response.body, MAX_ERROR_BYTES, ERROR_TIMEOUT).await.ok()?;
    match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    }
}

/// Returns true if a status rejects the credentials.
pub(super) fn rejects_credentials(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Returns the media type in lower case, without parameters; empty if there is none.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    essence(value)
}
