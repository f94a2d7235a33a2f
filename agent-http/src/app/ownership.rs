//! Ownership of agents: every user of a company may read its agents; only an agent's owner may change it and what
//! belongs to it.

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_platform::records::Record;

use super::App;
use crate::error::HttpError;

/// Tag of the operations on agents and on what belongs to them.
pub(super) const AGENTS_TAG: &str = "agents";

/// Returns an agent of the caller's company.
pub(super) async fn load_in_company(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<Record<RoleBlock>, HttpError> {
    app.roles.masked_role(&principal.company_id, &id.into()).await?.ok_or_else(HttpError::not_found)
}

/// Returns an agent that the caller owns; 403 if another user owns it.
pub(super) async fn load_owned(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<Record<RoleBlock>, HttpError> {
    let found = load_in_company(app, principal, id).await?;
    check_owner(principal, &found.value)?;
    Ok(found)
}

/// Checks that the caller owns the agent.
pub(super) fn check_owner(principal: &Principal, role: &RoleBlock) -> Result<(), HttpError> {
    if role.owner_id == principal.user_id {
        Ok(())
    } else {
        Err(HttpError::forbidden("only the agent's owner is allowed to do this"))
    }
}
