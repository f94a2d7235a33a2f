//! Backends that are reached over HTTP.

pub mod agent_server;

use agent_core::error::{Failure, FailureKind};
use url::Url;

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
