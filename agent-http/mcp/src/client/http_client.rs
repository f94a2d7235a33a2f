//! HTTP client for `rmcp`, over the [`ToolServerTransport`].

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_core::error::AgentError;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::Instant;

use super::events;
use super::fault::{MAX_RESULT_BYTES, failed};
use super::transport::{ToolServerTransport, TransportResponse, read_limited};
use crate::headers::SESSION_ID;

/// Limits of an error response, which is read for its JSON-RPC error: size and read time.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP client that `rmcp` sends with. Clones belong to the same connection.
#[derive(Clone)]
pub(super) struct HttpClient {
    transport: Arc<dyn ToolServerTransport>,
    /// Timeout of one exchange.
    timeout: Duration,
    /// Closed together with the connection, which owns its sender.
    closed: watch::Receiver<()>,
}

/// Error of a message without an answer.
enum PostError {
    /// The server does not know the session, so it has not processed the message.
    NoSession,
    Failed(AgentError),
}

impl From<AgentError> for PostError {
    fn from(failure: AgentError) -> Self {
        Self::Failed(failure)
    }
}

impl From<PostError> for StreamableHttpError<AgentError> {
    fn from(error: PostError) -> Self {
        match error {
            PostError::NoSession => Self::SessionExpired,
            PostError::Failed(failure) => Self::Client(failure),
        }
    }
}

impl HttpClient {
    pub(super) fn new(
        transport: Arc<dyn ToolServerTransport>,
        timeout: Duration,
        closed: watch::Receiver<()>,
    ) -> Self {
        Self { transport, timeout, closed }
    }

    /// Sends a request without a URI, which is the transport's.
    async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<TransportResponse, AgentError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        if let Some(session) = session {
            let session =
                HeaderValue::from_str(session).map_err(|_| failed("its session has no usable name"))?;
            request.headers_mut().insert(SESSION_ID, session);
        }
        for (name, value) in headers {
            request.headers_mut().insert(name, value);
        }
        self.transport.send(request, self.timeout).await
    }

    /// Sends a message; waits for an answer if the message is a request.
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let deadline = Instant::now() + self.timeout;
        let body = serde_json::to_vec(&message).map_err(|_| failed("the call cannot be written"))?;
        let negotiated = [
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ];
        let headers = headers.into_iter().chain(negotiated);
        let mut response = self.send(Method::POST, session, headers, body.into()).await?;
        if response.status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(PostError::NoSession);
        }
        let ClientJsonRpcMessage::Request(request) = message else {
            return match response.status_error {
                None => Ok(StreamableHttpPostResponse::Accepted),
                Some(error) => Err(error.into()),
            };
        };
        let probes = matches!(request.request, ClientRequest::DiscoverRequest(_));
        let answer = match response.status_error.take() {
            None => self.read_response(response, request.id, deadline).await?,
            Some(error) => read_error_response(response, error, request.id, probes).await?,
        };
        Ok(if probes { interpret_probe(answer) } else { answer })
    }

    async fn read_response(
        &self,
        response: TransportResponse,
        id: RequestId,
        deadline: Instant,
    ) -> Result<StreamableHttpPostResponse, AgentError> {
        let session = response.headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        match content_type(&response.headers).as_str() {
            _ if matches!(response.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) => {
                Err(failed("it took the call and sends no answer"))
            }
            "application/json" => {
                let left = deadline.saturating_duration_since(Instant::now());
                let body = read_limited(&response.headers, response.body, MAX_RESULT_BYTES, left).await?;
                let message = serde_json::from_slice(&body)
                    .map_err(|_| failed("its answer is no message of the protocol"))?;
                Ok(StreamableHttpPostResponse::Json(match_response(&id, message)?, session))
            }
            "text/event-stream" => {
                let events = events::event_stream(response.body, id, deadline, self.closed.clone());
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            _ => Err(failed("its answer is neither JSON nor an event stream")),
        }
    }

    /// Runs `exchange` while the connection is open.
    async fn while_open<T>(
        &self,
        exchange: impl Future<Output = Result<T, PostError>> + Send,
    ) -> Result<T, PostError> {
        let mut closed = self.closed.clone();
        tokio::select! {
            biased;
            _ = closed.changed() => Err(failed("the run is over").into()),
            done = exchange => done,
        }
    }
}

/// Maps an error response to a JSON-RPC error. Servers of older revisions refuse the probe in various ways, so any
/// client error is an answer to it.
async fn read_error_response(
    response: TransportResponse,
    failure: AgentError,
    id: RequestId,
    probes: bool,
) -> Result<StreamableHttpPostResponse, AgentError> {
    let status = response.status;
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(failure);
    }
    let told = match content_type(&response.headers).as_str() {
        "application/json" => read_rpc_error(response).await,
        _ => None,
    };
    let error = match told {
        Some(error) => error,
        None if probes && status.is_client_error() => {
            ErrorData::invalid_request(failure.message().to_owned(), None)
        }
        None => return Err(failure),
    };
    let error = ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error));
    Ok(StreamableHttpPostResponse::Json(error, None))
}

/// Maps the answer to a `server/discover` probe. Any server that does not support the one revision without sessions
/// gets an error here, so that the client falls back to `initialize`, whether or not the server knows the probe.
fn interpret_probe(answer: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
    let StreamableHttpPostResponse::Json(message, session) = answer else { return answer };
    let (id, why) = match message {
        ServerJsonRpcMessage::Error(error) => (error.id, error.error.message),
        ServerJsonRpcMessage::Response(answer) => match &answer.result {
            ServerResult::DiscoverResult(found)
                if found.supported_versions.contains(&ProtocolVersion::V_2026_07_28) =>
            {
                return StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Response(answer), session);
            }
            _ => (Some(answer.id), "it speaks other revisions".into()),
        },
        other => return StreamableHttpPostResponse::Json(other, session),
    };
    let error = JsonRpcError::new(id, ErrorData::invalid_request(why, None));
    StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)
}

async fn read_rpc_error(response: TransportResponse) -> Option<ErrorData> {
    let TransportResponse { headers, body, .. } = response;
    let body = read_limited(&headers, body, MAX_ERROR_BYTES, ERROR_TIMEOUT).await.ok()?;
    match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    }
}

/// Returns the message if it answers the request `id`. An error without an identifier is taken as its answer.
fn match_response(id: &RequestId, message: ServerJsonRpcMessage) -> Result<ServerJsonRpcMessage, AgentError> {
    // Some servers return a numeric identifier as a string.
    let answers = |answered: &RequestId| answered.to_string() == id.to_string();
    match message {
        ServerJsonRpcMessage::Response(answer) if answers(&answer.id) => {
            Ok(ServerJsonRpcMessage::Response(answer))
        }
        ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_none_or(answers) => {
            Ok(ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id.clone()), error.error)))
        }
        _ => Err(failed("its answer is to another request")),
    }
}

/// Returns the media type in lower case, without parameters; empty if there is none.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl StreamableHttpClient for HttpClient {
    type Error = AgentError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<AgentError>> {
        Ok(self.while_open(self.post(message, session_id.as_deref(), headers)).await?)
    }

    /// Ends a session; sent when the connection is closed.
    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<AgentError>> {
        let ended = self.send(Method::DELETE, Some(&session_id), headers, Bytes::new()).await;
        // The status is ignored: the session's owner is gone and could not act on it.
        ended.map(drop).map_err(StreamableHttpError::Client)
    }

    /// Refuses, as a server without a standalone stream would: everything that a call needs arrives in its own
    /// response, and an interrupted stream is not resumed.
    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<AgentError>> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
