//! Typed access to JSON that borrows from the request bytes, to avoid copies.

use serde_json_borrow::ObjectAsVec;
pub(super) use serde_json_borrow::Value;

use super::{FieldError, MAX_ID_BYTES, MAX_LIST_ITEMS};
use crate::json::find_duplicate_key;
use agent_core::message::SharedJson;

/// A parsed request body.
pub struct JsonBody<'a> {
    value: Value<'a>,
    /// Path of the first key that an object contains twice. Reading the fields fails with it, but not reading the
    /// widget tokens: a repeated token is a repeated credential, which is a separate error.
    duplicate_key: Option<String>,
}

/// Prints no content, since a body may contain keys and tokens.
impl std::fmt::Debug for JsonBody<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonBody").finish_non_exhaustive()
    }
}

impl<'a> JsonBody<'a> {
    /// Parses JSON text that nests at most `max_depth` levels.
    ///
    /// # Errors
    ///
    /// An empty body; the line and column of a syntax error; nesting deeper than `max_depth`.
    pub fn parse(json: &'a [u8], max_depth: usize) -> Result<Self, FieldError> {
        let value = serde_json::from_slice(json).map_err(|error| match json.trim_ascii() {
            [] => FieldError::new("", "is empty; it must be JSON"),
            _ => {
                let position = format!("line {}, column {}", error.line(), error.column());
                FieldError::new("", format!("is not valid JSON at {position}"))
            }
        })?;
        if !is_within_depth(max_depth, &value) {
            return Err(FieldError::new("", format!("is nested deeper than {max_depth} levels")));
        }
        Ok(Self { value, duplicate_key: find_duplicate_key(json) })
    }

    /// Returns the body of a request without one: an object without fields.
    #[must_use]
    pub fn empty() -> Self {
        Self { value: Value::Object(ObjectAsVec::default()), duplicate_key: None }
    }

    /// Returns the fields of a body whose keys are unique.
    pub(super) fn fields(&self) -> Result<ObjectFields<'_>, FieldError> {
        match &self.duplicate_key {
            Some(path) => Err(FieldError::new(path.clone(), "is given twice")),
            None => self.all_fields(),
        }
    }

    /// Returns the fields of a body that may contain a key twice.
    pub(super) fn all_fields(&self) -> Result<ObjectFields<'_>, FieldError> {
        ObjectFields::from_value(&self.value)
    }
}

/// Returns true if `value` nests at most `levels` deep. The parser's own limit of 128 bounds the recursion.
fn is_within_depth(levels: usize, value: &Value<'_>) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within_depth(levels - 1, item)),
        Value::Object(fields) => {
            levels > 0 && fields.values().all(|field| is_within_depth(levels - 1, field))
        }
        _ => true,
    }
}

/// Fields of a JSON object by name. Every accessor treats `null` as absent and names the field in its errors.
#[derive(Clone, Copy)]
pub(super) struct ObjectFields<'t>(&'t ObjectAsVec<'t>);

impl<'t> ObjectFields<'t> {
    pub(super) fn from_value(value: &'t Value<'t>) -> Result<Self, FieldError> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(FieldError::new("", "must be an object")),
        }
    }

    pub(super) fn get(self, name: &str) -> Option<&'t Value<'t>> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns all values of a field that may be repeated.
    pub(super) fn get_all(self, name: &'static str) -> impl Iterator<Item = &'t Value<'t>> {
        let named = self.0.iter().filter(move |(key, _)| *key == name);
        named.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// Returns the first of two field names that is present, or the first name if neither is.
    pub(super) fn first_present_name(self, ours: &'static str, theirs: &'static str) -> &'static str {
        if self.get(ours).is_none() && self.get(theirs).is_some() { theirs } else { ours }
    }

    /// Returns the names of all fields.
    pub(super) fn names(self) -> impl Iterator<Item = &'t str> {
        self.0.iter().map(|(name, _)| name)
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns true if the field is given as `null`.
    pub(super) fn is_null(self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'t str>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(_) => Err(FieldError::new(name, "must be a string")),
        }
    }

    pub(super) fn required_text(self, name: &str) -> Result<&'t str, FieldError> {
        self.text(name)?.ok_or_else(|| FieldError::new(name, "is missing"))
    }

    /// Returns text of at most `limit` bytes without control characters. Empty text counts as absent.
    pub(super) fn bounded_text(self, name: &str, limit: usize) -> Result<Option<String>, FieldError> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        check_single_line(text, limit).map_err(|fault| fault.with_parent_path(name))?;
        Ok(Some(text.to_owned()))
    }

    /// Returns an identifier; see [`super::MAX_ID_BYTES`]. Empty text counts as absent, as many clients send `""`.
    pub(super) fn id(self, name: &str) -> Result<Option<String>, FieldError> {
        self.bounded_text(name, MAX_ID_BYTES)
    }

    pub(super) fn required_id(self, name: &str) -> Result<String, FieldError> {
        match self.id(name)? {
            Some(id) => Ok(id),
            None if self.has(name) => Err(FieldError::new(name, "is empty")),
            None => Err(FieldError::new(name, "is missing")),
        }
    }

    /// Returns a tool's name, limited like an identifier.
    pub(super) fn name(self, name: &str) -> Result<Option<String>, FieldError> {
        self.id(name)
    }

    pub(super) fn boolean(self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(FieldError::new(name, "must be true or false")),
        }
    }

    pub(super) fn list(self, name: &str, limit: usize) -> Result<Option<&'t [Value<'t>]>, FieldError> {
        self.get(name)
            .map(|value| list(value, limit).map_err(|fault| fault.with_parent_path(name)))
            .transpose()
    }

    /// Reads each element of an optional list; errors contain the element's path.
    pub(super) fn read_list<T>(
        self,
        name: &str,
        mut read: impl FnMut(&'t Value<'t>) -> Result<Option<T>, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        let list = self.list(name, MAX_LIST_ITEMS)?.unwrap_or_default();
        let mut items = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            items.extend(read(value).map_err(|fault| fault.with_index(index).with_parent_path(name))?);
        }
        Ok(items)
    }

    pub(super) fn object(self, name: &str) -> Result<Option<ObjectFields<'t>>, FieldError> {
        self.get(name)
            .map(|value| ObjectFields::from_value(value).map_err(|fault| fault.with_parent_path(name)))
            .transpose()
    }

    /// Returns an object as JSON text, such as a schema.
    pub(super) fn json_object(self, name: &str) -> Result<Option<SharedJson>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(shared_json(value))),
            Some(_) => Err(FieldError::new(name, "must be an object")),
        }
    }
}

/// Serializes a value to JSON text.
pub(super) fn to_json(value: &Value<'_>) -> String {
    serde_json::to_string(value).expect("a value that was parsed serialises")
}

fn shared_json(value: &Value<'_>) -> SharedJson {
    serde_json::value::to_raw_value(value).expect("a value that was parsed serialises").into()
}

pub(super) fn list<'t>(value: &'t Value<'t>, limit: usize) -> Result<&'t [Value<'t>], FieldError> {
    match value {
        Value::Array(items) if items.len() <= limit => Ok(items),
        Value::Array(_) => Err(FieldError::new("", format!("has more than {limit} elements"))),
        _ => Err(FieldError::new("", "must be a list")),
    }
}

/// Checks the length of text for headers, queries and logs, and that it has no control characters.
pub(super) fn check_single_line(text: &str, limit: usize) -> Result<(), FieldError> {
    if text.len() > limit {
        return Err(FieldError::new("", format!("is longer than {limit} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(FieldError::new("", "contains control characters"));
    }
    Ok(())
}

/// Returns the arguments of a call without arguments: some models emit none, but all of them reject an empty string.
pub(super) fn empty_arguments() -> String {
    "{}".to_owned()
}
