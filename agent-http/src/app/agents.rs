//! `/api/agents`: the agents of the caller's company. Every user of the company may read them, with secrets masked;
//! only an agent's owner may change it.

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_mcp::server::Change;
use agent_platform::records::{ListQuery, Record, StoreError};
use http::{StatusCode, request};
use schemars::JsonSchema;
use serde::Serialize;

use super::resource::{self, MAX_WRITE_ATTEMPTS, Route};
use super::{App, answer, assignments, tokens};
use crate::endpoint::{LimitedBody, Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Tag of the operations on agents and their tokens.
pub(super) const TAG: &str = "agents";

/// Maximum number of agents read from the store in one call for a page.
const READ_BATCH_SIZE: usize = 10;
/// Size at which a page ends early, in bytes. The page may exceed it by the last batch read.
const SOFT_MAX_PAGE_BYTES: usize = 4 << 20;

/// One page of agents.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentPage {
    /// The agents by id, secrets masked.
    agents: Vec<RoleBlock>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(super) async fn handle(
    context: RequestContext<App>,
    principal: Principal,
    route: Route,
) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let app = &*app;
    let query = Query::from_uri(&head.uri);
    match route {
        Route::List => {
            let page = page(app, &principal, resource::page_params(&query)?).await?;
            answer::json(StatusCode::OK, &page)
        }
        Route::Get => {
            let found = load_in_company(app, &principal, params.get("id")?).await?;
            resource::get_response(&head.headers, found.version, &found.value)
        }
        Route::Put => put(app, &principal, params.get("id")?, &head, body).await,
        Route::Delete => delete(app, &principal, params.get("id")?, &head).await,
    }
}

/// Returns one page, which ends before the requested number of agents if it reaches [`SOFT_MAX_PAGE_BYTES`].
async fn page(app: &App, principal: &Principal, list: ListQuery) -> Result<AgentPage, HttpError> {
    let mut wanted = list.page_size();
    let mut part = list;
    let (mut agents, mut bytes) = (Vec::new(), 0);
    loop {
        part.limit = Some(wanted.min(READ_BATCH_SIZE));
        let found = app.roles.masked_roles(&principal.company_id, &part).await?;
        wanted -= found.records.len().min(wanted);
        for record in found.records {
            bytes += serde_json::to_vec(&record.value).map_err(HttpError::internal)?.len();
            agents.push(record.value);
        }
        if found.next_cursor.is_none() || wanted == 0 || bytes >= SOFT_MAX_PAGE_BYTES {
            return Ok(AgentPage { agents, next_cursor: found.next_cursor });
        }
        part.cursor = found.next_cursor;
    }
}

/// Returns an agent of the caller's company.
async fn load_in_company(app: &App, principal: &Principal, id: &str) -> Result<Record<RoleBlock>, HttpError> {
    app.roles.masked_role(&principal.company_id, id).await?.ok_or_else(HttpError::not_found)
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

fn check_owner(principal: &Principal, role: &RoleBlock) -> Result<(), HttpError> {
    if role.owner_id == principal.user_id {
        Ok(())
    } else {
        Err(HttpError::forbidden("only the agent's owner may do this"))
    }
}

async fn put(
    app: &App,
    principal: &Principal,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> HandlerResult {
    // The owner is checked before the body, so that other users learn nothing about the agent from validation errors.
    if let Some(found) = app.roles.masked_role(&principal.company_id, id).await? {
        check_owner(principal, &found.value)?;
    }
    let role = read(principal, id, head, body).await?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found = app.roles.masked_role(&principal.company_id, id).await?;
        found.as_ref().map_or(Ok(()), |found| check_owner(principal, &found.value))?;
        let precondition =
            resource::check_conditions(&head.headers, found.as_ref().map(|found| found.version))?;
        if found.is_none() {
            // Tokens and assignments of a deleted agent with the same id must not apply to the new one.
            tokens::revoke_all(app, &principal.company_id, id).await?;
            assignments::delete_all(app, &principal.company_id, id).await?;
        }
        match app.roles.put_role(role.clone(), precondition).await {
            Ok(_) => {
                notify_mcp_clients(app, principal, id);
                let now = app.roles.masked_role(&principal.company_id, id).await?;
                let now = now.ok_or_else(|| HttpError::conflict("it was saved, and deleted meanwhile"))?;
                return resource::put_response(&head.uri, found.is_none(), now.version, &now.value);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

/// Reads an agent from the body and checks that it is the caller's own.
async fn read(
    principal: &Principal,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> Result<RoleBlock, HttpError> {
    let mut role = resource::read_object(&head.headers, body).await?;
    let not_yours =
        |name: &'static str| move || HttpError::forbidden(format!("{name} must be the caller's own"));
    resource::set_or_check_id(&mut role, "id", id, || {
        HttpError::invalid("id", "must be the one in the path")
    })?;
    resource::set_or_check_id(&mut role, "companyId", &principal.company_id, not_yours("companyId"))?;
    resource::set_or_check_id(&mut role, "ownerId", &principal.user_id, not_yours("ownerId"))?;
    let file = resource::validate_as_import("agents", role)?;
    file.agents.into_iter().next().ok_or_else(|| HttpError::internal("an agent is gone from its file"))
}

async fn delete(app: &App, principal: &Principal, id: &str, head: &request::Parts) -> HandlerResult {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found = load_owned(app, principal, id).await?;
        let precondition = resource::check_conditions(&head.headers, Some(found.version))?;
        match app.roles.delete_role(&principal.company_id, id, precondition).await {
            Ok(true) => {
                notify_mcp_clients(app, principal, id);
                tokens::revoke_all(app, &principal.company_id, id).await?;
                assignments::delete_all(app, &principal.company_id, id).await?;
                return Ok(resource::no_content());
            }
            Ok(false) => return Err(HttpError::not_found()),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

/// Notifies the agent's MCP clients that their tool and resource lists may have changed.
fn notify_mcp_clients(app: &App, principal: &Principal, id: &str) {
    let change = Change::Role { company_id: principal.company_id.clone(), agent_id: id.to_owned() };
    app.tools.server.announce(&change);
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listAgents", TAG, "The company's agents, secrets masked.").paged().json_response(
        200,
        "One page.",
        schemas.schema_for::<AgentPage>(),
    )
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    Operation::new("getAgent", TAG, "An agent of the company, secrets masked.")
        .conditional_read()
        .versioned_response(200, "The agent.", schemas.schema_for::<RoleBlock>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let role = schemas.schema_for::<RoleBlock>();
    Operation::new("putAgent", TAG, "Makes an agent of the caller's own, or replaces one.")
        .describe(
            "A secret that is absent or `***` stays as it is, an empty one is cleared, and one whose address \
             changes is cleared too. `id`, `companyId` and `ownerId` may be left out.",
        )
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<RoleBlock>(&["id", "companyId"]))
        .versioned_response(200, "It is replaced.", role.clone())
        .versioned_response(201, "It is made.", role)
        .problems(&[Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteAgent", TAG, "Deletes an agent of the caller's own, and revokes its tokens.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "It is gone.")
        .problems(&[Code::NotFound])
}
