//! `GET /api/models`, the catalogue of models.

use agent_core::request::Principal;
use agent_platform::catalog::CatalogModel;
use http::StatusCode;
use serde_json::{Value, json};

use super::thread_docs::object;
use super::{App, answer};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::request::Query;
use crate::service::HandlerResult;

/// Query parameter that restricts the list to a provider.
const PROVIDER: &str = "provider";

/// Handles `GET /api/models`.
pub(super) async fn list(context: RequestContext<App>, _: Principal) -> HandlerResult {
    let RequestContext { state: app, head, .. } = context;
    let query = Query::from_uri(&head.uri);
    let provider = query.get(PROVIDER)?.filter(|provider| !provider.is_empty());
    let is_listed = |model: &&CatalogModel| provider.is_none_or(|provider| model.provider == provider);
    let mut models: Vec<&CatalogModel> = app.catalog.models().filter(is_listed).collect();
    models.sort_by_key(|model| (&model.provider, &model.model));
    answer::json(StatusCode::OK, &json!({"asOf": app.catalog.as_of().to_string(), "models": models}))
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let tokens =
        |text: &str| json!({"type": "integer", "minimum": 1, "maximum": u32::MAX, "description": text});
    let price =
        |text: &str| json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]{1,9})?$", "description": text});
    let date = || json!({"type": "string", "format": "date"});
    let list =
        |names: &[&str], text: &str| json!({"type": "array", "items": {"enum": names}, "description": text});
    let prices = object(
        &["input", "cachedInput", "cacheWrite", "output", "asOf"],
        json!({
            "input": price("Input tokens."),
            "cachedInput": price("Input tokens read from the provider's cache."),
            "cacheWrite": price("Input tokens written to the provider's cache."),
            "output": price("Output tokens."),
            "asOf": date(),
        }),
    );
    let levels = ["default", "none", "minimal", "low", "medium", "high", "xhigh"];
    let model = object(
        &["provider", "model"],
        json!({
            "provider": string_schema(),
            "model": string_schema(),
            "contextWindow": tokens("Limit on prompt and answer together; on the prompt, where the vendor limits them separately."),
            "maxOutputTokens": tokens("Limit on an answer."),
            "input": list(&["text", "image"], "Kinds of content that the model reads."),
            "tools": {"type": "boolean", "description": "True if the model calls tools."},
            "structured": {"enum": ["schema", "object", "none"], "description": "Kind of JSON that an answer can be bound to."},
            "reasoning": list(&levels, "Levels of reasoning; `default` alone for a model that reasons at a level of its own."),
            "prices": described(prices, "In dollars for a million tokens."),
        }),
    );
    let catalog =
        object(&["asOf", "models"], json!({"asOf": date(), "models": {"type": "array", "items": model}}));
    Operation::new(
        "listCatalogModels",
        "usage",
        "Returns the catalogue of models: limits, capabilities and prices.",
    )
    .describe("Members that are not known are absent.")
    .parameter("query", PROVIDER, "Restricts the list to a provider.", string_schema())
    .json_response(200, "The models, in the order of provider and name.", catalog)
}

fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.into();
    schema
}
