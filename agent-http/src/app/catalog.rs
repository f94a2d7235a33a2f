//! `GET /api/models`, the catalogue of models.

use agent_core::request::Principal;
use agent_platform::catalog::CatalogModel;
use agent_platform::providers::ProviderType;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::thread_docs::object;
use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::request::Query;
use crate::service::HandlerResult;

/// Query parameter that restricts the list to a provider.
const PROVIDER: &str = "provider";

/// Handles `GET /api/models`.
pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, .. } = context;
    let query = Query::from_uri(&head.uri);
    let provider = query.get(PROVIDER)?.filter(|provider| !provider.is_empty());
    let company_models = app.providers.store().catalog(&principal.company_id).await?;
    let company_models =
        company_models.iter().map(|(provider, model)| (Some(provider.provider_type.as_str()), model));
    let models = app.catalog.models().map(|model| (None, model)).chain(company_models);
    let models = models.filter(|(_, model)| provider.is_none_or(|provider| model.provider == provider));
    let mut models: Vec<ListedModel<'_>> =
        models.map(|(provider_type, model)| ListedModel { provider_type, model }).collect();
    // The models of a provider of the company follow those of an equal name in the operator's file.
    models.sort_by_key(|ListedModel { provider_type, model }| {
        (&model.provider, provider_type.is_some(), &model.model)
    });
    response::json(StatusCode::OK, &json!({"asOf": app.catalog.as_of().to_string(), "models": models}))
}

/// A model as the list has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedModel<'a> {
    /// Type of the company's provider that has the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_type: Option<&'static str>,
    #[serde(flatten)]
    model: &'a CatalogModel,
}

/// Returns the schema of a model: as the list has it, or as it is given for a provider.
pub(super) fn model_schema(is_listed: bool) -> Value {
    let tokens =
        |text: &str| json!({"type": "integer", "minimum": 1, "maximum": u32::MAX, "description": text});
    let price =
        |text: &str| json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]{1,9})?$", "description": text});
    let list =
        |names: &[&str], text: &str| json!({"type": "array", "items": {"enum": names}, "description": text});
    let mut prices = json!({
        "input": price("Input tokens."),
        "cachedInput": price("Input tokens read from the provider's cache."),
        "cacheWrite": price("Input tokens written to the provider's cache."),
        "output": price("Output tokens."),
    });
    let levels = ["default", "none", "minimal", "low", "medium", "high", "xhigh"];
    let required: &[&str] = match is_listed {
        true => &["input", "cachedInput", "cacheWrite", "output", "asOf"],
        false => &["input", "output"],
    };
    if is_listed {
        prices["asOf"] = date_schema();
    }
    let prices = object(required, prices);
    let mut members = json!({
        "model": string_schema(),
        "contextWindow": tokens("Limit on prompt and answer together; on the prompt, where the vendor limits them separately."),
        "maxOutputTokens": tokens("Limit on an answer."),
        "input": list(&["text", "image"], "Kinds of content that the model reads."),
        "tools": {"type": "boolean", "description": "True if the model calls tools."},
        "structured": {"enum": ["schema", "object", "none"], "description": "Kind of JSON to which the vendor can constrain an answer."},
        "reasoning": list(&levels, "Levels of reasoning; only `default` for a model that reasons at a fixed level."),
        "prices": with_description(prices, "In dollars for a million tokens."),
    });
    if !is_listed {
        return object(&["model"], members);
    }
    members["provider"] = string_schema();
    let types = ProviderType::ALL.map(ProviderType::as_str);
    members["providerType"] =
        json!({"enum": types, "description": "Type of the provider; only for a provider of the company."});
    object(&["provider", "model"], members)
}

fn date_schema() -> Value {
    json!({"type": "string", "format": "date"})
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let models = json!({"type": "array", "items": model_schema(true)});
    let catalog = object(&["asOf", "models"], json!({"asOf": date_schema(), "models": models}));
    Operation::new(
        "listCatalogModels",
        "usage",
        "Returns the catalogue of models, and those of the company's providers: limits, capabilities and prices.",
    )
    .describe("Unknown members are absent.")
    .parameter("query", PROVIDER, "Only models of this provider.", string_schema())
    .json_response(200, "The models, in the order of provider and name.", catalog)
}

fn with_description(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.into();
    schema
}
