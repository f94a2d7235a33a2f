//! One bounded request to the issuer.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::error::{self, DeviceAuthError};
use super::fields::AnswerFields;
use super::issuer_call::{IssuerCall, IssuerResponse};
use super::{DeviceAuthClient, DeviceAuthDialect, TokenSet};
use crate::outbound::{OutboundResponse, UrlTrust};

/// Maximum time from a request to the head of its response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of an operation: from its first request to the end of its last response.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Body of a request, with its members in order.
pub(super) enum CallBody<'a> {
    /// `application/x-www-form-urlencoded`.
    Form(&'a [(&'a str, &'a str)]),
    /// `application/json`.
    Json(&'a [(&'a str, &'a str)]),
}

impl CallBody<'_> {
    fn encode(&self) -> (HeaderValue, Bytes) {
        match self {
            Self::Form(members) => {
                let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(*members).finish();
                (HeaderValue::from_static("application/x-www-form-urlencoded"), text.into())
            }
            Self::Json(members) => {
                let object = members.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
                (
                    HeaderValue::from_static("application/json"),
                    Value::Object(object.collect()).to_string().into(),
                )
            }
        }
    }
}

impl IssuerResponse {
    /// Returns the fields of a success.
    ///
    /// # Errors
    /// The issuer's refusal, or a response that is not a JSON object.
    pub(super) fn into_fields(
        self,
        dialect: DeviceAuthDialect,
        call: IssuerCall,
    ) -> Result<AnswerFields, DeviceAuthError> {
        if !self.status.is_success() {
            return Err(error::read_error_response(dialect, call, &self));
        }
        match AnswerFields::parse(&self.body) {
            Some(fields) => Ok(fields),
            None if self.is_page => Err(error::blocked_by_proxy().into()),
            None => Err(error::invalid_answer().into()),
        }
    }
}

/// Deadline of an operation, with all of its requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationDeadline(tokio::time::Instant);

impl OperationDeadline {
    /// Returns the deadline of an operation that begins now.
    pub(super) fn start() -> Self {
        Self(tokio::time::Instant::now() + OPERATION_TIMEOUT)
    }
}

impl DeviceAuthClient {
    /// Sends one request and reads its response, of any status but a redirect, until `deadline`.
    pub(super) async fn call(
        &self,
        call: IssuerCall,
        url: &Url,
        body: CallBody<'_>,
        deadline: OperationDeadline,
    ) -> Result<IssuerResponse, AgentError> {
        let (content_type, body) = body.encode();
        let request = self
            .outbound
            .post(url, UrlTrust::Operator)?
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header_timeout(HEAD_TIMEOUT)
            .body(body);
        let begin = self.clock.monotonic();
        let exchange = async { read(request.send().await?).await };
        let response = match tokio::time::timeout_at(deadline.0, exchange).await {
            Ok(response) => response,
            Err(_) => Err(AgentError::new(AgentErrorKind::Timeout, "the issuer did not respond in time")),
        };
        let elapsed_ms = self.clock.monotonic().saturating_duration_since(begin).as_millis() as u64;
        let (status, request_id) = match &response {
            Ok((response, request_id)) => (Some(response.status.as_u16()), request_id.as_deref()),
            Err(_) => (None, None),
        };
        tracing::debug!(%call, status, upstream_request_id = request_id, elapsed_ms, "the issuer was called");
        response.map(|(response, _)| response)
    }

    /// Sends a request whose response has tokens.
    pub(super) async fn request_tokens(
        &self,
        call: IssuerCall,
        url: &Url,
        body: CallBody<'_>,
        deadline: OperationDeadline,
    ) -> Result<TokenSet, DeviceAuthError> {
        let response = self.call(call, url, body, deadline).await?;
        let fields = response.into_fields(self.config.dialect, call)?;
        let tokens = fields.tokens(self.config.dialect, self.clock.now());
        tokens.ok_or_else(|| fields.into_error(call))
    }
}

/// Reads a response; returns it with its id for the log.
async fn read(response: OutboundResponse) -> Result<(IssuerResponse, Option<String>), AgentError> {
    if response.is_encoded() {
        let message = "the issuer's response is compressed, although the request did not allow it";
        return Err(AgentError::new(AgentErrorKind::Failed, message));
    }
    let (status, is_page) = (response.status, response.is_page());
    let request_id = response.request_id().map(str::to_owned);
    let retry_after = response.headers.get(RETRY_AFTER).cloned();
    let body = response.read_limited(MAX_RESPONSE_BYTES, OPERATION_TIMEOUT).await.map_err(as_failed)?;
    let headers = retry_after.into_iter().map(|value| (RETRY_AFTER, value)).collect();
    Ok((IssuerResponse { status, headers, body, is_page }, request_id))
}

/// Maps a body that is too large or ends early to `Failed`.
fn as_failed(error: AgentError) -> AgentError {
    match error.kind() {
        AgentErrorKind::OutputTooLarge | AgentErrorKind::Truncated => {
            AgentError::new(AgentErrorKind::Failed, "the issuer's response is incomplete or too large")
                .with_source(error)
        }
        _ => error,
    }
}
