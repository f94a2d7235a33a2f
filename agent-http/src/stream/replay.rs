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
use tokio::time::{Instant, timeout_at};

use super::encode::{Encoder, KEEP_ALIVE_INTERVAL};
use super::{Framing, StreamBody, StreamLimits, collect, set_headers};
use crate::error::HttpError;
use crate::service::HandlerResult;

impl Framing {
    /// Returns the number of the event from which a log is read to show the events from `first` on. In some formats
    /// an event's form depends on those before.
    pub(crate) fn first_read(self, first: u64) -> u64 {
        match self {
            Self::UiMessage | Self::Json => 0,
            Self::Ndjson | Self::Sse | Self::N8n => first,
        }
    }
}

/// Events of a log that follow each other.
pub(crate) struct LogEvents {
    /// Number of the first one.
    pub(crate) first: u64,
    pub(crate) events: Vec<Event>,
}

impl LogEvents {
    /// Returns the events before the one with a number.
    pub(crate) fn before(number: u64, events: Vec<Event>) -> Self {
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        Self { first: number.saturating_sub(count), events }
    }
}

/// Creates the response with the events of a run's log from number `first` on; `log` begins at [`Framing::first_read`] of
/// it. If the log ends before `first`, since later events were lost with the run's process, its last event is shown. An error of
/// the log cuts the stream. While no event arrives, keep-alives are sent: those of a queued run, if
/// `is_queued`, until its first event.
///
/// # Errors
/// For [`Framing::Json`] those of the run and of the log.
pub(crate) async fn replay_response(
    framing: Framing,
    first: u64,
    turn_id: RunId,
    is_queued: bool,
    log: impl Stream<Item = Result<LogEvents, HttpError>> + Send + 'static,
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
    let replay = Replay { encoder, next: framing.first_read(first), first, is_queued, is_over: false };
    let frames = stream::unfold((Box::pin(log), replay), |(mut log, mut replay)| async move {
        let silent_until = Instant::now() + KEEP_ALIVE_INTERVAL;
        loop {
            let frame = match timeout_at(silent_until, log.next()).await {
                Ok(Some(Ok(events))) => replay.encode(&events),
                // The response has started, so a log without its end can only end the response.
                Ok(None) => return None,
                Ok(Some(Err(error))) => return Some((Err(error.into()), (log, replay))),
                Err(_) => replay.keep_alive(),
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
    /// True until a run that is queued has events.
    is_queued: bool,
    is_over: bool,
}

impl Replay {
    fn encode(&mut self, LogEvents { first, events }: &LogEvents) -> Bytes {
        let mut out = Vec::new();
        self.is_queued = false;
        if *first < self.next {
            self.restart(*first);
        }
        for event in events {
            // The client has the encoding of what came before, if not all of it was lost, and needs the end in any case.
            if self.next == self.first || (event.is_terminal() && self.next < self.first) {
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

    /// Continues with an earlier event, since those that the client has seen were lost.
    fn restart(&mut self, first: u64) {
        (self.next, self.first) = (first, self.first.min(first));
        if let Encoder::Sse { next, .. } = &mut self.encoder {
            *next = first;
        }
    }

    fn keep_alive(&self) -> Bytes {
        let mut out = Vec::new();
        self.encoder.keep_alive(self.is_queued, &mut out);
        out.into()
    }
}

async fn collected_response(
    log: impl Stream<Item = Result<LogEvents, HttpError>> + Send + 'static,
    limits: &StreamLimits,
) -> HandlerResult {
    let log_error = Arc::new(Mutex::new(None));
    let error_slot = log_error.clone();
    let events = log.flat_map(move |events| {
        stream::iter(events.map(|log| log.events).unwrap_or_else(|error| {
            // The log ends with its error.
            *error_slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Vec::new()
        }))
    });
    let collected = collect(Box::pin(events), limits.max_collected_bytes).await;
    if let Some(error) = log_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let body = StreamBody::complete(collected?.to_json());
    Ok(super::build_response(Framing::Json, body)
        .map(|body| body.map_err(|never| match never {}).boxed_unsync()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The log of a run whose first event comes after 40 seconds, and its end 40 seconds later.
    fn log() -> impl Stream<Item = Result<LogEvents, HttpError>> + Send + 'static {
        stream::iter((0..).zip([started(), ended()])).then(|(first, event)| async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            Ok(LogEvents { first, events: vec![event] })
        })
    }

    fn started() -> Event {
        Event::RunStarted { thread_id: "t".into(), run_id: "r".into() }
    }

    fn ended() -> Event {
        Event::RunError { message: "m".into(), code: "C".into(), usage: Vec::new() }
    }

    async fn frames(framing: Framing, first: u64, is_queued: bool) -> Vec<String> {
        frames_of(log(), framing, first, is_queued).await
    }

    async fn frames_of(
        log: impl Stream<Item = Result<LogEvents, HttpError>> + Send + 'static,
        framing: Framing,
        first: u64,
        is_queued: bool,
    ) -> Vec<String> {
        let limits = StreamLimits::default();
        let response = replay_response(framing, first, "r".into(), is_queued, log, &limits).await;
        let mut body = response.expect("the head comes at once").into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            frames.push(String::from_utf8(data.to_vec()).expect("text"));
        }
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_gets_keep_alives_while_no_event_arrives() {
        for (framing, queued, running) in [
            (Framing::Sse, ": queued\n\n", ": running\n\n"),
            (Framing::UiMessage, ": queued\n\n", ": running\n\n"),
            (Framing::Ndjson, "\n", "\n"),
            (Framing::N8n, "\n", "\n"),
        ] {
            let shown = frames(framing, 0, true).await;
            assert_eq!(shown[..2], [queued, queued], "every 15 seconds: {shown:?}");
            let is_sign = |frame: &&String| **frame == queued || **frame == running;
            let signs: Vec<_> = shown[2..].iter().filter(is_sign).collect();
            assert!(signs.len() >= 2 && signs.iter().all(|sign| **sign == running), "{shown:?}");
            assert_eq!(frames(framing, 0, false).await[..2], [running, running], "{framing:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_has_seen_lost_events_gets_the_end() {
        let end = || stream::iter([Ok(LogEvents { first: 1, events: vec![ended()] })]);
        let shown = frames_of(end(), Framing::Sse, 9, false).await.concat();
        assert!(shown.starts_with("id: 1\ndata: {\"type\":\"RUN_ERROR\""), "{shown}");
        let shown = frames_of(end(), Framing::Ndjson, 9, false).await.concat();
        assert!(shown.starts_with("{\"type\":\"RUN_ERROR\"") && shown.lines().count() == 1, "{shown}");
        // This format is encoded from the first event on.
        let whole = stream::iter([Ok(LogEvents { first: 0, events: vec![started(), ended()] })]);
        let shown = frames_of(whole, Framing::UiMessage, 9, false).await.concat();
        assert!(shown.contains("\"type\":\"error\"") && !shown.contains("\"type\":\"start\""), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alives_change_no_event() {
        let shown = frames(Framing::Sse, 0, true).await;
        let events = shown.iter().filter(|frame| !frame.starts_with(':')).cloned();
        let events: Vec<String> = events.collect();
        assert_eq!(events.len(), 2, "{shown:?}");
        assert!(events[0].starts_with("id: 0\ndata: {\"type\":\"RUN_STARTED\""), "{events:?}");
        assert!(events[1].starts_with("id: 1\ndata: {\"type\":\"RUN_ERROR\""), "{events:?}");
        // Events that the client already has are left out, and the time until the next event is filled.
        let remaining_frames = frames(Framing::UiMessage, 1, true).await;
        assert!(
            remaining_frames.iter().filter(|frame| frame.starts_with(": ")).count() >= 4,
            "{remaining_frames:?}"
        );
        assert!(!remaining_frames.concat().contains("\"type\":\"start\""), "{remaining_frames:?}");
    }
}
