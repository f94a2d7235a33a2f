//! Builder of an OpenAPI operation.

use std::fmt::Display;

use serde_json::{Map, Value, json};

use super::CredentialClass;
use crate::error::Code;

/// Builder of an OpenAPI operation object. The endpoint adds its path parameters and its security requirement.
pub(crate) struct Operation(Value);

impl Operation {
    /// Creates an operation without parameters, body and responses.
    pub(crate) fn new(id: &str, tag: &str, summary: &str) -> Self {
        let object = json!({
            "operationId": id, "tags": [tag], "summary": summary, "parameters": [], "security": [],
            "responses": {},
        });
        Self(object).problems(&[Code::Internal])
    }

    /// Sets the description beyond the summary.
    pub(crate) fn describe(mut self, text: &str) -> Self {
        self.0["description"] = text.into();
        self
    }

    /// Adds a parameter.
    pub(crate) fn parameter(mut self, location: &str, name: &str, text: &str, schema: Value) -> Self {
        let parameter = json!({"name": name, "in": location, "description": text, "schema": schema});
        self.parameters().push(parameter);
        self
    }

    /// Adds the pagination parameters.
    pub(crate) fn paged(self) -> Self {
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50});
        self.parameter(
            "query",
            "limit",
            "Maximum number of items. A page may have fewer items even if it is not the last one.",
            limit,
        )
        .parameter("query", "cursor", "The `nextCursor` of the previous page.", json!({"type": "string"}))
        .problems(&[Code::InvalidRequest])
    }

    /// Adds the condition of a read, which is answered with 304 if the client has the current version.
    pub(crate) fn conditional_read(self) -> Self {
        self.condition("If-None-Match")
            .empty_response(304, "Not modified: the client has the current version.")
    }

    /// Adds the conditions of a write.
    pub(crate) fn conditional_write(self, headers: &[&str]) -> Self {
        let operation = headers.iter().fold(self, |operation, name| operation.condition(name));
        operation.problems(&[Code::PreconditionFailed, Code::Conflict])
    }

    fn condition(self, name: &str) -> Self {
        self.parameter("header", name, "RFC 9110, section 13.1.", json!({"type": "string"}))
    }

    /// Sets a JSON request body.
    pub(crate) fn body(mut self, schema: Value) -> Self {
        self.0["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
        self.problems(&[
            Code::InvalidRequest,
            Code::PayloadTooLarge,
            Code::RequestTimeout,
            Code::UnsupportedMediaType,
        ])
    }

    /// Sets a request body of other media types: a map of media types.
    pub(crate) fn raw_body(mut self, content: Value) -> Self {
        self.0["requestBody"] = json!({"required": true, "content": content});
        self.problems(&[
            Code::InvalidRequest,
            Code::PayloadTooLarge,
            Code::RequestTimeout,
            Code::UnsupportedMediaType,
        ])
    }

    /// Adds the responses of a request that begins an extraction, for the end of which `Prefer: wait` waits.
    pub(crate) fn upload_responses(self, status: Value, document: Value) -> Self {
        let wait = json!({"type": "string", "examples": ["wait=30"]});
        let text =
            "Seconds for which the response waits for the end of the extraction (RFC 7240), at most 60.";
        self.parameter("header", "Prefer", text, wait)
            .versioned_response(200, "The text is extracted.", document)
            .versioned_response(202, "The text is being extracted.", status)
            .problems(&[Code::ExtractionFailed, Code::Conflict])
    }

    /// Adds a JSON response.
    pub(crate) fn json_response(self, status: u16, text: &str, schema: Value) -> Self {
        self.response(
            status,
            json!({"description": text, "content": {"application/json": {"schema": schema}}}),
        )
    }

    /// Adds a JSON response with an `ETag`.
    pub(crate) fn versioned_response(self, status: u16, text: &str, schema: Value) -> Self {
        let etag = json!({"description": "The resource's version.", "schema": {"type": "string"}});
        let content = json!({"application/json": {"schema": schema}});
        self.response(status, json!({"description": text, "headers": {"ETag": etag}, "content": content}))
    }

    /// Adds a response without a body.
    pub(crate) fn empty_response(self, status: u16, text: &str) -> Self {
        self.response(status, json!({"description": text}))
    }

    /// Adds the event stream responses of a run.
    pub(crate) fn run_responses(self) -> Self {
        let format = json!({"type": "string", "enum": ["ndjson", "sse", "ui-message", "n8n", "json"]});
        let lines = json!({"schema": {"type": "string"}});
        let output = json!({"schema": {"type": "object", "required": ["threadId", "runId", "output"], "properties": {
            "threadId": {"type": "string"}, "runId": {"type": "string"}, "output": {"type": "string"},
            "toolCalls": {"type": "array"}, "usage": {"type": "array"}, "finishReason": {"type": "string"},
            "object": {"description": "The answer, if a JSON format was requested."}}}});
        let content = json!({"application/x-ndjson": lines, "text/event-stream": lines, "text/plain": lines,
            "application/json": output});
        self.parameter(
            "query",
            "format",
            "The format of the response; by default it is negotiated by `Accept`.",
            format,
        )
        .response(
            200,
            json!({"description": "A stream of AG-UI events, or one JSON object.", "content": content}),
        )
        .problems(&[
            Code::NotAcceptable,
            Code::UnsupportedContent,
            Code::ProviderNotImplemented,
            Code::BackendFailed,
            Code::BackendTimeout,
            Code::RateLimited,
        ])
    }

    /// Adds a response; the status may be `default`.
    pub(crate) fn response(mut self, status: impl Display, response: Value) -> Self {
        self.responses().insert(status.to_string(), response);
        self
    }

    /// Adds the statuses of these error codes, unless they are described already.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        for code in codes {
            let problem = json!({"$ref": "#/components/responses/Problem"});
            self.responses().entry(code.status().as_str()).or_insert(problem);
        }
        self
    }

    /// Returns the operation object of an endpoint with this path and credential class. Each credential may have to be
    /// looked up in the store, so no operation that needs one has to list [`Code::StoreUnavailable`].
    pub(super) fn into_object(self, path: &str, class: CredentialClass) -> Value {
        let mut operation = match class {
            CredentialClass::Public => self,
            _ => self.problems(&[
                Code::AmbiguousCredentials,
                Code::Unauthenticated,
                Code::Forbidden,
                Code::NotConfigured,
                Code::StoreUnavailable,
            ]),
        };
        if class.counts_requests() {
            operation = operation.problems(&[Code::RateLimited]);
        }
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let of_path = names.map(|name| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
        });
        operation.parameters().splice(..0, of_path);
        operation.responses().sort_keys();
        if class == CredentialClass::ApiToken {
            operation.use_openai_errors();
        }
        operation.0["security"] = class.security_requirement();
        operation.0
    }

    /// Replaces problem details by the errors of OpenAI's API.
    fn use_openai_errors(&mut self) {
        for response in self.responses().values_mut() {
            if response["$ref"].is_string() {
                *response = json!({"$ref": "#/components/responses/ApiError"});
            }
        }
    }

    fn parameters(&mut self) -> &mut Vec<Value> {
        self.0["parameters"].as_array_mut().expect("it was made as a list")
    }

    fn responses(&mut self) -> &mut Map<String, Value> {
        self.0["responses"].as_object_mut().expect("it was made as an object")
    }
}

/// Returns the schema of a string.
pub(crate) fn string_schema() -> Value {
    json!({"type": "string"})
}
