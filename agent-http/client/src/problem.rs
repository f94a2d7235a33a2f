//! Problem details (RFC 9457) in responses of the platform's own services.

use std::time::Duration;

use serde::Deserialize;

use crate::outbound::OutboundResponse;

/// Media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Limits of an error response of the platform's own services, which is read for its problem code: size and read time.
const MAX_PROBLEM_BYTES: usize = 16 * 1024;
const PROBLEM_TIMEOUT: Duration = Duration::from_secs(5);

/// Members of problem details that clients use.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    /// Machine-readable error code.
    pub code: Option<String>,
    /// Description for people.
    pub detail: Option<String>,
    /// Context window of a model that rejected its prompt, in its own tokens.
    pub context_window: Option<u32>,
    /// Size of that prompt.
    pub prompt_tokens: Option<u32>,
}

impl ProblemDetails {
    /// Parses a response body; returns `None` if it is not a problem.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Reads the problem in an error response; returns `None` if the body is too large, is not received in time or is
    /// not a problem.
    pub(crate) async fn read(response: OutboundResponse) -> Option<Self> {
        let body = response.read_limited(MAX_PROBLEM_BYTES, PROBLEM_TIMEOUT).await.ok()?;
        Self::parse(&body)
    }
}
