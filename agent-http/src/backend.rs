//! Backends that are reached over HTTP.

pub mod agent_server;
mod mcp_url;
pub mod workflow;

use agent_core::budget::TokenBudget;
use agent_core::error::{Failure, FailureKind};
use agent_core::payload::PayloadBuilder;
use url::Url;

use mcp_url::mcp_server_url;

/// What a model behind another service is assumed to take, where nobody says otherwise.
const ASSUMED_BUDGET: TokenBudget = TokenBudget { max_prompt_tokens: 128_000 - 16_000 };

/// The address `base` with path segments appended, whether or not `base` ends in a slash.
///
/// # Errors
/// `InvalidRequest` for an address that nothing can be appended to, such as `mailto:`.
pub(crate) fn below(base: &Url, segments: &[&str]) -> Result<Url, Failure> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => {
            path.pop_if_empty().extend(segments);
        }
        Err(()) => {
            return Err(Failure::new(FailureKind::InvalidRequest, "the backend's address has no path"));
        }
    }
    Ok(url)
}

/// Reads an address that a role or a request brought along.
///
/// # Errors
/// `InvalidRequest`, naming the field and not the address.
pub(crate) fn supplied_url(field: &'static str, text: &str) -> Result<Url, Failure> {
    Url::parse(text.trim()).map_err(|error| {
        Failure::new(FailureKind::InvalidRequest, format!("{field} is not an address: {error}"))
    })
}

/// Appends a member to the object that is being written, if it has a value.
fn optional(body: &mut PayloadBuilder, name: &str, value: Option<&impl serde::Serialize>) {
    if let Some(value) = value {
        body.raw(",").json(&name).raw(":").json(value);
    }
}

/// A turn that came to a backend which was not chosen for it.
fn misrouted() -> Failure {
    Failure::new(FailureKind::Internal, "the turn was meant for another backend")
}
