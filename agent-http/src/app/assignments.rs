//! `/api/agents/{id}/assignments`: scheduled tool calls of agents that the caller owns.
//!
//! Saving an assignment succeeds even if the scheduler is unreachable: `sync` reports that, and
//! [`upkeep`](super::upkeep) synchronizes it later.

use agent_core::allowed_tools::allowed_tools_in_run;
use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext};
use agent_platform::assignment::{self, AssignmentSync, SyncedState, is_in_sync};
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError};
use agent_platform::workspace::Assignment;
use agent_platform::workspace::utc_time;
use http::{StatusCode, request};
use schemars::JsonSchema;
use serde::Serialize;

use super::resource::{self, MAX_WRITE_ATTEMPTS, Route};
use super::{App, agents, answer};
use crate::endpoint::{LimitedBody, Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// Maximum number of assignments per agent.
const MAX_ASSIGNMENTS_PER_AGENT: usize = 100;

/// An assignment and its synchronization state.
#[derive(Serialize, JsonSchema)]
struct AssignmentView {
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
    job_id: Option<String>,
    /// Due time of the job's next occurrence, as last reported by the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    execute_at: Option<String>,
}

/// One page of assignments.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AssignmentPage {
    /// The assignments by id.
    assignments: Vec<AssignmentView>,
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
    let role = agents::load_owned(app, &principal, params.get("id")?).await?.value;
    match route {
        Route::List => {
            let page = page(app, &role, &resource::page_params(&query)?).await?;
            answer::json(StatusCode::OK, &page)
        }
        Route::Get => {
            let found = load_existing(app, &role, params.get("assignmentId")?).await?;
            let version = found.version;
            resource::get_response(&head.headers, version, &view(app, found).await?)
        }
        Route::Put => put(app, &principal, &role, params.get("assignmentId")?, &head, body).await,
        Route::Delete => delete(app, &role, params.get("assignmentId")?, &head).await,
    }
}

async fn page(app: &App, role: &RoleBlock, list: &ListQuery) -> Result<AssignmentPage, HttpError> {
    let found =
        agent_platform::workspace::list_assignments(&*app.records, &role.company_id, &role.id, list).await?;
    let mut assignments = Vec::with_capacity(found.items.len());
    for record in found.items {
        assignments.push(view(app, record).await?);
    }
    Ok(AssignmentPage { assignments, next_cursor: found.next_cursor })
}

async fn view(app: &App, saved: Record<Assignment>) -> Result<AssignmentView, HttpError> {
    let key = assignment::sync_key(&saved.value.company_id, &saved.value.id)?;
    let link: Option<Record<AssignmentSync>> = app.records.get_as(&key).await?;
    let in_step = is_in_sync(Some(&saved), link.as_ref());
    let job = link.and_then(|link| link.value.told).and_then(|SyncedState { job, .. }| job);
    let (job_id, execute_at) = job.map(|job| (job.job_id, utc_time(job.execute_at))).unzip();
    Ok(AssignmentView { assignment: saved.value, sync: SyncView { in_step, job_id, execute_at } })
}

/// Returns an assignment of the agent; 404 also if it belongs to another agent.
async fn load_existing(app: &App, role: &RoleBlock, id: &str) -> Result<Record<Assignment>, HttpError> {
    let key = agent_platform::workspace::assignment_key(&role.company_id, id)
        .map_err(|_| HttpError::not_found())?;
    let found: Option<Record<Assignment>> = app.records.get_as(&key).await?;
    found.filter(|found| found.value.agent_id == role.id).ok_or_else(HttpError::not_found)
}

async fn put(
    app: &App,
    principal: &Principal,
    role: &RoleBlock,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> HandlerResult {
    let assignment = read(app, principal, role, id, head, body).await?;
    let key = agent_platform::workspace::assignment_key(&role.company_id, id)?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found: Option<Record<Assignment>> = app.records.get_as(&key).await?;
        if found.as_ref().is_some_and(|found| found.value.agent_id != role.id) {
            return Err(HttpError::conflict("this id is taken"));
        }
        let version = found.as_ref().map(|found| found.version);
        let precondition = resource::check_conditions(&head.headers, version)?;
        if found.is_none() {
            check_assignment_limit(app, role).await?;
        }
        match app.records.put_as(&key, &assignment, precondition).await {
            Ok(version) => {
                sync_with_scheduler(app, &role.company_id, id).await;
                let updated = app.pulse.now().into();
                let saved = Record { id: id.to_owned(), version, updated, value: assignment };
                return resource::put_response(&head.uri, found.is_none(), version, &view(app, saved).await?);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

/// Checks that the agent has fewer than [`MAX_ASSIGNMENTS_PER_AGENT`]. The limit is not exact: concurrent requests may each
/// pass the check.
async fn check_assignment_limit(app: &App, role: &RoleBlock) -> Result<(), HttpError> {
    let list = ListQuery { limit: Some(MAX_ASSIGNMENTS_PER_AGENT), ..ListQuery::default() };
    let found =
        agent_platform::workspace::list_assignments(&*app.records, &role.company_id, &role.id, &list).await?;
    if found.items.len() < MAX_ASSIGNMENTS_PER_AGENT {
        return Ok(());
    }
    Err(HttpError::conflict(format!(
        "the agent has {MAX_ASSIGNMENTS_PER_AGENT} assignments already, which is the most"
    )))
}

/// Reads an assignment from the body and checks that it is the caller's own and that the agent may use its tool.
async fn read(
    app: &App,
    principal: &Principal,
    role: &RoleBlock,
    id: &str,
    head: &request::Parts,
    body: LimitedBody,
) -> Result<Assignment, HttpError> {
    let mut given = resource::read_object(&head.headers, body).await?;
    let in_path = |name: &'static str| move || HttpError::invalid(name, "must be the one in the path");
    let not_yours =
        |name: &'static str| move || HttpError::forbidden(format!("{name} must be the caller's own"));
    resource::set_or_check_id(&mut given, "id", id, in_path("id"))?;
    resource::set_or_check_id(&mut given, "agentId", &role.id, in_path("agentId"))?;
    resource::set_or_check_id(&mut given, "companyId", &principal.company_id, not_yours("companyId"))?;
    resource::set_or_check_id(&mut given, "userId", &principal.user_id, not_yours("userId"))?;
    let file = resource::validate_as_import("assignments", given)?;
    let assignment = file.assignments.into_iter().next();
    let assignment = assignment.ok_or_else(|| HttpError::internal("an assignment is gone from its file"))?;
    let context = ExecutionContext {
        user_id: principal.user_id.clone(),
        company_id: principal.company_id.clone(),
        agent_id: role.id.clone(),
        caller: Caller::Proactive,
        ..ExecutionContext::default()
    };
    let known = app.pulse.tools.list(&context).await.map_err(HttpError::internal)?;
    let is_known = known.iter().any(|tool| tool.name == assignment.tool_id);
    if !is_known || !allowed_tools_in_run(role, Caller::Proactive).contains(&assignment.tool_id) {
        return Err(HttpError::invalid("toolId", "names no tool that this agent may use"));
    }
    Ok(assignment)
}

async fn delete(app: &App, role: &RoleBlock, id: &str, head: &request::Parts) -> HandlerResult {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let found = load_existing(app, role, id).await?;
        let precondition = resource::check_conditions(&head.headers, Some(found.version))?;
        match app
            .records
            .delete(&agent_platform::workspace::assignment_key(&role.company_id, id)?, precondition)
            .await
        {
            Ok(_) => {
                sync_with_scheduler(app, &role.company_id, id).await;
                return Ok(resource::no_content());
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(resource::write_contention())
}

/// Synchronizes an assignment with the scheduler, if one is configured. Errors are logged; upkeep retries.
async fn sync_with_scheduler(app: &App, company_id: &str, id: &str) {
    let Ok(pulse) = app.pulse.client() else { return };
    let synced = assignment::sync_assignment(&*app.records, pulse, (company_id, id), app.pulse.now()).await;
    if let Err(error) = synced {
        tracing::warn!(%error, id, "an assignment is out of step with the scheduler");
    }
}

/// Deletes all assignments of an agent and cancels their jobs.
pub(super) async fn delete_all(app: &App, company_id: &str, agent: &str) -> Result<(), StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page =
            agent_platform::workspace::list_assignments(&*app.records, company_id, agent, &list).await?;
        for record in page.items {
            app.records
                .delete(
                    &agent_platform::workspace::assignment_key(company_id, &record.id)?,
                    Precondition::Any,
                )
                .await?;
            sync_with_scheduler(app, company_id, &record.id).await;
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    operation("listAssignments", "What an agent of the caller's own runs by a schedule.")
        .paged()
        .json_response(200, "One page.", schemas.schema_for::<AssignmentPage>())
}

pub(super) fn describe_get(schemas: &mut Schemas) -> Operation {
    operation("getAssignment", "An assignment of an agent of the caller's own.")
        .conditional_read()
        .versioned_response(200, "The assignment.", schemas.schema_for::<AssignmentView>())
}

pub(super) fn describe_put(schemas: &mut Schemas) -> Operation {
    let view = schemas.schema_for::<AssignmentView>();
    let optional = ["id", "userId", "companyId", "agentId"];
    operation("putAssignment", "Makes an assignment, or replaces one.")
        .describe(
            "It is saved also where the scheduler cannot be told; `sync` says so, and it is told later.",
        )
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(schemas.without_required::<Assignment>(&optional))
        .versioned_response(200, "It is replaced.", view.clone())
        .versioned_response(201, "It is made.", view)
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation("deleteAssignment", "Removes an assignment and cancels its jobs.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "It is gone.")
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, super::pulse::TAG, summary).problems(&[Code::NotFound])
}
