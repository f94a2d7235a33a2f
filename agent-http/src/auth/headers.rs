//! Headers and parameters with credentials.

use http::HeaderMap;
use http::header::{COOKIE, HeaderName, HeaderValue};

use super::AuthError;

/// Header with the widget token.
pub(crate) const WIDGET_TOKEN_HEADER: HeaderName = HeaderName::from_static("x-widget-token");

/// Header with a visitor's key, which a page makes at random and keeps. It counts with a widget token alone.
pub(crate) const VISITOR_KEY_HEADER: HeaderName = HeaderName::from_static("x-visitor-key");

/// Query parameter with the widget token.
pub(crate) const WIDGET_PARAMETER: &str = "widgetToken";

/// Header that marks a proactive call; its value is the reason.
pub(crate) const PROACTIVE_TRIGGER_HEADER: HeaderName = HeaderName::from_static("x-proactive-trigger");

/// Returns a header's value if present; an error if it is repeated.
pub(super) fn single_header<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h HeaderValue>, AuthError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AuthError::Ambiguous),
        (value, None) => Ok(value),
    }
}

/// Returns the token of a bearer credential (RFC 6750); the scheme is case-insensitive.
pub(super) fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the value of a cookie (RFC 6265); an error if it is repeated.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, AuthError> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
        let (key, value) = cookie.split_once('=')?;
        (key.trim() == name).then_some(value.trim().trim_matches('"'))
    });
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AuthError::Ambiguous),
        (value, None) => Ok(value),
    }
}
