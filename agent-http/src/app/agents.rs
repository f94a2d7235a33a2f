//! `/api/agents`: the agents of the caller's company. Every user of the company may read them, with secrets masked;
//! only an agent's owner may change it.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_platform::records::{ListQuery, Precondition, StoreError};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ownership::{AGENTS_TAG, check_owner, load_in_company, load_owned};
use super::pulse::sync::withdraw_jobs;
use super::resource::{self, IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use super::{App, assignments, tokens};
use crate::endpoint::{Operation, Params, Schemas};
use crate::error::{Code, HttpError};
use agent_mcp::server::Change;

/// Maximum number of agents read from the store in one call for a page.
const READ_BATCH_SIZE: usize = 10;
/// Size at which a page ends early, in bytes. The page may exceed it by the last batch read.
const SOFT_MAX_PAGE_BYTES: usize = 4 << 20;

/// One page of agents.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentPage {
    /// The agents by id, secrets masked.
    agents: Vec<RoleBlock>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The agents of the caller's company.
pub(super) struct Agents {
    app: Arc<App>,
    principal: Principal,
}

#[async_trait]
impl Listing for Agents {
    type Page = AgentPage;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        Ok(Self { app, principal })
    }

    /// Returns one page, which ends before the requested number of agents if it reaches [`SOFT_MAX_PAGE_BYTES`].
    async fn page(&self, list: ListQuery) -> Result<AgentPage, HttpError> {
        let mut wanted = list.page_size();
        let mut part = list;
        let (mut agents, mut bytes) = (Vec::new(), 0);
        loop {
            part.limit = Some(wanted.min(READ_BATCH_SIZE));
            let found = self.app.roles.masked_roles(&self.principal.company_id, &part).await?;
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
}

#[async_trait]
impl Resource for Agents {
    type Input = RoleBlock;
    type View = RoleBlock;

    async fn load(&self, id: &str) -> Result<Versioned<RoleBlock>, HttpError> {
        Ok(load_in_company(&self.app, &self.principal, id).await?.into())
    }

    /// Checks the owner, so that other users learn nothing about the agent from validation errors.
    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        self.version_for_put(id).await.map(drop)
    }

    async fn validate(&self, id: &str, mut role: Map<String, Value>) -> Result<RoleBlock, HttpError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        set_or_check_id(&mut role, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut role, "companyId", company_id, IdOrigin::Session)?;
        set_or_check_id(&mut role, "ownerId", user_id, IdOrigin::Session)?;
        let file = resource::validate_as_import("agents", role)?;
        let role = file.agents.into_iter().next();
        role.ok_or_else(|| HttpError::internal("the validated import has no agent"))
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        let found = self.app.roles.masked_role(&self.principal.company_id, &id.into()).await?;
        found.as_ref().map_or(Ok(()), |found| check_owner(&self.principal, &found.value))?;
        Ok(found.map(|found| found.version))
    }

    /// Removes tokens and assignments of a deleted agent with the same id, which must not apply to the new one.
    async fn prepare_create(&self, id: &str) -> Result<(), HttpError> {
        Ok(self.remove_dependents(id).await?)
    }

    async fn store(&self, _: &str, role: &RoleBlock, condition: Precondition) -> Result<u64, StoreError> {
        self.app.roles.put_role(role.clone(), condition).await
    }

    async fn stored(
        &self,
        id: &str,
        _: RoleBlock,
        _: u64,
        _: bool,
    ) -> Result<Versioned<RoleBlock>, HttpError> {
        self.notify_mcp_clients(id);
        let now = self.app.roles.masked_role(&self.principal.company_id, &id.into()).await?;
        let now = now.ok_or_else(|| {
            HttpError::conflict("the agent was saved and then deleted by a concurrent request")
        })?;
        let role = &now.value;
        withdraw_jobs(&self.app, &role.company_id, &role.id, Some(role)).await?;
        Ok(now.into())
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        Ok(load_owned(&self.app, &self.principal, id).await?.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.app.roles.delete_role(&self.principal.company_id, &id.into(), condition).await
    }

    async fn removed(&self, id: &str) -> Result<(), HttpError> {
        self.notify_mcp_clients(id);
        Ok(self.remove_dependents(id).await?)
    }
}

impl Agents {
    /// Revokes the agent's tokens, deletes its assignments and cancels its jobs.
    async fn remove_dependents(&self, id: &str) -> Result<(), StoreError> {
        let company_id = &self.principal.company_id;
        tokens::revoke_all(&self.app, company_id, &id.into()).await?;
        assignments::delete_all(&self.app, company_id, &id.into()).await?;
        withdraw_jobs(&self.app, company_id, &id.into(), None).await
    }

    /// Notifies the agent's MCP clients that their tool and resource lists may have changed.
    fn notify_mcp_clients(&self, id: &str) {
        let company_id = self.principal.company_id.clone();
        self.app.tools.server.announce(&Change::Role { company_id, agent_id: id.into() });
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    Operation::new("listAgents", AGENTS_TAG, "Lists the company's agents, with secrets masked.")
        .paged()
        .json_response(200, "One page of agents.", schemas.schema_for::<AgentPage>())
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    Operation::new("getAgent", AGENTS_TAG, "Returns an agent of the company, with secrets masked.")
        .conditional_read()
        .versioned_response(200, "The agent.", schemas.schema_for::<RoleBlock>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let role = schemas.schema_for::<RoleBlock>();
    Operation::new("putAgent", AGENTS_TAG, "Creates an agent owned by the caller, or replaces one.")
        .describe(
            "A secret that is absent or `***` is kept, an empty one is cleared, and so is one whose URL changes. `id`, `companyId` and `ownerId` are optional.",
        )
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<RoleBlock>(&["id", "companyId"]))
        .versioned_response(200, "The agent was replaced.", role.clone())
        .versioned_response(201, "The agent was created.", role)
        .problems(&[Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new("deleteAgent", AGENTS_TAG, "Deletes an agent owned by the caller and revokes its tokens.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "The agent was deleted.")
        .problems(&[Code::NotFound])
}
