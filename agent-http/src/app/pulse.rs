//! `/api/pulse`: the application's side of the scheduler. Browsers call these endpoints instead of the scheduler,
//! whose secret stays on the server; the scheduler calls back here when a job is due.

pub(super) mod callback;
mod run;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_core::tool::ToolRegistry;
use agent_jobs::job::{JobFilter, JobScope, JobState, JobView};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::journal::Journals;
use agent_platform::pulse::{CancelResult, JobViewPage, Pulse, PulseError, ScheduledJob, user_scope};
use agent_platform::records::Inventory;
use http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;
use url::Url;

use super::{App, answer, resource};
use crate::auth::BearerAuth;
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

pub use upkeep::run_maintenance;

pub(super) use callback::{Completion, run_occurrence};

/// Path of the scheduler's callback, below the application's public URL.
pub(super) const CALLBACK_PATH: &str = "/api/pulse/callback";
/// Tag of the operations on jobs and assignments.
pub(super) const TAG: &str = "jobs";

/// Maximum number of concurrent callbacks; further ones get 429 with `Retry-After`.
const MAX_CONCURRENT_CALLBACKS: usize = 256;
/// Maximum page size of a job list.
const MAX_JOBS_PER_PAGE: usize = 200;
/// Maximum number of pages read to count a user's jobs.
const MAX_COUNTED_PAGES: usize = 5;

/// The scheduler client and the state of the scheduler's callback.
pub struct SchedulerLink {
    /// The scheduler client; absent if the scheduler's URL or secret is not set.
    client: Option<Arc<dyn Pulse>>,
    /// Names of the settings that are missing.
    missing: Vec<&'static str>,
    /// The current `PULSE_SECRET` and the previous one.
    pub(super) secrets: Vec<Secret>,
    /// The callback URL that the scheduler should use.
    callback_url: Url,
    /// Checks that a request bears `CRON_SECRET`.
    pub(super) cron: Option<BearerAuth>,
    /// Time limit of a run started by a job.
    pub(super) deadline: Duration,
    pub(super) tools: Arc<dyn ToolRegistry>,
    pub(super) inventory: Arc<dyn Inventory>,
    journals: Arc<Journals>,
    clock: Arc<dyn Clock>,
    running: Semaphore,
}

/// Configuration of a [`SchedulerLink`].
pub struct SchedulerLinkConfig {
    /// The scheduler's URL.
    pub url: Option<Url>,
    /// The scheduler's secret.
    pub secret: Option<Secret>,
    /// The previous secret, during rotation.
    pub secret_previous: Option<Secret>,
    /// The scheduler client.
    pub client: Option<Arc<dyn Pulse>>,
    /// The application's public URL.
    pub public_url: Url,
    /// Secret of the client that triggers the fallback, `GET /api/cron`.
    pub cron_secret: Option<Secret>,
    /// Time limit of a run started by a job.
    pub deadline: Duration,
    /// All tools; the agent's permissions are checked on each call.
    pub tools: Arc<dyn ToolRegistry>,
    /// Lists the companies that have records.
    pub inventory: Arc<dyn Inventory>,
    /// Journals of the occurrences that this process runs.
    pub journals: Arc<Journals>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl SchedulerLink {
    /// Creates the application's side of the scheduler.
    pub fn new(parts: SchedulerLinkConfig) -> Self {
        let settings = [("PULSE_URL", parts.url.is_some()), ("PULSE_SECRET", parts.secret.is_some())];
        let missing: Vec<_> = settings.into_iter().filter(|(_, set)| !set).map(|(name, _)| name).collect();
        let mut callback_url = parts.public_url;
        if let Ok(mut segments) = callback_url.path_segments_mut() {
            segments.pop_if_empty().extend(CALLBACK_PATH.split('/').skip(1));
        }
        Self {
            client: parts.client.filter(|_| missing.is_empty()),
            missing,
            secrets: parts.secret.into_iter().chain(parts.secret_previous).collect(),
            callback_url,
            cron: parts.cron_secret.map(|secret| BearerAuth::new(Some(secret))),
            deadline: parts.deadline,
            tools: parts.tools,
            inventory: parts.inventory,
            journals: parts.journals,
            clock: parts.clock,
            running: Semaphore::new(MAX_CONCURRENT_CALLBACKS),
        }
    }

    /// Returns the scheduler client.
    ///
    /// # Errors
    /// 503 `PULSE_NOT_CONFIGURED` if the scheduler is not configured.
    pub(super) fn client(&self) -> Result<&dyn Pulse, HttpError> {
        self.client.as_deref().ok_or_else(|| PulseError::NotConfigured.into())
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }
}

impl From<PulseError> for HttpError {
    fn from(error: PulseError) -> Self {
        match error {
            PulseError::NotConfigured => Self::new(Code::PulseNotConfigured, "Pulse not configured"),
            PulseError::NotFound => Self::not_found(),
            PulseError::Invalid(_) => Self::new(Code::InvalidRequest, error.to_string()),
            PulseError::Conflict(_) => Self::conflict(error.to_string()),
            PulseError::Unavailable(_) => {
                Self::new(Code::BackendUnreachable, error.to_string()).with_source(error)
            }
            error => Self::new(Code::BackendFailed, error.to_string()).with_source(error),
        }
    }
}

pub(super) async fn status(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let status = connection_status(&context.state, scope(&principal)).await;
    answer::json(StatusCode::OK, &status)
}

pub(super) async fn list(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let page = page(&context.state, &principal, &Query::from_uri(&context.head.uri)).await?;
    answer::json(StatusCode::OK, &page)
}

pub(super) async fn cancel(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let pulse = context.state.pulse.client()?;
    let cancelled = pulse.cancel_job(&scope(&principal), &context.params.id("id")?.into()).await?;
    answer::json(StatusCode::OK, &cancelled)
}

pub(super) async fn reschedule(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let pulse = app.pulse.client()?;
    let id = params.id("id")?.into();
    let schedule: ScheduleSpec = body.read_json(&head.headers).await?;
    schedule
        .resolve(app.pulse.now())
        .map_err(|error| HttpError::new(Code::InvalidRequest, error.to_string()))?;
    let moved = pulse.reschedule_job(&scope(&principal), &id, &schedule).await?;
    answer::json(StatusCode::OK, &moved)
}

fn scope(principal: &Principal) -> JobScope {
    user_scope(&principal.company_id, &principal.user_id)
}

/// Status of the connection to the scheduler.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PulseStatus {
    /// True if a scheduler is configured.
    configured: bool,
    /// Names of the missing settings.
    missing: Vec<&'static str>,
    /// True if the scheduler responds and reports that it is healthy.
    healthy: bool,
    /// Number of the caller's jobs that are not in a final state; a lower bound for users with very many jobs.
    job_count: usize,
    /// Expected value of the scheduler's `CALLBACK_URL`, unless a proxy is in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
}

async fn connection_status(app: &App, scope: JobScope) -> PulseStatus {
    let side = &app.pulse;
    let mut status = PulseStatus {
        configured: side.client.is_some(),
        missing: side.missing.clone(),
        healthy: false,
        job_count: 0,
        callback_url: side.client.is_some().then(|| side.callback_url.to_string()),
    };
    let Some(pulse) = side.client.as_deref() else { return status };
    let found = async {
        pulse.check_health().await?;
        count_open_jobs(pulse, scope).await
    };
    match found.await {
        Ok(count) => (status.healthy, status.job_count) = (true, count),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%error, cause, "the scheduler is unavailable");
        }
    }
    status
}

async fn count_open_jobs(pulse: &dyn Pulse, scope: JobScope) -> Result<usize, PulseError> {
    let filter = JobFilter { scope, ..JobFilter::default() };
    let (mut count, mut cursor) = (0, None);
    for _ in 0..MAX_COUNTED_PAGES {
        let page = pulse.list_jobs(&filter, cursor.as_deref(), MAX_JOBS_PER_PAGE).await?;
        count += page.jobs.iter().filter(|job| !job.state.is_final()).count();
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(count)
}

async fn page(app: &App, principal: &Principal, query: &Query<'_>) -> Result<JobViewPage, HttpError> {
    let pulse = app.pulse.client()?;
    let text = |name| query.get(name).map(|value| value.filter(|value| !value.is_empty()).map(str::to_owned));
    let state = text("state")?.map(|name| {
        JobState::from_name(&name).ok_or_else(|| HttpError::invalid("state", "is not a job state"))
    });
    let filter = JobFilter {
        scope: scope(principal),
        tool: text("toolId")?,
        assignment: text("assignmentId")?,
        state: state.transpose()?,
    };
    let page = resource::page_params(query)?;
    let mut found = pulse.list_jobs(&filter, page.cursor.as_deref(), page.page_size()).await?;
    // Filtered again here, in case the server at the scheduler's URL returns jobs of other users.
    found.jobs.retain(|job: &JobView| {
        job.payload.company_id == principal.company_id && job.payload.user_id == principal.user_id
    });
    Ok(found)
}

pub(super) fn describe_status(schemas: &mut Schemas) -> Operation {
    let status = schemas.schema_for::<PulseStatus>();
    Operation::new("pulseStatus", TAG, "Returns the state of the connection to the scheduler.")
        .describe("The status is 200 even if no scheduler is configured or reachable.")
        .json_response(200, "The configuration and the result of a health check.", status)
}

pub(super) fn describe_list(schemas: &mut Schemas) -> Operation {
    scheduler_operation("listOwnJobs", "Lists the caller's own jobs.")
        .parameter("query", "state", "Only jobs in this state.", string_schema())
        .parameter("query", "toolId", "Only jobs that call this tool.", string_schema())
        .parameter("query", "assignmentId", "Only jobs of this assignment.", string_schema())
        .paged()
        .json_response(200, "One page of jobs.", schemas.schema_for::<JobViewPage>())
}

pub(super) fn describe_cancel(schemas: &mut Schemas) -> Operation {
    scheduler_operation("cancelOwnJob", "Cancels one of the caller's own jobs. Idempotent.")
        .json_response(200, "The job was cancelled.", schemas.schema_for::<CancelResult>())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_reschedule(schemas: &mut Schemas) -> Operation {
    scheduler_operation("rescheduleOwnJob", "Replaces the schedule of one of the caller's own jobs.")
        .body(schemas.schema_for::<ScheduleSpec>())
        .json_response(200, "The job was rescheduled.", schemas.schema_for::<ScheduledJob>())
        .problems(&[Code::NotFound, Code::Conflict])
}

fn scheduler_operation(id: &str, summary: &str) -> Operation {
    let operation = Operation::new(id, TAG, summary);
    operation.problems(&[Code::PulseNotConfigured, Code::BackendUnreachable])
}
