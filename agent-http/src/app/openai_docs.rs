//! OpenAPI descriptions of the endpoints of OpenAI's API.

use serde_json::{Value, json};

use super::openai::{ModelList, ModelObject};
use crate::endpoint::{Operation, Schemas, string_schema};
use crate::error::Code;

/// Tag of the operations.
const TAG: &str = "openai";

pub(super) fn list_models(schemas: &mut Schemas) -> Operation {
    Operation::new("listModels", TAG, "Lists the agents of the token as models.").json_response(
        200,
        "The agents.",
        schemas.schema_for::<ModelList>(),
    )
}

pub(super) fn get_model(schemas: &mut Schemas) -> Operation {
    Operation::new("getModel", TAG, "Returns one agent of the token as a model.")
        .json_response(200, "The agent.", schemas.schema_for::<ModelObject>())
        .problems(&[Code::NotFound])
}

pub(super) fn post_completion(_: &mut Schemas) -> Operation {
    let thread = "Thread in which the run is stored.";
    let header = |text: &str| json!({"description": text, "schema": string_schema()});
    let content = json!({
        "application/json": {"schema": completion_schema()},
        "text/event-stream": {"schema": string_schema()},
    });
    let headers = json!({
        "X-Agent-Run-Id": header("Id of the run."),
        "X-Thread-Id": header("Thread in which the run is stored."),
        "X-Agent-Run-State": header("`waiting`, if the run waits for a person's approval. Streams do not have it."),
    });
    let description = "The chat completion, or its chunks as server-sent events that end with `[DONE]`.";
    Operation::new(
        "createChatCompletion",
        TAG,
        "Sends a conversation to an agent, as a chat completion of OpenAI's API.",
    )
    .parameter("header", "X-Thread-Id", thread, string_schema())
    .body(body_schema())
    .response(200, json!({"description": description, "headers": headers, "content": content}))
    .problems(&[
        Code::NotFound,
        Code::Conflict,
        Code::Gone,
        Code::UnsupportedContent,
        Code::RateLimited,
        Code::ProviderNotImplemented,
        Code::BackendFailed,
        Code::BackendTimeout,
    ])
}

fn body_schema() -> Value {
    let tokens = json!({"type": ["integer", "null"], "minimum": 1,
        "description": "Limit on each answer of the agent's model, in tokens, below that of the agent."});
    json!({
        "type": "object",
        "description": "A request of the Chat Completions API. Further fields of it are ignored.",
        "required": ["model", "messages"],
        "properties": {
            "model": {"type": "string", "description": "Id of the agent."},
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "stream": {"type": "boolean"},
            "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
            "tools": {"type": "array", "items": {"type": "object"}, "description": "Functions that the client executes."},
            "tool_choice": {},
            "max_completion_tokens": tokens,
            "max_tokens": tokens,
            "store": {"type": "boolean", "description": "True stores the run in a thread, false does not."},
            "n": {"const": 1},
        },
    })
}

fn completion_schema() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["id", "object", "created", "model", "choices"],
        "properties": {
            "id": string_schema(),
            "object": {"const": "chat.completion"},
            "created": count(),
            "model": string_schema(),
            "choices": {"type": "array", "items": {
                "type": "object",
                "required": ["index", "message", "finish_reason"],
                "properties": {
                    "index": count(),
                    "message": {
                        "type": "object",
                        "required": ["role", "content"],
                        "properties": {
                            "role": {"const": "assistant"},
                            "content": {"type": ["string", "null"]},
                            "tool_calls": {"type": "array", "items": {"type": "object"}},
                        },
                    },
                    "finish_reason": {"enum": ["stop", "length", "tool_calls", "content_filter"]},
                },
            }},
            "usage": {
                "type": "object",
                "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
                "properties": {
                    "prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count(),
                },
            },
        },
    })
}
