//! Operations of the application server.

use agent_core::role::RoleBlock;
use agent_platform::workspace::Document;
use http::Method;
use serde_json::{Value, json};

use super::operation::{DescribedService, Operation};
use super::schemas::Schemas;
use crate::app::{AgentPage, CreatedToken, DocumentPage, TokenPage, TokenRequest};
use crate::error::Code;

pub(super) fn operations(schemas: &mut Schemas) -> Vec<Operation> {
    let mut all = vec![chat(), private_chat()];
    all.extend(previews());
    all.extend(tool_server());
    all.extend(assistants());
    all.extend(agents(schemas));
    all.extend(tokens(schemas));
    all.extend(documents(schemas));
    all.extend(super::pulse::operations(schemas));
    all.extend(health());
    all
}

fn text() -> Value {
    json!({"type": "string"})
}

/// Returns the schema of a chat request.
fn chat_body() -> Value {
    json!({
        "type": "object",
        "description": "Our own fields, AG-UI's RunAgentInput, the AI SDK's UI messages, or OpenAI's spelling.",
        "properties": {
            "agentId": text(), "message": {"description": "Text, or a user message."},
            "messages": {"type": "array", "items": {"type": "object"}, "description": "The conversation, oldest first."},
            "threadId": text(), "runId": text(), "tabId": text(), "todoListId": text(), "timezone": text(),
            "widgetToken": text(), "userId": text(), "companyId": text(),
            "pageContext": {}, "blocksContext": {"type": "array"}, "toolChoice": {},
        },
    })
}

fn chat() -> Operation {
    Operation::new(
        Method::POST,
        "/api/agent/chat",
        "chat",
        "chat",
        "One message to an agent in, one run out.",
    )
    .credentials(&["session", "sessionCookie", "widgetToken", "internal"])
    .parameter("header", "X-Proactive-Trigger", "Makes the call a proactive one, and says why.", text())
    .run_responses()
    .body(chat_body())
    .problems(&[Code::NotFound, Code::Conflict, Code::RateLimited])
}

fn private_chat() -> Operation {
    let summary = "As `/api/agent/chat`, for older clients; also takes `chatInput` and `sessionId`.";
    Operation::new(Method::POST, "/api/svcchat/private", "privateChat", "chat", summary)
        .credentials(&["session", "sessionCookie", "widgetToken", "internal"])
        .run_responses()
        .body(chat_body())
        .problems(&[Code::NotFound, Code::Conflict, Code::RateLimited])
}

/// Returns the operations that preview a prompt; they use the code that sends it.
fn previews() -> Vec<Operation> {
    let preview = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "previews", summary)
            .require_session()
            .json_response(
                200,
                "The prompt, its parts, and the request as it would be sent.",
                json!({"type": "object"}),
            )
            .problems(&[Code::NotFound, Code::NoConnector])
    };
    let by_query = |operation: Operation| {
        ["agentId", "message", "threadId", "todoListId", "timezone", "trigger"]
            .into_iter()
            .fold(operation, |operation, name| operation.parameter("query", name, "As the chat's.", text()))
    };
    let path = "/api/svcchat/previewPrompt";
    vec![
        by_query(preview(
            Method::GET,
            "/api/svcchat/debugPrompt",
            "debugPrompt",
            "The prompt and the request of an agent, with or without a message.",
        )),
        by_query(preview(Method::GET, path, "previewPrompt", "What a message would have sent.")),
        preview(Method::POST, path, "previewPromptOf", "What a body of the chat's would have sent.")
            .body(chat_body()),
    ]
}

fn tool_server() -> Vec<Operation> {
    let mcp = |method, id: &str, summary: &str| {
        Operation::new(method, "/api/agent/mcp", id, "mcp", summary)
            .describe("The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25 and 2025-06-18.")
            .credentials(&["mcpToken"])
            .parameter("query", "token", "The token, where it is not a bearer.", text())
    };
    let message = || json!({"type": "object"});
    vec![
        mcp(Method::GET, "mcpListen", "Listens to the messages of a session.")
            .response(
                200,
                json!({"description": "A stream of messages.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}}}),
            )
            .problems(&[Code::Forbidden, Code::NotFound]),
        mcp(Method::POST, "mcpSend", "One message of JSON-RPC.")
            .body(message())
            .json_response(200, "Its answer.", message())
            .empty_response(202, "A notification is taken.")
            .problems(&[Code::Forbidden, Code::NotFound, Code::RateLimited]),
        mcp(Method::DELETE, "mcpEnd", "Ends a session.")
            .empty_response(204, "It is ended.")
            .problems(&[Code::Forbidden, Code::NotFound]),
        Operation::new(
            Method::GET,
            "/api/agent/tools/audit",
            "toolAudit",
            "mcp",
            "Who has called the tools of an agent of the caller's own.",
        )
        .require_session()
        .parameter("query", "agentId", "The agent.", text())
        .paged()
        .json_response(200, "One page, the newest first.", json!({"type": "object"}))
        .problems(&[Code::NotFound]),
    ]
}

/// Returns the deprecated operations of the former assistants API, which have no effect.
fn assistants() -> Vec<Operation> {
    let operation = |method, path, id: &str| {
        Operation::new(method, path, id, "deprecated", "Does nothing, and says so.")
            .require_session()
            .json_response(200, "What to use instead.", json!({"type": "object"}))
    };
    let action = "/api/assistants/context/{*action}";
    vec![
        operation(Method::GET, "/api/assistants/context-status", "contextStatus"),
        operation(Method::GET, action, "contextAction"),
        operation(Method::POST, action, "contextActionOf"),
    ]
}

impl Operation {
    /// Describes the event stream responses of a run.
    pub(super) fn run_responses(self) -> Self {
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
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "agents", summary).require_session()
    };
    let role = schemas.schema_for::<RoleBlock>();
    let given = schemas.without_required::<RoleBlock>(&["id", "companyId"]);
    let one = "/api/agents/{id}";
    vec![
        operation(Method::GET, "/api/agents", "listAgents", "The company's agents, secrets masked.")
            .paged()
            .json_response(200, "One page.", schemas.schema_for::<AgentPage>()),
        operation(Method::GET, one, "getAgent", "An agent of the company, secrets masked.")
            .conditions(&["If-None-Match"])
            .versioned_response(200, "The agent.", role.clone())
            .empty_response(304, "The client has this version.")
            .problems(&[Code::NotFound]),
        operation(Method::PUT, one, "putAgent", "Makes an agent of the caller's own, or replaces one.")
            .describe("A secret that is absent or `***` stays as it is, an empty one is cleared, and one whose address \
                   changes is cleared too. `id`, `companyId` and `ownerId` may be left out.")
            .conditions(&["If-Match", "If-None-Match"])
            .body(given)
            .versioned_response(200, "It is replaced.", role.clone())
            .versioned_response(201, "It is made.", role)
            .problems(&[Code::NotFound]),
        operation(Method::DELETE, one, "deleteAgent", "Deletes an agent of the caller's own, and revokes its tokens.")
            .conditions(&["If-Match"])
            .empty_response(204, "It is gone.")
            .problems(&[Code::NotFound]),
    ]
}

fn tokens(schemas: &mut Schemas) -> Vec<Operation> {
    let all = "/api/agents/{id}/tokens";
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "agents", summary).require_session().problems(&[Code::NotFound])
    };
    vec![
        operation(
            Method::GET,
            all,
            "listTokens",
            "The tokens of an agent of the caller's own, without their texts.",
        )
        .paged()
        .json_response(200, "One page.", schemas.schema_for::<TokenPage>()),
        operation(Method::POST, all, "createToken", "Makes a token for an agent of the caller's own.")
            .body(schemas.schema_for::<TokenRequest>())
            .json_response(
                201,
                "The token, with its text, which is not shown again.",
                schemas.schema_for::<CreatedToken>(),
            ),
        operation(
            Method::DELETE,
            "/api/agents/{id}/tokens/{tokenId}",
            "revokeToken",
            "Revokes a token of an agent of the caller's own; again changes nothing.",
        )
        .empty_response(204, "It is revoked."),
    ]
}

fn documents(schemas: &mut Schemas) -> Vec<Operation> {
    let operation = |method, path, id: &str, summary: &str| {
        Operation::new(method, path, id, "documents", summary).require_session()
    };
    let document = schemas.schema_for::<Document>();
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
        .json_response(200, "One page.", schemas.schema_for::<DocumentPage>()),
        operation(Method::GET, one, "getDocument", "A document of the company.")
            .conditions(&["If-None-Match"])
            .versioned_response(200, "The document.", document.clone())
            .empty_response(304, "The client has this version.")
            .problems(&[Code::NotFound]),
        operation(Method::PUT, one, "putDocument", "Makes a document, or replaces one.")
            .conditions(&["If-Match", "If-None-Match"])
            .body(given)
            .versioned_response(200, "It is replaced.", document.clone())
            .versioned_response(201, "It is made.", document)
            .problems(&[Code::NotFound]),
        operation(Method::DELETE, one, "deleteDocument", "Deletes a document.")
            .conditions(&["If-Match"])
            .empty_response(204, "It is gone.")
            .problems(&[Code::NotFound]),
    ]
}

/// Returns the health operations of every service.
fn health() -> [Operation; 4] {
    let status = |more: Value| {
        let mut schema =
            json!({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}});
        for (name, kind) in more.as_object().into_iter().flatten() {
            schema["properties"][name] = json!({ "type": kind });
        }
        schema
    };
    let operation = |path, id: &str, summary: &str| {
        Operation::new(Method::GET, path, id, "health", summary).services(&[
            DescribedService::App,
            DescribedService::Runtime,
            DescribedService::Scheduler,
        ])
    };
    [
        operation("/livez", "live", "The process answers.").json_response(200, "It does.", status(json!({}))),
        operation("/readyz", "ready", "Whether it may be sent traffic.")
            .json_response(200, "It may.", status(json!({})))
            .json_response(503, "It is draining.", status(json!({}))),
        operation("/health", "health", "What it is.")
            .json_response(
                200,
                "It is well.",
                status(json!({"version": "string", "uptimeMs": "integer", "service": "string"})),
            )
            .json_response(503, "The scheduler cannot reach its store.", status(json!({}))),
        operation("/metrics", "metrics", "What it has counted, as OpenMetrics text.").response(
            200,
            json!({"description": "The metrics.", "content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}),
        ),
    ]
}
