//! Parser of one line of a streamed answer, in the format of n8n 1.123 and 2.
//!
//! `begin` and `end` enclose each model call of a node, `item` carries text, and `error` ends a node's execution;
//! `content` and the timestamp in `metadata` may be missing. Later versions send `keepalive` during silences. Unknown
//! types are ignored.

use std::borrow::Cow;
use std::fmt;

use agent_core::error::AgentError;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error;
use crate::borrowed_text::BorrowedText;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamLine<'a> {
    /// A model call begins.
    Begin,
    /// A text delta.
    Item(Cow<'a, str>),
    /// The model call has ended.
    End,
    /// A node has failed.
    Error,
    /// A line of another type, which is ignored.
    Other,
}

#[derive(serde::Deserialize)]
struct LineFields<'a> {
    #[serde(borrow, rename = "type")]
    kind: BorrowedText<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
}

/// The `content` of a line. Only the content of an item must be text.
#[derive(Default)]
enum Content<'a> {
    Text(Cow<'a, str>),
    #[default]
    Nothing,
    NoText,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Content::NoText)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::NoText)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::NoText)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::NoText)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Content::NoText)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Content::NoText)
    }
}

/// The members that distinguish the first line of a stream from a single answer.
#[derive(serde::Deserialize)]
struct LineMarkers<'a> {
    #[serde(borrow, rename = "type")]
    kind: BorrowedText<'a>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl LineMarkers<'_> {
    fn has_metadata(&self) -> bool {
        self.metadata.is_some_and(|metadata| metadata.get().starts_with('{'))
    }
}

impl<'a> StreamLine<'a> {
    /// Parses a line that is not blank.
    ///
    /// # Errors
    /// `Failed` if the line is not an object with a type, or if an item's content is not text.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, AgentError> {
        // Serde would also accept an array, whose elements are the members in order.
        if line.first() != Some(&b'{') {
            return Err(error::unreadable("a line is not a JSON object"));
        }
        let members: LineFields<'a> =
            serde_json::from_slice(line).map_err(|error| error::bad_json(&error))?;
        Ok(match &*members.kind.0 {
            "begin" => Self::Begin,
            "item" => Self::Item(text(members.content)?),
            "end" => Self::End,
            "error" => Self::Error,
            _ => Self::Other,
        })
    }

    /// Returns true if the first line of a body belongs to a stream, rather than being the answer itself.
    pub(super) fn is_stream_line(line: &[u8]) -> bool {
        line.first() == Some(&b'{')
            && serde_json::from_slice::<LineMarkers<'_>>(line).is_ok_and(|members| {
                matches!(&*members.kind.0, "begin" | "item" | "end" | "error" | "keepalive")
                    || members.has_metadata()
            })
    }
}

/// Returns the text of an item.
fn text(content: Content<'_>) -> Result<Cow<'_, str>, AgentError> {
    match content {
        Content::Text(text) => Ok(unwrap_output(text)),
        Content::Nothing => Ok(Cow::Borrowed("")),
        Content::NoText => Err(error::unreadable("an item's content is not a string")),
    }
}

/// Unwraps text meant for the user. The respond node streams an object as text. Only its output is shown.
pub(super) fn unwrap_output(text: Cow<'_, str>) -> Cow<'_, str> {
    match output_of_json(&text) {
        Some(output) => Cow::Owned(output),
        None => text,
    }
}

/// Returns the text inside a complete JSON object. Agents may be asked to answer with JSON, so the field names of other
/// nodes count only if they are the object's single member.
fn output_of_json(text: &str) -> Option<String> {
    let trimmed = text.trim_ascii();
    if !trimmed.starts_with('{') || !trimmed.ends_with('}') {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(trimmed).ok()?;
    let single_member = || {
        let (name, value) = object.iter().next().filter(|_| object.len() == 1)?;
        Some(value)
            .filter(|value| ["text", "response", "message"].contains(&name.as_str()) && value.is_string())
    };
    match object.get("output").or_else(single_member)? {
        Value::String(text) => Some(text.clone()),
        output => Some(output.to_string()),
    }
}
