//! The `Keep-Alive` header (RFC 2068, section 19.7.1.1), which announces the idle timeout of a connection.
//!
//! Without it, a client may send a request on a connection that the server is closing, and cannot tell whether the
//! request was processed.

use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Name of the `Keep-Alive` header.
pub const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Returns the header value for an idle timeout; `None` for less than a second, which it cannot express.
#[must_use]
pub fn keep_alive_value(idle: Duration) -> Option<HeaderValue> {
    let seconds = idle.as_secs();
    (seconds > 0).then(|| format!("timeout={seconds}").try_into().expect("a word and digits"))
}

/// Returns the idle timeout that the peer announces, if any.
pub(crate) fn parse_keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let parameters = headers.get(KEEP_ALIVE)?.to_str().ok()?.split(',');
    let mut named = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_timeouts_are_parsed_and_unclear_ones_ignored() {
        let read = |text: &str| {
            parse_keep_alive(&HeaderMap::from_iter([(
                KEEP_ALIVE,
                HeaderValue::try_from(text).expect("a header"),
            )]))
        };
        for (text, seconds) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 60", Some(60)),
            ("timeout=0,max=1", Some(0)),
            ("timeout", None),
            ("timeout=-1", None),
            ("timeout=soon", None),
            ("max=5", None),
            ("", None),
        ] {
            assert_eq!(read(text), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(parse_keep_alive(&HeaderMap::new()), None);
        let ours = keep_alive_value(Duration::from_millis(10_900)).expect("it can be said");
        assert_eq!(read(ours.to_str().expect("text")), Some(Duration::from_secs(10)));
        assert_eq!(keep_alive_value(Duration::from_millis(999)), None);
    }
}
