//! Parts that the proxied calls have in common.

use agent_core::secret::Secret;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};

use crate::error::HttpError;

/// Returns a secret as a sensitive header value, if it has 1 to `max_bytes` bytes of printable ASCII without blanks.
pub(super) fn printable_value(secret: &Secret, max_bytes: usize) -> Option<HeaderValue> {
    let text = secret.expose();
    let is_printable =
        (1..=max_bytes).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let mut value = HeaderValue::from_str(text).ok().filter(|_| is_printable)?;
    value.set_sensitive(true);
    Some(value)
}

/// Checks a secret of a request, which must be present. `field` is its name.
///
/// # Errors
/// 400, naming the field.
pub(super) fn check_secret<'s>(
    field: &str,
    secret: Option<&'s Secret>,
    max_bytes: usize,
) -> Result<(&'s Secret, HeaderValue), HttpError> {
    let secret = secret.ok_or_else(|| HttpError::invalid(field, "is missing"))?;
    let invalid = || {
        let problem = format_args!("must be 1 to {max_bytes} printable characters without blanks");
        HttpError::invalid(field, problem)
    };
    Ok((secret, printable_value(secret, max_bytes).ok_or_else(invalid)?))
}

/// Marks a response whose content type and body come from another server: it is not stored, and a browser must not
/// interpret the body as a page of this service.
pub(super) fn mark_untrusted(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
