//! Response headers of the model API that pass to the caller.

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

/// Maximum number of headers that pass, and of bytes of each value.
const MAX_HEADERS: usize = 64;
const MAX_VALUE_BYTES: usize = 256;

/// The API's own id of a request, and its name beside this service's id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-upstream-request-id");

/// Beginnings of the names of headers with the state of rate limits.
const LIMIT_PREFIXES: [&str; 2] = ["x-codex-", "x-ratelimit-"];

/// Other headers that pass.
const FORWARDED_HEADERS: [HeaderName; 4] = [
    RETRY_AFTER,
    HeaderName::from_static("openai-model"),
    HeaderName::from_static("openai-processing-ms"),
    HeaderName::from_static("x-reasoning-included"),
];

/// Returns the headers that pass. All others are not passed on, such as cookies and the headers by which a proxy or
/// a server identifies itself.
pub(super) fn forwarded_headers(upstream: &HeaderMap) -> HeaderMap {
    let listed = upstream.iter().filter_map(|(name, value)| Some((passed_name(name)?, value)));
    let valid = listed.filter(|(_, value)| is_plain_value(value)).take(MAX_HEADERS);
    let mut headers = HeaderMap::new();
    for (name, value) in valid {
        headers.append(name, value.clone());
    }
    headers
}

/// Returns the name under which a header passes.
fn passed_name(name: &HeaderName) -> Option<HeaderName> {
    if *name == REQUEST_ID {
        return Some(UPSTREAM_REQUEST_ID);
    }
    let passes = FORWARDED_HEADERS.contains(name)
        || LIMIT_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
    passes.then(|| name.clone())
}

/// Returns true for a short value of printable ASCII.
pub(super) fn is_plain_value(value: &HeaderValue) -> bool {
    value.len() <= MAX_VALUE_BYTES && value.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &[u8]) -> (HeaderName, HeaderValue) {
        (name.parse().expect("a name"), HeaderValue::from_bytes(value).expect("a value"))
    }

    #[test]
    fn only_listed_headers_with_plain_values_pass() {
        let long = "x".repeat(MAX_VALUE_BYTES);
        let longer = "x".repeat(MAX_VALUE_BYTES + 1);
        let upstream: HeaderMap = [
            header("x-codex-primary-used-percent", b"12"),
            header("x-codex-", long.as_bytes()),
            header("x-ratelimit-limit-tokens", b""),
            header("retry-after", b"35"),
            header("openai-model", b"m 1"),
            header("openai-processing-ms", b"7"),
            header("x-reasoning-included", b"true"),
            header("x-request-id", b"req_1"),
            header("x-codex-long", longer.as_bytes()),
            header("x-codex-tab", b"a\tb"),
            header("x-codex-utf", "ü".as_bytes()),
            header("x-upstream-request-id", b"forged"),
            header("x-codexy", b"1"),
            header("set-cookie", b"a=b"),
            header("cf-ray", b"1"),
            header("server", b"x"),
            header("alt-svc", b"h3"),
            header("openai-organization", b"o"),
            header("access-control-allow-origin", b"*"),
            header("content-security-policy", b"x"),
        ]
        .into_iter()
        .collect();
        let expected: HeaderMap = [
            header("x-codex-primary-used-percent", b"12"),
            header("x-codex-", long.as_bytes()),
            header("x-ratelimit-limit-tokens", b""),
            header("retry-after", b"35"),
            header("openai-model", b"m 1"),
            header("openai-processing-ms", b"7"),
            header("x-reasoning-included", b"true"),
            header("x-upstream-request-id", b"req_1"),
        ]
        .into_iter()
        .collect();
        assert_eq!(forwarded_headers(&upstream), expected);
    }

    #[test]
    fn at_most_64_headers_pass() {
        let upstream: HeaderMap =
            (0..100).map(|n| header(&format!("x-codex-{n}"), n.to_string().as_bytes())).collect();
        assert_eq!(forwarded_headers(&upstream).len(), MAX_HEADERS);
    }
}
