//! `/api/agents`: the agents of the caller's company. Every user of the company may read them, with secrets masked;
//! only an agent's owner or an admin of the company may change it, and an admin may hand it over to another owner.

use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_platform::exact_json;
use agent_platform::own_tools::{MAX_OWN_TOOLS, ToolSettingsError, compile_open_api};
use agent_platform::records::{ListQuery, Precondition, Record, StoreError};
use agent_platform::roles::{RoleFinding, rounded_numbers, warnings};
use agent_platform::workspace::{MemorySelection, ReferenceError, delete_memories, get_document};
use async_trait::async_trait;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ownership::{
    AGENTS_TAG, check_admin, check_creator, check_owner, load_in_company, load_owned, new_owner,
    new_owner_schema,
};
use super::price_check::check_saved_role;
use super::pulse::sync::cancel_disallowed_jobs;
use super::resource::{
    self, IdOrigin, Listing, MAX_WRITE_ATTEMPTS, Resource, Versioned, set_or_check_id, write_contention,
};
use super::{App, assignments, response, tokens};
use crate::endpoint::{Operation, Params, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::parse_json;
use crate::service::HandlerResult;
use agent_mcp::server::Change;

/// Maximum number of agents read from the store in one call for a page.
const READ_BATCH_SIZE: usize = 10;
/// Size at which a page ends early, in bytes. The page may exceed it by the last batch read.
const SOFT_MAX_PAGE_BYTES: usize = 4 << 20;

/// Maximum depth of a stored OpenAPI document.
const MAX_OPEN_API_DEPTH: usize = 100;

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

/// An agent in a response.
#[derive(Serialize, JsonSchema)]
pub(super) struct AgentView {
    #[serde(flatten)]
    role: RoleBlock,
    /// Settings that are legal and have no effect; in the answer to a `PUT` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    warnings: Vec<RoleFinding>,
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
        let mut remaining = list.page_size();
        let mut query = list;
        let (mut agents, mut bytes) = (Vec::new(), 0);
        loop {
            query.limit = Some(remaining.min(READ_BATCH_SIZE));
            let page = self.app.roles.masked_roles(&self.principal.company_id, &query).await?;
            remaining -= page.records.len().min(remaining);
            for record in page.records {
                bytes += serde_json::to_vec(&record.value).map_err(HttpError::internal)?.len();
                agents.push(record.value);
            }
            if page.next_cursor.is_none() || remaining == 0 || bytes >= SOFT_MAX_PAGE_BYTES {
                return Ok(AgentPage { agents, next_cursor: page.next_cursor });
            }
            query.cursor = page.next_cursor;
        }
    }
}

#[async_trait]
impl Resource for Agents {
    type Input = RoleBlock;
    type View = AgentView;

    async fn load(&self, id: &str) -> Result<Versioned<AgentView>, HttpError> {
        let Record { version, value: role, .. } = load_in_company(&self.app, &self.principal, id).await?;
        Ok(Versioned { version, value: AgentView { role, warnings: Vec::new() } })
    }

    /// Checks the owner, so that other users learn nothing about the agent from validation errors.
    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        self.version_for_put(id).await.map(drop)
    }

    fn check_text(text: &[u8]) -> Result<(), HttpError> {
        check_numbers(&exact_role(text))
    }

    async fn validate(&self, id: &str, role: Map<String, Value>) -> Result<RoleBlock, HttpError> {
        let role = self.read_role(id, role).await?;
        check_saved_role(&self.app, &role).await?;
        Ok(role)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        let existing = self.app.roles.masked_role(&self.principal.company_id, &id.into()).await?;
        match &existing {
            Some(existing) => check_owner(&self.app, &self.principal, &existing.value).await?,
            None => check_creator(&self.app, &self.principal).await?,
        }
        Ok(existing.map(|existing| existing.version))
    }

    /// Removes tokens, assignments and memory of a deleted agent with the same id, which must not apply to the new one.
    async fn prepare_create(&self, id: &str) -> Result<(), HttpError> {
        let count = self.app.roles.count_roles(&self.principal.company_id).await?;
        resource::check_quota("agents", count, self.app.quotas.agents)?;
        Ok(self.remove_dependents(id).await?)
    }

    async fn store(&self, _: &str, role: &RoleBlock, condition: Precondition) -> Result<u64, StoreError> {
        if condition == Precondition::Absent {
            return self.app.roles.create_role(role.clone(), self.app.quotas.agents).await;
        }
        self.app.roles.put_role(role.clone(), condition).await
    }

    async fn stored(
        &self,
        id: &str,
        _: RoleBlock,
        _: u64,
        _: bool,
    ) -> Result<Versioned<AgentView>, HttpError> {
        self.announce(id);
        let record = self.app.roles.masked_role(&self.principal.company_id, &id.into()).await?;
        let record = record.ok_or_else(|| {
            HttpError::conflict("the agent was saved and then deleted by a concurrent request")
        })?;
        let Record { version, value: role, .. } = record;
        cancel_disallowed_jobs(&self.app, &role.company_id, &role.id, Some(&role)).await?;
        Ok(Versioned { version, value: AgentView { warnings: warnings(&role), role } })
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        Ok(load_owned(&self.app, &self.principal, id).await?.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.app.roles.delete_role(&self.principal.company_id, &id.into(), condition).await
    }

    async fn removed(&self, id: &str) -> Result<(), HttpError> {
        self.announce(id);
        Ok(self.remove_dependents(id).await?)
    }
}

impl Agents {
    /// Reads the role in a body, and checks it as an import does.
    pub(super) async fn read_role(
        &self,
        id: &str,
        mut role: Map<String, Value>,
    ) -> Result<RoleBlock, HttpError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        set_or_check_id(&mut role, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut role, "companyId", company_id, IdOrigin::Session)?;
        // An admin replaces another user's agent, which keeps its owner.
        let existing = self.app.roles.masked_role(company_id, &id.into()).await?;
        let owner_id = existing.map_or_else(|| user_id.clone(), |existing| existing.value.owner_id);
        set_or_check_id(&mut role, "ownerId", &owner_id, IdOrigin::Session)?;
        // A member of the response to a `PUT` that a client may send back.
        role.remove("warnings");
        self.compile_open_api(&mut role).await?;
        let file = resource::validate_as_import("agents", role, &self.app.own_tools)?;
        let references = file.check_references("", &*self.app.records).await;
        references.map_err(|error| match error {
            ReferenceError::Missing(error) => resource::import_problem("agents", &error),
            ReferenceError::Store(error) => error.into(),
            error => HttpError::internal(error),
        })?;
        let role = file.agents.into_iter().next();
        role.ok_or_else(|| HttpError::internal("the validated import has no agent"))
    }

    /// Compiles the operations of the role's OpenAPI documents to tools. A document that is stored is read now, and not
    /// again before the role is saved again.
    async fn compile_open_api(&self, role: &mut Map<String, Value>) -> Result<(), HttpError> {
        let entries = role.get_mut("content").and_then(|content| content.get_mut("openApi")?.as_array_mut());
        for (i, entry) in entries.into_iter().flatten().take(MAX_OWN_TOOLS).enumerate() {
            let Some(entry) = entry.as_object_mut() else { continue };
            let entry_path = format!("content.openApi[{i}]");
            let document = match (entry.remove("document"), entry.get("documentId")) {
                (Some(document), None) => document,
                (None, Some(Value::String(id))) => {
                    self.stored_open_api(&format!("{entry_path}.documentId"), id).await?
                }
                (None, None) => continue,
                _ => return Err(HttpError::invalid(&entry_path, "has a document and a documentId")),
            };
            compile_open_api(entry, &document).map_err(|ToolSettingsError { path, message }| {
                HttpError::invalid(&format!("{entry_path}.{path}"), message)
            })?;
        }
        Ok(())
    }

    async fn stored_open_api(&self, path: &str, id: &str) -> Result<Value, HttpError> {
        let document = get_document(&*self.app.records, &self.principal.company_id, id).await;
        let document = match document {
            Ok(document) => document.ok_or_else(|| HttpError::invalid(path, "is not the id of a document")),
            Err(StoreError::Invalid(_)) => Err(HttpError::invalid(path, "is not the id of a document")),
            Err(error) => Err(error.into()),
        };
        parse_json(document?.value.text.as_bytes(), MAX_OPEN_API_DEPTH)
            .map_err(|_| HttpError::invalid(path, "is not a document in JSON"))
    }

    /// Revokes the agent's tokens, deletes its pins, assignments and memory, and cancels its jobs.
    async fn remove_dependents(&self, id: &str) -> Result<(), StoreError> {
        let (company_id, id) = (&self.principal.company_id, id.into());
        tokens::revoke_all(&self.app, company_id, &id).await?;
        self.app.own_tool_registry.delete_pins(company_id, &id).await?;
        assignments::delete_all(&self.app, company_id, &id).await?;
        cancel_disallowed_jobs(&self.app, company_id, &id, None).await?;
        let memory = MemorySelection::Agent(&id);
        delete_memories(&*self.app.pulse.inventory, company_id, memory).await.map(drop)
    }

    fn announce(&self, id: &str) {
        announce(&self.app, &self.principal.company_id, &id.into());
    }
}

/// Reads a body that is valid JSON, so that its numbers keep their digits.
pub(super) fn exact_role(text: &[u8]) -> Value {
    let text = std::str::from_utf8(text).unwrap_or_default();
    exact_json::read(text).unwrap_or_default()
}

/// Refuses numbers of a role that would be stored with another value.
pub(super) fn check_numbers(exact_role: &Value) -> Result<(), HttpError> {
    match rounded_numbers(exact_role).into_iter().next() {
        Some(RoleFinding { path, message }) => Err(HttpError::invalid(&path, message)),
        None => Ok(()),
    }
}

/// Notifies an agent's MCP clients that their tool and resource lists may have changed.
pub(super) fn announce(app: &App, company_id: &CompanyId, agent_id: &AgentId) {
    let (company_id, agent_id) = (company_id.clone(), agent_id.clone());
    app.tools.server.announce(&Change::Role { company_id, agent_id });
}

/// Handles `PUT /api/agents/{id}/owner`, the hand-over to another owner.
pub(super) async fn put_owner(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let id = params.get("id")?;
    load_in_company(&app, &principal, id).await?;
    check_admin(&app, &principal).await?;
    let owner_id = new_owner(&body.read_json(&head.headers).await?)?;
    let agents = Agents { app, principal };
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let current = load_in_company(&agents.app, &agents.principal, id).await?;
        let role = RoleBlock { owner_id: owner_id.clone(), ..current.value };
        match agents.app.roles.put_role(role, Precondition::Version(current.version)).await {
            Ok(_) => {
                agents.announce(id);
                let stored = load_in_company(&agents.app, &agents.principal, id).await?;
                return response::json(StatusCode::OK, &stored.value);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(write_contention())
}

pub(super) fn describe_put_owner(schemas: &mut Schemas) -> Operation {
    Operation::new(
        "putAgentOwner",
        AGENTS_TAG,
        "Hands an agent over to another owner; for admins of the company.",
    )
    .body(new_owner_schema())
    .json_response(200, "The agent.", schemas.schema_for::<RoleBlock>())
    .problems(&[Code::NotFound, Code::Conflict])
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
    let view = schemas.schema_for::<AgentView>();
    Operation::new("putAgent", AGENTS_TAG, "Creates an agent owned by the caller, or replaces one.")
        .describe(
            "An absent secret or `***` keeps the stored secret; an empty secret or a change of its URL clears it. `id`, `companyId` and `ownerId` are optional. An unknown field, tool, provider or document is refused with its path; `warnings` lists settings without effect.",
        )
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<RoleBlock>(&["id", "companyId"]))
        .versioned_response(200, "The agent was replaced.", view.clone())
        .versioned_response(201, "The agent was created.", view)
        .problems(&[Code::NotFound, Code::PriceUnknown])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    Operation::new(
        "deleteAgent",
        AGENTS_TAG,
        "Deletes an agent owned by the caller with its memory, and revokes its tokens.",
    )
    .conditional_write(&["If-Match"])
    .empty_response(204, "The agent was deleted.")
    .problems(&[Code::NotFound])
}
