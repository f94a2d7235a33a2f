//! Event streams as HTTP responses in six formats.
//!
//! | [`Framing`] | body |
//! |---|---|
//! | `Ndjson` | one AG-UI event per line |
//! | `Sse` | the same events as `data:` frames, numbered from 0 by `id:` |
//! | `UiMessage` | the AI SDK's UI message stream, version 1 |
//! | `N8n` | the text as the lines of n8n's chat widget |
//! | `Json` | one object after the end of the run: its text, tool calls and usage |
//!
//! The sixth is the stream of a chat completion in OpenAI's API (`completion_response`), at endpoints of its own.
//!
//! [`negotiate()`] selects the format, [`into_response`] encodes. A streamed body runs in one
//! task with its source, without channels; [`StreamBody`] describes when it writes. Dropping the body drops the run.

use agent_client::relay::EventWriter;
use agent_core::error::AgentError;
use agent_core::event::EventStream;
use agent_core::ids::RunId;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;

use crate::body::{EntersSpan, ResponseBody};
use crate::error::HttpError;
use crate::service::HandlerResult;

mod body;
mod collect;
mod completion;
mod encode;
mod json;
mod limits;
mod n8n;
mod negotiate;
mod record;
mod replay;
mod source;
mod timer;
mod ui_message;
mod watch;

pub use body::StreamBody;
pub(crate) use collect::CollectedRun;
pub(crate) use completion::ChatCompletion;
pub use limits::StreamLimits;
pub use negotiate::{Framing, NegotiationError, negotiate};
pub(crate) use record::{DisconnectOutcome, RunRecorder};
pub(crate) use replay::{LogEvents, replay_response};
pub(crate) use source::RunSource;
pub(crate) use timer::{StreamTimeout, StreamTimer};

use collect::collect;
use encode::Encoder;
use watch::{AttachedStream, TimeoutStream};

/// Creates the response for a run. Streams begin at once; [`Framing::Json`] waits for the end of the run.
///
/// Must be called inside a tokio runtime with time enabled.
///
/// # Errors
/// Only [`Framing::Json`] returns an error: that of the run, which then determines the HTTP status. In the other
/// formats an error is part of the stream.
pub async fn into_response(
    framing: Framing,
    events: EventStream,
    limits: &StreamLimits,
) -> Result<Response<StreamBody>, AgentError> {
    respond(framing, TimeoutStream::new(events, limits), None, limits).await
}

/// Encodes the events of a run as a response.
async fn respond(
    framing: Framing,
    events: TimeoutStream,
    turn_id: Option<RunId>,
    limits: &StreamLimits,
) -> Result<Response<StreamBody>, AgentError> {
    let writer = EventWriter::new(limits.relay.event_prefix);
    let encoder = match framing {
        Framing::Ndjson => Encoder::ndjson(writer),
        Framing::Sse => Encoder::sse(writer),
        Framing::UiMessage => Encoder::ui_message(turn_id),
        Framing::N8n => Encoder::N8n,
        Framing::Json => {
            let collected = collect(AttachedStream(Some(events)), limits.max_collected_bytes).await?;
            return Ok(build_response(framing, StreamBody::complete(collected.to_json())));
        }
    };
    Ok(build_response(framing, StreamBody::new(events, encoder, &limits.relay)))
}

/// Creates the response for a run with the body type that handlers return; see [`into_response`]. `recorder` records
/// the run.
///
/// # Errors
/// Same as [`into_response`], and that of a queued run that could not begin.
pub(crate) async fn run_response(
    framing: Framing,
    source: impl Into<RunSource>,
    recorder: Option<Box<dyn RunRecorder>>,
    limits: &StreamLimits,
) -> HandlerResult {
    let turn_id = recorder.as_ref().and_then(|recorder| recorder.turn_id());
    let source = source.into();
    let queue_error = source.queue_error();
    let events = TimeoutStream::new(source, limits).with_recorder(recorder);
    let response =
        respond(framing, events, turn_id, limits).await.map_err(|error| queue_error.take_or(error))?;
    Ok(into_handled(response, limits))
}

/// Converts the response to the body type that handlers return.
fn into_handled(response: Response<StreamBody>, limits: &StreamLimits) -> Response<ResponseBody> {
    let mut response = response.map(|body| body.map_err(|never| match never {}).boxed_unsync());
    if limits.relay.lazy_span {
        response.extensions_mut().insert(EntersSpan);
    }
    response
}

/// Creates the streamed response for a run as chunks of a chat completion. `recorder` records the run.
///
/// Must be called inside a tokio runtime with time enabled.
pub(crate) fn completion_response(
    completion: ChatCompletion,
    events: RunSource,
    recorder: Option<Box<dyn RunRecorder>>,
    limits: &StreamLimits,
) -> Response<ResponseBody> {
    let events = TimeoutStream::new(events, limits).with_recorder(recorder);
    let body = StreamBody::new(events, Encoder::completion(completion), &limits.relay);
    into_handled(build_response(Framing::Sse, body), limits)
}

/// Runs a run without a client.
///
/// Must be called inside a tokio runtime with time enabled.
pub(crate) fn run_detached(events: RunSource, recorder: Box<dyn RunRecorder>, limits: &StreamLimits) {
    TimeoutStream::new(events, limits).with_recorder(Some(recorder)).client_disconnected();
}

/// Runs a run without a client, and collects it to its end. `max_bytes` bounds text, arguments and results together. If
/// the future is dropped, the run's client has disconnected.
///
/// # Errors
/// The error of the run, and that of a queued one that could not begin; a run that is too long.
pub(crate) async fn collect_run(
    events: RunSource,
    recorder: Option<Box<dyn RunRecorder>>,
    limits: &StreamLimits,
    max_bytes: usize,
) -> Result<CollectedRun, HttpError> {
    let queue_error = events.queue_error();
    let events = TimeoutStream::new(events, limits).with_recorder(recorder);
    collect(AttachedStream(Some(events)), max_bytes).await.map_err(|error| queue_error.take_or(error))
}

fn build_response(framing: Framing, body: StreamBody) -> Response<StreamBody> {
    let mut response = Response::new(body);
    set_headers(framing, response.headers_mut());
    response
}

fn set_headers(framing: Framing, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if framing != Framing::Json {
        // nginx and similar proxies would otherwise buffer tokens until a buffer is full.
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    }
    if framing == Framing::UiMessage {
        let version = HeaderName::from_static("x-vercel-ai-ui-message-stream");
        headers.insert(version, HeaderValue::from_static("v1"));
    }
}

#[cfg(test)]
mod tests;
