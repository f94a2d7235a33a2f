//! Members of request bodies for the format of the answer.

use agent_core::model::ModelRequest;
use agent_core::payload::PayloadBuilder;
use agent_core::role::ResponseFormat;
use serde::Serialize;
use serde_json::{Value, json};

/// Default name of a schema.
const DEFAULT_NAME: &str = "answer";

/// Format as OpenAI's Responses API has it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OpenAiFormat<'a> {
    JsonObject,
    JsonSchema {
        #[serde(flatten)]
        schema: NamedSchema<'a>,
    },
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'a str,
    strict: bool,
    schema: &'a Value,
}

impl<'a> NamedSchema<'a> {
    fn of(format: &'a ResponseFormat) -> Option<Self> {
        let name = format.name.as_deref().unwrap_or(DEFAULT_NAME);
        let schema = format.schema.as_ref()?;
        Some(Self { name, strict: format.strict.unwrap_or(true), schema })
    }
}

/// Appends `response_format` of the Chat Completions API.
pub(super) fn push_chat_completions(request: &ModelRequest, body: &mut PayloadBuilder) {
    let Some(format) = &request.response_format else { return };
    body.raw(r#","response_format":"#);
    match NamedSchema::of(format) {
        Some(schema) => body.raw(r#"{"type":"json_schema","json_schema":"#).json(&schema).raw("}"),
        None => body.json(&OpenAiFormat::JsonObject),
    };
}

/// Appends `text` of the Responses API.
pub(super) fn push_responses(request: &ModelRequest, body: &mut PayloadBuilder) {
    let Some(format) = &request.response_format else { return };
    let schema = NamedSchema::of(format);
    let format = schema.map_or(OpenAiFormat::JsonObject, |schema| OpenAiFormat::JsonSchema { schema });
    body.raw(r#","text":{"format":"#).json(&format).raw("}");
}

/// Appends `format` of Ollama's API.
pub(super) fn push_ollama(request: &ModelRequest, body: &mut PayloadBuilder) {
    let Some(format) = &request.response_format else { return };
    body.raw(r#","format":"#);
    match &format.schema {
        Some(schema) => body.json(schema),
        None => body.json(&"json"),
    };
}

/// Returns `output_config.format` of the Messages API, which has no format without a schema.
pub(super) fn messages_format(request: &ModelRequest) -> Option<Value> {
    let schema = request.response_format.as_ref()?.schema.as_ref()?;
    Some(json!({"type": "json_schema", "schema": schema}))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::model::Model;
    use agent_core::role::ResponseKind;
    use url::Url;

    use super::*;
    use crate::loopback::outbound_client;
    use crate::models::anthropic::Anthropic;
    use crate::models::harness::request;
    use crate::models::ollama::Ollama;
    use crate::models::openai::OpenAi;
    use crate::models::responses::{Account, Responses, ResponsesProtocol};
    use crate::outbound::UrlTrust::Operator;

    /// Returns the body that a model is sent for a format.
    fn body(model: &dyn Model, format: Option<ResponseFormat>) -> Value {
        let request = ModelRequest { response_format: format.map(Arc::new), ..request() };
        let payload = model.prepare(&request).expect("prepared");
        serde_json::from_slice(payload.bytes()).expect("the body is JSON")
    }

    #[test]
    fn each_api_has_the_format_in_its_own_member() {
        let base = Url::parse("http://h/v1").expect("an address");
        let client = || outbound_client("");
        let chat = OpenAi::new(client(), &base, Operator, None, "m-1").expect("a model");
        let protocol = ResponsesProtocol::new("openai-responses", Account::ApiKey, "m-1", base.as_str());
        let responses = Responses::new(client(), &base, Operator, None, protocol).expect("a model");
        let ollama = Ollama::new(client(), &base, Operator, None, "m-1").expect("a model");
        let messages = Anthropic::new(client(), &base, Operator, None, "m-1").expect("a model");
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let named = json!({"name": "answer", "strict": true, "schema": schema});
        let of_responses = json!({"type": "json_schema", "name": "answer", "strict": true, "schema": schema});
        let of_messages = json!({"type": "json_schema", "schema": schema});
        let models: [(&dyn Model, &str, Value, Option<Value>); 4] = [
            (
                &chat,
                "/response_format",
                json!({"type": "json_schema", "json_schema": named}),
                Some(json!({"type": "json_object"})),
            ),
            (&responses, "/text/format", of_responses, Some(json!({"type": "json_object"}))),
            (&ollama, "/format", schema.clone(), Some(json!("json"))),
            (&messages, "/output_config/format", of_messages, None),
        ];
        for (model, pointer, of_schema, of_object) in models {
            let format = |schema| {
                Some(ResponseFormat { kind: ResponseKind::Json, schema, ..ResponseFormat::default() })
            };
            let sent = body(model, format(Some(schema.clone())));
            let text = sent.pointer(pointer).map(Value::to_string);
            assert_eq!(text, Some(of_schema.to_string()), "the order of members is kept: {sent}");
            assert_eq!(body(model, format(None)).pointer(pointer), of_object.as_ref(), "{pointer}");
            assert_eq!(body(model, None).pointer(pointer), None, "{pointer}");
        }
        let loose =
            ResponseFormat { strict: Some(false), name: Some("n".to_owned()), ..ResponseFormat::default() };
        let sent = body(&chat, Some(ResponseFormat { schema: Some(schema), ..loose }));
        let described = &sent["response_format"]["json_schema"];
        assert_eq!((&described["strict"], &described["name"]), (&json!(false), &json!("n")));
    }

    #[test]
    fn anthropic_has_effort_and_format_in_one_member() {
        let base = Url::parse("http://h").expect("an address");
        let spec = crate::models::ModelSpec::new("claude-opus-4-6").with_reasoning_effort(Some("low"));
        let model = Anthropic::new(outbound_client(""), &base, Operator, None, spec).expect("a model");
        let format = ResponseFormat { schema: Some(json!({})), ..ResponseFormat::default() };
        let expected = json!({"effort": "low", "format": {"type": "json_schema", "schema": {}}});
        assert_eq!(body(&model, Some(format))["output_config"], expected);
    }
}
