//! Events to bytes, one encoder a framing, appended to the buffer that is about to be written.

use agent_core::event::Event;
use serde::Serialize;

use super::ui_message::UiMessage;

/// Turns the events of one run into one framing.
#[derive(Debug)]
pub(super) enum Encoder {
    /// One event a line.
    Ndjson,
    /// Frames with their event's number.
    Sse { next: u64 },
    /// The AI SDK's chunks. Boxed, as the others have next to no state.
    UiMessage(Box<UiMessage>),
}

impl Encoder {
    pub(super) fn ndjson() -> Self {
        Self::Ndjson
    }

    pub(super) fn sse() -> Self {
        Self::Sse { next: 0 }
    }

    pub(super) fn ui_message() -> Self {
        Self::UiMessage(Box::default())
    }

    /// Appends an event.
    pub(super) fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Self::Ndjson => {
                write_json(out, event);
                out.push(b'\n');
            }
            Self::Sse { next } => {
                out.extend_from_slice(b"id: ");
                write_json(out, next);
                *next += 1;
                out.push(b'\n');
                write_frame(out, event);
            }
            Self::UiMessage(chunks) => chunks.encode(event, out),
        }
    }

    /// Appends what the framing says after the last event.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        if let Self::UiMessage(_) = self {
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
    }
}

/// Appends a value as the one `data:` line of a server-sent event. JSON from serde has no newline.
pub(super) fn write_frame(out: &mut Vec<u8>, value: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    write_json(out, value);
    out.extend_from_slice(b"\n\n");
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value)
        .expect("plain data with string keys serialises, and a Vec takes any write");
}
