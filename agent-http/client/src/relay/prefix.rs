//! JSON writer of events that serializes the common part of a message's deltas once.

use std::mem::{self, Discriminant};

use agent_core::event::{Event, Id};
use serde::Serialize;

/// Writes the events of one run as JSON.
#[derive(Debug)]
pub struct EventWriter {
    /// `None` without the optimization.
    prefix: Option<EventPrefixCache>,
}

impl EventWriter {
    /// Creates a writer; `cached` selects the optimization.
    pub fn new(cached: bool) -> Self {
        Self { prefix: cached.then(EventPrefixCache::default) }
    }

    /// Appends an event as JSON.
    pub fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        match &mut self.prefix {
            Some(prefix) => prefix.write(event, out),
            None => write_json(event, out),
        }
    }
}

/// Cache of the serialized event up to its delta, which is the same for all deltas of one message.
#[derive(Debug, Default)]
struct EventPrefixCache {
    key: Option<(Discriminant<Event>, Id)>,
    json: Vec<u8>,
}

impl EventPrefixCache {
    fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        let Some((id, delta)) = event.delta() else { return write_json(event, out) };
        let kind = mem::discriminant(event);
        if self.key.as_ref().is_some_and(|(of, to)| *of == kind && to == id) {
            out.extend_from_slice(&self.json);
            write_json(&delta, out);
            out.push(b'}');
        } else {
            let begin = out.len();
            write_json(event, out);
            // The delta is an event's last member.
            let delta = serde_json::to_string(delta).expect("a string serialises");
            self.json = out[begin..out.len() - delta.len() - 1].to_vec();
            self.key = Some((kind, id.clone()));
        }
    }
}

fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value)
        .expect("plain data with string keys serialises, and a Vec takes any write");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_written_like_other_events_whatever_precedes_them() {
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
        for cached in [true, false] {
            let mut writer = EventWriter::new(cached);
            for event in &events {
                let mut out = b"before".to_vec();
                writer.write(event, &mut out);
                let expected = serde_json::to_string(event).expect("it serialises");
                assert_eq!(String::from_utf8(out).expect("UTF-8"), format!("before{expected}"));
            }
        }
    }
}
