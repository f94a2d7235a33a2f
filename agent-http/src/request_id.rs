//! Request ids.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use uuid::Uuid;

/// Id under which a request is logged and answered: the client's `X-Request-Id`, or a generated UUID v7.
///
/// It is at most 128 bytes of printable ASCII. It is not proof of anything; clients may repeat ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The `X-Request-Id` header.
    pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    const MAX_BYTES: usize = 128;

    /// Returns the id in `headers` if there is an acceptable one, otherwise a generated one.
    #[must_use]
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        match headers.get(Self::HEADER) {
            Some(request_value) if is_acceptable(request_value.as_bytes()) => Self(request_value.clone()),
            _ => Self::new(),
        }
    }

    /// Generates an id.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one is different")]
    pub fn new() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        let text = Uuid::now_v7().hyphenated().encode_lower(&mut text);
        Self(HeaderValue::from_str(text).expect("a UUID is printable ASCII"))
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("both constructors take printable ASCII alone")
    }
}

impl From<RequestId> for HeaderValue {
    fn from(id: RequestId) -> Self {
        id.0
    }
}

fn is_acceptable(value: &[u8]) -> bool {
    !value.is_empty()
        && value.len() <= RequestId::MAX_BYTES
        && value.iter().all(|byte| (b' '..=b'~').contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_given_id_is_kept() {
        let longest = "x".repeat(128);
        let too_long = "x".repeat(129);
        let cases: &[(&[u8], bool)] = &[
            (b"req-1", true),
            (b"a b~!", true),
            (longest.as_bytes(), true),
            (too_long.as_bytes(), false),
            (b"", false),
            (b"tab\there", false),
            ("é".as_bytes(), false),
        ];
        for (header, taken) in cases {
            let value = HeaderValue::from_bytes(header).expect("a header value");
            let id = RequestId::from_headers(&HeaderMap::from_iter([(RequestId::HEADER, value)]));
            assert_eq!(id.as_str().as_bytes() == *header, *taken, "{header:?}");
            assert!(!id.as_str().is_empty());
        }
    }

    #[test]
    fn a_made_id_is_a_uuid_of_version_7() {
        let id = RequestId::from_headers(&HeaderMap::new());
        assert_eq!(Uuid::parse_str(id.as_str()).expect("a UUID").get_version_num(), 7);
        assert_ne!(id, RequestId::new());
    }
}
