//! One call to the receiver, and what its answer means.

use std::time::{Duration, SystemTime};

use agent_core::error::Failure;
use agent_core::job::{Delivery, Job, Outcome};
use agent_core::secret::Secret;
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::time;
use url::Url;

use crate::error::PROBLEM_JSON;
use crate::outbound::{BodyStream, Outbound, Trust, retry_after};
use crate::webhook;

/// How much of a refusal's body is read for its reason.
const MAX_REASON_BYTES: usize = 500;
/// How much of an answer is read so that its connection can be used again.
const MAX_REST_BYTES: usize = 64 * 1024;
/// How long that may take. The answer's head has decided already.
const REST_PATIENCE: Duration = Duration::from_secs(2);

/// Where jobs are delivered, and how.
#[derive(Debug, Clone)]
pub struct Callback {
    /// The guarded client.
    pub outbound: Outbound,
    /// Where to. The operator has set it, so it may be anywhere.
    pub url: Url,
    /// The bearer, and the key of the signature.
    pub secret: Secret,
    /// The secret before it, which no error's text may show either.
    pub previous: Option<Secret>,
    /// How long one delivery may take.
    pub timeout: Duration,
}

/// What came of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
}

impl Callback {
    /// Delivers a job's occurrence at `now`.
    pub(super) async fn deliver(&self, job: &Job, now: SystemTime) -> Delivered {
        match time::timeout(self.timeout, self.call(job, now)).await {
            Ok(Ok(delivered)) => delivered,
            Ok(Err(failure)) => {
                let (error, retry_after) = (failure.message().to_owned(), failure.retry_after());
                Delivered { outcome: Outcome::Failed { error, retry_after }, status: None }
            }
            Err(_) => {
                let error = "the receiver did not answer in time".to_owned();
                Delivered { outcome: Outcome::Failed { error, retry_after: None }, status: None }
            }
        }
    }

    async fn call(&self, job: &Job, now: SystemTime) -> Result<Delivered, Failure> {
        let body = serde_json::to_vec(&Delivery::from(job)).map_err(internal)?;
        let signed = webhook::sign(&self.secret, &job.occurrence_key(), now, &body).map_err(internal)?;
        let mut request = self
            .outbound
            .post(&self.url, Trust::Operator)?
            .header_timeout(self.timeout)
            .bearer(&self.secret)?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let response = request.body(Bytes::from(body)).send().await?;
        let (status, headers) = (response.status, response.headers);
        let reason = read(response.body).await;
        let reason = if status.is_success() { None } else { self.reason(&headers, &reason) };
        let outcome = outcome(status, retry_after(&headers, now), reason);
        Ok(Delivered { outcome, status: Some(status.as_u16()) })
    }

    /// What a refusal says of itself, without what nobody should read.
    fn reason(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let is_problem = headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(PROBLEM_JSON.as_bytes()));
        let problem = is_problem.then(|| serde_json::from_slice::<Problem>(body).ok()).flatten();
        let text = match problem {
            Some(Problem { code: Some(code), detail }) => format!("{code}: {detail}"),
            Some(Problem { code: None, detail }) => detail,
            None => String::from_utf8_lossy(&body[..body.len().min(MAX_REASON_BYTES)]).into_owned(),
        };
        let mut text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.retain(|character| !character.is_control());
        for secret in std::iter::once(&self.secret).chain(&self.previous) {
            text = redact(&text, secret.expose());
        }
        text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
        (!text.is_empty()).then_some(text)
    }
}

/// The members of RFC 9457 problem details that are told on.
#[derive(Deserialize)]
struct Problem {
    code: Option<String>,
    detail: String,
}

/// Replaces a secret, and the beginning of one at the end of a text that was cut.
fn redact(text: &str, secret: &str) -> String {
    let mut text = text.replace(secret, Secret::MASK);
    let cut = (4..secret.len()).rev().find(|end| secret.get(..*end).is_some_and(|part| text.ends_with(part)));
    if let Some(cut) = cut {
        text.truncate(text.len() - cut);
        text.push_str(Secret::MASK);
    }
    text
}

/// The beginning of a body. It is read on within bounds, so that the connection can be used again.
async fn read(mut body: BodyStream) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut read = 0;
    let reading = async {
        while let Some(Ok(chunk)) = body.next().await {
            read += chunk.len();
            // A problem's JSON may be longer than what is shown of it.
            let room = (4 * MAX_REASON_BYTES).saturating_sub(kept.len());
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if read > MAX_REST_BYTES {
                return;
            }
        }
    };
    // The status says all that matters, so a body that does not end in time is left alone.
    let _ = time::timeout(REST_PATIENCE, reading).await;
    kept
}

fn outcome(status: StatusCode, retry_after: Option<Duration>, reason: Option<String>) -> Outcome {
    let error = || match &reason {
        Some(reason) => format!("HTTP {}: {reason}", status.as_u16()),
        None => format!("HTTP {}", status.as_u16()),
    };
    match status.as_u16() {
        200..300 => Outcome::Succeeded,
        410 => Outcome::Gone,
        400 | 413 | 415 | 422 => Outcome::Rejected { error: error() },
        _ => Outcome::Failed { error: error(), retry_after },
    }
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::new(agent_core::error::FailureKind::Internal, "the delivery could not be written")
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_outcomes_of_the_contract() {
        let of = |status: u16| outcome(StatusCode::from_u16(status).unwrap(), None, None);
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(of(status), Outcome::Succeeded, "{status}");
        }
        assert_eq!(of(410), Outcome::Gone);
        for status in [400, 413, 415, 422] {
            assert!(matches!(of(status), Outcome::Rejected { .. }), "{status}");
        }
        for status in [401, 403, 404, 405, 408, 409, 425, 429, 499, 500, 501, 502, 503, 504, 599] {
            assert!(matches!(of(status), Outcome::Failed { .. }), "{status}");
        }
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
