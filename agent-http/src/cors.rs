//! Cross-origin resource sharing (the Fetch standard's CORS protocol), over tower-http's layer.
//!
//! Two kinds of origins send requests. The operator's own front ends are listed, and may send cookies. A widget is
//! embedded in pages that the operator does not list; its token is bound to origins, and is sent with the request
//! itself. So on the widget's paths every origin is allowed, without credentials, and the handler decides: it marks a
//! response that the page must not read by
//! `HttpError::deny_cross_origin`.

use std::collections::{BTreeSet, btree_set};
use std::sync::Arc;
use std::time::Duration;

use agent_platform::trace::{TRACEPARENT, TRACESTATE};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_LANGUAGE, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, AUTHORIZATION, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_NONE_MATCH, RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use tower::layer::util::Stack;
use tower::util::MapResponseLayer;
use tower_http::cors::{AllowCredentials, AllowOrigin, CorsLayer};
use url::Url;

use crate::body::ResponseBody;
use crate::error::{CrossOriginDenied, RATE_LIMIT, RATE_LIMIT_POLICY};
use crate::request_id::RequestId;

/// Time that a browser may cache a preflight response.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(600);

/// Error of parsing a list of origins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CorsError {
    /// `*`, which would let any page act with its visitor's session.
    #[error("CORS_ORIGIN: `*` is not allowed together with credentials; list the exact origins")]
    Wildcard,
    /// Not an origin as browsers serialize it.
    #[error(
        "CORS_ORIGIN: `{0}` is not an origin; write it as in `https://app.example` or `http://localhost:5173`"
    )]
    NotAnOrigin(String),
}

/// Set of exact origins, as browsers serialize them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(BTreeSet<String>);

impl Origins {
    /// Returns true if the set contains `origin`, the value of an `Origin` header.
    #[must_use]
    pub fn contains(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.0.contains(origin))
    }
}

impl IntoIterator for Origins {
    type Item = String;
    type IntoIter = btree_set::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Parses a comma-separated list of exact origins (scheme, host, and a port that is not the scheme's default). Empty
/// items are skipped, so an empty text yields an empty set.
///
/// # Errors
///
/// Returns an error for `*`, and for anything that a browser would not send as an `Origin`, such as one with a path
/// or a trailing slash.
pub fn parse_origins(text: &str) -> Result<Origins, CorsError> {
    let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
    origins.map(parse_origin).collect::<Result<_, _>>().map(Origins)
}

fn parse_origin(text: &str) -> Result<String, CorsError> {
    if text == "*" {
        return Err(CorsError::Wildcard);
    }
    // An origin that is not in its serialized form would never equal the one that a browser sends.
    let is_exact = normalize_origin(text).is_some_and(|normal| normal == text);
    if is_exact { Ok(text.to_owned()) } else { Err(CorsError::NotAnOrigin(text.to_owned())) }
}

/// Returns the origin of `text` as browsers serialize it: `https://A.example:443/` becomes `https://a.example`.
/// Returns `None` if `text` is not a page's origin, such as `null`, a pattern, or an address with a path.
#[must_use]
pub fn normalize_origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let bare = url.path() == "/" && url.username().is_empty() && url.password().is_none();
    let is_origin = bare && !text.contains(['*', '?', '#', '@']);
    is_origin.then(|| url.origin().ascii_serialization())
}

fn finish_response(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_withheld = response.extensions().get::<CrossOriginDenied>().is_some();
    let headers = response.headers_mut();
    append_vary(headers);
    if is_withheld {
        headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
    }
    if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        // Without access to the response, exposed headers have no effect.
        headers.remove(ACCESS_CONTROL_EXPOSE_HEADERS);
    }
    response
}

/// Header names sent in `Vary` on every response.
const VARY_VALUE: &str = "origin, access-control-request-method, access-control-request-headers";

/// Appends [`VARY_VALUE`] to the handler's own `Vary` values, in one header line. A `HeaderMap` stores repeated values
/// in an extra allocation, which the connection would keep as long as it is open.
fn append_vary(headers: &mut HeaderMap) {
    let mut line = Vec::with_capacity(2 * VARY_VALUE.len());
    for value in headers.get_all(VARY) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    let value = if line.is_empty() {
        HeaderValue::from_static(VARY_VALUE)
    } else {
        line.extend_from_slice(VARY_VALUE.as_bytes());
        HeaderValue::from_maybe_shared(Bytes::from(line)).expect("a list of headers' values is one")
    };
    headers.insert(VARY, value);
}

/// Header names of a service's protocols, in addition to the headers of all services. In lower case.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProtocolHeaders {
    /// Request headers that pages may send.
    pub request: &'static [&'static str],
    /// Response headers that pages may read.
    pub response: &'static [&'static str],
}

/// Layer returned by [`layer`].
pub type Layer = Stack<CorsLayer, MapResponseLayer<fn(Response<ResponseBody>) -> Response<ResponseBody>>>;

/// Creates the CORS layer. `origins` may send requests with credentials; any origin may send requests without
/// credentials to the paths for which `is_open` returns true. The layer answers every `OPTIONS` itself.
pub fn layer(
    origins: Origins,
    is_open: impl Fn(&str) -> bool + Clone + Send + Sync + 'static,
    headers: &[ProtocolHeaders],
) -> Layer {
    let origins = Arc::new(origins);
    let listed = origins.clone();
    let may_ask =
        move |origin: &HeaderValue, request: &Parts| origins.contains(origin) || is_open(request.uri.path());
    let may_send_credentials = move |origin: &HeaderValue, _: &Parts| listed.contains(origin);
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(may_ask))
        .allow_credentials(AllowCredentials::predicate(may_send_credentials))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(request_headers(headers))
        .expose_headers(response_headers(headers))
        .max_age(PREFLIGHT_MAX_AGE)
        // `finish_response` sets `Vary`.
        .vary([]);
    Stack::new(cors, MapResponseLayer::new(finish_response))
}

/// Returns the request headers that clients in browsers send: the console, the widget, AG-UI and AI SDK clients, and
/// those of the service's protocols.
fn request_headers(protocols: &[ProtocolHeaders]) -> Vec<HeaderName> {
    let ours = ["x-widget-token", "x-visitor-key", "last-event-id", TRACEPARENT, TRACESTATE];
    let standard = [
        ACCEPT,
        ACCEPT_LANGUAGE,
        AUTHORIZATION,
        CONTENT_LANGUAGE,
        CONTENT_TYPE,
        IF_MATCH,
        IF_NONE_MATCH,
        RequestId::HEADER,
    ];
    let of_protocols = protocols.iter().flat_map(|protocol| protocol.request);
    let ours = ours.iter().chain(of_protocols).copied().map(HeaderName::from_static);
    standard.into_iter().chain(ours).collect()
}

/// Returns the response headers that pages may read, in addition to the headers that the standard always allows.
fn response_headers(protocols: &[ProtocolHeaders]) -> Vec<HeaderName> {
    let standard = [RequestId::HEADER, ETAG, RETRY_AFTER, RATE_LIMIT, RATE_LIMIT_POLICY];
    let of_protocols = protocols.iter().flat_map(|protocol| protocol.response).copied();
    standard.into_iter().chain(of_protocols.map(HeaderName::from_static)).collect()
}

#[cfg(test)]
mod tests {
    use http::header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    };
    use http::{Request, StatusCode};
    use tower::{Layer, ServiceExt};

    use super::*;
    use crate::body::{Body, empty};
    use crate::error::HttpError;
    use crate::service::service_fn;

    #[test]
    fn origins_are_exact() {
        let not = |text: &str| Err(CorsError::NotAnOrigin(text.to_owned()));
        let cases = [
            ("", Ok(vec![])),
            (" , ", Ok(vec![])),
            ("https://a.example", Ok(vec!["https://a.example"])),
            (
                "https://a.example, http://localhost:5173",
                Ok(vec!["http://localhost:5173", "https://a.example"]),
            ),
            ("http://[::1]:3000", Ok(vec!["http://[::1]:3000"])),
            ("*", Err(CorsError::Wildcard)),
            ("https://a.example,*", Err(CorsError::Wildcard)),
            ("https://a.example/", not("https://a.example/")),
            ("https://a.example/x", not("https://a.example/x")),
            ("https://A.example", not("https://A.example")),
            ("https://a.example:443", not("https://a.example:443")),
            ("https://*.example", not("https://*.example")),
            ("a.example", not("a.example")),
            ("null", not("null")),
            ("file:///", not("file:///")),
        ];
        for (text, expected) in cases {
            let parsed = parse_origins(text).map(|origins| origins.0.into_iter().collect::<Vec<_>>());
            let expected = expected.map(|origins| origins.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(parsed, expected, "{text}");
        }
    }

    const HEADERS: ProtocolHeaders =
        ProtocolHeaders { request: &["mcp-protocol-version"], response: &["mcp-session-id"] };

    fn is_chat(path: &str) -> bool {
        path == "/chat"
    }

    async fn ask(method: Method, path: &str, origin: &str) -> (StatusCode, HeaderMap) {
        let refuse = service_fn(|_| async { Err(HttpError::not_found()) });
        let service =
            layer(parse_origins("https://a.example").expect("origins"), is_chat, &[HEADERS]).layer(refuse);
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        request.headers_mut().insert(ORIGIN, origin.parse().expect("a value"));
        request.headers_mut().insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        let response = service.oneshot(request).await.expect("infallible");
        (response.status(), response.headers().clone())
    }

    #[tokio::test]
    async fn listed_origins_get_credentials_and_open_paths_take_any_without() {
        let cases = [
            ("/chat", "https://a.example", true, true),
            ("/chat", "https://b.example", true, false),
            ("/chat?widgetToken=x", "https://b.example", true, false),
            ("/chat", "null", true, false),
            ("/todos", "https://a.example", true, true),
            ("/todos", "https://b.example", false, false),
            ("/chat/x", "https://b.example", false, false),
        ];
        for (path, origin, allowed, credentials) in cases {
            for method in [Method::OPTIONS, Method::POST] {
                let (status, headers) = ask(method.clone(), path, origin).await;
                let case = format!("{method} {path} {origin}");
                assert_eq!(status.as_u16(), if method == Method::OPTIONS { 200 } else { 404 }, "{case}");
                let allow = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN).map(HeaderValue::as_bytes);
                assert_eq!(allow, allowed.then_some(origin.as_bytes()), "{case}");
                assert_eq!(headers.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS), credentials, "{case}");
            }
        }
    }

    #[tokio::test]
    async fn our_headers_pass_both_ways() {
        let (_, headers) = ask(Method::OPTIONS, "/chat", "https://a.example").await;
        let allowed = headers[ACCESS_CONTROL_ALLOW_HEADERS].to_str().expect("text");
        for name in [
            "authorization",
            "content-type",
            "x-widget-token",
            "x-visitor-key",
            "x-request-id",
            "accept",
            "last-event-id",
            "traceparent",
            "tracestate",
        ] {
            assert!(allowed.split(',').any(|header| header == name), "{name} in {allowed}");
        }
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_METHODS], "GET,POST,PUT,PATCH,DELETE");
        let (_, headers) = ask(Method::POST, "/chat", "https://a.example").await;
        assert_eq!(
            headers[ACCESS_CONTROL_EXPOSE_HEADERS],
            "x-request-id,etag,retry-after,ratelimit,ratelimit-policy,mcp-session-id"
        );
    }

    #[tokio::test]
    async fn denied_responses_are_readable_by_no_other_origin() {
        let refuse = service_fn(|_| async { Err(HttpError::forbidden("not you").deny_cross_origin()) });
        let service =
            layer(parse_origins("https://a.example").expect("origins"), is_chat, &[HEADERS]).layer(refuse);
        for origin in ["https://a.example", "https://b.example"] {
            let request =
                Request::post("/chat").header(ORIGIN, origin).body(Body::empty()).expect("a request");
            let response = service.clone().oneshot(request).await.expect("infallible");
            assert_eq!(response.status(), 403);
            let names: Vec<&str> = response.headers().keys().map(HeaderName::as_str).collect();
            assert!(!names.iter().any(|name| name.starts_with("access-control-")), "{names:?}");
            assert!(response.headers()[VARY].to_str().expect("text").contains("origin"));
        }
    }

    #[tokio::test]
    async fn vary_is_one_header_line() {
        for (own_names, expected) in [
            (&[][..], "origin, access-control-request-method, access-control-request-headers"),
            (&["Accept"], "Accept, origin, access-control-request-method, access-control-request-headers"),
            (&["a", "b"], "a, b, origin, access-control-request-method, access-control-request-headers"),
        ] {
            let service = service_fn(move |_| async move {
                let mut response = Response::new(empty());
                for name in own_names {
                    response.headers_mut().append(VARY, HeaderValue::from_static(name));
                }
                Ok(response)
            });
            let service = layer(Origins::default(), |_| false, &[HEADERS]).layer(service);
            let response = service.oneshot(Request::new(Body::empty())).await.expect("infallible");
            let lines: Vec<_> = response.headers().get_all(VARY).iter().collect();
            assert_eq!(lines, [expected]);
        }
    }

    #[test]
    fn an_origin_is_compared_in_its_normal_form() {
        for (text, normal) in [
            ("https://a.example", Some("https://a.example")),
            ("https://A.example:443/", Some("https://a.example")),
            ("HTTP://a.example:80", Some("http://a.example")),
            ("http://a.example:443", Some("http://a.example:443")),
            ("https://b\u{fc}cher.example", Some("https://xn--bcher-kva.example")),
            ("http://[0:0::1]:3000", Some("http://[::1]:3000")),
            ("http://127.1", Some("http://127.0.0.1")),
            ("https://a.example.", Some("https://a.example.")),
            ("https://a.example/x", None),
            ("https://a.example?", None),
            ("https://a.example#", None),
            ("https://u@a.example", None),
            ("https://@a.example", None),
            ("https://*.example", None),
            ("null", None),
            ("", None),
            ("a.example", None),
            ("file:///", None),
            ("data:text/plain,x", None),
            ("ftp://a.example", None),
        ] {
            assert_eq!(normalize_origin(text).as_deref(), normal, "{text}");
        }
    }
}
