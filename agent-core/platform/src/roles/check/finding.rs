//! Findings of the checks of a role.

use schemars::JsonSchema;
use serde::Serialize;

/// A field of a role with a fault or without an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RoleFinding {
    /// Path of the field in the role, such as `content.tools[1]`.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl RoleFinding {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}
