//! `GET, POST, DELETE /api/agent/mcp`, an agent's tools for MCP clients, and `GET /api/agent/tools/audit`, the log of
//! tool calls for the agent's owner.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_mcp::server::McpServer;
use agent_platform::records::StoreError;
use agent_platform::roles::RoleStore;
use http::{Request, StatusCode};

use super::{App, answer};
use crate::auth::Credential;
use crate::body::Body;
use crate::error::HttpError;
use crate::mcp;
use crate::request::Query;
use crate::service::HandlerResult;

pub(super) const PATH: &str = "/api/agent/mcp";
pub(super) const AUDIT_PATH: &str = "/api/agent/tools/audit";

/// The MCP server for agents' tools, and the agents' owners.
pub struct McpEndpoint {
    /// The MCP server.
    pub server: McpServer,
    /// The store of agents (roles).
    pub roles: Arc<dyn RoleStore>,
}

pub(super) async fn serve(app: &App, request: Request<Body>) -> HandlerResult {
    mcp::handle(&app.tools.server, &app.body, request).await
}

pub(super) async fn audit(app: &App, request: Request<Body>) -> HandlerResult {
    let (head, _) = request.into_parts();
    let query = Query::from_uri(&head.uri);
    let Credential::Session(principal) = app.auth.authenticate(&head, &query).await? else {
        return Err(HttpError::unauthenticated("a session is needed"));
    };
    let agent = query.require("agentId")?;
    let limit = query.get("limit")?.map(|limit| {
        limit.parse().map_err(|_| HttpError::invalid("limit", "must be a whole number that is not negative"))
    });
    let cursor = query.get("cursor")?;
    if !is_owner(&*app.tools.roles, &principal, agent).await? {
        return Err(HttpError::not_found());
    }
    let calls =
        app.tools.server.audit().list_calls(&principal.company_id, agent, limit.transpose()?, cursor).await?;
    answer::json(StatusCode::OK, &calls)
}

async fn is_owner(roles: &dyn RoleStore, principal: &Principal, agent: &str) -> Result<bool, HttpError> {
    let role = match roles.role(&principal.company_id, agent).await {
        // An invalid id belongs to no agent.
        Err(StoreError::Invalid(_)) => None,
        role => role.map_err(HttpError::internal)?,
    };
    Ok(role.is_some_and(|role| role.owner_id == principal.user_id))
}
