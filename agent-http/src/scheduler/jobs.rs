//! `/jobs`: handlers that create, read, reschedule, pause, redrive and cancel jobs.

mod describe;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_jobs::job::{
    InsertOutcome, Job, JobFilter, JobOrder, JobPage, JobScope, JobState, Step, StepError, StepOutcome,
};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::records::StoreError;
use http::header::{HeaderValue, LOCATION};
use http::{StatusCode, request};

use super::state::Scheduler;
use super::wire::{
    CancelledJobs, CreateJobRequest, JobCount, JobDetails, JobList, JobStatus, ScheduledJob, resolve,
};
use crate::endpoint::{Params, RequestContext};
use crate::error::{Code, HttpError, unavailable_reason};
use crate::request::{MAX_JOB_PARAMETER_BYTES, Query, parse_json};
use crate::response::json;
use crate::service::HandlerResult;

pub(super) use describe::*;

/// Default page size of a job list.
const DEFAULT_PAGE_SIZE: usize = 50;
/// Maximum page size of a job list.
const MAX_PAGE_SIZE: usize = 200;

pub(super) async fn post(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let RequestContext { state: scheduler, head, body, .. } = context;
    let bytes = body.read_json_bytes(&head.headers).await?;
    // Parsed twice, so that an error in either half is reported with its position.
    let request: CreateJobRequest = parse_json(&bytes, scheduler.base.json_depth)?;
    let spec: ScheduleSpec = parse_json(&bytes, scheduler.base.json_depth)?;
    let max_open = request.max_open_jobs;
    let job = request.job(&spec, scheduler.worker.now())?;
    let (id, scheduled) = (job.id.clone(), ScheduledJob::from_job(&job));
    match scheduler.worker.insert(job, max_open).await.map_err(store_error)? {
        InsertOutcome::New => {
            let mut response = json(StatusCode::CREATED, &scheduled)?;
            let location = HeaderValue::try_from(format!("/jobs/{id}")).map_err(HttpError::internal)?;
            response.headers_mut().insert(LOCATION, location);
            Ok(response)
        }
        InsertOutcome::Existing(job) => json(StatusCode::OK, &ScheduledJob::from_job(&job)),
        InsertOutcome::KeyConflict(_) => Err(HttpError::conflict(InsertOutcome::KEY_CONFLICT_TEXT)),
        InsertOutcome::LimitReached => {
            Err(HttpError::conflict("the user has reached the limit of open jobs")
                .with_member("limit", max_open.into()))
        }
    }
}

pub(super) async fn list(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let query = &Query::from_uri(&context.head.uri);
    let (filter, order) = (filter(query)?, order(query)?);
    let limit = match query.get("limit")? {
        None => DEFAULT_PAGE_SIZE,
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=MAX_PAGE_SIZE).contains(limit)).ok_or_else(|| {
                HttpError::invalid("limit", format!("must be a whole number from 1 to {MAX_PAGE_SIZE}"))
            })?
        }
    };
    let invalid_cursor = || HttpError::invalid("cursor", "is invalid");
    let after = query.get("cursor")?.map(|cursor| JobPage::parse_cursor(cursor).ok_or_else(invalid_cursor));
    let after = after.transpose()?;
    let page = context.state.worker.jobs().list(&filter, order, after.as_ref(), limit).await;
    let page = page.map_err(store_error)?;
    let jobs = page.jobs.iter().map(JobDetails::from).collect();
    let next_cursor = page.next.map(|id| id.to_string());
    json(StatusCode::OK, &JobList { jobs, unreadable: page.unreadable, next_cursor })
}

pub(super) async fn count(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let filter = filter(&Query::from_uri(&context.head.uri))?;
    let count = context.state.worker.jobs().count(&filter).await.map_err(store_error)?;
    json(StatusCode::OK, &JobCount { count })
}

pub(super) async fn get(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let scope = scope(&Query::from_uri(&context.head.uri))?;
    let job = context.state.worker.jobs().get(&scope, &context.params.get("id")?.into()).await;
    let job: Option<Job> = job.map_err(store_error)?;
    json(StatusCode::OK, &JobDetails::from(&job.ok_or_else(HttpError::not_found)?))
}

/// Cancels all jobs of one tool or assignment of one user, or of one agent. A filter that is less specific is rejected,
/// since a client that forgot a parameter would cancel far more than it meant to.
pub(super) async fn cancel_all(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let query = &Query::from_uri(&context.head.uri);
    let filter = filter(query)?;
    let JobScope { company, user } = &filter.scope;
    let is_user_needed = filter.agent.is_none();
    for (name, is_given) in [("userId", user.is_some() || !is_user_needed), ("companyId", company.is_some())]
    {
        if !is_given {
            return Err(HttpError::invalid(name, "is missing in the query"));
        }
    }
    if filter.tool.is_none() && filter.assignment.is_none() && filter.agent.is_none() {
        return Err(HttpError::invalid("toolId, assignmentId or agentId", "is missing in the query"));
    }
    let cancelled = context.state.worker.cancel_all(filter).await.map_err(store_error)?;
    json(StatusCode::OK, &CancelledJobs { cancelled })
}

pub(super) async fn cancel(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    apply_step(&context.state, &context.head, &context.params, Step::Cancel).await
}

pub(super) async fn reschedule(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    let RequestContext { state: scheduler, head, params, body } = context;
    let spec: ScheduleSpec = body.read_json(&head.headers).await?;
    let step = Step::Reschedule(resolve(&spec, scheduler.worker.now())?);
    apply_step(&scheduler, &head, &params, step).await
}

pub(super) async fn pause(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    apply_step(&context.state, &context.head, &context.params, Step::Pause).await
}

pub(super) async fn resume(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    apply_step(&context.state, &context.head, &context.params, Step::Resume).await
}

pub(super) async fn redrive(context: RequestContext<Scheduler>, (): ()) -> HandlerResult {
    apply_step(&context.state, &context.head, &context.params, Step::Redrive).await
}

async fn apply_step(
    scheduler: &Scheduler,
    head: &request::Parts,
    params: &Params,
    step: Step,
) -> HandlerResult {
    let scope = scope(&Query::from_uri(&head.uri))?;
    let applied = scheduler.worker.apply_step(scope, params.get("id")?.into(), step).await;
    match applied.map_err(store_error)? {
        StepOutcome::Applied(result) => json(StatusCode::OK, &JobStatus::from(&*result)),
        StepOutcome::NotFound => Err(HttpError::not_found()),
        StepOutcome::Rejected(error) => Err(step_error_response(error)),
        StepOutcome::Unreadable => Err(HttpError::new(Code::Internal, "the stored job cannot be read")),
    }
}

/// Converts a store's error, with its cause in the detail. Only the application calls these endpoints, and its
/// operator should see at once whether the disk is full or the database is unreachable.
fn store_error(error: StoreError) -> HttpError {
    let detail = unavailable_reason(&error);
    let error = HttpError::from(error);
    match detail {
        Some(detail) => error.with_detail(detail),
        None => error,
    }
}

fn scope(query: &Query<'_>) -> Result<JobScope, HttpError> {
    let company = parameter(query, "companyId")?.map(CompanyId::from);
    Ok(JobScope { company, user: parameter(query, "userId")?.map(UserId::from) })
}

fn filter(query: &Query<'_>) -> Result<JobFilter, HttpError> {
    let state = parameter(query, "state")?;
    let open = state.as_deref() == Some(JobFilter::OPEN_STATES);
    let state = state.filter(|_| !open).map(|name| {
        let names = || JobState::ALL.map(JobState::as_str).join(", ");
        JobState::from_name(&name).ok_or_else(|| {
            HttpError::invalid("state", format!("must be {} or one of {}", JobFilter::OPEN_STATES, names()))
        })
    });
    Ok(JobFilter {
        scope: scope(query)?,
        agent: parameter(query, "agentId")?.map(AgentId::from),
        open,
        tool: parameter(query, "toolId")?,
        assignment: parameter(query, "assignmentId")?,
        state: state.transpose()?,
    })
}

fn order(query: &Query<'_>) -> Result<JobOrder, HttpError> {
    let name = parameter(query, "order")?;
    name.map_or(Ok(JobOrder::default()), |name| {
        JobOrder::from_name(&name).ok_or_else(|| HttpError::invalid("order", "must be asc or desc"))
    })
}

/// Returns a query parameter. An empty value is an error: a client with an unset variable would otherwise get the
/// jobs of all companies.
fn parameter(query: &Query<'_>, name: &str) -> Result<Option<String>, HttpError> {
    match query.get(name)? {
        Some(value) if value.is_empty() || value.len() > MAX_JOB_PARAMETER_BYTES => {
            Err(HttpError::invalid(name, format!("must have 1 to {MAX_JOB_PARAMETER_BYTES} bytes")))
        }
        value => Ok(value.map(str::to_owned)),
    }
}

fn step_error_response(error: StepError) -> HttpError {
    match error {
        StepError::NeverFires => HttpError::new(Code::InvalidRequest, error.to_string()),
        error => HttpError::conflict(error.to_string()),
    }
}
