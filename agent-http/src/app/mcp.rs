//! `GET, POST, DELETE /api/agent/mcp`, an agent's tools for MCP clients, and `GET /api/agent/tools/audit`, the log of
//! tool calls for the agent's owner.

use agent_core::ids::AgentId;
use agent_core::request::Principal;
use agent_platform::records::StoreError;
use agent_platform::workspace::{CompanyRole, get_company_role};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::resource::page_params;
use super::{App, response};
use crate::connection_permit::ConnectionPermit;
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;
use crate::state::RequestSender;

/// Tag of the operations of the tool server.
const TAG: &str = "mcp";

pub(super) async fn serve(context: RequestContext<App>, (): ()) -> HandlerResult {
    let app = context.state.clone();
    let connection = ConnectionPermit::of(&context.head);
    // A message may have an effect; the stream and the end of a session hold their connection alone.
    let is_query = context.head.method != Method::POST;
    let admit = |sender: RequestSender<'_>| {
        app.bounds.admit_call(&connection, sender.company_id)?;
        connection.mark_authenticated();
        app.bounds.admit_exchange(sender, is_query)
    };
    crate::mcp::handle_admitted(&app.tools.server, &app.base.body, context.into_request(), admit).await
}

pub(super) async fn audit(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let app = &*context.state;
    let query = Query::from_uri(&context.head.uri);
    let agent: AgentId = query.require("agentId")?.into();
    let list = page_params(&query)?;
    if !may_audit(app, &principal, &agent).await? {
        return Err(HttpError::not_found());
    }
    let calls = app
        .tools
        .server
        .audit()
        .list_calls(&principal.company_id, &agent, list.limit, list.cursor.as_deref())
        .await?;
    response::json(StatusCode::OK, &calls)
}

async fn may_audit(app: &App, principal: &Principal, agent: &AgentId) -> Result<bool, HttpError> {
    let role = match app.tools.roles.role(&principal.company_id, agent).await {
        // An invalid id belongs to no agent.
        Err(StoreError::Invalid(_)) => None,
        role => role?,
    };
    let Some(role) = role else { return Ok(false) };
    let company_role = get_company_role(&*app.records, &principal.company_id, &principal.user_id).await?;
    Ok(role.owner_id == principal.user_id || company_role == CompanyRole::Admin)
}

pub(super) fn describe_listen(_: &mut Schemas) -> Operation {
    let stream = json!({"description": "A stream of JSON-RPC messages.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}}});
    protocol_operation("mcpListen", "Opens the event stream of a session.")
        .response(200, stream)
        .problems(&[Code::RateLimited])
}

pub(super) fn describe_send(_: &mut Schemas) -> Operation {
    protocol_operation("mcpSend", "Sends one JSON-RPC message.")
        .body(json!({"type": "object"}))
        .response(200, messages("The JSON-RPC response."))
        .empty_response(202, "The notification or response was accepted.")
        .problems(&[Code::RateLimited])
}

pub(super) fn describe_end(_: &mut Schemas) -> Operation {
    protocol_operation("mcpEnd", "Ends a session.")
        .empty_response(204, "The session was ended.")
        .problems(&[Code::RateLimited])
}

/// Returns the description of a response with JSON-RPC messages, in the framing that the client accepts.
fn messages(description: &str) -> Value {
    let lines = json!({"schema": {"type": "string"}});
    json!({"description": description, "content": {"application/json": {"schema": {"type": "object"}},
        "application/x-ndjson": lines, "text/event-stream": lines}})
}

/// Statuses of errors that the protocol's library reports as JSON-RPC messages. Those of the HTTP layer are problems.
const PROTOCOL_ERROR_STATUSES: [u16; 8] = [400, 404, 405, 406, 409, 413, 415, 422];

fn protocol_operation(id: &str, summary: &str) -> Operation {
    let revisions =
        "The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25 and 2025-06-18.";
    let mut error = messages("A JSON-RPC error, or a problem.");
    error["content"]["application/problem+json"] =
        json!({"schema": {"$ref": "#/components/schemas/Problem"}});
    let operation = Operation::new(id, TAG, summary);
    let statuses = PROTOCOL_ERROR_STATUSES.into_iter();
    statuses
        .fold(operation, |operation, status| operation.response(status, error.clone()))
        .describe(revisions)
        .parameter(
            "query",
            "token",
            "The token, for clients that cannot send an `Authorization` header.",
            string_schema(),
        )
        .problems(&[Code::Forbidden, Code::NotFound])
}

pub(super) fn describe_audit(_: &mut Schemas) -> Operation {
    Operation::new(
        "toolAudit",
        TAG,
        "Lists the tool calls made through the MCP server of an agent owned by the caller.",
    )
    .parameter("query", "agentId", "The agent.", string_schema())
    .paged()
    .json_response(200, "One page of tool calls, newest first.", json!({"type": "object"}))
    .problems(&[Code::NotFound])
}
