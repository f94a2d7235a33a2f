//! One line of a streamed answer, as n8n 1.123 and 2 write it.
//!
//! `begin` and `end` stand around each model call of a node, `item` carries text, and `error` ends what a
//! node does; its `content` and the time in its `metadata` may be missing. Later versions write a
//! `keepalive` in silences. Types that are not known are passed over.

use std::borrow::Cow;
use std::fmt;

use agent_core::error::Failure;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::failure;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A model call begins.
    Begin,
    /// More text.
    Item(Cow<'a, str>),
    /// The model call is over.
    End,
    /// A node has failed.
    Error,
    /// Nothing to us.
    Other,
}

/// A string that is borrowed unless it has escapes. Serde borrows a `Cow` only where it stands alone.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct Members<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
}

/// What an item carries. Other lines may carry anything.
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

/// The members by which the first line is told from an answer.
#[derive(serde::Deserialize)]
struct Marks<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Marks<'_> {
    fn has_metadata(&self) -> bool {
        self.metadata.is_some_and(|metadata| metadata.get().starts_with('{'))
    }
}

impl<'a> Line<'a> {
    /// Reads a line that is not blank.
    ///
    /// # Errors
    /// `Failed` where it is no object with a type, or its text is none.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Failure> {
        // Serde would take an array for an object whose members come in order.
        if line.first() != Some(&b'{') {
            return Err(failure::unreadable("a line is no object"));
        }
        let members: Members<'a> = serde_json::from_slice(line).map_err(|error| failure::bad_json(&error))?;
        Ok(match &*members.kind.0 {
            "begin" => Self::Begin,
            "item" => Self::Item(text(members.content)?),
            "end" => Self::End,
            "error" => Self::Error,
            _ => Self::Other,
        })
    }

    /// Whether the first line of an answer is one of a stream's, and not the answer itself.
    pub(super) fn is_one(line: &[u8]) -> bool {
        line.first() == Some(&b'{')
            && serde_json::from_slice::<Marks<'_>>(line).is_ok_and(|members| {
                matches!(&*members.kind.0, "begin" | "item" | "end" | "error" | "keepalive")
                    || members.has_metadata()
            })
    }
}

/// The text of an item.
fn text(content: Content<'_>) -> Result<Cow<'_, str>, Failure> {
    match content {
        Content::Text(text) => Ok(of_people(text)),
        Content::Nothing => Ok(Cow::Borrowed("")),
        Content::NoText => Err(failure::unreadable("an item's content is no text")),
    }
}

/// What is meant for people. The node that responds streams an object as text; of that, it is the output alone.
pub(super) fn of_people(text: Cow<'_, str>) -> Cow<'_, str> {
    match wrapped(&text) {
        Some(output) => Cow::Owned(output),
        None => text,
    }
}

/// What a whole object says in place of its text. Agents may be asked for JSON, so of the names that other
/// nodes give to theirs only one that stands alone counts.
fn wrapped(text: &str) -> Option<String> {
    let trimmed = text.trim_ascii();
    if !trimmed.starts_with('{') || !trimmed.ends_with('}') {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(trimmed).ok()?;
    let alone = || {
        let (name, value) = object.iter().next().filter(|_| object.len() == 1)?;
        Some(value)
            .filter(|value| ["text", "response", "message"].contains(&name.as_str()) && value.is_string())
    };
    match object.get("output").or_else(alone)? {
        Value::String(text) => Some(text.clone()),
        output => Some(output.to_string()),
    }
}
