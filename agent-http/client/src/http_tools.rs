//! Calls of HTTP tools that roles define, through the guarded client.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::media_type::is_json;
use agent_platform::own_tools::{HttpToolClient, HttpToolError, HttpToolRequest, HttpToolResponse};
use async_trait::async_trait;
use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::Instant;
use url::Url;

use crate::outbound::{OutboundClient, OutboundResponse, UrlTrust, for_tenant, retry_after, was_sent};

/// Media types that are accepted, unless the tool names others. No range covers the types that end with `+json`.
const ACCEPTED_MEDIA_TYPES: &str = "application/json, application/*;q=0.8, text/*;q=0.5";

/// [`HttpToolClient`] over the guarded client: URLs come from roles and reach public or allowed addresses only.
#[derive(Debug, Clone)]
pub struct OutboundHttpTools {
    /// The guarded client.
    pub outbound: OutboundClient,
}

#[async_trait]
impl HttpToolClient for OutboundHttpTools {
    async fn send(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, HttpToolError> {
        self.exchange(request).await.map_err(|error| tool_error(&error))
    }
}

impl OutboundHttpTools {
    async fn exchange(&self, request: &HttpToolRequest) -> Result<HttpToolResponse, AgentError> {
        let deadline = Instant::now() + request.timeout;
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_| AgentError::new(AgentErrorKind::InvalidRequest, "invalid method"))?;
        let mut outbound = self.outbound.request(method, &address(request), UrlTrust::Supplied)?;
        outbound = outbound.header(ACCEPT, HeaderValue::from_static(ACCEPTED_MEDIA_TYPES));
        for (name, value) in &request.headers {
            outbound = outbound.secret_header(name, value)?;
        }
        if let Some(body) = &request.body {
            let content_type = HeaderValue::from_str(&request.content_type);
            let content_type = content_type
                .map_err(|_| AgentError::new(AgentErrorKind::InvalidRequest, "invalid media type"))?;
            outbound = outbound.header(CONTENT_TYPE, content_type).body(body.clone());
        }
        let response =
            for_tenant(&request.company_id, outbound.header_timeout(request.timeout).send()).await?;
        let (status, media_type) = (response.status, response.media_type());
        let headers = response.headers.clone();
        let has_retry_after = retry_after(&headers, SystemTime::now()).is_some();
        let remaining = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let body = match read(response, request.max_response_bytes, remaining).await {
            // The status is the outcome of the request; the body contains only the reason.
            Err(_) if !status.is_success() => Bytes::new(),
            body => body?,
        };
        let body = utf8_body(&headers, &media_type, body);
        Ok(HttpToolResponse { status: status.as_u16(), has_retry_after, media_type, body })
    }
}

/// Returns the address with the secret parameter of the query.
fn address(request: &HttpToolRequest) -> Cow<'_, Url> {
    let Some((name, value)) = &request.secret_query else { return Cow::Borrowed(&request.url) };
    let mut url = request.url.clone();
    url.query_pairs_mut().append_pair(name, value.expose());
    Cow::Owned(url)
}

/// Returns a body whose text has another encoding, or begins with a byte order mark, in UTF-8 without the mark. A body that is not
/// valid in its encoding is left unchanged, and so is a body of another type that contains no text.
fn utf8_body(headers: &HeaderMap, media_type: &str, body: Bytes) -> Vec<u8> {
    let is_json = is_json(media_type);
    let is_text = is_json || media_type.starts_with("text/");
    let encoding = match charset(headers) {
        // JSON has no such parameter (RFC 8259): frameworks add theirs to a body in UTF-8.
        Some(label) if !is_json || !is_utf8_json(&body) => Encoding::for_label(label.as_bytes()),
        _ => is_text.then_some(UTF_8),
    };
    let decoded = encoding.and_then(|encoding| match encoding.decode(&body) {
        (Cow::Owned(text), _, false) if is_text || is_printable(&text) => Some(text.into_bytes()),
        (Cow::Borrowed(text), _, false) if text.len() < body.len() => Some(text.as_bytes().to_vec()),
        _ => None,
    });
    decoded.unwrap_or_else(|| body.into())
}

/// Returns true for a body that may be JSON in UTF-8: characters that it must escape tell the ASCII of other encodings.
fn is_utf8_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| !text.contains(['\0', '\u{1b}']))
}

/// Returns false for a text with control characters, which indicate binary data: in a single-byte encoding all bytes are valid.
fn is_printable(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() && !c.is_whitespace())
}

/// Returns the parameter `charset` of a response's media type.
fn charset(headers: &HeaderMap) -> Option<&str> {
    let parameters = headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').skip(1);
    let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(value.trim().trim_matches('"'))
}

/// Reads the body of a response.
async fn read(
    response: OutboundResponse,
    max_bytes: usize,
    remaining: Duration,
) -> Result<Bytes, AgentError> {
    if response.is_encoded() {
        let text = "the upstream service compressed its response, which no request allows";
        return Err(AgentError::new(AgentErrorKind::Failed, text));
    }
    response.read_limited(max_bytes, remaining).await
}

fn tool_error(error: &AgentError) -> HttpToolError {
    HttpToolError {
        message: error.to_string(),
        was_sent: was_sent(error),
        is_transient: matches!(error.kind(), AgentErrorKind::Unreachable | AgentErrorKind::Truncated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_encodings_become_utf8() {
        let utf16: Vec<u8> = "\u{feff}{\"a\":\"\u{e9}\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let json = "{\"a\":\"\u{e9}\"}".as_bytes();
        let marked = [&b"\xef\xbb\xbf"[..], json].concat();
        let cases: [(&str, &[u8], &[u8]); 19] = [
            ("application/json", json, json),
            ("application/json", &marked, json),
            ("application/problem+json; charset=utf-8", &marked, json),
            ("application/json; charset=utf-16", &utf16, json),
            ("application/json", &utf16, json),
            ("application/json; charset=ISO-8859-1", json, json),
            ("application/json; charset=unknown", &marked, json),
            ("application/json; charset=ISO-8859-1", b"{\"a\":\"\xe9\"}", json),
            ("application/json; charset=utf-16le", b"1\x002\x00", b"12"),
            ("text/plain; format=flowed; Charset=\"ISO-8859-1\"", b"caf\xe9", "caf\u{e9}".as_bytes()),
            ("text/plain; charset=windows-1252", b"\x80 5", "\u{20ac} 5".as_bytes()),
            ("text/plain; charset=utf-8", b"caf\xe9", b"caf\xe9"),
            ("text/plain; charset=unknown", b"caf\xe9", b"caf\xe9"),
            ("text/plain", b"caf\xe9", b"caf\xe9"),
            ("image/png", b"\xff\xfe\x00\x01", b"\xff\xfe\x00\x01"),
            ("application/octet-stream", &marked, &marked),
            ("application/csv; charset=ISO-8859-1", b"caf\xe9", "caf\u{e9}".as_bytes()),
            ("application/pdf; charset=ISO-8859-1", b"%PDF\n\xe9\x00", b"%PDF\n\xe9\x00"),
            ("image/png; charset=ISO-8859-1", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n"),
        ];
        for (content_type, body, expected) in cases {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
            let media_type = agent_platform::media_type::essence(content_type);
            let decoded = utf8_body(&headers, &media_type, Bytes::copy_from_slice(body));
            assert_eq!(decoded, expected, "{content_type} {body:?}");
        }
        assert_eq!(utf8_body(&HeaderMap::new(), "", Bytes::from_static(b"\xe9")), b"\xe9");
    }
}
