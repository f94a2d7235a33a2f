//! Maps the path of a field to its position in the JSON text.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_path_to_error::Segment;

use super::fault::FileFault;
use crate::json::{is_syntax_error, normalize_serde_message};

/// Path from the root of the file to a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<PathSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    Field(String),
    Index(usize),
}

impl JsonPath {
    pub(super) fn field(mut self, name: &str) -> Self {
        self.0.push(PathSegment::Field(name.to_owned()));
        self
    }

    pub(super) fn index(mut self, index: usize) -> Self {
        self.0.push(PathSegment::Index(index));
        self
    }

    fn of(path: &serde_path_to_error::Path) -> Self {
        path.iter().fold(Self::default(), |path, segment| match segment {
            Segment::Seq { index } => path.index(*index),
            Segment::Map { key } => path.field(key),
            Segment::Enum { .. } | Segment::Unknown => path,
        })
    }

    /// Parses the output of [`Display`](fmt::Display), for names without dots and brackets.
    pub(super) fn read(text: &str) -> Option<Self> {
        text.split('.').try_fold(Self::default(), |path, part| {
            let mut pieces = part.split('[');
            let path = path.field(pieces.next().filter(|name| !name.is_empty())?);
            pieces.try_fold(path, |path, index| Some(path.index(index.strip_suffix(']')?.parse().ok()?)))
        })
    }

    pub(super) fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                PathSegment::Field(name) if i > 0 => write!(f, ".{name}")?,
                PathSegment::Field(name) => f.write_str(name)?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Returns the line and column, from 1, where the value at `path` begins; `None` if the text has no such value.
pub(super) fn locate(text: &str, path: &JsonPath) -> Option<(usize, usize)> {
    let mut current: &RawValue = serde_json::from_str(text).ok()?;
    for step in &path.0 {
        current = match step {
            PathSegment::Field(name) => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(current.get()).ok()?.remove(name)?
            }
            PathSegment::Index(index) => {
                serde_json::from_str::<Vec<&RawValue>>(current.get()).ok()?.into_iter().nth(*index)?
            }
        };
    }
    // `current` borrows from `text`, so the difference of the pointers is its offset.
    let before = &text[..current.get().as_ptr() as usize - text.as_ptr() as usize];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
}

/// Converts a deserialization error into a fault with its position.
pub(super) fn fault_of(text: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> FileFault {
    if is_syntax_error(text.as_bytes(), error.inner()) {
        return syntax_fault(error.inner());
    }
    let (mut path, mut message) = (JsonPath::of(error.path()), message_of(error.inner()));
    // Parts of a role are deserialized from a copy, so a fault in them names the rest of the path in its message. Any
    // message may look like that, so the path is accepted only if the text has such a field.
    if let Some((inner, rest)) = message.split_once(": ")
        && let Some(inner) = JsonPath::read(inner)
        && let longer = path.clone().join(inner)
        && locate(text, &longer).is_some()
    {
        (path, message) = (longer, rest.to_owned());
    }
    let (line, column) = locate(text, &path).unwrap_or((error.inner().line(), error.inner().column()));
    FileFault { line, column, path: path.to_string(), message: normalize_serde_message(message) }
}

/// Converts a syntax error into a fault, with the position at which the text stops being JSON.
pub(super) fn syntax_fault(error: &serde_json::Error) -> FileFault {
    FileFault {
        line: error.line(),
        column: error.column().max(1),
        path: String::new(),
        message: format!("invalid JSON: {}", message_of(error)),
    }
}

/// Returns the error message without the position, which the fault holds separately.
fn message_of(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&position).map(str::to_owned).unwrap_or(message)
}
