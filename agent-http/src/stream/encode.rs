//! Event encoders, one per format. They append to the output buffer of the body.

use std::time::Duration;

use agent_client::relay::EventWriter;
use agent_core::event::Event;
use agent_core::ids::RunId;

use super::completion::{ChatCompletion, CompletionEncoder};
use super::json::write_json;
use super::n8n;
use super::ui_message::UiMessageEncoder;

/// Time without an event after which a keep-alive is sent to the client.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Encoder of one run's events in one format.
#[derive(Debug)]
pub(super) enum Encoder {
    /// Newline-delimited JSON: one event per line.
    Ndjson(EventWriter),
    /// Server-sent events, with the sequence number as `id:`.
    Sse { next: u64, events: EventWriter },
    /// The AI SDK's chunks. Boxed, as the other variants have almost no state.
    UiMessage(Box<UiMessageEncoder>),
    /// The lines of n8n's chat widget.
    N8n,
    /// The chunks of a chat completion.
    Completion(Box<CompletionEncoder>),
}

impl Encoder {
    pub(super) fn ndjson(events: EventWriter) -> Self {
        Self::Ndjson(events)
    }

    pub(super) fn sse(events: EventWriter) -> Self {
        Self::sse_from(0, events)
    }

    /// Creates an encoder of the events from number `next` on.
    pub(super) fn sse_from(next: u64, events: EventWriter) -> Self {
        Self::Sse { next, events }
    }

    pub(super) fn ui_message(turn_id: Option<RunId>) -> Self {
        Self::UiMessage(Box::new(UiMessageEncoder::new(turn_id)))
    }

    pub(super) fn completion(completion: ChatCompletion) -> Self {
        Self::Completion(Box::new(CompletionEncoder::new(completion)))
    }

    /// Appends an event.
    pub(super) fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Self::Ndjson(events) => {
                events.write(event, out);
                out.push(b'\n');
            }
            Self::Sse { next, events } => {
                out.extend_from_slice(b"id: ");
                write_json(out, next);
                *next += 1;
                out.extend_from_slice(b"\ndata: ");
                events.write(event, out);
                out.extend_from_slice(b"\n\n");
            }
            Self::UiMessage(chunks) => chunks.encode(event, out),
            Self::N8n => n8n::write_line(event, out),
            Self::Completion(chunks) => chunks.encode(event, out),
        }
    }

    /// Appends a keep-alive: a comment, or an empty line.
    pub(super) fn keep_alive(&self, is_queued: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Ndjson(_) | Self::N8n => b"\n",
            Self::Sse { .. } | Self::UiMessage(_) | Self::Completion(_) if is_queued => b": queued\n\n",
            Self::Sse { .. } | Self::UiMessage(_) | Self::Completion(_) => b": running\n\n",
        });
    }

    /// Appends the format's end marker.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        if let Self::UiMessage(_) | Self::Completion(_) = self {
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
    }
}
