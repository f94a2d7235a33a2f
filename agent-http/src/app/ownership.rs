//! Rights to agents and documents. Every user of a company may read them. An owner who is not a viewer of the company
//! may change their own; an admin of the company may change all.

use agent_core::ids::UserId;
use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_platform::ids::check_id;
use agent_platform::records::{MAX_ID_BYTES, Record};
use agent_platform::workspace::{CompanyRole, get_company_role};
use serde_json::{Map, Value, json};

use super::App;
use crate::error::HttpError;

/// Tag of the operations on agents and their resources.
pub(super) const AGENTS_TAG: &str = "agents";

/// Returns an agent of the caller's company.
pub(super) async fn load_in_company(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<Record<RoleBlock>, HttpError> {
    app.roles.masked_role(&principal.company_id, &id.into()).await?.ok_or_else(HttpError::not_found)
}

/// Returns an agent that the caller may change; 403 for any other agent.
pub(super) async fn load_owned(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<Record<RoleBlock>, HttpError> {
    let record = load_in_company(app, principal, id).await?;
    check_owner(app, principal, &record.value).await?;
    Ok(record)
}

/// Checks that the caller may change the agent.
pub(super) async fn check_owner(app: &App, principal: &Principal, role: &RoleBlock) -> Result<(), HttpError> {
    let is_owner = role.owner_id == principal.user_id;
    match company_role(app, principal).await?.may_change(is_owner) {
        true => Ok(()),
        false => Err(HttpError::forbidden(
            "only the agent's owner or an admin of the company is allowed to do this",
        )),
    }
}

/// Checks that the caller may create agents and documents.
pub(super) async fn check_creator(app: &App, principal: &Principal) -> Result<(), HttpError> {
    match company_role(app, principal).await? {
        CompanyRole::Viewer => {
            Err(HttpError::forbidden("viewers of the company are not allowed to create anything"))
        }
        CompanyRole::Editor | CompanyRole::Admin => Ok(()),
    }
}

/// Checks that the caller is an admin of the company.
pub(super) async fn check_admin(app: &App, principal: &Principal) -> Result<(), HttpError> {
    match company_role(app, principal).await? {
        CompanyRole::Admin => Ok(()),
        CompanyRole::Viewer | CompanyRole::Editor => {
            Err(HttpError::forbidden("only an admin of the company is allowed to do this"))
        }
    }
}

/// Returns true if the caller is an admin of the company.
pub(super) async fn is_admin(app: &App, principal: &Principal) -> Result<bool, HttpError> {
    Ok(company_role(app, principal).await? == CompanyRole::Admin)
}

async fn company_role(app: &App, principal: &Principal) -> Result<CompanyRole, HttpError> {
    Ok(get_company_role(&*app.records, &principal.company_id, &principal.user_id).await?)
}

/// Returns the schema of the body of a hand-over.
pub(super) fn new_owner_schema() -> Value {
    json!({
        "type": "object",
        "required": ["ownerId"],
        "properties": {
            "ownerId": {"type": "string", "description": "User to whom the item is handed over."},
        },
    })
}

/// Reads the body of a hand-over, `{"ownerId"}`.
pub(super) fn new_owner(body: &Map<String, Value>) -> Result<UserId, HttpError> {
    match body.get("ownerId") {
        Some(Value::String(id)) => match check_id(id, MAX_ID_BYTES) {
            Ok(()) => Ok(id.as_str().into()),
            Err(error) => Err(HttpError::invalid("ownerId", error)),
        },
        Some(_) => Err(HttpError::invalid("ownerId", "must be a string")),
        None => Err(HttpError::invalid("ownerId", "is missing")),
    }
}
