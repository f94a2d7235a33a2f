//! Backends that are reached over HTTP.

pub mod agent_server;
mod mcp_url;
pub mod workflow;

use agent_core::budget::TokenBudget;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::payload::PayloadBuilder;
use url::Url;

use mcp_url::push_mcp_server_url;

/// Token budget assumed for a model behind another service, whose window is unknown.
const DEFAULT_REMOTE_BUDGET: TokenBudget = TokenBudget { max_prompt_tokens: 128_000 - 16_000 };

/// Appends path segments to `base`, whether or not it ends in a slash.
///
/// # Errors
/// `InvalidRequest` for a URL that cannot have path segments, such as `mailto:`.
pub(crate) fn join_path(base: &Url, segments: &[&str]) -> Result<Url, AgentError> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => {
            path.pop_if_empty().extend(segments);
        }
        Err(()) => {
            return Err(AgentError::new(AgentErrorKind::InvalidRequest, "the backend's address has no path"));
        }
    }
    Ok(url)
}

/// Parses a URL from a role or a request.
///
/// # Errors
/// `InvalidRequest`, naming the field and not the URL.
pub(crate) fn parse_supplied_url(field: &'static str, text: &str) -> Result<Url, AgentError> {
    Url::parse(text.trim()).map_err(|error| {
        AgentError::new(AgentErrorKind::InvalidRequest, format!("{field} is not an address: {error}"))
    })
}

/// Appends an optional member to a JSON object that already has at least one member.
fn push_optional_member(body: &mut PayloadBuilder, name: &str, value: Option<&impl serde::Serialize>) {
    if let Some(value) = value {
        body.raw(",").json(&name).raw(":").json(value);
    }
}
