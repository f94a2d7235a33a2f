//! Builder of an OpenAPI operation.

use std::fmt::Display;

use http::Method;
use serde_json::{Map, Value, json};

use crate::error::Code;

/// Service of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescribedService {
    /// The application server.
    App,
    /// The agent runtime.
    Runtime,
    /// The scheduler.
    Scheduler,
}

impl DescribedService {
    /// Returns the OpenAPI server object with the default address.
    pub(super) fn server(self) -> Value {
        match self {
            Self::App => {
                json!({"url": "http://127.0.0.1:3000", "description": "the application, `agentd app`"})
            }
            Self::Runtime => {
                json!({"url": "http://127.0.0.1:3001", "description": "the agent runtime, `agentd runtime`"})
            }
            Self::Scheduler => {
                json!({"url": "http://127.0.0.1:3002", "description": "the scheduler, `agentd scheduler`"})
            }
        }
    }
}

/// Builder of an operation.
pub(super) struct Operation {
    pub(super) services: Vec<DescribedService>,
    pub(super) method: Method,
    pattern: &'static str,
    /// OpenAPI operation object.
    pub(super) description: Value,
}

impl Operation {
    /// Creates an operation of the application, with the path parameters of its pattern and without a credential.
    pub(super) fn new(method: Method, pattern: &'static str, id: &str, tag: &str, summary: &str) -> Self {
        let names = pattern.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<Value> = names
            .map(|name| {
                let name = name.trim_start_matches('*');
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
            })
            .collect();
        let description = json!({
            "operationId": id, "tags": [tag], "summary": summary, "parameters": parameters, "security": [],
            "responses": {},
        });
        let operation = Self { services: vec![DescribedService::App], method, pattern, description };
        operation.problems(&[Code::Internal])
    }

    /// Returns the path in OpenAPI's syntax.
    pub(super) fn path(&self) -> String {
        self.pattern.replace("{*", "{")
    }

    /// Sets the services that have the route; the default is the application.
    pub(super) fn services(mut self, services: &[DescribedService]) -> Self {
        self.services = services.to_vec();
        self
    }

    /// Sets the description beyond the summary.
    pub(super) fn describe(mut self, text: &str) -> Self {
        self.description["description"] = text.into();
        self
    }

    /// Sets the security schemes of which one is required, by name; an empty name allows no credential.
    pub(super) fn credentials(mut self, schemes: &[&str]) -> Self {
        let one = |scheme: &&str| match *scheme {
            "" => json!({}),
            scheme => json!({scheme: []}),
        };
        self.description["security"] = schemes.iter().map(one).collect();
        self.problems(&[
            Code::AmbiguousCredentials,
            Code::Unauthenticated,
            Code::Forbidden,
            Code::NotConfigured,
        ])
    }

    /// Requires a signed-in user.
    pub(super) fn require_session(self) -> Self {
        self.credentials(&["session", "sessionCookie"])
    }

    /// Adds a parameter.
    pub(super) fn parameter(mut self, place: &str, name: &str, text: &str, schema: Value) -> Self {
        let parameter = json!({"name": name, "in": place, "description": text, "schema": schema});
        self.description["parameters"].as_array_mut().expect("it was made as a list").push(parameter);
        self
    }

    /// Adds the pagination parameters.
    pub(super) fn paged(self) -> Self {
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50});
        self.parameter(
            "query",
            "limit",
            "How many at most. A page may have fewer and yet be followed by another.",
            limit,
        )
        .parameter("query", "cursor", "The `nextCursor` of the page before.", json!({"type": "string"}))
        .problems(&[Code::InvalidRequest])
    }

    /// Adds conditional request headers.
    pub(super) fn conditions(self, headers: &[&str]) -> Self {
        let operation = headers.iter().fold(self, |operation, name| {
            operation.parameter("header", name, "RFC 9110, section 13.1.", json!({"type": "string"}))
        });
        match operation.method {
            Method::GET => operation,
            _ => operation.problems(&[Code::PreconditionFailed, Code::Conflict]),
        }
    }

    /// Sets a JSON request body.
    pub(super) fn body(mut self, schema: Value) -> Self {
        self.description["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
        self.problems(&[
            Code::InvalidRequest,
            Code::PayloadTooLarge,
            Code::RequestTimeout,
            Code::UnsupportedMediaType,
        ])
    }

    /// Adds a JSON response.
    pub(super) fn json_response(self, status: u16, text: &str, schema: Value) -> Self {
        self.response(
            status,
            json!({"description": text, "content": {"application/json": {"schema": schema}}}),
        )
    }

    /// Adds a JSON response with an `ETag`.
    pub(super) fn versioned_response(self, status: u16, text: &str, schema: Value) -> Self {
        let etag = json!({"description": "The version.", "schema": {"type": "string"}});
        let content = json!({"application/json": {"schema": schema}});
        self.response(status, json!({"description": text, "headers": {"ETag": etag}, "content": content}))
    }

    /// Adds a response without a body.
    pub(super) fn empty_response(self, status: u16, text: &str) -> Self {
        self.response(status, json!({"description": text}))
    }

    /// Adds a response; the status may be `default`.
    pub(super) fn response(mut self, status: impl Display, response: Value) -> Self {
        self.responses().insert(status.to_string(), response);
        self.responses().sort_keys();
        self
    }

    /// Adds the statuses of these error codes, unless they are described already.
    pub(super) fn problems(mut self, codes: &[Code]) -> Self {
        for code in codes {
            let problem = json!({"$ref": "#/components/responses/Problem"});
            self.responses().entry(code.status().as_str()).or_insert(problem);
        }
        self.responses().sort_keys();
        self
    }

    fn responses(&mut self) -> &mut Map<String, Value> {
        self.description["responses"].as_object_mut().expect("it was made as an object")
    }
}
