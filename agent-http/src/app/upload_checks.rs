//! Parameters of requests that upload bytes, and the responses to uploads that are not stored.

use agent_platform::workspace::WorkspaceError;
use http::Uri;

use crate::error::HttpError;
use crate::request::Query;

/// Returns the response to an upload that is not stored: 409 with the quota in `limit` if it would exceed one.
pub(super) fn upload_error(error: WorkspaceError) -> HttpError {
    let detail = error.to_string();
    match error {
        WorkspaceError::UploadsExceeded { limit, .. } => {
            HttpError::conflict(detail).with_member("limit", limit.into())
        }
        WorkspaceError::Full { limit, .. } => HttpError::conflict(detail).with_member("limit", limit.into()),
        WorkspaceError::Store(error) => error.into(),
        error => HttpError::internal(error),
    }
}

/// Returns a parameter of the query that is one line, trimmed; `None` if it is absent or empty.
///
/// # Errors
/// 400 if it is too long or has a control character.
pub(super) fn line_parameter(uri: &Uri, name: &str, max_bytes: usize) -> Result<Option<String>, HttpError> {
    let query = Query::from_uri(uri);
    let Some(line) = query.get(name)?.map(str::trim).filter(|line| !line.is_empty()) else {
        return Ok(None);
    };
    if line.len() > max_bytes {
        let detail = format!("has {} bytes; the limit is {max_bytes}", line.len());
        return Err(HttpError::invalid(name, detail));
    }
    if line.chars().any(char::is_control) {
        return Err(HttpError::invalid(name, "has a line break or another control character"));
    }
    Ok(Some(line.to_owned()))
}
