//! Event encoders, one per format. They append to the output buffer of the body.

use std::mem::{self, Discriminant};

use agent_core::event::{Event, Id};

use super::json::write_json;
use super::ui_message::UiMessageEncoder;

/// Encoder of one run's events in one format.
#[derive(Debug)]
pub(super) enum Encoder {
    /// Newline-delimited JSON: one event per line.
    Ndjson(EventPrefixCache),
    /// Server-sent events, with the sequence number as `id:`.
    Sse { next: u64, lead: EventPrefixCache },
    /// The AI SDK's chunks. Boxed, as the other variants have almost no state.
    UiMessage(Box<UiMessageEncoder>),
}

impl Encoder {
    pub(super) fn ndjson() -> Self {
        Self::Ndjson(EventPrefixCache::default())
    }

    pub(super) fn sse() -> Self {
        Self::Sse { next: 0, lead: EventPrefixCache::default() }
    }

    pub(super) fn ui_message() -> Self {
        Self::UiMessage(Box::default())
    }

    /// Appends an event.
    pub(super) fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Self::Ndjson(lead) => {
                lead.write_event(event, out);
                out.push(b'\n');
            }
            Self::Sse { next, lead } => {
                out.extend_from_slice(b"id: ");
                write_json(out, next);
                *next += 1;
                out.extend_from_slice(b"\ndata: ");
                lead.write_event(event, out);
                out.extend_from_slice(b"\n\n");
            }
            Self::UiMessage(chunks) => chunks.encode(event, out),
        }
    }

    /// Appends the format's end marker.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        if let Self::UiMessage(_) = self {
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
    }
}

/// Cache of the serialized event up to its delta, which is the same for all deltas of one message, so that it is
/// serialized once per message.
#[derive(Debug, Default)]
pub(super) struct EventPrefixCache {
    key: Option<(Discriminant<Event>, Id)>,
    json: Vec<u8>,
}

impl EventPrefixCache {
    /// Appends an event as JSON.
    fn write_event(&mut self, event: &Event, out: &mut Vec<u8>) {
        let Some((id, delta)) = event.delta() else { return write_json(out, event) };
        let kind = mem::discriminant(event);
        if self.key.as_ref().is_some_and(|(of, to)| *of == kind && to == id) {
            out.extend_from_slice(&self.json);
            write_json(out, &delta);
            out.push(b'}');
        } else {
            let begin = out.len();
            write_json(out, event);
            // The delta is an event's last member.
            let delta = serde_json::to_string(delta).expect("a string serialises");
            self.json = out[begin..out.len() - delta.len() - 1].to_vec();
            self.key = Some((kind, id.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_written_as_any_event_is_whatever_came_before() {
        let id = |id: &str| Id::from(id);
        let text =
            |to: &str, delta: &str| Event::TextMessageContent { message_id: id(to), delta: delta.into() };
        let thought = |to: &str, delta: &str| Event::ReasoningMessageContent {
            message_id: id(to),
            delta: delta.into(),
        };
        let args = |to: &str, delta: &str| Event::ToolCallArgs { tool_call_id: id(to), delta: delta.into() };
        let events = [
            text("m", "Hi \"you\"\n"),
            text("m", "}"),
            text("m", "\"delta\":\"😀\\"),
            thought("m", "the same name"),
            thought("m\"2", "hm"),
            thought("m\"2", ""),
            args("c1", "{\"a\":"),
            args("c1", "1}"),
            args("c2", "{}"),
            Event::TextMessageEnd { message_id: id("m") },
            text("m", "again"),
        ];
        let mut lead = EventPrefixCache::default();
        for event in events {
            let mut out = b"before".to_vec();
            lead.write_event(&event, &mut out);
            let expected = serde_json::to_string(&event).expect("it serialises");
            assert_eq!(String::from_utf8(out).expect("UTF-8"), format!("before{expected}"));
        }
    }
}
