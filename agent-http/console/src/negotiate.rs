//! Negotiation of the encoding, and conditional requests (RFC 9110, sections 12.5.3 and 13.1.2).

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

/// Returns true if the client accepts brotli by name, with a weight above zero. A wildcard does not select it.
pub(crate) fn accepts_brotli(request: &HeaderMap) -> bool {
    list(request, ACCEPT_ENCODING).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_brotli = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("br"));
        is_brotli && parts.all(|parameter| !is_zero_weight(parameter))
    })
}

/// Returns true if `If-None-Match` lists the tag or `*`. Tags are compared weakly, as the header requires.
pub(crate) fn matches_etag(request: &HeaderMap, etag: &str) -> bool {
    list(request, IF_NONE_MATCH).any(|item| item == "*" || item.strip_prefix("W/").unwrap_or(item) == etag)
}

/// Returns the items of a header that is a list. The tags of this crate contain no comma.
fn list(request: &HeaderMap, name: http::HeaderName) -> impl Iterator<Item = &str> {
    let lines = request.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

fn is_zero_weight(parameter: &str) -> bool {
    let weight = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.is_some_and(|(_, weight)| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
}
