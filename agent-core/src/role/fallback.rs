//! Limits on a model's tokens and calls, and the models that answer in its place.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Limits on a model's tokens; missing ones are those of the platform's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TokenLimits {
    /// The model's context window: tokens of prompt and answer together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<NonZeroU32>,
    /// Limit on an answer of the model, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<NonZeroU32>,
}

/// Limits on the calls of one model in a round, or of an agent server in a run. Missing limits are those of the platform's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RetrySettings {
    /// Number of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<NonZeroU32>,
    /// Limit on the waits between calls, together, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u32>,
    /// Time in milliseconds in which an answer's first content must arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<NonZeroU32>,
    /// Further failures after which a fallback is called: `content`, a refusal by the provider's filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// A model for the calls that the container's own model fails to answer. It inherits neither address nor key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FallbackModel {
    /// `auto` (the default), `anthropic`, `local`, `openai`, `openai-responses`, `ollama`, or the id of a company's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Name of the model at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// URL of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// API key of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// Level of the model's reasoning in the provider's terms, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Time in milliseconds in which an answer's first content must arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<NonZeroU32>,
    /// Parameters of the model's calls by their names, such as `temperature`. No secrets.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub prices: Box<serde_json::Map<String, serde_json::Value>>,
    /// Entry of the company's provider for the model, which the platform sets with type, address and key of the provider.
    #[serde(skip)]
    pub company_model: Option<std::sync::Arc<serde_json::Map<String, serde_json::Value>>>,
}
