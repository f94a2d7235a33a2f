//! `/api/agents/{id}/tools`: the agent's tools and their states, the tools of its tool servers, and trial calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext, NoProgress, ToolOutput, ToolRegistry, ToolSpec};
use agent_core::tool_loop::call_tool;
use agent_platform::approval_floor::load_approval_floor;
use agent_platform::exact_object::ExactObject;
use agent_platform::own_tools::{
    InspectionError, OwnToolRegistry, OwnToolReport, ToolSource, ToolStatus, incomplete_operations,
    skipped_operations, spec_fingerprint,
};
use agent_platform::run_tools::{AllowedTools, allowed_tools_in_run};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::ownership::{AGENTS_TAG, load_owned};
use super::threads::private;
use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// A tool in the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    #[serde(flatten)]
    report: OwnToolReport,
    /// `ask` if a call waits for approval by a rule of the role or the company's floor, else `auto`.
    approval: &'static str,
    /// True if the company's floor demands the approval.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    approval_floor: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DiscoverRequest {
    /// Id of the tool server in the role.
    server_id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PinRequest {
    /// Id of the tool server in the role.
    server_id: String,
    /// Fingerprints of the definitions to pin, by the tools' names at the server. Other tools of the server are not
    /// pinned any more.
    fingerprints: BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TestRequest {
    /// Arguments of the call.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    arguments: ExactObject,
}

/// Result of a trial call.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TrialResult {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured: Option<ExactObject>,
    is_error: bool,
}

impl From<ToolOutput> for TrialResult {
    fn from(output: ToolOutput) -> Self {
        let ToolOutput { text, structured, is_error, .. } = output;
        let structured = structured.and_then(|value| match value {
            // The text of most results is the same object, with the digits of its numbers.
            Value::Object(value) => {
                let exact = ExactObject::read(&text).filter(|exact| exact.to_object() == value);
                Some(exact.unwrap_or_else(|| value.into()))
            }
            _ => None,
        });
        Self { text, structured, is_error }
    }
}

/// An agent that the caller may change, and the registry of its own tools.
struct OwnedAgent {
    app: Arc<App>,
    principal: Principal,
    role: Arc<RoleBlock>,
}

impl OwnedAgent {
    async fn load(app: Arc<App>, principal: Principal, id: &str) -> Result<Self, HttpError> {
        load_owned(&app, &principal, id).await?;
        let role = app.roles.role(&principal.company_id, &id.into()).await?;
        let role = role.ok_or_else(HttpError::not_found)?;
        Ok(Self { app, principal, role })
    }

    fn registry(&self) -> &OwnToolRegistry {
        &self.app.own_tool_registry
    }

    /// Returns the context of a trial of the caller.
    fn context(&self) -> ExecutionContext {
        ExecutionContext {
            agent_name: Some(self.role.name.clone()).filter(|name| !name.is_empty()),
            run_id: agent_core::new_id().into(),
            ..self.principal.agent_context(&self.role.id, Caller::Session)
        }
    }

    fn allowed_tools(&self) -> AllowedTools {
        let names = allowed_tools_in_run(&self.role, Caller::Session);
        AllowedTools::new(self.app.approved_calls.tools.clone(), names)
    }

    /// Lists the tools of the agent in a user's run, and the tools that its role defines.
    async fn list(&self) -> Result<Vec<ListedTool>, HttpError> {
        let specs = self.allowed_tools().list(&self.context()).await.map_err(HttpError::from_tool_list)?;
        let mut reports = self.registry().report(&self.role).await?;
        let is_own = |spec: &Arc<ToolSpec>| reports.iter().any(|report| report.name == spec.name);
        let built_in: Vec<_> = specs.iter().filter(|spec| !is_own(spec)).map(built_in).collect();
        reports.extend(built_in);
        reports.sort_by(|left, right| left.name.cmp(&right.name));
        let floor = load_approval_floor(&*self.app.records, &self.principal.company_id).await?;
        let rules = &self.role.content.approvals;
        let with_approval = |report: OwnToolReport| {
            let spec = specs.iter().find(|spec| spec.name == report.name);
            let asks = spec.is_some_and(|spec| floor.effective_rule(rules, spec).is_some());
            let approval_floor = spec.is_some_and(|spec| floor.applies_to(spec));
            ListedTool { report, approval: if asks { "ask" } else { "auto" }, approval_floor }
        };
        Ok(reports.into_iter().map(with_approval).collect())
    }

    /// Lists the tools, and the operations of OpenAPI documents that cannot be tools, or not as a whole.
    async fn list_with_skipped(&self) -> Result<Value, HttpError> {
        let own_tools = &self.role.content.own_tools;
        let (skipped, incomplete) = (skipped_operations(own_tools), incomplete_operations(own_tools));
        Ok(json!({ "tools": self.list().await?, "skipped": skipped, "incomplete": incomplete }))
    }
}

fn built_in(spec: &Arc<ToolSpec>) -> OwnToolReport {
    OwnToolReport {
        name: spec.name.clone(),
        source: ToolSource::BuiltIn,
        server_id: None,
        fingerprint: Some(spec_fingerprint(spec)),
        status: ToolStatus::Ok,
    }
}

/// Handles `GET /api/agents/{id}/tools`. No tool server is called.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let agent = OwnedAgent::load(context.state, principal, context.params.get("id")?).await?;
    private(response::json(StatusCode::OK, &agent.list_with_skipped().await?))
}

/// Handles `POST /api/agents/{id}/tools/discover`.
pub(super) async fn discover(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, head, body, .. } = context;
    let agent = OwnedAgent::load(state, principal, params.get("id")?).await?;
    let DiscoverRequest { server_id } = body.read_json(&head.headers).await?;
    let discovery = agent.registry().discover(&agent.role, &agent.context(), &server_id).await;
    private(response::json(StatusCode::OK, &discovery.map_err(inspection_error)?))
}

/// Handles `POST /api/agents/{id}/tools/pin`.
pub(super) async fn pin(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, head, body, .. } = context;
    let agent = OwnedAgent::load(state, principal, params.get("id")?).await?;
    let PinRequest { server_id, fingerprints } = body.read_json(&head.headers).await?;
    let pinned = agent.registry().pin(&agent.role, &agent.context(), &server_id, &fingerprints).await;
    pinned.map_err(inspection_error)?;
    super::agents::announce(&agent.app, &agent.principal.company_id, &agent.role.id);
    private(response::json(StatusCode::OK, &agent.list_with_skipped().await?))
}

/// Handles `POST /api/agents/{id}/tools/{name}/test`: calls a tool that the role defines, without an approval. The audit
/// log has the call.
pub(super) async fn test(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, params, head, body, .. } = context;
    let agent = OwnedAgent::load(state, principal, params.get("id")?).await?;
    let name = params.get("name")?;
    let TestRequest { arguments } = body.read_json(&head.headers).await?;
    let reports = agent.registry().report(&agent.role).await?;
    if reports.iter().all(|report| report.name != name) {
        return Err(HttpError::not_found());
    }
    let (tools, calls) = (agent.allowed_tools(), &agent.app.approved_calls);
    let context = ExecutionContext { arguments_text: Some(arguments.text().into()), ..agent.context() };
    let timeout = calls.clock.sleep(calls.limits.tool_timeout);
    let arguments = Ok(Value::Object(arguments.to_object()));
    let output = call_tool(&tools, &context, name, arguments, &NoProgress, timeout, calls.limits).await;
    private(response::json(StatusCode::OK, &TrialResult::from(output)))
}

fn inspection_error(error: InspectionError) -> HttpError {
    match error {
        InspectionError::UnknownServer { .. } => HttpError::invalid("serverId", error),
        InspectionError::NotPinnable { tool, message } => {
            HttpError::invalid(&format!("fingerprints.{tool}"), message)
        }
        InspectionError::Changed(_) => HttpError::conflict(error.to_string()),
        InspectionError::Unreachable(message) => HttpError::new(Code::BackendUnreachable, message),
        InspectionError::Store(error) => error.into(),
        error => HttpError::internal(error),
    }
}

fn statuses() -> Value {
    json!({"type": "string", "enum": ["ok", "new", "changed", "gone", "unreachable"]})
}

fn tool_list() -> Value {
    let operations = |description: &str| {
        json!({
            "type": "array",
            "description": description,
            "items": {
                "type": "object",
                "required": ["openApiId", "operation", "reason"],
                "properties": {
                    "openApiId": {"type": "string"},
                    "operation": {"type": "string"},
                    "reason": {"type": "string"},
                },
            },
        })
    };
    json!({"type": "object", "required": ["tools", "skipped", "incomplete"], "properties": {
        "tools": {"type": "array", "items": {
            "type": "object",
            "required": ["name", "source", "approval", "status"],
            "properties": {
                "name": {"type": "string"},
                "source": {"type": "string", "enum": ["builtIn", "http", "openApi", "toolServer"]},
                "serverId": {"type": "string"},
                "approval": {"type": "string", "enum": ["auto", "ask"]},
                "approvalFloor": {"type": "boolean", "description":
                    "True if the company's approval floor demands the approval."},
                "fingerprint": {"type": "string", "description": "SHA-256 of the definition in use."},
                "status": statuses(),
            },
        }},
        "skipped": operations("Operations of OpenAPI documents that cannot be tools."),
        "incomplete": operations(
            "Operations of OpenAPI documents that are tools without an optional body, or without parts of a form.",
        ),
    }})
}

fn discovery() -> Value {
    let definition = json!({"type": "object", "additionalProperties": true});
    json!({"type": "object", "required": ["serverId", "status", "tools"], "properties": {
        "serverId": {"type": "string"},
        "status": statuses(),
        "error": {"type": "string"},
        "tools": {"type": "array", "items": {
            "type": "object",
            "required": ["name", "offeredAs", "isAllowed", "status"],
            "properties": {
                "name": {"type": "string"},
                "offeredAs": {"type": "string"},
                "isAllowed": {"type": "boolean"},
                "status": statuses(),
                "fingerprint": {"type": "string"},
                "definition": definition,
                "pinned": definition,
                "fault": {"type": "string"},
            },
        }},
    }})
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    Operation::new("listAgentTools", AGENTS_TAG, "Lists an agent's tools with their states; for its owner.")
        .describe(
            "The states of a tool server's tools are those of the latest comparison, by a run or a request for discovery. No request is sent to the tool server.",
        )
        .json_response(200, "The tools by name.", tool_list())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_discover(schemas: &mut Schemas) -> Operation {
    Operation::new(
        "discoverAgentTools",
        AGENTS_TAG,
        "Lists the tools of a tool server, and compares them with the pinned definitions; for the agent's owner.",
    )
    .body(schemas.schema_for::<DiscoverRequest>())
    .json_response(200, "The comparison; `unreachable` if the server has not answered.", discovery())
    .problems(&[Code::NotFound])
}

pub(super) fn describe_pin(schemas: &mut Schemas) -> Operation {
    Operation::new(
        "pinAgentTools",
        AGENTS_TAG,
        "Pins the definitions of a tool server's tools; for the agent's owner.",
    )
    .describe(
        "The server's list is read again: a fingerprint that is not the one of the server's definition is 409. Tools without a fingerprint are no longer pinned.",
    )
    .body(schemas.schema_for::<PinRequest>())
    .json_response(200, "The agent's tools.", tool_list())
    .problems(&[Code::NotFound, Code::Conflict, Code::BackendUnreachable])
}

pub(super) fn describe_test(schemas: &mut Schemas) -> Operation {
    let result = json!({"type": "object", "required": ["text", "isError"], "properties": {
        "text": {"type": "string"},
        "structured": {"type": "object", "additionalProperties": true},
        "isError": {"type": "boolean"},
    }});
    Operation::new(
        "testAgentTool",
        AGENTS_TAG,
        "Calls a tool that the agent's role defines, as the caller; for the agent's owner.",
    )
    .describe("The tool is really called, without an approval, and the call is recorded in the audit log.")
    .body(schemas.schema_for::<TestRequest>())
    .json_response(200, "The result, as a model would read it.", result)
    .problems(&[Code::NotFound])
}
