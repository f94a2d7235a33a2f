//! An invalid field of a body.

use std::borrow::Cow;
use std::fmt;

/// An invalid field. The problem is worded to follow the path: "`messages[2].role` is missing".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `messages[2].toolCalls[0].id`; empty for the whole body.
    pub path: String,
    /// Description of the problem, which never contains the value.
    pub problem: Cow<'static, str>,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{path} {}", self.problem)
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    pub(super) fn new(path: impl Into<String>, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// Prepends the name of the containing field to the path.
    pub(super) fn with_parent_path(mut self, parent: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{parent}{dot}{}", self.path);
        self
    }

    /// Prepends the index in the containing list to the path.
    pub(super) fn with_index(self, index: usize) -> Self {
        self.with_parent_path(&format!("[{index}]"))
    }
}
