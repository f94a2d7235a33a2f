//! `/api/pulse/jobs`: the caller's own jobs.

use agent_core::ids::{AgentId, JobId, UserId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_jobs::job::{JobFilter, JobKind, JobOrder, JobPayload, JobState, JobView};
use agent_jobs::schedule::{MisfirePolicy, OverlapPolicy, Schedule, ScheduleSpec};
use agent_platform::assignment::{self, AssignmentSync, sync_key};
use agent_platform::conversation::check_conversation_id;
use agent_platform::pulse::{
    CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, PulseError, ScheduledJob,
};
use agent_platform::records::{Record, RecordsExt};
use agent_platform::run_tools::allowed_tools_in_run;
use agent_platform::workspace::{Assignment, assignment_key};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::super::resource::{self, IdOrigin, set_or_check_id};
use super::super::{App, ownership, response};
use super::tool_call::{check_arguments, scheduled_tools};
use super::{TAG, scope};
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::{MAX_JOB_PARAMETER_BYTES, Query, parse_json};
use crate::service::HandlerResult;

/// Maximum length of a caller's idempotency key, in bytes. The scheduler's key also has the user's id.
const MAX_IDEMPOTENCY_KEY_BYTES: usize = 100;

/// A request to schedule a job for the caller, without its schedule.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OwnJobRequest {
    /// The work to do. `userId` and `companyId` are the caller's own and can be omitted.
    payload: Map<String, Value>,
    /// Idempotency key: requests of the caller with the same key and body create one job.
    #[schemars(length(min = 1, max = 100))]
    idempotency_key: Option<String>,
    /// Maximum number of attempts per occurrence, from 1 to 100; 12 by default.
    #[schemars(range(min = 1, max = 100))]
    max_attempts: Option<u32>,
    /// Policy for occurrences that were missed because no scheduler was running.
    misfire: Option<MisfirePolicy>,
    /// Policy for occurrences that come due while another one is being delivered.
    overlap: Option<OverlapPolicy>,
}

/// A payload under the name that errors in it begin with.
#[derive(Deserialize)]
struct NamedPayload {
    payload: JobPayload,
}

pub(in crate::app) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let pulse = app.pulse.scheduler()?;
    let bytes = body.read_json_bytes(&head.headers).await?;
    // Parsed twice, so that an error in either half is reported with its position.
    let request: OwnJobRequest = parse_json(&bytes, app.base.json_depth)?;
    let schedule: ScheduleSpec = parse_json(&bytes, app.base.json_depth)?;
    let payload = own_payload(&app, &principal, request.payload).await?;
    let idempotency_key = request.idempotency_key.map(|key| own_key(&principal.user_id, &key)).transpose()?;
    let job = JobRequest {
        idempotency_key,
        max_attempts: request.max_attempts,
        misfire: request.misfire,
        overlap: request.overlap,
        ..JobRequest::new(payload, schedule).within_open_jobs_limit()
    };
    // The scheduler checks the same; its answers are not repeated, so a refusal by it would not name the member.
    job.job(app.pulse.now(), |_| String::new())?;
    response::json(StatusCode::CREATED, &pulse.schedule_job(&job).await?)
}

/// Returns the payload of a job of the caller: the agent is one of the caller's company, and may use the tool.
async fn own_payload(
    app: &App,
    principal: &Principal,
    mut payload: Map<String, Value>,
) -> Result<JobPayload, HttpError> {
    set_or_check_id(&mut payload, "companyId", &principal.company_id, IdOrigin::Session)?;
    set_or_check_id(&mut payload, "userId", &principal.user_id, IdOrigin::Session)?;
    let bytes = json!({ "payload": payload }).to_string().into_bytes();
    let NamedPayload { mut payload } = parse_json(&bytes, app.base.json_depth)?;
    payload.validate().map_err(|error| HttpError::invalid("payload:", error))?;
    if payload.assignment_id.is_some() {
        return Err(HttpError::invalid("payload.assignmentId", "is set by the agent's assignments only"));
    }
    if let Some(thread) = &payload.thread_id {
        check_conversation_id("", thread).map_err(|fault| HttpError::invalid("payload.threadId", fault))?;
    }
    let role = ownership::load_in_company(app, principal, &payload.agent_id).await;
    let role = role.map_err(|error| error.with_missing_field("payload.agentId"))?.value;
    // The jobs of a tool end when the agent loses it; a turn needs none.
    payload.tool_id = payload.tool_id.filter(|_| payload.kind == JobKind::Tool);
    if payload.kind == JobKind::Tool {
        let allowed = allowed_tools_in_run(&role, Caller::Proactive);
        let is_allowed = payload.tool_id.as_deref().is_some_and(|tool| allowed.contains(tool));
        if !is_allowed {
            return Err(HttpError::invalid("payload.toolId", "names no tool that this agent may use"));
        }
        let tools = scheduled_tools(app, principal, &role).await?;
        if let Some(spec) = tools.iter().find(|spec| payload.tool_id.as_ref() == Some(&spec.name)) {
            check_arguments(spec, payload.arguments.as_ref(), "payload.arguments")?;
        }
    }
    Ok(payload)
}

/// Returns the scheduler's idempotency key for a key of the caller. Keys are unique within a company, so it includes the
/// user's id, prefixed with its length so that no two pairs of id and key are equal.
fn own_key(user: &UserId, key: &str) -> Result<String, HttpError> {
    let is_valid = (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control);
    if is_valid {
        return Ok(format!("user:{}:{user}:{key}", user.len()));
    }
    let detail = format!("must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes and no control character");
    Err(HttpError::invalid("idempotencyKey", detail))
}

pub(in crate::app) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let pulse = context.state.pulse.scheduler()?;
    let query = &Query::from_uri(&context.head.uri);
    let (filter, order) = (filter(query, &principal)?, order(query)?);
    let params = resource::page_params(query)?;
    if params.cursor.as_deref().is_some_and(|cursor| !(1..=MAX_JOB_PARAMETER_BYTES).contains(&cursor.len())) {
        return Err(HttpError::invalid("cursor", format!("must have 1 to {MAX_JOB_PARAMETER_BYTES} bytes")));
    }
    let page = pulse.list_jobs(&filter, order, params.cursor.as_deref(), params.page_size()).await;
    let mut page = page.map_err(|error| match error {
        // All but the cursor has been checked.
        PulseError::Invalid(_) if params.cursor.is_some() => HttpError::invalid("cursor", "is invalid"),
        error => error.into(),
    })?;
    page.jobs.retain(|job| is_own(job, &principal));
    for job in &mut page.jobs {
        // A job's own route has them.
        job.attempts.clear();
    }
    response::json(StatusCode::OK, &page)
}

pub(in crate::app) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let pulse = context.state.pulse.scheduler()?;
    let job = pulse.get_job(&scope(&principal), &context.params.id("id")?.into()).await?;
    if !is_own(&job, &principal) {
        return Err(HttpError::not_found());
    }
    response::json(StatusCode::OK, &job)
}

/// Returns true if a job is the caller's. The scheduler was asked for the caller's own jobs, but the server at its URL is
/// not trusted to return no others.
fn is_own(job: &JobView, principal: &Principal) -> bool {
    job.payload.company_id == principal.company_id && job.payload.user_id == principal.user_id
}

fn filter(query: &Query<'_>, principal: &Principal) -> Result<JobFilter, HttpError> {
    let state = parameter(query, "state")?;
    let open = state.as_deref() == Some(JobFilter::OPEN_STATES);
    let state = state.filter(|_| !open).map(|name| {
        JobState::from_name(&name).ok_or_else(|| HttpError::invalid("state", "is not a job state"))
    });
    Ok(JobFilter {
        scope: scope(principal),
        agent: parameter(query, "agentId")?.map(AgentId::from),
        tool: parameter(query, "toolId")?,
        assignment: parameter(query, "assignmentId")?,
        state: state.transpose()?,
        open,
    })
}

/// Returns a query parameter. An empty one counts as absent.
fn parameter(query: &Query<'_>, name: &str) -> Result<Option<String>, HttpError> {
    match query.get(name)? {
        Some(value) if value.len() > MAX_JOB_PARAMETER_BYTES => {
            Err(HttpError::invalid(name, format!("must have at most {MAX_JOB_PARAMETER_BYTES} bytes")))
        }
        value => Ok(value.filter(|value| !value.is_empty()).map(str::to_owned)),
    }
}

fn order(query: &Query<'_>) -> Result<JobOrder, HttpError> {
    query.get("order")?.map_or(Ok(JobOrder::default()), |name| {
        JobOrder::from_name(name).ok_or_else(|| HttpError::invalid("order", "must be asc or desc"))
    })
}

/// Checks that a job is not the job of an assignment, which may be changed through its assignment only: otherwise the assignment
/// would be reported to be in step with a job that does not run, or at other times. A final job is left to the scheduler. A
/// follow-up of the assignment's tool is a separate job.
///
/// # Errors
/// `Conflict`, which names the assignment; errors of the scheduler and the store.
async fn check_not_of_assignment(app: &App, principal: &Principal, id: &JobId) -> Result<(), HttpError> {
    let job = app.pulse.scheduler()?.get_job(&scope(principal), id).await?;
    if !is_own(&job, principal) {
        return Err(HttpError::not_found());
    }
    let Some(assignment) = job.payload.assignment_id.as_deref().filter(|_| !job.state.is_final()) else {
        return Ok(());
    };
    // An id that no record can have belongs to no assignment.
    let Ok(key) = sync_key(&principal.company_id, assignment) else { return Ok(()) };
    let link: Option<Record<AssignmentSync>> = app.records.get_as(&key).await?;
    let Some(Record { value: link, .. }) = link else { return Ok(()) };
    let is_being_synchronized = link.busy_until.is_some_and(|until| until > app.pulse.now());
    let linked = link.last_sent.and_then(|last_sent| last_sent.job);
    let mut is_assignments = linked.is_some_and(|linked| linked.job_id == *id);
    if !is_assignments && is_being_synchronized {
        is_assignments = may_be_unlinked_job(app, &job, assignment).await?;
    }
    if !is_assignments {
        return Ok(());
    }
    let remedy = "change, disable or delete the assignment";
    Err(HttpError::conflict(format!("the job is that of the assignment {assignment:?}: {remedy}")))
}

/// Returns true if a job with the payload of an assignment may be the one that a synchronization in progress has created
/// and not linked yet. A follow-up of the assignment's tool runs once, at a separate time.
async fn may_be_unlinked_job(app: &App, job: &JobView, assignment: &str) -> Result<bool, HttpError> {
    if !matches!(job.schedule, Schedule::At(_)) {
        return Ok(true);
    }
    let key = assignment_key(&job.payload.company_id, assignment)?;
    let saved: Option<Record<Assignment>> = app.records.get_as(&key).await?;
    let schedule = saved.and_then(|saved| saved.value.schedule.spec().resolve(app.pulse.now()).ok());
    Ok(schedule.is_some_and(|schedule| schedule == job.schedule))
}

pub(in crate::app) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let pulse = context.state.pulse.scheduler()?;
    let id = context.params.id("id")?.into();
    check_not_of_assignment(&context.state, &principal, &id).await?;
    response::json(StatusCode::OK, &pulse.cancel_job(&scope(&principal), &id).await?)
}

pub(in crate::app) async fn reschedule(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let pulse = app.pulse.scheduler()?;
    let id = params.id("id")?.into();
    let schedule: ScheduleSpec = body.read_json(&head.headers).await?;
    schedule
        .resolve(app.pulse.now())
        .map_err(|error| HttpError::new(Code::InvalidRequest, error.to_string()))?;
    check_not_of_assignment(&app, &principal, &id).await?;
    let rescheduled = pulse.reschedule_job(&scope(&principal), &id, &schedule).await?;
    response::json(StatusCode::OK, &rescheduled)
}

pub(in crate::app) async fn pause(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    control(context, principal, JobControl::Pause).await
}

pub(in crate::app) async fn resume(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    control(context, principal, JobControl::Resume).await
}

pub(in crate::app) async fn redrive(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    control(context, principal, JobControl::Redrive).await
}

/// Changes a job. The change of an assignment's job is recorded even if the client leaves before the scheduler has answered.
async fn control(context: RequestContext<App>, principal: Principal, control: JobControl) -> HandlerResult {
    let id: JobId = context.params.id("id")?.into();
    let app = context.state;
    let work = async move {
        let status = app.pulse.scheduler()?.control_job(&scope(&principal), &id, control).await?;
        if let Err(error) = record_pause(&app, &principal, &id).await {
            tracing::warn!(%error, job = %id, "failed to record whether the job of an assignment is paused");
        }
        Ok::<_, HttpError>(status)
    };
    let status = tokio::spawn(work.in_current_span()).await.map_err(HttpError::internal)??;
    response::json(StatusCode::OK, &status)
}

/// Records whether a job is paused, if it is the job of an assignment: the application runs those while the scheduler is
/// unavailable.
async fn record_pause(app: &App, principal: &Principal, id: &JobId) -> Result<(), HttpError> {
    let job = app.pulse.scheduler()?.get_job(&scope(principal), id).await?;
    let Some(assignment) = job.payload.assignment_id.as_deref().filter(|_| is_own(&job, principal)) else {
        return Ok(());
    };
    let key = (&principal.company_id, assignment);
    let own_jobs = scope(principal);
    // The state as it is now: another request may have changed it again.
    let is_paused = || async {
        let job = app.pulse.scheduler()?.get_job(&own_jobs, id).await?;
        Ok::<_, HttpError>(job.state == JobState::Paused)
    };
    assignment::record_pause(&*app.records, key, id, is_paused).await
}

pub(in crate::app) fn describe_post(schemas: &mut Schemas) -> Operation {
    let spec = schemas.schema_for::<ScheduleSpec>();
    let payload = schemas.without_required::<JobPayload>(&["userId", "companyId"]);
    let mut request = schemas.schema_for::<OwnJobRequest>();
    let narrowed = json!({"type": "object", "properties": {"payload": payload}});
    request = json!({"allOf": [request, narrowed, spec]});
    scheduler_operation("scheduleOwnJob", "Schedules a tool call or a turn of an agent for the caller.")
        .describe("The agent is one of the caller's company. A user has at most 100 open jobs.")
        .body(request)
        .json_response(201, "The job is scheduled.", schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(in crate::app) fn describe_list(schemas: &mut Schemas) -> Operation {
    let order = json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"});
    let state = "Only jobs in this state; `open` means all states that are not final.";
    scheduler_operation("listOwnJobs", "Lists the caller's own jobs, the newest first by default.")
        .parameter("query", "state", state, string_schema())
        .parameter("query", "agentId", "Only jobs of this agent.", string_schema())
        .parameter("query", "toolId", "Only jobs that call this tool.", string_schema())
        .parameter("query", "assignmentId", "Only jobs of this assignment.", string_schema())
        .parameter("query", "order", "`asc`: the oldest first; `desc`: the newest first.", order)
        .paged()
        .json_response(200, "One page of jobs.", schemas.schema_for::<JobViewPage>())
}

pub(in crate::app) fn describe_get(schemas: &mut Schemas) -> Operation {
    scheduler_operation("getOwnJob", "Returns one of the caller's own jobs with its latest attempts.")
        .json_response(200, "The job.", schemas.schema_for::<JobView>())
        .problems(&[Code::NotFound])
}

pub(in crate::app) fn describe_cancel(schemas: &mut Schemas) -> Operation {
    scheduler_operation("cancelOwnJob", "Cancels one of the caller's own jobs. Idempotent.")
        .describe("A job of an assignment cannot be cancelled by itself: 409.")
        .json_response(200, "The job was cancelled.", schemas.schema_for::<CancelResult>())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(in crate::app) fn describe_reschedule(schemas: &mut Schemas) -> Operation {
    scheduler_operation("rescheduleOwnJob", "Replaces the schedule of one of the caller's own jobs.")
        .body(schemas.schema_for::<ScheduleSpec>())
        .json_response(200, "The job was rescheduled.", schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::NotFound, Code::Conflict])
}

pub(in crate::app) fn describe_pause(schemas: &mut Schemas) -> Operation {
    describe_control(schemas, "pauseOwnJob", "Pauses one of the caller's own jobs.")
}

pub(in crate::app) fn describe_resume(schemas: &mut Schemas) -> Operation {
    describe_control(schemas, "resumeOwnJob", "Resumes one of the caller's own jobs.")
}

pub(in crate::app) fn describe_redrive(schemas: &mut Schemas) -> Operation {
    let summary = "Delivers the last discarded occurrence of one of the caller's own jobs again.";
    describe_control(schemas, "redriveOwnJob", summary)
}

fn describe_control(schemas: &mut Schemas, id: &str, summary: &str) -> Operation {
    scheduler_operation(id, summary)
        .json_response(200, "The job's state.", schemas.schema_for::<JobStatus>())
        .problems(&[Code::NotFound, Code::Conflict])
}

fn scheduler_operation(id: &str, summary: &str) -> Operation {
    let operation = Operation::new(id, TAG, summary);
    operation.problems(&[Code::PulseNotConfigured, Code::BackendUnreachable])
}
