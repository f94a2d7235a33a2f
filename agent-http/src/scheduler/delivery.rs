//! One HTTP call to the job receiver, and the mapping of its response to an [`AttemptOutcome`].

use std::time::{Duration, SystemTime};

use agent_client::outbound::{BodyStream, OutboundClient, OutboundResponse, UrlTrust, retry_after};
use agent_client::problem::{PROBLEM_JSON, ProblemDetails};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_jobs::job::{AttemptOutcome, Delivery, Job};
use agent_platform::trace::job_trace;
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time;
use url::Url;

use crate::webhook;

/// Maximum length of the error text that is kept from an error response.
const MAX_REASON_BYTES: usize = 500;
/// Maximum number of body bytes that are drained so that the connection can be reused.
const MAX_DRAINED_BYTES: usize = 64 * 1024;
/// Time limit for draining the body. The outcome depends on the response head alone.
const BODY_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The callback endpoint that jobs are delivered to.
#[derive(Debug, Clone)]
pub struct CallbackClient {
    /// The outbound client, guarded by the address policy.
    pub outbound: OutboundClient,
    /// The callback URL. It is set by the operator, so no address is denied.
    pub url: Url,
    /// The bearer token, which is also the webhook signing key.
    pub secret: Secret,
    /// The previous secret, during rotation. It is redacted from error texts too.
    pub previous_secret: Option<Secret>,
    /// Time limit of one delivery.
    pub timeout: Duration,
}

/// The result of a delivery attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryResult {
    pub(super) outcome: AttemptOutcome,
    pub(super) status: Option<u16>,
}

impl CallbackClient {
    /// Delivers a job's occurrence, with `now` as the signature's timestamp, and returns the response once its head is
    /// there. The head decides the outcome; [`read_result`](Self::read_result) adds the reason of a failure.
    ///
    /// # Errors
    /// The result of a delivery that got no response in time.
    pub(super) async fn deliver(
        &self,
        job: &Job,
        now: SystemTime,
    ) -> Result<OutboundResponse, DeliveryResult> {
        let outcome = match time::timeout(self.timeout, self.call(job, now)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(failure)) if failure.kind() == AgentErrorKind::Unreachable => {
                AttemptOutcome::Abandoned { error: failure.message().to_owned() }
            }
            Ok(Err(failure)) => AttemptOutcome::Failed {
                error: failure.message().to_owned(),
                retry_after: failure.retry_after(),
            },
            Err(_) => {
                let error = "the receiver did not respond in time".to_owned();
                AttemptOutcome::Failed { error, retry_after: None }
            }
        };
        Err(DeliveryResult { outcome, status: None })
    }

    async fn call(&self, job: &Job, now: SystemTime) -> Result<OutboundResponse, AgentError> {
        let body = serde_json::to_vec(&Delivery::from(job)).map_err(internal)?;
        let signed = webhook::sign(&self.secret, &job.occurrence_key(), now, &body).map_err(internal)?;
        let mut request = self
            .outbound
            .post(&self.url, UrlTrust::Operator)?
            .header_timeout(self.timeout)
            .bearer(&self.secret)?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .continue_trace(job_trace(&job.payload).as_ref());
        for (name, value) in signed {
            request = request.header(name, value);
        }
        request.body(Bytes::from(body)).send().await
    }

    /// Returns the result of a response that arrived at `now`. Takes at most [`BODY_DRAIN_TIMEOUT`], even if the body
    /// does not end.
    pub(super) async fn read_result(&self, response: OutboundResponse, now: SystemTime) -> DeliveryResult {
        let (status, headers) = (response.status, response.headers);
        let reason = read_error_body(response.body).await;
        let reason = if status.is_success() { None } else { self.error_text(&headers, &reason) };
        let outcome = outcome_of_status(status, retry_after(&headers, now), reason);
        DeliveryResult { outcome, status: Some(status.as_u16()) }
    }

    /// Returns the error text of an error response, with secrets and control characters removed.
    fn error_text(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let is_problem = headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(PROBLEM_JSON.as_bytes()));
        let problem = is_problem.then(|| ProblemDetails::parse(body)).flatten();
        let text = match problem {
            Some(ProblemDetails { code: Some(code), detail: Some(detail), .. }) => {
                format!("{code}: {detail}")
            }
            Some(ProblemDetails { code: None, detail: Some(detail), .. }) => detail,
            _ => String::from_utf8_lossy(&body[..body.len().min(MAX_REASON_BYTES)]).into_owned(),
        };
        let mut text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.retain(|character| !character.is_control());
        for secret in std::iter::once(&self.secret).chain(&self.previous_secret) {
            text = redact(&text, secret.expose());
        }
        text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
        (!text.is_empty()).then_some(text)
    }
}

/// Replaces a secret, and a prefix of it (at least four bytes) at the end of a truncated text.
fn redact(text: &str, secret: &str) -> String {
    let mut text = text.replace(secret, Secret::MASK);
    let prefix_bytes =
        (4..secret.len()).rev().find(|end| secret.get(..*end).is_some_and(|part| text.ends_with(part)));
    if let Some(prefix_bytes) = prefix_bytes {
        text.truncate(text.len() - prefix_bytes);
        text.push_str(Secret::MASK);
    }
    text
}

/// Reads the beginning of a body, and drains the rest within limits so that the connection can be reused.
async fn read_error_body(mut body: BodyStream) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut total_bytes = 0;
    let reading = async {
        while let Some(Ok(chunk)) = body.next().await {
            total_bytes += chunk.len();
            // The JSON of problem details may be longer than the error text that is kept of it.
            let remaining = (4 * MAX_REASON_BYTES).saturating_sub(prefix.len());
            prefix.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
            if total_bytes > MAX_DRAINED_BYTES {
                return;
            }
        }
    };
    // The status decides the outcome, so a body that does not end in time is abandoned.
    let _ = time::timeout(BODY_DRAIN_TIMEOUT, reading).await;
    prefix
}

fn outcome_of_status(
    status: StatusCode,
    retry_after: Option<Duration>,
    reason: Option<String>,
) -> AttemptOutcome {
    let status = status.as_u16();
    let error = match reason {
        Some(reason) => format!("HTTP {status}: {reason}"),
        None => format!("HTTP {status}"),
    };
    AttemptOutcome::from_status(status, error, retry_after)
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> AgentError {
    AgentError::new(AgentErrorKind::Internal, "the delivery could not be serialized").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_outcomes_of_the_contract() {
        let of = |status: u16| outcome_of_status(StatusCode::from_u16(status).unwrap(), None, None);
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(of(status), AttemptOutcome::Succeeded, "{status}");
        }
        assert_eq!(of(410), AttemptOutcome::Gone);
        for status in [400, 413, 415, 422] {
            assert!(matches!(of(status), AttemptOutcome::Rejected { .. }), "{status}");
        }
        assert!(matches!(of(409), AttemptOutcome::Deferred { .. }));
        for status in [401, 402, 403, 404, 405, 408, 425, 429, 499, 500, 501, 502, 503, 504, 599] {
            assert!(matches!(of(status), AttemptOutcome::Failed { .. }), "{status}");
        }
        let unavailable = |seconds| {
            outcome_of_status(StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(seconds)), None)
        };
        assert!(matches!(unavailable(60), AttemptOutcome::Deferred { .. }));
        assert!(matches!(unavailable(61), AttemptOutcome::Failed { .. }));
        let retry_after = Duration::from_secs(5);
        assert_eq!(
            outcome_of_status(StatusCode::PAYMENT_REQUIRED, Some(retry_after), Some("spent".to_owned())),
            AttemptOutcome::Postponed { error: "HTTP 402: spent".to_owned(), retry_after }
        );
    }

    #[test]
    fn no_secret_is_in_a_reason_whole_or_cut() {
        let secret = "0123456789abcdef";
        for (text, expected) in [
            ("bearer 0123456789abcdef is wrong", "bearer *** is wrong"),
            ("bearer 0123456789", "bearer ***"),
            ("twice 0123456789abcdef0123456789abcdef", "twice ******"),
            ("012", "012"),
            ("nothing of it", "nothing of it"),
        ] {
            assert_eq!(redact(text, secret), expected);
        }
    }
}
