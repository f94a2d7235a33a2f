//! Bounds of formats, and validation of answers.

use std::collections::BTreeSet;

use agent_core::role::{ResponseFormat, ResponseKind};
use jsonschema::Validator;
use serde_json::Value;

use super::recursion::{RecursionError, recursive_places, resolve_reference};
use crate::exact_json;
use crate::schema_guards::compile_guarded;
use crate::schema_keywords::{ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS};
use crate::schema_steps::is_bounded;

/// Limit on a schema, in bytes of JSON.
pub const MAX_RESPONSE_SCHEMA_BYTES: usize = 32 << 10;
/// Limit on the repairs of an answer.
pub const MAX_REPAIRS: u8 = 2;
/// Limit on the levels of nested schemas, references to places that are not recursive included.
const MAX_DEPTH: usize = 10;
/// Limit on the references that are followed one after the other.
const MAX_REFERENCES: usize = 50;
/// Limit on the schemas that an answer may be checked against, with each reference to a place that is not recursive followed.
const MAX_SUBSCHEMAS: usize = 10_000;
/// Limit on the steps of a check. The longest answer, as a list of numbers, takes half of them.
const MAX_CHECK_STEPS: usize = 1_000_000;
/// Limits on the values of all enumerations, and on patterns.
const MAX_ENUM_VALUES: usize = 1_000;
const MAX_PATTERNS: usize = 50;
/// Limit on the name of a schema, in characters, as providers have it.
const MAX_NAME_CHARS: usize = 64;
/// Limits on the faults that are reported, and on each of them in bytes: it may quote the answer.
const MAX_REPORTED_FAULTS: usize = 5;
const MAX_FAULT_BYTES: usize = 300;

/// Keywords of references between schemas that are not paths.
const REFUSED_KEYWORDS: [&str; 8] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
    "id",
];

/// Error of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Path of the member in the format, such as `schema.properties.price`.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl FormatError {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Checks a format before it is used.
///
/// # Errors
/// The first fault: a name or number out of its bounds, a schema over its limits, or with references that do not lead to a place
/// in it or lead back without a step into the answer.
pub fn check_response_format(format: &ResponseFormat) -> Result<(), FormatError> {
    let ResponseFormat { kind, name, schema, strict, repairs } = format;
    if *kind == ResponseKind::Text {
        let members = [
            ("name", name.is_some()),
            ("schema", schema.is_some()),
            ("strict", strict.is_some()),
            ("repairs", repairs.is_some()),
        ];
        return match members.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(FormatError::new(name, "is not allowed with the type text")),
            None => Ok(()),
        };
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if let Some(name) = name
        && (name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(is_letter))
    {
        let message = format!("must have 1 to {MAX_NAME_CHARS} letters, digits, underscores and hyphens");
        return Err(FormatError::new("name", message));
    }
    if repairs.is_some_and(|repairs| repairs > MAX_REPAIRS) {
        return Err(FormatError::new("repairs", format!("must be from 0 to {MAX_REPAIRS}")));
    }
    AnswerValidator::new(format).map(drop)
}

/// Validator of the answers in one format.
pub struct AnswerValidator {
    /// Schema, with the guards of its alternatives, and its validator; absent for any object.
    schema: Option<(Value, Validator)>,
}

impl std::fmt::Debug for AnswerValidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerValidator").finish_non_exhaustive()
    }
}

/// Error of an answer that does not have the requested format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidAnswerError {
    /// Message for the model; it may quote the answer.
    pub(super) description: String,
    /// Paths of the faults, without values.
    pub(super) paths: String,
}

impl AnswerValidator {
    /// Compiles the schema of a format. Patterns take linear time, and nothing is read from elsewhere.
    ///
    /// # Errors
    /// The first fault of the schema.
    pub fn new(format: &ResponseFormat) -> Result<Self, FormatError> {
        let Some(schema) = &format.schema else { return Ok(Self { schema: None }) };
        if !schema.is_object() {
            return Err(FormatError::new("schema", "must be an object"));
        }
        let bytes = schema.to_string().len();
        if bytes > MAX_RESPONSE_SCHEMA_BYTES {
            let message = format!("has {bytes} bytes; the limit is {MAX_RESPONSE_SCHEMA_BYTES}");
            return Err(FormatError::new("schema", message));
        }
        check_schema(schema)?;
        let compiled = compile_guarded(schema).map_err(|fault| FormatError::new("schema", fault))?;
        Ok(Self { schema: Some(compiled) })
    }

    /// Reads an answer: one JSON value, which may be within one code fence.
    ///
    /// # Errors
    /// The faults of an answer that is not JSON, or does not conform to the schema.
    pub(super) fn read(&self, answer: &str) -> Result<Value, InvalidAnswerError> {
        let value: Value =
            serde_json::from_str(without_fence(answer)).map_err(|error| InvalidAnswerError {
                description: format!("it is not exactly one JSON value: {error}"),
                paths: "it is not JSON".to_owned(),
            })?;
        let Some((schema, validator)) = &self.schema else {
            return match value {
                Value::Object(_) => Ok(value),
                _ => Err(InvalidAnswerError {
                    description: "it is not a JSON object".to_owned(),
                    paths: "it is not a JSON object".to_owned(),
                }),
            };
        };
        if !is_bounded(schema, &value, MAX_CHECK_STEPS) {
            return Err(InvalidAnswerError {
                description: "it is too long to be checked against the schema".to_owned(),
                paths: "it is too long to be checked".to_owned(),
            });
        }
        let (mut descriptions, mut paths) = (Vec::new(), Vec::new());
        for error in validator.iter_errors(&value).take(MAX_REPORTED_FAULTS) {
            let path = match error.instance_path().as_str() {
                "" => "/".to_owned(),
                path => cut(path.to_owned()),
            };
            paths.push(format!("{path} ({})", error.kind().keyword()));
            descriptions.push(format!("{path}: {}", cut(error.to_string())));
        }
        match descriptions.is_empty() {
            true => Ok(value),
            false => {
                Err(InvalidAnswerError { description: descriptions.join("; "), paths: paths.join(", ") })
            }
        }
    }
}

/// Writes the value of an answer as JSON, with the digits that its numbers have in the answer.
pub(super) fn exact_text(value: &Value, answer: &str) -> String {
    exact_json::write(&exact_json::with_digits_of(value.clone(), without_fence(answer)))
}

/// Returns the text within a code fence that begins and ends the answer; the answer itself if there is none.
fn without_fence(answer: &str) -> &str {
    let answer = answer.trim();
    let fenced_text = || {
        let (language, rest) = answer.strip_prefix("```")?.split_once('\n')?;
        let is_word = language.trim().bytes().all(|byte| byte.is_ascii_alphanumeric());
        rest.trim_end().strip_suffix("```").filter(|_| is_word)
    };
    fenced_text().unwrap_or(answer)
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_FAULT_BYTES));
    text
}

/// Checks a schema's limits and references.
fn check_schema(schema: &Value) -> Result<(), FormatError> {
    let path = |pointer: &str| format!("schema{}", pointer.replace('/', "."));
    let recursive = recursive_places(schema).map_err(|RecursionError { pointer }| {
        FormatError::new(path(pointer), "refers to itself without descending into the answer")
    })?;
    let mut check =
        SchemaCheck { root: schema, recursive: &recursive, subschemas: 0, enum_values: 0, patterns: 0 };
    check.schema(schema, "schema", Nesting { levels: 1, references: 0 })?;
    let other_places = recursive.iter().filter(|pointer| !pointer.is_empty());
    for (pointer, place) in other_places.filter_map(|pointer| Some((pointer, schema.pointer(pointer)?))) {
        check.schema(place, &path(pointer), Nesting { levels: 1, references: 0 })?;
    }
    Ok(())
}

/// Walk through a schema that counts what bounds the work of a check.
struct SchemaCheck<'a> {
    root: &'a Value,
    /// Pointers of the recursive places, to which references are not followed.
    recursive: &'a BTreeSet<&'a str>,
    subschemas: usize,
    enum_values: usize,
    patterns: usize,
}

/// Number of schemas that a schema is nested in, with itself, and of the references that led from one to the next.
#[derive(Clone, Copy)]
struct Nesting {
    levels: usize,
    references: usize,
}

impl<'a> SchemaCheck<'a> {
    /// Checks a schema at a path.
    fn schema(&mut self, schema: &'a Value, path: &str, nesting: Nesting) -> Result<(), FormatError> {
        let Value::Object(members) = schema else { return Ok(()) };
        self.subschemas += 1;
        if nesting.levels > MAX_DEPTH {
            return Err(FormatError::new(path, format!("is nested more than {MAX_DEPTH} schemas deep")));
        }
        if nesting.references > MAX_REFERENCES {
            return Err(FormatError::new(path, format!("is behind more than {MAX_REFERENCES} references")));
        }
        if self.subschemas > MAX_SUBSCHEMAS {
            let message = format!("has more than {MAX_SUBSCHEMAS} schemas, with references followed");
            return Err(FormatError::new("schema", message));
        }
        for (name, value) in members {
            let path = format!("{path}.{name}");
            self.count(name, value, &path)?;
            self.keyword((name, value), &path, nesting)?;
        }
        Ok(())
    }

    /// Adds the cost of a keyword to the counts that are limited.
    fn count(&mut self, name: &str, value: &Value, path: &str) -> Result<(), FormatError> {
        if REFUSED_KEYWORDS.contains(&name) {
            return Err(FormatError::new(path, "is not supported"));
        }
        match (name, value) {
            ("enum", Value::Array(values)) => self.enum_values += values.len(),
            ("pattern", _) => self.patterns += 1,
            ("patternProperties", Value::Object(patterns)) => self.patterns += patterns.len(),
            _ => {}
        }
        if self.enum_values > MAX_ENUM_VALUES {
            let message = format!("adds up to more than {MAX_ENUM_VALUES} values in enumerations");
            return Err(FormatError::new(path, message));
        }
        if self.patterns > MAX_PATTERNS {
            return Err(FormatError::new(path, format!("adds up to more than {MAX_PATTERNS} patterns")));
        }
        Ok(())
    }

    /// Checks the schemas in the value of a keyword.
    fn keyword(
        &mut self,
        (name, value): (&str, &'a Value),
        path: &str,
        nesting: Nesting,
    ) -> Result<(), FormatError> {
        let inner = Nesting { levels: nesting.levels + 1, ..nesting };
        match value {
            Value::String(reference) if name == "$ref" => {
                let referenced = resolve_reference(self.root, reference).ok_or_else(|| {
                    FormatError::new(path, "must be the path of a subschema, such as #/$defs/item")
                })?;
                match self.recursive.contains(referenced.pointer) {
                    true => Ok(()),
                    false => {
                        let references = nesting.references + 1;
                        self.schema(referenced.schema, path, Nesting { references, ..nesting })
                    }
                }
            }
            Value::Array(items) if SCHEMA_LISTS.contains(&name) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(i, item)| self.schema(item, &format!("{path}[{i}]"), inner))
            }
            Value::Object(items) if SCHEMA_MAPS.contains(&name) => {
                let mut items = items.iter();
                items.try_for_each(|(name, item)| self.schema(item, &format!("{path}.{name}"), inner))
            }
            Value::Object(_) if ONE_SCHEMA.contains(&name) => self.schema(value, path, inner),
            _ => Ok(()),
        }
    }
}
