//! Checks of requests that upload bytes.

use agent_core::ids::CompanyId;
use agent_platform::workspace::UploadUsage;
use http::Uri;

use super::App;
use crate::error::HttpError;
use crate::request::Query;

/// Checks that a company may store further bytes in place of `replaced` ones.
///
/// # Errors
/// 409 with the quota in `limit`.
pub(super) async fn check_upload_quota(
    app: &App,
    company_id: &CompanyId,
    replaced: u64,
    bytes: usize,
) -> Result<(), HttpError> {
    let usage = UploadUsage::load(&*app.records, company_id).await?.bytes;
    let limit = app.quotas.uploaded_bytes;
    if usage.saturating_sub(replaced) + bytes as u64 <= limit {
        return Ok(());
    }
    let detail = format!("the company's uploads have {usage} bytes, and at most {limit} can be stored");
    Err(HttpError::conflict(detail).with_member("limit", limit.into()))
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
