//! Encoder of AG-UI events as the lines that n8n streams and its chat widget (`@n8n/chat`) reads.
//!
//! A message is a `begin` line, an `item` line for each delta, and an `end` line; `metadata.nodeId` is the message's
//! id, so that each message is a separate bubble. A failed run ends with an `error` line. Other events are not sent:
//! the widget shows text only.

use agent_core::event::Event;
use serde::Serialize;

use super::json::write_json;

/// Line of the stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum N8nLine<'a> {
    Begin { metadata: LineMetadata<'a> },
    Item { content: &'a str, metadata: LineMetadata<'a> },
    End { metadata: LineMetadata<'a> },
    Error { content: &'a str },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LineMetadata<'a> {
    node_id: &'a str,
}

/// Appends the line of an event, if it has one.
pub(super) fn write_line(event: &Event, out: &mut Vec<u8>) {
    let metadata = |id| LineMetadata { node_id: id };
    let line = match event {
        Event::TextMessageStart { message_id, .. } => N8nLine::Begin { metadata: metadata(message_id) },
        Event::TextMessageContent { message_id, delta } => {
            N8nLine::Item { content: delta, metadata: metadata(message_id) }
        }
        Event::TextMessageEnd { message_id } => N8nLine::End { metadata: metadata(message_id) },
        Event::RunError { message, .. } => N8nLine::Error { content: message },
        _ => return,
    };
    write_json(out, &line);
    out.push(b'\n');
}
