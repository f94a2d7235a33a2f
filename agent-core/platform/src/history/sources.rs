//! Lookup of request fields in the body, AG-UI's `forwardedProps` and the query.

use std::borrow::Cow;

use super::json::{ObjectFields, Value, check_single_line};
use super::{FieldError, MAX_MESSAGES};
use crate::history::MAX_ID_BYTES;

/// Names of the query parameters that are read; all others are ignored here.
const QUERY_PARAMETERS: [&str; 18] = [
    "agentId",
    "threadId",
    "sessionId",
    "runId",
    "tabId",
    "todoListId",
    "timezone",
    "userId",
    "companyId",
    "store",
    "history",
    "parentId",
    "trigger",
    "messageId",
    "onDisconnect",
    "graceMs",
    "onBusy",
    "background",
];

/// A query parameter: an identifier with its index in [`QUERY_PARAMETERS`], the preview's `message`, or any other.
pub(super) enum QueryParameter {
    Id(usize, String),
    Message(String),
    Other,
}

pub(super) fn parse_parameter(name: impl AsRef<str>, value: impl AsRef<str>) -> QueryParameter {
    let (name, value) = (name.as_ref(), value.as_ref());
    match QUERY_PARAMETERS.iter().position(|parameter| *parameter == name) {
        Some(index) => QueryParameter::Id(index, value.to_owned()),
        None if name == "message" => QueryParameter::Message(value.to_owned()),
        None => QueryParameter::Other,
    }
}

pub(super) struct FieldSources<'t> {
    pub(super) body: ObjectFields<'t>,
    forwarded: Option<ObjectFields<'t>>,
    query: [Option<String>; QUERY_PARAMETERS.len()],
    message: Option<String>,
}

impl<'t> FieldSources<'t> {
    /// Collects the query parameters and `forwardedProps`.
    ///
    /// # Errors
    ///
    /// A parameter that is repeated, too long, or contains control characters.
    pub(super) fn new(
        body: ObjectFields<'t>,
        parameters: &mut dyn Iterator<Item = QueryParameter>,
    ) -> Result<Self, FieldError> {
        let mut query = [const { None }; QUERY_PARAMETERS.len()];
        let mut message = None;
        for parameter in parameters {
            let (name, before) = match parameter {
                QueryParameter::Id(index, value) => {
                    check_single_line(&value, MAX_ID_BYTES)
                        .map_err(|fault| fault.with_parent_path(QUERY_PARAMETERS[index]))?;
                    (QUERY_PARAMETERS[index], query[index].replace(value))
                }
                QueryParameter::Message(value) => ("message", message.replace(value)),
                QueryParameter::Other => continue,
            };
            if before.is_some() {
                return Err(FieldError::new(name, "is in the query more than once"));
            }
        }
        // Other clients may use the name for another purpose, so a value that is not an object is ignored.
        let forwarded = body.get("forwardedProps").and_then(|value| ObjectFields::from_value(value).ok());
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
    /// proxy that checks only one of them would let through a different value in another.
    pub(super) fn id(&self, name: &'static str) -> Result<Option<String>, FieldError> {
        let forwarded = match self.forwarded {
            Some(fields) => fields.id(name).map_err(|fault| fault.with_parent_path("forwardedProps"))?,
            None => None,
        };
        let parameter = QUERY_PARAMETERS.iter().position(|parameter| *parameter == name);
        let query = parameter.and_then(|index| self.query[index].clone()).filter(|id| !id.is_empty());
        let mut first_value: Option<String> = None;
        for id in [self.body.id(name)?, forwarded, query].into_iter().flatten() {
            if first_value.as_ref().is_some_and(|first_value| *first_value != id) {
                return Err(FieldError::new(name, "is given in more than one place with different values"));
            }
            first_value = Some(id);
        }
        Ok(first_value)
    }

    /// Returns true if the body, or else `forwardedProps`, has the field as `null`.
    pub(super) fn is_null(&self, name: &'static str) -> bool {
        !self.body.has(name)
            && (self.body.is_null(name) || self.forwarded.is_some_and(|fields| fields.is_null(name)))
    }

    /// Returns a parameter of the query; `None` if it is absent or empty.
    pub(super) fn query_word(&self, name: &str) -> Option<&str> {
        let parameter = QUERY_PARAMETERS.iter().position(|parameter| *parameter == name)?;
        self.query[parameter].as_deref().filter(|word| !word.is_empty())
    }

    /// Returns the preview's `message` from the query.
    pub(super) fn query_message(&self) -> Option<&str> {
        self.message.as_deref().filter(|text| !text.is_empty())
    }
}

/// Returns true if the body has fields that only the AI SDK sends.
pub(super) fn is_of_ai_sdk(sources: &FieldSources<'_>) -> Result<bool, FieldError> {
    let has_parts =
        |value: &Value<'_>| ObjectFields::from_value(value).is_ok_and(|fields| fields.has("parts"));
    Ok(sources.body.has("trigger")
        || sources.body.get("message").is_some_and(has_parts)
        || sources.body.list("messages", MAX_MESSAGES)?.unwrap_or_default().iter().any(has_parts))
}
