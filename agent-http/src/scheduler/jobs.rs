//! `/jobs`: endpoints that create, read, reschedule, pause, redrive and cancel jobs.

use std::error::Error as _;

use agent_jobs::job::{InsertOutcome, Job, JobFilter, JobScope, JobState, Step, StepError, StepOutcome};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::records::StoreError;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Method, Request, Response, StatusCode, request};
use serde::Serialize;

use super::Scheduler;
use super::wire::{CancelledJobs, CreateJobRequest, JobDetails, JobList, JobStatus, ScheduledJob, resolve};
use crate::body::{Body, full};
use crate::error::{Code, HttpError};
use crate::request::{self as requests, Params, Query, parse_json, read_json_bytes};
use crate::service::HandlerResult;

/// Default page size of a job list.
const DEFAULT_PAGE_SIZE: usize = 50;
/// Maximum page size of a job list.
const MAX_PAGE_SIZE: usize = 200;
/// Maximum length of a query parameter.
const MAX_PARAMETER_BYTES: usize = 256;

/// The job endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Post,
    List,
    CancelAll,
    Get,
    Cancel,
    Reschedule,
    Pause,
    Resume,
    Redrive,
}

/// Returns the route table entries of the job endpoints.
pub(super) fn routes<H>(handler: impl Fn(Route) -> H) -> [requests::Route<H>; 9] {
    [
        (Method::POST, "/jobs", Route::Post),
        (Method::GET, "/jobs", Route::List),
        (Method::DELETE, "/jobs", Route::CancelAll),
        (Method::GET, "/jobs/{id}", Route::Get),
        (Method::DELETE, "/jobs/{id}", Route::Cancel),
        (Method::POST, "/jobs/{id}/reschedule", Route::Reschedule),
        (Method::POST, "/jobs/{id}/pause", Route::Pause),
        (Method::POST, "/jobs/{id}/resume", Route::Resume),
        (Method::POST, "/jobs/{id}/redrive", Route::Redrive),
    ]
    .map(|(method, pattern, route)| requests::Route::new(method, pattern, handler(route)))
}

pub(super) async fn handle(
    scheduler: &Scheduler,
    route: Route,
    params: &Params,
    request: Request<Body>,
) -> HandlerResult {
    dispatch(scheduler, route, params, request).await.map_err(with_store_error_detail)
}

/// Adds the store's error to the detail. Only the application calls these endpoints, and its operator should see at
/// once whether the disk is full or the database is unreachable.
fn with_store_error_detail(error: HttpError) -> HttpError {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let Some(StoreError::Unavailable(fault)) = cause else { return error };
    let detail = format!("the store is not available: {fault}");
    error.with_detail(detail)
}

async fn dispatch(
    scheduler: &Scheduler,
    route: Route,
    params: &Params,
    request: Request<Body>,
) -> HandlerResult {
    let (head, body) = request.into_parts();
    let query = Query::from_uri(&head.uri);
    let step = match route {
        Route::Post => return post(scheduler, &head, body).await,
        Route::List => return list(scheduler, &query).await,
        Route::CancelAll => return cancel_all(scheduler, &query).await,
        Route::Get => return get(scheduler, &scope(&query)?, params.get("id")?).await,
        Route::Cancel => Step::Cancel,
        Route::Reschedule => {
            let spec: ScheduleSpec = parse_json(&read(scheduler, &head, body).await?, scheduler.json_depth)?;
            Step::Reschedule(resolve(&spec, scheduler.worker.now())?)
        }
        Route::Pause => Step::Pause,
        Route::Resume => Step::Resume,
        Route::Redrive => Step::Redrive,
    };
    match scheduler.worker.apply_step(scope(&query)?, params.get("id")?.to_owned(), step).await? {
        StepOutcome::Applied(result) => json(StatusCode::OK, &JobStatus::from(&*result)),
        StepOutcome::NotFound => Err(HttpError::not_found()),
        StepOutcome::Rejected(error) => Err(step_error_response(error)),
    }
}

async fn read(scheduler: &Scheduler, head: &request::Parts, body: Body) -> Result<Bytes, HttpError> {
    read_json_bytes(&head.headers, body, &scheduler.body).await
}

async fn post(scheduler: &Scheduler, head: &request::Parts, body: Body) -> HandlerResult {
    let bytes = read(scheduler, head, body).await?;
    // Parsed twice, so that an error in either half is reported with its position.
    let asked: CreateJobRequest = parse_json(&bytes, scheduler.json_depth)?;
    let spec: ScheduleSpec = parse_json(&bytes, scheduler.json_depth)?;
    let job = asked.job(&spec, scheduler.worker.now())?;
    let (id, made) = (job.id.clone(), ScheduledJob::from_job(&job));
    match scheduler.worker.insert(job).await? {
        InsertOutcome::New => {
            let mut response = json(StatusCode::CREATED, &made)?;
            let location = HeaderValue::try_from(format!("/jobs/{id}")).map_err(HttpError::internal)?;
            response.headers_mut().insert(LOCATION, location);
            Ok(response)
        }
        InsertOutcome::Existing(job) => json(StatusCode::OK, &ScheduledJob::from_job(&job)),
        InsertOutcome::KeyConflict(_) => {
            Err(HttpError::conflict("the idempotencyKey was used for another job of the company"))
        }
    }
}

async fn list(scheduler: &Scheduler, query: &Query<'_>) -> HandlerResult {
    let filter = filter(query)?;
    let limit = match query.get("limit")? {
        None => DEFAULT_PAGE_SIZE,
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=MAX_PAGE_SIZE).contains(limit)).ok_or_else(|| {
                HttpError::invalid("limit", format!("must be a whole number from 1 to {MAX_PAGE_SIZE}"))
            })?
        }
    };
    let after = parameter(query, "cursor")?;
    let page = scheduler.worker.jobs().list(&filter, after.as_deref(), limit).await?;
    let jobs = page.jobs.iter().map(JobDetails::from).collect();
    json(StatusCode::OK, &JobList { jobs, next_cursor: page.next })
}

async fn get(scheduler: &Scheduler, scope: &JobScope, id: &str) -> HandlerResult {
    let found: Option<Job> = scheduler.worker.jobs().get(scope, id).await?;
    json(StatusCode::OK, &JobDetails::from(&found.ok_or_else(HttpError::not_found)?))
}

/// Cancels all jobs of one tool or assignment of one user. A filter that is less specific is rejected, since a client
/// that forgot a parameter would cancel far more than it meant to.
async fn cancel_all(scheduler: &Scheduler, query: &Query<'_>) -> HandlerResult {
    let filter = filter(query)?;
    for (name, given) in [("userId", &filter.scope.user), ("companyId", &filter.scope.company)] {
        if given.is_none() {
            return Err(HttpError::invalid(name, "is missing in the query"));
        }
    }
    if filter.tool.is_none() && filter.assignment.is_none() {
        return Err(HttpError::invalid("toolId or assignmentId", "is missing in the query"));
    }
    let cancelled = scheduler.worker.cancel_all(filter).await?;
    json(StatusCode::OK, &CancelledJobs { cancelled })
}

fn scope(query: &Query<'_>) -> Result<JobScope, HttpError> {
    Ok(JobScope { company: parameter(query, "companyId")?, user: parameter(query, "userId")? })
}

fn filter(query: &Query<'_>) -> Result<JobFilter, HttpError> {
    let state = parameter(query, "state")?.map(|name| {
        let names = || JobState::ALL.map(JobState::as_str).join(", ");
        JobState::from_name(&name)
            .ok_or_else(|| HttpError::invalid("state", format!("must be one of {}", names())))
    });
    Ok(JobFilter {
        scope: scope(query)?,
        tool: parameter(query, "toolId")?,
        assignment: parameter(query, "assignmentId")?,
        state: state.transpose()?,
    })
}

/// Returns a query parameter. An empty value is an error: a client with an unset variable would otherwise get the
/// jobs of all companies.
fn parameter(query: &Query<'_>, name: &str) -> Result<Option<String>, HttpError> {
    match query.get(name)? {
        Some(value) if value.is_empty() || value.len() > MAX_PARAMETER_BYTES => {
            Err(HttpError::invalid(name, format!("must have 1 to {MAX_PARAMETER_BYTES} bytes")))
        }
        value => Ok(value.map(str::to_owned)),
    }
}

fn step_error_response(refusal: StepError) -> HttpError {
    match refusal {
        StepError::NeverFires => HttpError::new(Code::InvalidRequest, refusal.to_string()),
        refusal => HttpError::conflict(refusal.to_string()),
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    let mut response = Response::new(full(serde_json::to_vec(value).map_err(HttpError::internal)?));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
