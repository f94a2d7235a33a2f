//! Client of a messenger's bot API, which the application reaches through the operator's own agent runtime.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_platform::messenger::{Messenger, MessengerError};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::outbound::{OutboundClient, UrlTrust, join_path, status_failure, was_sent};
use crate::problem::{PROBLEM_JSON, ProblemDetails};

/// Limits of a response's size and read time. A response repeats the message that was sent.
const MAX_RESPONSE_BYTES: usize = 256 << 10;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with a request's idempotency key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Problem code of a request without the runtime's secret.
const UNAUTHENTICATED: &str = "UNAUTHENTICATED";

/// Calls the bot API through `POST /messenger/call` of the operator's own runtime.
#[derive(Debug, Clone)]
pub struct RuntimeMessenger {
    /// The guarded client.
    pub outbound: OutboundClient,
    /// The runtime's base URL, `RUNTIME_URL`.
    pub runtime: Url,
    /// The runtime's shared secret, `RUNTIME_SECRET`; it is sent to no other address.
    pub secret: Option<Secret>,
}

#[async_trait]
impl Messenger for RuntimeMessenger {
    async fn call(
        &self,
        token: &Secret,
        method: &str,
        params: Value,
        idempotency_key: Option<&str>,
    ) -> Result<Value, MessengerError> {
        let url = join_path(&self.runtime, &["messenger", "call"])?;
        let body = json!({"token": token.expose(), "method": method, "params": params}).to_string();
        let called = self.post(&url, body.into(), idempotency_key).await;
        if let Err(MessengerError::Failed(failure)) = &called {
            tracing::warn!(?failure, "a call of the messenger failed");
        }
        called
    }
}

impl RuntimeMessenger {
    async fn post(&self, url: &Url, body: Bytes, key: Option<&str>) -> Result<Value, MessengerError> {
        let secret = self.secret.as_ref();
        let mut request =
            self.outbound.post_json(url, UrlTrust::Operator, secret, "application/json", body)?;
        // A key that is not a valid header value, such as one from a foreign client, is left out.
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        let response = request.send().await.map_err(|failure| match was_sent(&failure) {
            true => MessengerError::Failed(failure),
            false => MessengerError::NotSent(failure),
        })?;
        let (status, headers) = (response.status, response.headers.clone());
        let body = response.read_limited(MAX_RESPONSE_BYTES, RESPONSE_TIMEOUT).await?;
        if is_problem(&headers) {
            return Err(problem_error(&body).unwrap_or_else(|| status_failure(status, &headers).into()));
        }
        match serde_json::from_slice::<BotApiResponse>(&body) {
            Ok(answer) if answer.ok && status.is_success() => Ok(answer.result),
            Ok(answer) => Err(MessengerError::Refused {
                status: answer.error_code.unwrap_or(status.as_u16()),
                description: answer.description,
                retry_after: answer.parameters.retry_after.map(Duration::from_secs),
            }),
            Err(_) if status.is_success() => Err(AgentError::new(
                AgentErrorKind::Failed,
                "the messenger's API returned an invalid response",
            )
            .into()),
            Err(_) => Err(status_failure(status, &headers).into()),
        }
    }
}

/// A response of the bot API.
#[derive(Deserialize)]
struct BotApiResponse {
    ok: bool,
    #[serde(default)]
    result: Value,
    error_code: Option<u16>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: ResponseParameters,
}

#[derive(Deserialize, Default)]
struct ResponseParameters {
    retry_after: Option<u64>,
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes() == PROBLEM_JSON.as_bytes())
}

/// Maps a problem response of the runtime itself to an error, by its code; its text is not repeated.
fn problem_error(body: &[u8]) -> Option<MessengerError> {
    let code = ProblemDetails::parse(body)?.code?;
    let (kind, message) = match AgentErrorKind::from_code(&code) {
        Some(AgentErrorKind::NotConfigured) => {
            return Some(MessengerError::NotConfigured("MESSENGER_API_URL"));
        }
        Some(AgentErrorKind::Unreachable) => (AgentErrorKind::Unreachable, "the messenger cannot be reached"),
        Some(AgentErrorKind::Timeout) => (AgentErrorKind::Timeout, "the messenger did not respond in time"),
        Some(AgentErrorKind::Failed | AgentErrorKind::Truncated) => {
            (AgentErrorKind::Failed, "the messenger's response was incomplete")
        }
        None if code == UNAUTHENTICATED => {
            (AgentErrorKind::Failed, "the agent runtime rejected RUNTIME_SECRET")
        }
        _ => (AgentErrorKind::Failed, "the agent runtime rejected the call"),
    };
    Some(AgentError::new(kind, message).with_source(format!("the agent runtime returned {code}")).into())
}
