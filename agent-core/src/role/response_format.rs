//! Format of an agent's answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{EstimateCounter, TokenCounter};

/// Format of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ResponseFormat {
    /// Text or JSON.
    #[serde(rename = "type")]
    pub kind: ResponseKind,
    /// Name of the schema, for providers that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON Schema of the answer; absent for any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// False to let a provider take the schema as a hint. The answer is validated in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Number of further model calls that may correct an invalid answer; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs: Option<u8>,
}

impl ResponseFormat {
    /// Estimates the tokens of the schema in a request.
    pub fn estimated_tokens(&self) -> usize {
        self.schema.as_ref().map_or(0, |schema| EstimateCounter.count(&schema.to_string()))
    }
}

/// Kind of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ResponseKind {
    /// Text.
    #[default]
    Text,
    /// One JSON value, which is validated.
    Json,
}
