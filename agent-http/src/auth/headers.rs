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
    // Each by itself: browsers send the bytes of other cookies as they were set, also those that are not ASCII.
    let cookies =
        headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let mut values = cookies.filter_map(|cookie| {
        let (key, value) = std::str::from_utf8(cookie).ok()?.split_once('=')?;
        (key.trim() == name).then_some(value.trim().trim_matches('"'))
    });
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AuthError::Ambiguous),
        (value, None) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_beside_others_that_are_not_ascii() {
        for cookies in
            ["name=Jürgen; agent_session=abc".as_bytes(), b"name=J\xfcrgen; agent_session=abc; x=\xff"]
        {
            let value = HeaderValue::from_bytes(cookies).expect("a header's value");
            let headers = HeaderMap::from_iter([(COOKIE, value)]);
            assert_eq!(cookie(&headers, "agent_session").expect("one cookie"), Some("abc"));
        }
    }
}
