//! URLs from roles and requests, and paths below them.

use agent_core::error::{AgentError, AgentErrorKind};
use url::Url;

/// Appends path segments to `base`, whether or not it ends in a slash.
///
/// # Errors
/// `InvalidRequest` for a URL that cannot have path segments, such as `mailto:`.
pub fn join_path(base: &Url, segments: &[&str]) -> Result<Url, AgentError> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => {
            path.pop_if_empty().extend(segments);
        }
        Err(()) => {
            return Err(AgentError::new(
                AgentErrorKind::InvalidRequest,
                "the backend's URL cannot be a base URL",
            ));
        }
    }
    Ok(url)
}

/// Parses a URL from a role or a request.
///
/// # Errors
/// `InvalidRequest`, naming the field and not the URL.
pub fn parse_supplied_url(field: &'static str, text: &str) -> Result<Url, AgentError> {
    Url::parse(text.trim()).map_err(|error| {
        AgentError::new(AgentErrorKind::InvalidRequest, format!("{field} is not a URL: {error}"))
    })
}
