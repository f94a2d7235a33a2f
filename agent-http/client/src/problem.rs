//! Problem details (RFC 9457) in responses of the platform's own services.

use serde::Deserialize;

/// Media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

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
}
