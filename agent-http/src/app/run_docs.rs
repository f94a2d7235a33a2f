//! OpenAPI descriptions of runs' records.

use serde_json::{Value, json};

use crate::endpoint::{Operation, Schemas, string_schema};
use crate::error::Code;

/// Tag of the operations on threads and runs.
pub(super) const TAG: &str = "threads";

pub(super) fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

pub(super) fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// Returns the schema of a run's times.
pub(super) fn timing_schema() -> Value {
    let ms = || json!({"type": "integer"});
    let round = json!({
        "startedMs": ms(), "firstContentMs": ms(), "endedMs": ms(), "outputTokens": ms(), "attempts": ms(),
    });
    let tool = json!({
        "callId": string_schema(), "name": string_schema(), "startedMs": ms(), "endedMs": ms(),
        "isError": {"type": "boolean"},
    });
    let list = |item: Value| json!({"type": "array", "items": item});
    object(
        &[],
        json!({
            "queuedMs": ms(), "preparedMs": ms(), "firstContentMs": ms(),
            "rounds": list(object(&["startedMs"], round)),
            "tools": list(object(&["callId", "name", "startedMs"], tool)),
        }),
    )
}

/// Returns the schema of a run's attempts at its calls.
pub(super) fn attempts_schema() -> Value {
    let text = string_schema;
    let count = || json!({"type": "integer"});
    let attempt = json!({
        "round": count(), "attempt": count(), "entry": count(), "provider": text(), "model": text(),
        "reason": text(), "status": count(), "waitedMs": count(), "requestSha256": text(),
    });
    json!({"type": "array", "items": object(&["round", "entry", "provider", "model", "waitedMs"], attempt)})
}

/// Returns the schema of a backend's selection.
pub(super) fn selection_schema() -> Value {
    let members = json!({"backend": string_schema(), "rule": string_schema(), "container": string_schema()});
    object(&["backend"], members)
}

/// Describes `GET /api/runs/{id}/prompt`.
pub(super) fn get_prompt(_: &mut Schemas) -> Operation {
    let text = string_schema;
    let count = || json!({"type": "integer"});
    let part = json!({
        "id": text(), "source": text(), "stability": words(&["role", "agent", "session", "turn"]),
        "placement": words(&["system", "detached", "latestTurn"]), "tokens": count(), "bytes": count(),
        "sha256": text(), "content": text(),
    });
    let part = object(&["id", "source", "stability", "placement", "tokens", "bytes", "sha256"], part);
    let tool = json!({"name": text(), "sha256": text(), "tokens": count()});
    let cache = json!({"stablePrefixBytes": count(), "firstChangedPart": text(), "previousRunId": text()});
    let tokens = json!({"system": count(), "tools": count(), "messages": count()});
    let prompt = object(
        &["requestSha256", "backend", "parts", "tools", "messages", "tokens", "tokenCounter", "cache"],
        json!({
            "requestSha256": text(), "backend": text(), "parts": {"type": "array", "items": part},
            "tools": {"type": "array", "items": object(&["name", "sha256", "tokens"], tool)},
            "messages": count(), "tokens": object(&["system", "tools", "messages"], tokens),
            "tokenCounter": text(), "trimmedMessages": count(),
            "cache": object(&["stablePrefixBytes"], cache),
        }),
    );
    Operation::new("getRunPrompt", TAG, "Returns the manifest of a run's prompt.")
        .json_response(200, "The manifest.", prompt)
        .problems(&[Code::NotFound])
}
