//! A run's events as an HTTP answer in four framings, and back from another service's lines.
//!
//! | [`Framing`] | body |
//! |---|---|
//! | `Ndjson` | one AG-UI event a line |
//! | `Sse` | the same events as `data:` frames, numbered from 0 by `id:` |
//! | `UiMessage` | the AI SDK's UI message stream, version 1 |
//! | `Json` | one object after the run, see [`Collected`] |
//!
//! [`negotiate()`] chooses, [`into_response`] answers, [`Decoder`] reads. A streamed body is one task
//! with its source: no channel and no timer stands between an event and the socket, see
//! [`StreamBody`] for when it writes. Dropping the body drops the run.

use std::time::Duration;

use agent_core::error::Failure;
use agent_core::event::EventStream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;

use crate::request::Handled;
use crate::serve::EntersSpan;

mod body;
mod collect;
mod decode;
mod encode;
mod negotiate;
mod ui_message;
mod watch;

pub use body::StreamBody;
pub(crate) use collect::collect;
pub use collect::{Collected, CollectedCall};
pub use decode::Decoder;
pub use negotiate::{Framing, NegotiationError, negotiate};

use encode::Encoder;
use watch::Watched;

/// The bounds of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// How long a run may go without an event.
    pub idle_timeout: Duration,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// How many bytes of text, arguments and results [`Framing::Json`] collects.
    pub max_collected_bytes: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(120),
            run_timeout: Duration::from_secs(30 * 60),
            max_collected_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Answers with a run. Streams begin at once; [`Framing::Json`] waits for the run's end.
///
/// Must be called inside a tokio runtime with time enabled.
///
/// # Errors
/// Only [`Framing::Json`] gives any: the run's failure, which is then the HTTP status. In the other
/// framings a failure is part of the stream.
pub async fn into_response(
    framing: Framing,
    events: EventStream,
    limits: &StreamLimits,
) -> Result<Response<StreamBody>, Failure> {
    let events = Watched::new(events, limits);
    let encoder = match framing {
        Framing::Ndjson => Encoder::ndjson(),
        Framing::Sse => Encoder::sse(),
        Framing::UiMessage => Encoder::ui_message(),
        Framing::Json => {
            let collected = collect(events, limits.max_collected_bytes).await?;
            return Ok(respond(framing, StreamBody::whole(collected.to_json())));
        }
    };
    Ok(respond(framing, StreamBody::new(events, encoder)))
}

/// Answers with a run as a handler does; see [`into_response`].
///
/// # Errors
/// As [`into_response`].
pub async fn answer(framing: Framing, events: EventStream, limits: &StreamLimits) -> Handled {
    let response = into_response(framing, events, limits).await?;
    let mut response = response.map(|body| body.map_err(|never| match never {}).boxed_unsync());
    response.extensions_mut().insert(EntersSpan);
    Ok(response)
}

fn respond(framing: Framing, body: StreamBody) -> Response<StreamBody> {
    let mut response = Response::new(body);
    set_headers(framing, response.headers_mut());
    response
}

fn set_headers(framing: Framing, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if framing != Framing::Json {
        // Proxies of the nginx family would otherwise hold tokens back until a buffer is full.
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    }
    if framing == Framing::UiMessage {
        let version = HeaderName::from_static("x-vercel-ai-ui-message-stream");
        headers.insert(version, HeaderValue::from_static("v1"));
    }
}

#[cfg(test)]
mod tests;
