//! Maps HTTP statuses and transport errors to [`AgentError`].

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::fallback::UpstreamError;
use http::{HeaderMap, StatusCode, header};
use tokio::time::error::Elapsed;

use super::address::AddressError;
use super::connect_error::ConnectError;

/// Upper bound of a `Retry-After` from a remote server.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Maps a status to a failure: 429 is `RateLimited`, 408 and 504 are `Timeout`, every other status is `Failed`.
/// `Retry-After` (RFC 9110, seconds or a date) is carried over, capped at one hour.
///
/// Meant for statuses other than success; the message contains the status and no part of the body.
pub fn status_failure(status: StatusCode, headers: &HeaderMap) -> AgentError {
    let (kind, failure_text) = match status {
        StatusCode::TOO_MANY_REQUESTS => (AgentErrorKind::RateLimited, "is rate limiting requests"),
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            (AgentErrorKind::Timeout, "reported a timeout")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (AgentErrorKind::Failed, "rejected the credentials")
        }
        status if status.is_redirection() => {
            (AgentErrorKind::Failed, "returned a redirect, which is not followed")
        }
        status if status.is_client_error() => (AgentErrorKind::Failed, "rejected the request"),
        status if status.is_server_error() => (AgentErrorKind::Failed, "failed"),
        _ => (AgentErrorKind::Failed, "returned an unexpected status"),
    };
    let cause = UpstreamError::new(Some(status.as_u16()), [], format!("HTTP {}", status.as_u16()));
    let failure =
        AgentError::new(kind, format!("the upstream service {failure_text} (HTTP {})", status.as_u16()));
    let failure = failure.with_source(cause);
    match retry_after(headers, SystemTime::now()) {
        Some(after) => failure.with_retry_after(after.min(MAX_RETRY_AFTER)),
        None => failure,
    }
}

/// Headers of some vendors with the delay in milliseconds, which is more exact than `Retry-After`.
const RETRY_AFTER_MS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Parses `retry-after-ms`, or else `Retry-After` (RFC 9110, seconds or a date; also fractions of a second). A date in the
/// past is zero; an unparseable value is `None`. The result is not capped.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let in_ms = |name: &&str| headers.get(*name)?.to_str().ok()?.trim().parse().ok();
    if let Some(delay) = RETRY_AFTER_MS.iter().find_map(in_ms) {
        return Some(Duration::from_millis(delay));
    }
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // Not of the RFC, but gateways send it.
    if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Duration::try_from_secs_f64(value.parse().ok()?).ok();
    }
    Some(httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default())
}

pub(super) fn blocked(error: AddressError) -> AgentError {
    AgentError::new(AgentErrorKind::Blocked, "the address policy (OUTBOUND_ALLOW) blocks this address")
        .with_source(error)
}

pub(super) fn head_timeout() -> AgentError {
    AgentError::new(AgentErrorKind::Timeout, "the upstream service did not respond in time")
}

/// Returns the error for a URL or header that HTTP cannot carry; its source does not repeat the value.
pub(super) fn unsendable(error: impl Error + Send + Sync + 'static) -> AgentError {
    AgentError::new(AgentErrorKind::InvalidRequest, "the request has an invalid URL or header")
        .with_source(error)
}

/// Maps an error from establishing a connection.
pub(super) fn from_connect_error(error: ConnectError) -> AgentError {
    if let Some(refused) = find_source::<AddressError>(&error) {
        return blocked(refused.clone());
    }
    if is_timeout(&error) {
        return head_timeout().with_source(error);
    }
    AgentError::new(AgentErrorKind::Unreachable, "the upstream service is unreachable").with_source(error)
}

/// Returns false if the request of a failed exchange was certainly not sent: it is invalid, or there was no connection.
pub fn was_sent(failure: &AgentError) -> bool {
    let is_refused = matches!(failure.kind(), AgentErrorKind::Blocked | AgentErrorKind::InvalidRequest);
    !is_refused && find_source::<ConnectError>(failure).is_none()
}

/// Maps an error from sending a request, before its response head.
pub(super) fn from_send_error(error: hyper::Error) -> AgentError {
    if is_timeout(&error) {
        return head_timeout().with_source(error);
    }
    let (kind, message) = if error.is_parse() {
        (AgentErrorKind::Failed, "the upstream service sent an invalid HTTP response")
    } else {
        (AgentErrorKind::Unreachable, "the upstream service closed the connection without a response")
    };
    AgentError::new(kind, message).with_source(error)
}

/// Maps an error from reading a response body.
pub(super) fn from_body_error(error: hyper::Error) -> AgentError {
    let (kind, message) = if is_timeout(&error) {
        (AgentErrorKind::Timeout, "the upstream service stopped sending the response")
    } else if is_truncated(&error) {
        (AgentErrorKind::Truncated, "the upstream response ended before it was complete")
    } else {
        (AgentErrorKind::Failed, "the connection failed during the response")
    };
    AgentError::new(kind, message).with_source(error)
}

/// Returns true if the error was caused by a timeout of the kernel or of this program.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    find_source::<Elapsed>(error).is_some()
        || find_source::<io::Error>(error).is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
}

fn is_truncated(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || find_source::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message)
        || find_source::<io::Error>(error).is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
}

/// Returns the first error of type `E` in the source chain.
fn find_source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let cases = [
            ("0", Some(0)),
            ("17", Some(17)),
            (" 17 ", Some(17)),
            ("999999999999", Some(999_999_999_999)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 10:49:37 GMT", Some(7200)),
            ("-1", None),
            ("1e9", None),
            ("1.5.5", None),
            (".", None),
            ("soon", None),
            ("", None),
        ];
        for (value, seconds) in cases {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{value:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
        let fraction = HeaderMap::from_iter([(header::RETRY_AFTER, "0.5".parse().unwrap())]);
        assert_eq!(retry_after(&fraction, now), Some(Duration::from_millis(500)));
        for (name, value, expected) in [
            ("retry-after-ms", "1500", Some(Duration::from_millis(1500))),
            ("x-ms-retry-after-ms", "7", Some(Duration::from_millis(7))),
            ("retry-after-ms", "-1", Some(Duration::from_secs(9))),
        ] {
            let mut headers = HeaderMap::from_iter([(header::RETRY_AFTER, "9".parse().unwrap())]);
            headers.insert(name, value.parse().unwrap());
            assert_eq!(retry_after(&headers, now), expected, "{name}: {value}");
        }
    }

    #[test]
    fn statuses_become_kinds() {
        use AgentErrorKind::{Failed, RateLimited, Timeout};
        let cases = [
            (302, Failed),
            (400, Failed),
            (401, Failed),
            (408, Timeout),
            (429, RateLimited),
            (500, Failed),
            (504, Timeout),
        ];
        for (status, kind) in cases {
            let failure = status_failure(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
            assert_eq!(failure.kind(), kind, "{status}");
            assert!(failure.to_string().contains(&status.to_string()), "{failure}");
        }
    }
}
