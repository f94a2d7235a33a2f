//! [`CatalogModel`].

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize, Serializer};

use crate::amount::NanoUsd;

/// A model of the catalogue. Members that no file has are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogModel {
    /// Provider of the model.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Limit on prompt and answer together, in tokens; on the prompt, where a vendor limits them separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<NonZeroU32>,
    /// Limit on an answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<NonZeroU32>,
    /// Kinds of content that the model reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<InputModality>>,
    /// True if the model calls tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Kind of JSON to which the vendor can constrain an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<StructuredOutput>,
    /// Levels of the model's reasoning; empty if it does not reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Vec<ReasoningOption>>,
    /// Price of the model.
    #[serde(rename = "prices", skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
}

impl CatalogModel {
    /// Replaces the members that another description of the model has.
    pub(super) fn merge(&mut self, other: Self) {
        replace(&mut self.context_window, other.context_window);
        replace(&mut self.max_output_tokens, other.max_output_tokens);
        replace(&mut self.input, other.input);
        replace(&mut self.tools, other.tools);
        replace(&mut self.structured, other.structured);
        replace(&mut self.reasoning, other.reasoning);
        replace(&mut self.price, other.price);
    }
}

fn replace<T>(member: &mut Option<T>, other: Option<T>) {
    if other.is_some() {
        *member = other;
    }
}

/// Kind of content that a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputModality {
    /// Text.
    Text,
    /// Images.
    Image,
}

/// Kind of JSON that a model's answer can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StructuredOutput {
    /// JSON that a schema describes.
    Schema,
    /// Any JSON object.
    Object,
    /// None.
    None,
}

/// Level of reasoning that a request can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningOption {
    /// The model's own level alone.
    Default,
    /// No reasoning.
    None,
    /// The least.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// The highest level.
    Xhigh,
}

/// Prices of a model, in dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenPrices {
    /// Input tokens.
    #[serde(serialize_with = "serialize_price")]
    pub input: NanoUsd,
    /// Input tokens read from the provider's cache.
    #[serde(serialize_with = "serialize_price")]
    pub cached_input: NanoUsd,
    /// Input tokens written to the provider's cache.
    #[serde(serialize_with = "serialize_price")]
    pub cache_write: NanoUsd,
    /// Output tokens.
    #[serde(serialize_with = "serialize_price")]
    pub output: NanoUsd,
}

/// Price of a model with its date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPrice {
    /// The prices.
    #[serde(flatten)]
    pub prices: TokenPrices,
    /// Date of the prices, or [`ROLE_PRICE_DATE`](Self::ROLE_PRICE_DATE).
    pub as_of: String,
}

/// Serializes a price as a decimal number of dollars without zeros at its end, as files have it.
fn serialize_price<S: Serializer>(price: &NanoUsd, serializer: S) -> Result<S::Ok, S::Error> {
    let text = price.to_string();
    serializer.serialize_str(text.trim_end_matches('0').trim_end_matches('.'))
}
