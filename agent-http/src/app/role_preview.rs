//! `POST /api/agents/{id}/preview`: the preview of a role that is not saved. It is validated as by `PUT`, except for prices,
//! which the preview shows; its masked secrets are those of the saved role, and nothing is stored or sent.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_platform::history;
use agent_platform::preview::Preview;
use agent_platform::roles::{RoleFinding, merge_secrets, warnings};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::agents::{Agents, check_numbers, exact_role};
use super::conversation::{ThreadRequest, load_preview_messages};
use super::ownership::AGENTS_TAG;
use super::resource::{IdOrigin, Listing, Resource, set_or_check_id};
use super::{App, chat, response};
use crate::auth::Credential;
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// A preview, and the settings of its role that have no effect.
#[derive(Serialize)]
struct RolePreview {
    #[serde(flatten)]
    preview: Preview,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<RoleFinding>,
}

/// Handles `POST /api/agents/{id}/preview`. The other fields of the body are those of a preview.
pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let id = params.get("id")?;
    let agents = Agents::open(app.clone(), principal.clone(), &params).await?;
    if agents.version_for_put(id).await?.is_none() {
        params.id("id")?;
    }
    let (mut fields, text): (Map<String, Value>, _) = body.read_json_with_bytes(&head.headers).await?;
    check_numbers(exact_role(&text).get("role").unwrap_or(&Value::Null))?;
    let mut role = match fields.remove("role") {
        Some(Value::Object(role)) => agents.read_role(id, role).await?,
        Some(_) => return Err(HttpError::invalid("role", "must be an object")),
        None => return Err(HttpError::invalid("role", "is missing")),
    };
    let warnings = warnings(&role);
    let stored = app.roles.role(&principal.company_id, &id.into()).await?;
    merge_secrets(&mut role, stored.map(Arc::unwrap_or_clone));
    set_or_check_id(&mut fields, "agentId", id, IdOrigin::Path)?;
    let text = Value::Object(fields).to_string();
    let fields = history::JsonBody::parse(text.as_bytes(), app.base.json_depth)?;
    let input = history::read_preview(&fields, [("", ""); 0])?;
    let thread = ThreadRequest::read(&app.conversations, &input)?;
    if thread.is_none() {
        input.reject_invalid_tools()?;
    }
    let mut turn = chat::authorize_turn(Credential::Session(principal.clone()), input)?.turn;
    let role = app.providers.store().complete_role(Arc::new(role)).await?;
    turn.role = Some(role.clone());
    chat::assign_ids(&mut turn);
    // The previewed role's own tools are used, not the stored role's.
    let _previewed = app.own_tool_registry.preview_role(principal.user_id.clone(), turn.run_id.clone(), role);
    load_preview_messages(&app, &principal, &mut turn, thread).await?;
    let preview = app.preview_turn(&principal, turn).await?;
    response::json(StatusCode::OK, &RolePreview { preview, warnings })
}

pub(super) fn describe(schemas: &mut Schemas) -> Operation {
    let role = schemas.without_required::<RoleBlock>(&["id", "companyId"]);
    let own = json!({"type": "object", "required": ["role"], "properties": {"role": role}});
    Operation::new("previewRole", AGENTS_TAG, "Previews a turn of an agent with a role that is not saved.")
        .describe(
            "For users who may save the role. It is validated as in a `PUT` of the agent, except for prices; a secret that is absent or `***` is the saved one. Nothing is stored or sent. The other fields are those of a chat request.",
        )
        .body(json!({"allOf": [chat::body_schema(), own]}))
        .json_response(
            200,
            "The prompt, its parts, and the request to the backend; `warnings` lists settings without effect.",
            json!({"type": "object"}),
        )
        .problems(&[Code::NotFound, Code::NoConnector])
}
