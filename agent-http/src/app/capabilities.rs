//! `GET /api/agents/{id}/capabilities`: an agent's capabilities, in the format of AG-UI's `AgentCapabilities`.

use agent_core::request::Principal;
use agent_core::role::{ApprovalRule, Approver, ConversationSettings, RoleBlock};
use agent_core::select::{BackendKind, select_backend};
use agent_core::tool::{ToolRegistry, ToolSpec};
use agent_platform::approval_floor::{ApprovalFloor, load_approval_floor};
use agent_platform::run_tools::{AllowedTools, allowed_tools_in_run};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

use super::ownership::AGENTS_TAG;
use super::threads::private;
use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Handles `GET /api/agents/{id}/capabilities`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let app = &*context.state;
    let agent = context.params.get("id")?.into();
    let role = app.roles.role(&principal.company_id, &agent).await?.ok_or_else(HttpError::not_found)?;
    let tools = list_tools(app, &principal, &role).await?;
    let floor = load_approval_floor(&*app.records, &principal.company_id).await?;
    private(response::json(StatusCode::OK, &capabilities(app, &principal, &role, (tools.as_slice(), &floor))))
}

/// Lists the tools that the agent may use for the caller.
async fn list_tools(
    app: &App,
    principal: &Principal,
    role: &RoleBlock,
) -> Result<Vec<Arc<ToolSpec>>, HttpError> {
    let context = principal.agent_context(&role.id, principal.caller);
    let allowed = allowed_tools_in_run(role, principal.caller);
    let tools = AllowedTools::new(app.approved_calls.tools.clone(), allowed);
    let tools = tools.list(&context).await.map_err(HttpError::from_tool_list)?;
    Ok(tools.to_vec())
}

fn capabilities(
    app: &App,
    principal: &Principal,
    role: &RoleBlock,
    (tools, floor): (&[Arc<ToolSpec>], &ApprovalFloor),
) -> Value {
    let settings: ConversationSettings = role.content.conversations.unwrap_or_default();
    let has_threads = app.conversations.is_on() && settings.store != Some(false);
    let backend = select_backend(role).choice.map(|choice| choice.kind());
    let calls_own_tools = matches!(backend, Some(BackendKind::Embedded | BackendKind::Subscription));
    let takes_client_tools =
        calls_own_tools && settings.client_tools.unwrap_or_default().allows(principal.caller);
    let rules = &role.content.approvals;
    let has_floor = tools.iter().any(|tool| floor.applies_to(tool));
    let asks = has_threads && (has_floor || !rules.is_empty());
    let is_editable = |rule: &ApprovalRule| rule.editable.unwrap_or(rule.by != Approver::Visitor);
    let mut of_tools = tools.iter().filter_map(|tool| floor.effective_rule(rules, tool));
    let edits = asks && (rules.iter().any(is_editable) || of_tools.any(|rule| is_editable(&rule)));
    let item = |tool: &Arc<ToolSpec>| json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
    json!({
        "identity": {"name": role.name, "type": "agentd", "version": env!("CARGO_PKG_VERSION")},
        "transport": {
            "streaming": true, "websocket": false, "httpBinary": false, "pushNotifications": false,
            "resumable": has_threads,
        },
        "tools": {
            "supported": !tools.is_empty() || takes_client_tools,
            "items": tools.iter().map(item).collect::<Vec<_>>(),
            "clientProvided": takes_client_tools,
        },
        "state": {"snapshots": false, "deltas": false, "persistentState": has_threads},
        "humanInTheLoop": {
            "supported": asks,
            "approvals": asks,
            "approveWithEdits": edits,
            "interrupts": asks,
            "interventions": false,
            "feedback": has_threads,
        },
        "custom": {"agentd": {
            "threads": has_threads,
            "onDisconnect": settings.on_disconnect.unwrap_or_default(),
            "graceMs": settings.grace_ms.unwrap_or_default(),
            "onBusy": settings.on_busy.unwrap_or_default(),
        }},
    })
}

pub(super) fn describe(_: &mut Schemas) -> Operation {
    let flags = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "boolean"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let mut tools = flags(&["supported", "clientProvided"]);
    tools["properties"]["items"] = json!({"type": "array", "items": {"type": "object"}});
    let schema = json!({"type": "object", "properties": {
        "identity": {"type": "object"},
        "transport": flags(&["streaming", "websocket", "httpBinary", "pushNotifications", "resumable"]),
        "tools": tools,
        "state": flags(&["snapshots", "deltas", "persistentState"]),
        "humanInTheLoop": flags(
            &["supported", "approvals", "approveWithEdits", "interrupts", "interventions", "feedback"]),
        "custom": {"type": "object"},
    }});
    Operation::new(
        "getCapabilities",
        AGENTS_TAG,
        "Returns the capabilities of an agent, as AG-UI's `AgentCapabilities`.",
    )
    .json_response(200, "The capabilities for the caller.", schema)
    .problems(&[Code::NotFound])
}
