//! Responses with the log of a run: the bytes that follow an event in the first response, in any format.

use std::sync::{Arc, Mutex, PoisonError};

use agent_client::relay::EventWriter;
use agent_core::event::Event;
use agent_core::ids::RunId;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;

use super::encode::Encoder;
use super::{Framing, StreamBody, StreamLimits, collect, set_headers};
use crate::error::HttpError;
use crate::service::HandlerResult;

impl Framing {
    /// Returns the number of the event from which on a log is read to show the events from `first` on. In some formats
    /// an event's form depends on those before.
    pub(crate) fn first_read(self, first: u64) -> u64 {
        match self {
            Self::UiMessage | Self::Json => 0,
            Self::Ndjson | Self::Sse | Self::N8n => first,
        }
    }
}

/// Creates the response with the events of the log of a run of a turn, which are read from [`Framing::first_read`] of `first` on. An error of
/// the log cuts the stream.
///
/// # Errors
/// For [`Framing::Json`] those of the run and of the log.
pub(crate) async fn replay_response(
    framing: Framing,
    first: u64,
    turn_id: RunId,
    log: impl Stream<Item = Result<Vec<Event>, HttpError>> + Send + 'static,
    limits: &StreamLimits,
) -> HandlerResult {
    if framing == Framing::Json {
        return collected_response(log, limits).await;
    }
    let writer = EventWriter::new(limits.relay.event_prefix);
    let encoder = match framing {
        Framing::Ndjson => Encoder::ndjson(writer),
        Framing::Sse => Encoder::sse_from(first, writer),
        Framing::UiMessage => Encoder::ui_message(Some(turn_id)),
        Framing::N8n | Framing::Json => Encoder::N8n,
    };
    let replay = Replay { encoder, next: framing.first_read(first), first, is_over: false };
    let frames = stream::unfold((Box::pin(log), replay), |(mut log, mut replay)| async move {
        loop {
            let frame = match log.next().await {
                None if replay.is_over => return None,
                Some(Ok(events)) => replay.encode(&events),
                // The response has begun, so that the client is told by its end.
                None => return None,
                Some(Err(error)) => return Some((Err(error.into()), (log, replay))),
            };
            if !frame.is_empty() {
                return Some((Ok(Frame::data(frame)), (log, replay)));
            }
        }
    });
    let mut response = Response::new(BodyExt::boxed_unsync(http_body_util::StreamBody::new(frames)));
    set_headers(framing, response.headers_mut());
    Ok(response)
}

/// Encoding of a log from an event on.
struct Replay {
    encoder: Encoder,
    /// Number of the next event of the log.
    next: u64,
    /// Number of the first event to show.
    first: u64,
    is_over: bool,
}

impl Replay {
    fn encode(&mut self, events: &[Event]) -> Bytes {
        let mut out = Vec::new();
        for event in events {
            if self.next == self.first {
                // The client has the encoding of what came before.
                out.clear();
            }
            self.encoder.encode(event, &mut out);
            self.next += 1;
            if event.is_terminal() {
                self.encoder.finish(&mut out);
                self.is_over = true;
            }
        }
        if self.next <= self.first && !self.is_over {
            out.clear();
        }
        out.into()
    }
}

async fn collected_response(
    log: impl Stream<Item = Result<Vec<Event>, HttpError>> + Send + 'static,
    limits: &StreamLimits,
) -> HandlerResult {
    let failure = Arc::new(Mutex::new(None));
    let noted = failure.clone();
    let events = log.flat_map(move |events| {
        stream::iter(events.unwrap_or_else(|error| {
            // The log ends with its error.
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Vec::new()
        }))
    });
    let collected = collect(Box::pin(events), limits.max_collected_bytes).await;
    if let Some(error) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let body = StreamBody::complete(collected?.to_json());
    Ok(super::build_response(Framing::Json, body)
        .map(|body| body.map_err(|never| match never {}).boxed_unsync()))
}
