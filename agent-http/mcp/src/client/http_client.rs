//! HTTP client for `rmcp`, over the [`Exchange`].

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use agent_core::error::AgentError;
use agent_platform::exact_json;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;

use super::errors::{self, AnswerError, failed, format_failure};
use super::events;
use super::exchange::{self, Answer, Exchange};
use super::message::{is_same_id, with_marked_numbers};
use crate::headers::SESSION_ID;

/// HTTP client that `rmcp` sends with. Clones belong to the same connection.
#[derive(Clone)]
pub(super) struct HttpClient {
    exchange: Exchange,
    /// Closed together with the connection, which owns its sender.
    closed: watch::Receiver<()>,
    /// The first failure. `rmcp` reports that of a session's last message of the handshake without its cause.
    failure: Arc<OnceLock<Arc<str>>>,
}

/// Error of a message without an answer.
enum PostError {
    /// The server does not know the session, so it has not processed the message.
    NoSession,
    Failed(AnswerError),
}

impl From<AnswerError> for PostError {
    fn from(error: AnswerError) -> Self {
        Self::Failed(error)
    }
}

impl From<AgentError> for PostError {
    fn from(failure: AgentError) -> Self {
        Self::Failed(failure.into())
    }
}

impl From<PostError> for StreamableHttpError<AnswerError> {
    fn from(error: PostError) -> Self {
        match error {
            PostError::NoSession => Self::SessionExpired,
            PostError::Failed(error) => Self::Client(error),
        }
    }
}

impl HttpClient {
    pub(super) fn new(exchange: Exchange, closed: watch::Receiver<()>) -> Self {
        Self { exchange, closed, failure: Arc::default() }
    }

    /// Returns the message of the first failure of an exchange.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.failure.get().cloned()
    }

    /// Sends a message; waits for an answer if the message is a request.
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let deadline = self.exchange.deadline();
        let body = exact_json::to_vec(&message);
        let body = body.map_err(|_| AnswerError::not_run(failed(errors::NOT_SERIALIZABLE)))?;
        let mut response = self.exchange.post(session, headers, body).await?;
        if response.status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(PostError::NoSession);
        }
        let failure = response.status_error.take();
        let ClientJsonRpcMessage::Request(request) = message else {
            return match failure {
                Some(failure) => Err(AnswerError::not_run(failure).into()),
                None => Ok(StreamableHttpPostResponse::Accepted),
            };
        };
        if let Some(failure) = failure {
            let may_have_run = errors::may_have_run(response.status, &failure);
            let error = exchange::read_error(response).await.ok_or(AnswerError { failure, may_have_run })?;
            return Ok(StreamableHttpPostResponse::Json(error_message(request.id, error), None));
        }
        let session = response.headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        match exchange::read_answer(response, deadline).await? {
            Answer::Json(body) => {
                let message = read_message(&body).map_err(|_| failed(errors::NOT_JSON_RPC))?;
                Ok(StreamableHttpPostResponse::Json(match_response(&request.id, message)?, session))
            }
            Answer::Events(reader) => {
                let events = events::event_stream(reader, request.id, self.closed.clone());
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
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
            _ = closed.changed() => Err(failed("the run has ended").into()),
            result = exchange => result,
        }
    }
}

/// Reads a message. Numbers of structured content keep their digits.
fn read_message(json: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    match std::str::from_utf8(json).ok().and_then(with_marked_numbers) {
        Some(message) => serde_json::from_value(message),
        None => serde_json::from_slice(json),
    }
}

/// Returns the message if it answers the request `id`. An error without an identifier is taken as its answer.
fn match_response(id: &RequestId, message: ServerJsonRpcMessage) -> Result<ServerJsonRpcMessage, AgentError> {
    match message {
        ServerJsonRpcMessage::Response(answer) if is_same_id(&answer.id, id) => {
            Ok(ServerJsonRpcMessage::Response(answer))
        }
        ServerJsonRpcMessage::Error(error) if error.id.as_ref().is_none_or(|other| is_same_id(other, id)) => {
            Ok(error_message(id.clone(), error.error))
        }
        _ => Err(failed(errors::OTHER_REQUEST)),
    }
}

fn error_message(id: RequestId, error: ErrorData) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
}

impl StreamableHttpClient for HttpClient {
    type Error = AnswerError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<AnswerError>> {
        let result = self.while_open(self.post(message, session_id.as_deref(), headers)).await;
        if let Err(PostError::Failed(error)) = &result {
            self.failure.get_or_init(|| format_failure(&error.failure).into());
        }
        Ok(result?)
    }

    /// Ends a session; sent when the connection is closed.
    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<AnswerError>> {
        let result = self.exchange.send(Method::DELETE, Some(&session_id), headers, Bytes::new()).await;
        // The status is ignored: the session's owner is gone and could not act on it.
        result.map(drop).map_err(StreamableHttpError::Client)
    }

    /// Returns the error of a server without a standalone stream: everything that a call needs arrives in its own
    /// response, and an interrupted stream is not resumed.
    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<AnswerError>> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
