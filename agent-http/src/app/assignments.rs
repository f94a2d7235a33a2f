//! `/api/agents/{id}/assignments`: scheduled tool calls of agents that the caller owns.
//!
//! Saving an assignment succeeds even if the scheduler is unreachable: `sync` reports that, and the background
//! maintenance ([`pulse::run_maintenance`](super::pulse::run_maintenance)) synchronizes it later.

use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId, JobId};
use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::Caller;
use agent_jobs::job::JobKind;
use agent_platform::assignment::{self, AssignmentSync, SyncedState, is_in_sync};
use agent_platform::records::{
    Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError,
};
use agent_platform::run_tools::allowed_tools_in_run;
use agent_platform::workspace::utc_time;
use agent_platform::workspace::{Assignment, assignment_key, list_assignments};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::App;
use super::ownership::load_owned;
use super::pulse::sync::{sync_with_scheduler, target};
use super::pulse::tool_call::{check_arguments, scheduled_tools};
use super::resource::{self, IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use crate::endpoint::{Operation, Params, Schemas};
use crate::error::{Code, HttpError};

/// Maximum number of assignments per agent.
const MAX_ASSIGNMENTS_PER_AGENT: usize = 100;

/// An assignment and its synchronization state.
#[derive(Serialize, JsonSchema)]
pub(super) struct AssignmentView {
    #[serde(flatten)]
    assignment: Assignment,
    /// Synchronization with the scheduler.
    sync: SyncView,
}

/// Synchronization state of an assignment with the scheduler.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SyncView {
    /// True if the scheduler has the current version of the assignment. If false, it is updated within minutes of
    /// becoming reachable.
    in_step: bool,
    /// The scheduler's job for the assignment.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    /// Due time of the job's next occurrence, as last reported by the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    execute_at: Option<String>,
    /// Reason why the assignment does not run, although it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
}

/// One page of assignments.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AssignmentPage {
    /// The assignments by id.
    assignments: Vec<AssignmentView>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The assignments of an agent that the caller owns.
pub(super) struct Assignments {
    app: Arc<App>,
    principal: Principal,
    role: RoleBlock,
}

#[async_trait]
impl Listing for Assignments {
    type Page = AssignmentPage;

    async fn open(app: Arc<App>, principal: Principal, params: &Params) -> Result<Self, HttpError> {
        let role = load_owned(&app, &principal, params.get("id")?).await?.value;
        Ok(Self { app, principal, role })
    }

    async fn page(&self, list: ListQuery) -> Result<AssignmentPage, HttpError> {
        let Self { app, role, .. } = self;
        let page = list_assignments(&*app.records, &role.company_id, &role.id, &list).await?;
        let mut assignments = Vec::with_capacity(page.items.len());
        for record in page.items {
            assignments.push(view(app, Some(role), record).await?.value);
        }
        Ok(AssignmentPage { assignments, next_cursor: page.next_cursor })
    }
}

#[async_trait]
impl Resource for Assignments {
    const ID_PARAMETER: &'static str = "assignmentId";

    type Input = Assignment;
    type View = AssignmentView;

    async fn load(&self, id: &str) -> Result<Versioned<AssignmentView>, HttpError> {
        view(&self.app, Some(&self.role), self.load_existing(id).await?).await
    }

    /// Validates an assignment: it must be the caller's own, and the agent may use its tool.
    async fn validate(&self, id: &str, mut fields: Map<String, Value>) -> Result<Assignment, HttpError> {
        let Principal { company_id, user_id, .. } = &self.principal;
        set_or_check_id(&mut fields, "id", id, IdOrigin::Path)?;
        set_or_check_id(&mut fields, "agentId", &self.role.id, IdOrigin::Path)?;
        set_or_check_id(&mut fields, "companyId", company_id, IdOrigin::Session)?;
        set_or_check_id(&mut fields, "userId", user_id, IdOrigin::Session)?;
        let file = resource::validate_as_import("assignments", fields, &self.app.own_tools)?;
        let assignment = file.assignments.into_iter().next();
        let assignment =
            assignment.ok_or_else(|| HttpError::internal("the validated import has no assignment"))?;
        if let Some(tool) = assignment.tool_id.as_deref().filter(|_| assignment.kind == JobKind::Tool) {
            self.check_tool(tool, assignment.arguments.as_ref()).await?;
        }
        Ok(assignment)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        let existing: Option<Record<Assignment>> = self.app.records.get_as(&self.key(id)?).await?;
        if existing.as_ref().is_some_and(|existing| existing.value.agent_id != self.role.id) {
            return Err(HttpError::conflict("this id is already in use"));
        }
        Ok(existing.map(|existing| existing.version))
    }

    /// Checks that the agent has fewer than [`MAX_ASSIGNMENTS_PER_AGENT`]. The limit is not exact: concurrent requests
    /// may each pass the check.
    async fn prepare_create(&self, _: &str) -> Result<(), HttpError> {
        let list = ListQuery { limit: Some(MAX_ASSIGNMENTS_PER_AGENT), ..ListQuery::default() };
        let Self { app, role, .. } = self;
        let page = list_assignments(&*app.records, &role.company_id, &role.id, &list).await?;
        if page.items.len() < MAX_ASSIGNMENTS_PER_AGENT {
            return Ok(());
        }
        Err(HttpError::conflict(format!(
            "the agent has reached the limit of {MAX_ASSIGNMENTS_PER_AGENT} assignments"
        )))
    }

    async fn store(&self, id: &str, value: &Assignment, condition: Precondition) -> Result<u64, StoreError> {
        self.app.records.put_as(&self.key(id)?, value, condition).await
    }

    async fn stored(
        &self,
        id: &str,
        value: Assignment,
        version: u64,
        _: bool,
    ) -> Result<Versioned<AssignmentView>, HttpError> {
        sync_with_scheduler(&self.app, &self.role.company_id, id).await;
        let updated = self.app.pulse.now().into();
        view(&self.app, Some(&self.role), Record { id: id.to_owned(), version, updated, value }).await
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        Ok(self.load_existing(id).await?.version)
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.app.records.delete(&self.key(id)?, condition).await
    }

    async fn removed(&self, id: &str) -> Result<(), HttpError> {
        sync_with_scheduler(&self.app, &self.role.company_id, id).await;
        Ok(())
    }
}

impl Assignments {
    fn key(&self, id: &str) -> Result<Key, StoreError> {
        assignment_key(&self.role.company_id, id)
    }

    /// Returns an assignment of the agent; 404 also if it belongs to another agent.
    async fn load_existing(&self, id: &str) -> Result<Record<Assignment>, HttpError> {
        let key = self.key(id).map_err(|_| HttpError::not_found())?;
        let assignment: Option<Record<Assignment>> = self.app.records.get_as(&key).await?;
        assignment
            .filter(|assignment| assignment.value.agent_id == self.role.id)
            .ok_or_else(HttpError::not_found)
    }

    /// Checks that the agent may use a tool in a proactive run, and that it accepts the arguments of the call.
    async fn check_tool(&self, tool: &str, arguments: Option<&Map<String, Value>>) -> Result<(), HttpError> {
        let tools = scheduled_tools(&self.app, &self.principal, &self.role).await?;
        let spec = tools.iter().find(|spec| spec.name == tool);
        match spec.filter(|_| allowed_tools_in_run(&self.role, Caller::Proactive).contains(tool)) {
            Some(spec) => check_arguments(spec, arguments, "arguments"),
            None => Err(HttpError::invalid("toolId", "names no tool that this agent may use")),
        }
    }
}

/// Returns an assignment with its synchronization state.
async fn view(
    app: &App,
    role: Option<&RoleBlock>,
    saved: Record<Assignment>,
) -> Result<Versioned<AssignmentView>, HttpError> {
    let key = assignment::sync_key(&saved.value.company_id, &saved.value.id)?;
    let link: Option<Record<AssignmentSync>> = app.records.get_as(&key).await?;
    let target = target(app, role, &saved.value);
    let is_suspended = saved.value.schedule.enabled && !target.can_run;
    let in_step = !is_suspended && is_in_sync(Some(&saved), link.as_ref(), target);
    let problem = is_suspended.then_some("the agent may not use the tool");
    let job = link.and_then(|link| link.value.last_sent).and_then(|SyncedState { job, .. }| job);
    let (job_id, execute_at) = job.map(|job| (job.job_id, utc_time(job.execute_at))).unzip();
    let sync = SyncView { in_step, job_id, execute_at, problem };
    Ok(Versioned { version: saved.version, value: AssignmentView { assignment: saved.value, sync } })
}

/// Deletes all assignments of an agent and cancels their jobs.
pub(super) async fn delete_all(app: &App, company_id: &CompanyId, agent: &AgentId) -> Result<(), StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut is_reachable = true;
    loop {
        let page = list_assignments(&*app.records, company_id, agent, &list).await?;
        for record in page.items {
            app.records.delete(&assignment_key(company_id, &record.id)?, Precondition::Any).await?;
            // A scheduler that does not answer is asked once, and not for each of them.
            is_reachable = is_reachable && sync_with_scheduler(app, company_id, &record.id).await;
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    operation("listAssignments", "Lists the scheduled tool calls of an agent owned by the caller.")
        .paged()
        .json_response(200, "One page of assignments.", schemas.schema_for::<AssignmentPage>())
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    operation("getAssignment", "Returns an assignment of an agent owned by the caller.")
        .conditional_read()
        .versioned_response(200, "The assignment.", schemas.schema_for::<AssignmentView>())
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let view = schemas.schema_for::<AssignmentView>();
    let optional = ["id", "userId", "companyId", "agentId"];
    operation("putAssignment", "Creates or replaces an assignment.")
        .describe(
            "The assignment is saved even if the scheduler is unavailable; `sync` then reports it, and the scheduler is updated later.",
        )
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<Assignment>(&optional))
        .versioned_response(200, "The assignment was replaced.", view.clone())
        .versioned_response(201, "The assignment was created.", view)
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation("deleteAssignment", "Deletes an assignment and cancels its jobs.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "The assignment was deleted.")
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, super::pulse::TAG, summary).problems(&[Code::NotFound])
}
