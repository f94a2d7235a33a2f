//! Lookup of request fields in the body, AG-UI's `forwardedProps` and the query.

use std::borrow::Cow;

use super::InvalidField;
use super::json::{Fields, Value, check_line};
use crate::history::MAX_ID_BYTES;

/// Names of the query parameters that are read; all others are ignored here.
const PARAMETERS: [&str; 9] =
    ["agentId", "threadId", "sessionId", "runId", "tabId", "todoListId", "timezone", "userId", "companyId"];

/// A query parameter: an identifier with its index in [`PARAMETERS`], the preview's `message`, or any other.
pub(super) enum Parameter {
    Id(usize, String),
    Message(String),
    Other,
}

pub(super) fn parameter(name: impl AsRef<str>, value: impl AsRef<str>) -> Parameter {
    let (name, value) = (name.as_ref(), value.as_ref());
    match PARAMETERS.iter().position(|parameter| *parameter == name) {
        Some(index) => Parameter::Id(index, value.to_owned()),
        None if name == "message" => Parameter::Message(value.to_owned()),
        None => Parameter::Other,
    }
}

pub(super) struct Sources<'t> {
    pub(super) body: Fields<'t>,
    forwarded: Option<Fields<'t>>,
    query: [Option<String>; PARAMETERS.len()],
    message: Option<String>,
}

impl<'t> Sources<'t> {
    /// Collects the query parameters and `forwardedProps`.
    ///
    /// # Errors
    ///
    /// A parameter that is repeated, too long, or contains control characters.
    pub(super) fn new(
        body: Fields<'t>,
        parameters: &mut dyn Iterator<Item = Parameter>,
    ) -> Result<Self, InvalidField> {
        let mut query = [const { None }; PARAMETERS.len()];
        let mut message = None;
        for parameter in parameters {
            let (name, before) = match parameter {
                Parameter::Id(index, value) => {
                    check_line(&value, MAX_ID_BYTES).map_err(|fault| fault.below(PARAMETERS[index]))?;
                    (PARAMETERS[index], query[index].replace(value))
                }
                Parameter::Message(value) => ("message", message.replace(value)),
                Parameter::Other => continue,
            };
            if before.is_some() {
                return Err(InvalidField::new(name, "is in the query more than once"));
            }
        }
        // Other clients may use the name for another purpose, so a value that is not an object is ignored.
        let forwarded = body.get("forwardedProps").and_then(|value| Fields::of(value).ok());
        Ok(Self { body, forwarded, query, message })
    }

    /// Returns the field and its path, from the body or else from `forwardedProps`.
    pub(super) fn get(&self, name: &'static str) -> Option<(Cow<'static, str>, &'t Value<'t>)> {
        if let Some(value) = self.body.get(name) {
            return Some((name.into(), value));
        }
        let value = self.forwarded?.get(name)?;
        Some((format!("forwardedProps.{name}").into(), value))
    }

    /// Returns an identifier from any of the three sources. The sources must not contradict one another: otherwise a
    /// proxy that checks one of them would let through a different value in another.
    pub(super) fn id(&self, name: &'static str) -> Result<Option<String>, InvalidField> {
        let forwarded = match self.forwarded {
            Some(fields) => fields.id(name).map_err(|fault| fault.below("forwardedProps"))?,
            None => None,
        };
        let parameter = PARAMETERS.iter().position(|parameter| *parameter == name);
        let query = parameter.and_then(|index| self.query[index].clone()).filter(|id| !id.is_empty());
        let mut found: Option<String> = None;
        for id in [self.body.id(name)?, forwarded, query].into_iter().flatten() {
            if found.as_ref().is_some_and(|found| *found != id) {
                return Err(InvalidField::new(name, "is given twice and differs"));
            }
            found = Some(id);
        }
        Ok(found)
    }

    /// Returns the preview's `message` from the query.
    pub(super) fn query_message(&self) -> Option<&str> {
        self.message.as_deref().filter(|text| !text.is_empty())
    }
}
