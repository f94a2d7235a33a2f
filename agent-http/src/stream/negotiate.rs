//! Content negotiation by the `format` parameter or the `Accept` headers (RFC 9110).

use http::HeaderMap;
use http::header::ACCEPT;
use mediatype::{MediaType, MediaTypeList, Name, ReadParams};

use crate::error::{Code, HttpError};

const Q: Name<'static> = Name::new_unchecked("q");

/// Format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// AG-UI events, one per line. The default.
    Ndjson,
    /// AG-UI events as server-sent events.
    Sse,
    /// The AI SDK's UI message stream, version 1. Selected by `format` only.
    UiMessage,
    /// The text as the lines that n8n's chat widget reads. Selected by `format` only.
    N8n,
    /// One object after the end of the run.
    Json,
}

impl Framing {
    /// Returns the media type of the response.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Sse | Self::UiMessage => "text/event-stream",
            // The media type that the widget asks for.
            Self::N8n => "text/plain; charset=utf-8",
            Self::Json => "application/json",
        }
    }

    /// Returns the framing for the value of a `format` parameter.
    fn from_format(format: &str) -> Option<Self> {
        match format {
            "ndjson" => Some(Self::Ndjson),
            "sse" => Some(Self::Sse),
            "ui-message" => Some(Self::UiMessage),
            "n8n" => Some(Self::N8n),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Error of content negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// `Accept` matches none of the available media types: 406 `NOT_ACCEPTABLE`.
    #[error(
        "no acceptable media type; supported are application/x-ndjson, text/event-stream and application/json"
    )]
    NotAcceptable,
    /// `format` is unknown: 400 `INVALID_REQUEST`.
    #[error("unknown format; supported are ndjson, sse, ui-message, n8n and json")]
    UnknownFormat,
}

impl From<NegotiationError> for HttpError {
    fn from(error: NegotiationError) -> Self {
        let code = match error {
            NegotiationError::NotAcceptable => Code::NotAcceptable,
            NegotiationError::UnknownFormat => Code::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

/// Selects the format of a response.
///
/// The query parameter `format` takes precedence. Otherwise the highest `q` of all `Accept` headers wins, with ties
/// in the order NDJSON, SSE, JSON. `*/*` and `application/*` count as NDJSON and `text/*` as SSE, so that
/// `application/json, text/plain, */*`, the default of many clients, selects the stream. A type with `q=0` is
/// excluded, and a wildcard then counts as the next format. List members that cannot be parsed and empty headers are
/// ignored.
///
/// # Errors
/// Returns [`NegotiationError::UnknownFormat`] or [`NegotiationError::NotAcceptable`].
pub fn negotiate(headers: &HeaderMap, format: Option<&str>) -> Result<Framing, NegotiationError> {
    if let Some(format) = format {
        return Framing::from_format(format).ok_or(NegotiationError::UnknownFormat);
    }
    let mut has_accept = false;
    let mut preferences = Preferences::default();
    for header in headers.get_all(ACCEPT) {
        has_accept |= !header.as_bytes().trim_ascii().is_empty();
        let ranges = header.to_str().unwrap_or_default();
        for range in MediaTypeList::new(ranges).flatten() {
            preferences.add(&range);
        }
    }
    if has_accept { preferences.best().ok_or(NegotiationError::NotAcceptable) } else { Ok(Framing::Ndjson) }
}

/// Formats that `Accept` can select, in the order of preference at equal weight.
const FRAMINGS_BY_PREFERENCE: [Framing; 3] = [Framing::Ndjson, Framing::Sse, Framing::Json];

/// Weights in thousandths, indexed as [`FRAMINGS_BY_PREFERENCE`].
#[derive(Debug, Default)]
struct Preferences {
    named: [Option<u16>; FRAMINGS_BY_PREFERENCE.len()],
    /// Weight of `*/*` and `application/*`, for the first format that is not excluded.
    wildcard: u16,
    /// Weight of `text/*`, for SSE.
    text_wildcard: u16,
}

impl Preferences {
    fn add(&mut self, range: &MediaType<'_>) {
        let Some(weight) = weight(range) else { return };
        let (ty, subty) = (range.ty.as_str().to_ascii_lowercase(), range.subty.as_str().to_ascii_lowercase());
        let framing = match (&*ty, &*subty) {
            ("*" | "application", "*") => return self.wildcard = self.wildcard.max(weight),
            ("text", "*") => return self.text_wildcard = self.text_wildcard.max(weight),
            ("application", "x-ndjson") => 0,
            ("text", "event-stream") => 1,
            ("application", "json") => 2,
            _ => return,
        };
        self.named[framing] = self.named[framing].max(Some(weight));
    }

    fn best(&self) -> Option<Framing> {
        let mut wildcard = self.wildcard;
        let mut best = (0, None);
        for (framing, named) in FRAMINGS_BY_PREFERENCE.into_iter().zip(self.named) {
            if named == Some(0) {
                continue;
            }
            let text = if framing == Framing::Sse { self.text_wildcard } else { 0 };
            let weight = named.unwrap_or(0).max(text).max(std::mem::take(&mut wildcard));
            if weight > best.0 {
                best = (weight, Some(framing));
            }
        }
        best.1
    }
}

/// Returns a media range's `q` in thousandths; `None` if it is invalid by RFC 9110, section 12.4.2.
fn weight(range: &MediaType<'_>) -> Option<u16> {
    let Some(q) = range.get_param(Q) else { return Some(1000) };
    let (whole, fraction) = q.as_str().split_once('.').unwrap_or((q.as_str(), ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{fraction:0<3}").parse().ok()?;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NDJSON: Option<Framing> = Some(Framing::Ndjson);
    const SSE: Option<Framing> = Some(Framing::Sse);
    const JSON: Option<Framing> = Some(Framing::Json);

    fn accept(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (ACCEPT, value.parse().expect("a header value"))).collect()
    }

    #[test]
    fn accept_chooses_the_framing() {
        let cases: &[(&[&str], Option<Framing>)] = &[
            (&[], NDJSON),
            (&[""], NDJSON),
            (&["  "], NDJSON),
            (&["*/*"], NDJSON),
            (&["application/*"], NDJSON),
            (&["text/*"], SSE),
            (&["application/x-ndjson"], NDJSON),
            (&["APPLICATION/X-NDJSON"], NDJSON),
            (&["text/event-stream"], SSE),
            (&["Text/Event-Stream"], SSE),
            (&["application/json"], JSON),
            (&["application/json; charset=utf-8"], JSON),
            (&["application/json, text/plain, */*"], NDJSON),
            (&["application/json", "text/plain", "*/*"], NDJSON),
            (&["application/json, text/plain"], JSON),
            (&["application/json,text/event-stream"], SSE),
            (&["text/event-stream, application/json"], SSE),
            (&["application/json, application/x-ndjson"], NDJSON),
            (&["text/event-stream, */*"], NDJSON),
            (&["text/event-stream, */*;q=0.1"], SSE),
            (&["application/json, */*;q=0.8"], JSON),
            (&["application/json;q=0.5, */*;q=0.8"], NDJSON),
            (&["application/json;q=0.9, text/event-stream;q=0.8"], JSON),
            (&["application/json;q=0.8, text/event-stream;q=0.8"], SSE),
            (&["application/json;q=0.001"], JSON),
            (&["application/json; Q=0.5, text/event-stream; q=0.4"], JSON),
            (&["text/event-stream;q=0.5", "application/json;q=0.6"], JSON),
            (&["text/event-stream;q=0, */*"], NDJSON),
            (&["application/x-ndjson;q=0, */*"], SSE),
            (&["application/x-ndjson;q=0, text/event-stream;q=0, */*"], JSON),
            (&["application/x-ndjson;q=0, text/event-stream;q=0.0, application/json;q=0.000, */*"], None),
            (&["application/x-ndjson;q=0"], None),
            (&["application/json;q=0"], None),
            (&["*/*;q=0"], None),
            (&["*/*;q=0, application/json"], JSON),
            (&["text/event-stream;q=0, text/*"], None),
            (&["application/x-ndjson;q=0.2, */*"], NDJSON),
            (&["application/json;q=1.000, */*;q=0.999"], JSON),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"], NDJSON),
            (&["text/html, application/xhtml+xml"], None),
            (&["text/plain"], None),
            (&["application/ld+json"], None),
            (&["image/*"], None),
            (&["nonsense"], None),
            (&["nonsense, application/json"], JSON),
            (&[",, ,application/json,"], JSON),
            (&["application/json;q=2"], None),
            (&["application/json;q=1.001"], None),
            (&["application/json;q=0.1234"], None),
            (&["application/json;q=high, text/event-stream;q=0.1"], SSE),
            (&["application/json;q=, text/event-stream;q=0.1"], SSE),
            (&["application/json;note=\"a,b;q=0\""], JSON),
        ];
        assert!(cases.len() >= 40);
        for (values, expected) in cases {
            assert_eq!(negotiate(&accept(values), None).ok(), *expected, "{values:?}");
        }
    }

    #[test]
    fn a_header_that_is_not_text_is_not_acceptable() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, http::HeaderValue::from_bytes(b"\xff").expect("opaque bytes"));
        assert_eq!(negotiate(&headers, None), Err(NegotiationError::NotAcceptable));
    }

    #[test]
    fn format_wins_over_accept() {
        let cases = [
            ("ndjson", Ok(Framing::Ndjson)),
            ("sse", Ok(Framing::Sse)),
            ("ui-message", Ok(Framing::UiMessage)),
            ("n8n", Ok(Framing::N8n)),
            ("json", Ok(Framing::Json)),
            ("", Err(NegotiationError::UnknownFormat)),
            ("SSE", Err(NegotiationError::UnknownFormat)),
            ("xml", Err(NegotiationError::UnknownFormat)),
        ];
        for (format, expected) in cases {
            for values in [&["application/json"][..], &["text/html"], &[]] {
                assert_eq!(negotiate(&accept(values), Some(format)), expected, "{format} {values:?}");
            }
        }
    }
}
