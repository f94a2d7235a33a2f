//! Collecting request bodies within limits.

use std::time::Duration;

use agent_platform::media_type::is_json;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{self, Instant};

use crate::body::Body;
use crate::error::{Code, HttpError};

/// Limits on reading a request body.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Maximum size in bytes; 1 MiB. A larger body is answered with 413.
    pub bytes: usize,
    /// Maximum time between two chunks of the body; 10 s. A longer pause is answered with 408.
    pub idle: Duration,
    /// Maximum time for the whole body, however steadily it arrives; 2 min. A slower one is answered with 408.
    pub total: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { bytes: 1024 * 1024, idle: Duration::from_secs(10), total: Duration::from_secs(120) }
    }
}

/// Reads the whole body. `headers` are its request's headers.
///
/// # Errors
///
/// Returns 415 for a compressed body, 413 for one over the limit (at once if `Content-Length` exceeds it), 408 for
/// one that stalls or takes too long, and 400 for one that is truncated or badly framed.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    limits: &BodyLimits,
) -> Result<Bytes, HttpError> {
    check_encoding(headers)?;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.bytes {
        return Err(HttpError::too_large(limits.bytes));
    }
    let deadline = Instant::now() + limits.total;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let frame = match time::timeout_at(deadline.min(Instant::now() + limits.idle), body.frame()).await {
            Err(_) => return Err(HttpError::new(Code::RequestTimeout, "the body did not arrive in time")),
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                return Err(HttpError::invalid("the body", "is incomplete").with_source(error));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limits.bytes {
            return Err(HttpError::too_large(limits.bytes));
        }
        if first.is_empty() {
            // Most bodies arrive as one chunk, which needs no copy.
            first = data;
        } else {
            if rest.is_empty() {
                rest.reserve(announced.saturating_sub(first.len()).max(data.len()));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { [&first[..], &rest[..]].concat().into() })
}

/// Reads the whole body and checks that its content type is JSON, without parsing it. `headers` are those of its
/// request.
///
/// # Errors
///
/// Returns 415 if the content type is not JSON; otherwise same as [`read_body`].
pub(crate) async fn read_json_bytes(
    headers: &HeaderMap,
    body: Body,
    limits: &BodyLimits,
) -> Result<Bytes, HttpError> {
    check_json_type(headers)?;
    read_body(headers, body, limits).await
}

/// Rejects compressed bodies: a size limit has no effect on a body that decompresses to a multiple of it.
fn check_encoding(headers: &HeaderMap) -> Result<(), HttpError> {
    let identity =
        |value: &http::HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().all(identity) {
        Ok(())
    } else {
        Err(HttpError::new(
            Code::UnsupportedMediaType,
            "compressed request bodies are not supported; send the body without Content-Encoding",
        ))
    }
}

/// Returns the value of `Content-Type`; `None` if the header is absent, repeated or not visible ASCII.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let value = values.next().filter(|_| values.next().is_none());
    value.and_then(|value| value.to_str().ok())
}

/// Checks that the content type is `application/json` or any `+json`. A charset of UTF-8 or US-ASCII is accepted.
fn check_json_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let unsupported =
        || HttpError::new(Code::UnsupportedMediaType, "the content type must be application/json");
    let value = content_type(headers).ok_or_else(unsupported)?.to_ascii_lowercase();
    let is_utf8 = value
        .split(';')
        .skip(1)
        .map(str::trim)
        .filter_map(|parameter| parameter.strip_prefix("charset="))
        .all(|charset| matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"));
    if is_json(&value) && is_utf8 { Ok(()) } else { Err(unsupported()) }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::body::BodyError;

    fn limits(bytes: usize) -> BodyLimits {
        BodyLimits { bytes, ..BodyLimits::default() }
    }

    fn pieces(pieces: &'static [&'static str]) -> Body {
        let frames =
            pieces.iter().map(|piece| Ok::<_, BodyError>(Frame::data(Bytes::from_static(piece.as_bytes()))));
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    fn header(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        let cases: &[(&[&str], Result<&str, Code>)] = &[
            (&[], Ok("")),
            (&["abc"], Ok("abc")),
            (&["ab", "", "cd", "e"], Ok("abcde")),
            (&["abcdef"], Err(Code::PayloadTooLarge)),
            (&["abc", "def"], Err(Code::PayloadTooLarge)),
        ];
        for (input, expected) in cases {
            let read = read_body(&HeaderMap::new(), pieces(input), &limits(5)).await;
            assert_eq!(read.map_err(|error| error.code()), expected.map(Bytes::from), "{input:?}");
        }
    }

    #[tokio::test]
    async fn an_announced_length_over_the_limit_is_refused_unread() {
        // Body whose length is known and that fails if it is polled.
        struct Announced;
        impl http_body::Body for Announced {
            type Data = Bytes;
            type Error = BodyError;
            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
                panic!("polled")
            }
            fn size_hint(&self) -> http_body::SizeHint {
                http_body::SizeHint::with_exact(6)
            }
        }
        let error =
            read_body(&HeaderMap::new(), Body::new(Announced), &limits(5)).await.expect_err("too large");
        assert_eq!(error.code(), Code::PayloadTooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_is_timed_out() {
        let stopped = Body::new(StreamBody::new(
            stream::iter([Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"a")))])
                .chain(stream::pending()),
        ));
        let trickling = Body::new(StreamBody::new(stream::repeat(()).then(|()| async {
            time::sleep(Duration::from_secs(9)).await;
            Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"a")))
        })));
        for body in [stopped, trickling] {
            let error = read_body(&HeaderMap::new(), body, &limits(1000)).await.expect_err("a time-out");
            assert_eq!(error.code(), Code::RequestTimeout);
        }
    }

    #[tokio::test]
    async fn a_broken_body_is_the_clients_fault() {
        let broken = stream::iter([Err::<Frame<Bytes>, BodyError>("cut".into())]);
        let error = read_body(&HeaderMap::new(), Body::new(StreamBody::new(broken)), &limits(5)).await;
        assert_eq!(error.expect_err("broken").code(), Code::InvalidRequest);
    }

    #[tokio::test]
    async fn compressed_bodies_are_refused() {
        for (encoding, taken) in
            [("identity", true), ("Identity", true), ("gzip", false), ("identity, br", false)]
        {
            let read = read_body(&header(CONTENT_ENCODING, encoding), pieces(&["{}"]), &limits(5)).await;
            assert_eq!(
                read.map_err(|error| error.code()).err(),
                (!taken).then_some(Code::UnsupportedMediaType)
            );
        }
    }

    #[test]
    fn only_json_content_types_in_utf_8_are_accepted() {
        let cases = [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/vnd.x+json", true),
            ("application/json; profile=x", true),
            ("application/json; charset=utf-16", false),
            ("application/+json", false),
            ("application/jsonx", false),
            ("text/plain", false),
            ("text/json", false),
            ("", false),
        ];
        for (content_type, taken) in cases {
            assert_eq!(check_json_type(&header(CONTENT_TYPE, content_type)).is_ok(), taken, "{content_type}");
        }
        assert!(check_json_type(&HeaderMap::new()).is_err());
    }
}
