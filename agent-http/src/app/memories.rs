//! `/api/agents/{id}/memories` and `/api/agents/{id}/shared-memories`: an agent's memory of the caller, and the memory
//! that the company shares.
//!
//! Entries that belong to a user are read and changed by that user alone, not by colleagues or the agent's owner. The
//! shared entries are read by all users of the company if the role's `memoryScope` is `company`, otherwise by the
//! agent's owner; the owner may change them.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::role::{MemoryScope, RoleBlock};
use agent_platform::records::{Key, ListQuery, Precondition, RecordsExt, StoreError};
use agent_platform::workspace::{
    Memory, MemoryFolder, MemorySelection, WorkspaceError, delete_memories, page_memories,
};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::App;
use super::ownership::{AGENTS_TAG, check_owner, load_in_company};
use super::resource::{self, IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use crate::endpoint::{Operation, Params, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// One page of memory entries.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryPage {
    /// The entries in the order of their ids. The ids of entries that the agent has made sort by age.
    memories: Vec<Memory>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Memory entries of an agent in the folder that its role names: the caller's own, or those that the company shares.
pub(super) struct Memories<const SHARED: bool> {
    app: Arc<App>,
    principal: Principal,
    role: RoleBlock,
    folder: MemoryFolder,
}

/// The caller's own entries.
pub(super) type OwnMemories = Memories<false>;
/// The entries that the company shares.
pub(super) type SharedMemories = Memories<true>;

#[async_trait]
impl<const SHARED: bool> Listing for Memories<SHARED> {
    type Page = MemoryPage;

    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError> {
        let role = load_in_company(&app, &principal, params.get("id")?).await?.value;
        let folder = if SHARED {
            if role.content.memory_scope != Some(MemoryScope::Company) {
                check_owner(&app, &principal, &role).await?;
            }
            MemoryFolder::of_company(&role)
        } else {
            MemoryFolder::of_user(&role, &principal.user_id)
        };
        Ok(Self { app, principal, role, folder })
    }

    async fn page(&self, list: ListQuery) -> Result<MemoryPage, HttpError> {
        let (memories, next_cursor) = page_memories(&*self.app.records, &self.folder, &list).await?;
        Ok(MemoryPage { memories, next_cursor })
    }
}

#[async_trait]
impl<const SHARED: bool> Resource for Memories<SHARED> {
    const ID_PARAMETER: &'static str = "memoryId";

    type Input = Memory;
    type View = Memory;

    async fn load(&self, id: &str) -> Result<Versioned<Memory>, HttpError> {
        let record = self.app.records.get_as::<Memory>(&self.existing_key(id)?).await?;
        Ok(record.ok_or_else(HttpError::not_found)?.into())
    }

    async fn authorize_put(&self, _: &str) -> Result<(), HttpError> {
        self.check_writable().await
    }

    async fn validate(&self, id: &str, mut fields: Map<String, Value>) -> Result<Memory, HttpError> {
        set_or_check_id(&mut fields, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut fields, "agentId", &self.role.id, IdOrigin::Path)?;
        set_or_check_id(&mut fields, "companyId", &self.principal.company_id, IdOrigin::Session)?;
        if !SHARED {
            set_or_check_id(&mut fields, "userId", &self.principal.user_id, IdOrigin::Session)?;
        } else if fields.get("userId").is_some_and(|user| !user.is_null()) {
            return Err(HttpError::invalid("userId", "must be absent in a shared entry"));
        }
        let text = match fields.get("text") {
            Some(Value::String(text)) => text,
            Some(_) => return Err(HttpError::invalid("text", "must be a string")),
            None => return Err(HttpError::invalid("text", "is missing")),
        };
        self.folder.entry(id, text).map_err(workspace_error_response)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        Ok(self.app.records.get(&self.existing_key(id)?).await?.map(|record| record.version))
    }

    async fn prepare_create(&self, _: &str) -> Result<(), HttpError> {
        self.folder.check_room(&*self.app.records).await.map_err(workspace_error_response)
    }

    async fn store(&self, id: &str, entry: &Memory, condition: Precondition) -> Result<u64, StoreError> {
        self.app.records.put_as(&self.folder.key(id)?, entry, condition).await
    }

    async fn stored(
        &self,
        _: &str,
        value: Memory,
        version: u64,
        _: bool,
    ) -> Result<Versioned<Memory>, HttpError> {
        Ok(Versioned { version, value })
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        self.check_writable().await?;
        Ok(self.load(id).await?.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.app.records.delete(&self.folder.key(id)?, condition).await
    }

    async fn removed(&self, _: &str) -> Result<(), HttpError> {
        Ok(())
    }
}

impl<const SHARED: bool> Memories<SHARED> {
    /// Returns an entry's record key; 404 for an invalid id.
    fn existing_key(&self, id: &str) -> Result<Key, HttpError> {
        self.folder.key(id).map_err(|_| HttpError::not_found())
    }

    /// Checks that the caller may change the entries.
    async fn check_writable(&self) -> Result<(), HttpError> {
        if SHARED { check_owner(&self.app, &self.principal, &self.role).await } else { Ok(()) }
    }
}

/// Handles `DELETE` of all entries, in every folder that the agent has ever had.
pub(super) async fn delete_all<const SHARED: bool>(
    context: RequestContext<App>,
    principal: Principal,
) -> HandlerResult {
    let RequestContext { state, params, .. } = context;
    let memories = Memories::<SHARED>::open(state, principal, &params).await?;
    memories.check_writable().await?;
    let Memories { app, principal, role, .. } = &memories;
    let selection = if SHARED {
        MemorySelection::AgentShared(&role.id)
    } else {
        MemorySelection::AgentUser(&role.id, &principal.user_id)
    };
    delete_memories(&*app.pulse.inventory, &principal.company_id, selection).await?;
    Ok(resource::no_content())
}

fn workspace_error_response(error: WorkspaceError) -> HttpError {
    match error {
        WorkspaceError::Invalid { field, fault } => HttpError::invalid(field, fault),
        WorkspaceError::Full { limit, .. } => {
            HttpError::conflict(error.to_string()).with_member("limit", limit.into())
        }
        WorkspaceError::Store(error) => error.into(),
        error => HttpError::internal(error),
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    describe_list_of(schemas, "listMemories", "Lists the entries of an agent's memory about the caller.")
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    describe_get_of(schemas, "getMemory", "Returns an entry of an agent's memory about the caller.")
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    describe_put_of(
        schemas,
        "putMemory",
        "Creates or replaces an entry of an agent's memory about the caller.",
    )
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    describe_delete_of("deleteMemory", "Deletes an entry of an agent's memory about the caller.")
        .conditional_write(&["If-Match"])
}

pub(super) fn describe_delete_all(_: &mut Schemas) -> Operation {
    describe_delete_of("deleteMemories", "Deletes all entries of an agent's memory about the caller.")
}

pub(super) fn describe_list_shared(schemas: &mut Schemas) -> Operation {
    describe_list_of(
        schemas,
        "listSharedMemories",
        "Lists the entries of an agent's memory that the company shares.",
    )
}

pub(super) fn describe_get_shared(schemas: &mut Schemas) -> Operation {
    describe_get_of(
        schemas,
        "getSharedMemory",
        "Returns an entry of an agent's memory that the company shares.",
    )
}

pub(super) fn describe_put_shared(schemas: &mut Schemas) -> Operation {
    describe_put_of(
        schemas,
        "putSharedMemory",
        "Creates or replaces a shared entry in the memory of an agent owned by the caller.",
    )
}

pub(super) fn describe_delete_shared(_: &mut Schemas) -> Operation {
    describe_delete_of(
        "deleteSharedMemory",
        "Deletes a shared entry from the memory of an agent owned by the caller.",
    )
    .conditional_write(&["If-Match"])
}

pub(super) fn describe_delete_all_shared(_: &mut Schemas) -> Operation {
    describe_delete_of(
        "deleteSharedMemories",
        "Deletes all shared entries from the memory of an agent owned by the caller.",
    )
}

fn describe_list_of(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    let page = schemas.schema_for::<MemoryPage>();
    operation(id, summary).paged().json_response(200, "One page of entries.", page)
}

fn describe_get_of(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    let entry = schemas.schema_for::<Memory>();
    operation(id, summary).conditional_read().versioned_response(200, "The entry.", entry)
}

fn describe_put_of(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    let entry = schemas.schema_for::<Memory>();
    operation(id, summary)
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<Memory>(&["id", "companyId", "agentId"]))
        .versioned_response(200, "The entry was replaced.", entry.clone())
        .versioned_response(201, "The entry was created.", entry)
        .problems(&[Code::Conflict])
}

fn describe_delete_of(id: &str, summary: &str) -> Operation {
    operation(id, summary).empty_response(204, "The content was deleted.")
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, AGENTS_TAG, summary).problems(&[Code::NotFound])
}
