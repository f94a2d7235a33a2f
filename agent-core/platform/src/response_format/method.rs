//! Methods that bind a model to a format.

use agent_core::model::{ModelInfo, ModelRequest};
use agent_core::role::ResponseFormat;
use agent_core::tool::ToolChoice;
use serde::Serialize;

use super::dialect::{SchemaDialect, is_object_schema};
use super::recursion::is_recursive;
use crate::catalog::{Catalog, StructuredOutput};
use crate::parameters::ModelApi;

/// Provider name of users' own subscriptions, which are called through the Responses API.
const SUBSCRIPTION_PROVIDER: &str = "subscription";

/// Method that binds a model to a format, the most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FormatMethod {
    /// The provider binds the answer to the schema.
    Schema,
    /// The provider binds the answer to JSON; the schema is in the prompt.
    Object,
    /// The format is in the prompt alone.
    Prompt,
}

impl FormatMethod {
    /// Returns the method for a model, by its API and its catalogue entry.
    pub(super) fn choose(
        format: &ResponseFormat,
        model: &ModelInfo,
        request: &ModelRequest,
        catalog: &Catalog,
    ) -> Self {
        let api = match model.provider.as_str() {
            SUBSCRIPTION_PROVIDER => Some(ModelApi::Responses),
            provider => ModelApi::of_provider(provider),
        };
        let known = || catalog.model_with_window(&model.provider, &model.model)?.structured;
        let offers_tools = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
        let schema = format.schema.as_ref();
        let can_be_object = schema.is_none_or(is_object_schema);
        match api {
            Some(ModelApi::ChatCompletions | ModelApi::Responses) => match (known(), schema) {
                (Some(StructuredOutput::Schema), Some(schema))
                    if format.strict == Some(false) && can_be_object
                        || SchemaDialect::OpenAiStrict.has(schema) =>
                {
                    Self::Schema
                }
                (Some(StructuredOutput::Schema | StructuredOutput::Object), _) if can_be_object => {
                    Self::Object
                }
                // Compatible servers reject a format that they do not know, or forget the tools with it.
                _ => Self::Prompt,
            },
            // The server keeps an answer to the format from its first token on, so that it could call no tool.
            Some(ModelApi::Ollama) if offers_tools => Self::Prompt,
            // The server makes a grammar of the schema, which does not have every kind of recursion.
            Some(ModelApi::Ollama) if schema.is_some_and(is_recursive) => Self::Prompt,
            Some(ModelApi::Ollama) if schema.is_some() => Self::Schema,
            Some(ModelApi::Ollama) => Self::Object,
            Some(ModelApi::Messages) => match (known(), schema) {
                (Some(StructuredOutput::Schema), Some(schema)) if SchemaDialect::Anthropic.has(schema) => {
                    Self::Schema
                }
                _ => Self::Prompt,
            },
            Some(ModelApi::InProcess) | None => Self::Prompt,
        }
    }

    /// Returns true if the prompt describes the format. A server that binds an answer token by token does not show the
    /// schema to its model.
    pub(super) fn is_in_prompt(self, model: &ModelInfo) -> bool {
        self != Self::Schema || ModelApi::of_provider(&model.provider) == Some(ModelApi::Ollama)
    }
}
