//! The application's operations.

use agent_core::role::RoleBlock;
use agent_core::workspace::Document;
use http::Method;
use serde_json::{Value, json};

use super::operation::{Operation, Service};
use super::schemas::Schemas;
use crate::app::{AgentPage, DocumentPage, MadeToken, TokenPage, TokenRequest};
use crate::error::Code;

pub(super) fn operations(schemas: &mut Schemas) -> Vec<Operation> {
    let mut all = vec![chat()];
    all.extend(agents(schemas));
    all.extend(tokens(schemas));
    all.extend(documents(schemas));
    all.extend(health());
    all
}

fn chat() -> Operation {
    let text = || json!({"type": "string"});
    let body = json!({
        "type": "object",
        "description": "Our own fields, AG-UI's RunAgentInput, the AI SDK's UI messages, or OpenAI's spelling.",
        "properties": {
            "agentId": text(), "message": {"description": "Text, or a user message."},
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "threadId": text(), "runId": text(), "tabId": text(), "todoListId": text(), "timezone": text(),
            "widgetToken": text(), "userId": text(), "companyId": text(),
            "pageContext": {}, "blocksContext": {"type": "array"}, "toolChoice": {},
        },
    });
    Operation::new(
        Method::POST,
        "/api/agent/chat",
        "chat",
        "chat",
        "One message to an agent in, one run out.",
    )
    .credentials(&["session", "sessionCookie", "widgetToken", "internal"])
    .parameter("header", "X-Proactive-Trigger", "Makes the call a proactive one, and says why.", text())
    .run()
    .body(body)
    .problems(&[Code::NotFound, Code::Conflict, Code::RateLimited])
}

impl Operation {
    /// Answers with a run.
    pub(super) fn run(self) -> Self {
        let format = json!({"type": "string", "enum": ["ndjson", "sse", "ui-message", "json"]});
        let lines = json!({"schema": {"type": "string"}});
        let output = json!({"schema": {"type": "object", "required": ["threadId", "runId", "output"], "properties": {
            "threadId": {"type": "string"}, "runId": {"type": "string"}, "output": {"type": "string"},
            "toolCalls": {"type": "array"}, "usage": {"type": "array"}, "finishReason": {"type": "string"}}}});
        let content =
            json!({"application/x-ndjson": lines, "text/event-stream": lines, "application/json": output});
        self.parameter("query", "format", "The framing; else `Accept` says it.", format)
            .response(200, json!({"description": "AG-UI events, or one object.", "content": content}))
            .problems(&[
                Code::NotAcceptable,
                Code::UnsupportedContent,
                Code::ProviderNotImplemented,
                Code::BackendFailed,
                Code::BackendTimeout,
                Code::RateLimited,
            ])
    }
}

fn agents(schemas: &mut Schemas) -> Vec<Operation> {
    let operation =
        |method, path, id: &str, summary: &str| Operation::new(method, path, id, "agents", summary).session();
    let role = schemas.of::<RoleBlock>();
    let given = schemas.without_required::<RoleBlock>(&["id", "companyId"]);
    let one = "/api/agents/{id}";
    vec![
        operation(Method::GET, "/api/agents", "listAgents", "The company's agents, secrets masked.")
            .paged()
            .answers(200, "One page.", schemas.of::<AgentPage>()),
        operation(Method::GET, one, "getAgent", "An agent of the company, secrets masked.")
            .conditions(&["If-None-Match"])
            .answers_at_version(200, "The agent.", role.clone())
            .answers_nothing(304, "The client has this version.")
            .problems(&[Code::NotFound]),
        operation(Method::PUT, one, "putAgent", "Makes an agent of the caller's own, or replaces one.")
            .note("A secret that is absent or `***` stays as it is, an empty one is cleared, and one whose address \
                   changes is cleared too. `id`, `companyId` and `ownerId` may be left out.")
            .conditions(&["If-Match", "If-None-Match"])
            .body(given)
            .answers_at_version(200, "It is replaced.", role.clone())
            .answers_at_version(201, "It is made.", role)
            .problems(&[Code::NotFound]),
        operation(Method::DELETE, one, "deleteAgent", "Deletes an agent of the caller's own, and revokes its tokens.")
            .conditions(&["If-Match"])
            .answers_nothing(204, "It is gone.")
            .problems(&[Code::NotFound]),
    ]
}

fn tokens(schemas: &mut Schemas) -> Vec<Operation> {
    let all = "/api/agents/{id}/tokens";
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "agents", summary).session().problems(&[Code::NotFound])
    };
    vec![
        operation(
            Method::GET,
            all,
            "listTokens",
            "The tokens of an agent of the caller's own, without their texts.",
        )
        .paged()
        .answers(200, "One page.", schemas.of::<TokenPage>()),
        operation(Method::POST, all, "createToken", "Makes a token for an agent of the caller's own.")
            .body(schemas.of::<TokenRequest>())
            .answers(201, "The token, with its text, which is not shown again.", schemas.of::<MadeToken>()),
        operation(
            Method::DELETE,
            "/api/agents/{id}/tokens/{tokenId}",
            "revokeToken",
            "Revokes a token of an agent of the caller's own; again changes nothing.",
        )
        .answers_nothing(204, "It is revoked."),
    ]
}

fn documents(schemas: &mut Schemas) -> Vec<Operation> {
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "documents", summary).session()
    };
    let document = schemas.of::<Document>();
    let given = schemas.without_required::<Document>(&["id", "companyId"]);
    let one = "/api/documents/{id}";
    vec![
        operation(
            Method::GET,
            "/api/documents",
            "listDocuments",
            "The company's documents, without their texts.",
        )
        .paged()
        .answers(200, "One page.", schemas.of::<DocumentPage>()),
        operation(Method::GET, one, "getDocument", "A document of the company.")
            .conditions(&["If-None-Match"])
            .answers_at_version(200, "The document.", document.clone())
            .answers_nothing(304, "The client has this version.")
            .problems(&[Code::NotFound]),
        operation(Method::PUT, one, "putDocument", "Makes a document, or replaces one.")
            .conditions(&["If-Match", "If-None-Match"])
            .body(given)
            .answers_at_version(200, "It is replaced.", document.clone())
            .answers_at_version(201, "It is made.", document)
            .problems(&[Code::NotFound]),
        operation(Method::DELETE, one, "deleteDocument", "Deletes a document.")
            .conditions(&["If-Match"])
            .answers_nothing(204, "It is gone.")
            .problems(&[Code::NotFound]),
    ]
}

/// The health of every service.
fn health() -> [Operation; 3] {
    let status = |more: Value| {
        let mut schema =
            json!({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}});
        for (name, kind) in more.as_object().into_iter().flatten() {
            schema["properties"][name] = json!({ "type": kind });
        }
        schema
    };
    let operation = |path, id: &str, summary: &str| {
        Operation::new(Method::GET, path, id, "health", summary).of(&[Service::App, Service::Runtime])
    };
    [
        operation("/livez", "live", "The process answers.").answers(200, "It does.", status(json!({}))),
        operation("/readyz", "ready", "Whether it may be sent traffic.")
            .answers(200, "It may.", status(json!({})))
            .answers(503, "It is draining.", status(json!({}))),
        operation("/health", "health", "What it is.").answers(
            200,
            "It is well.",
            status(json!({"version": "string", "uptimeMs": "integer", "service": "string"})),
        ),
    ]
}
