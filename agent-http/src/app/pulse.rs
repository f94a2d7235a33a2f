//! `/api/pulse`: the application's side of the scheduler. Pages ask here, never the scheduler, whose secret stays
//! on the server; and the scheduler calls back here when a job is due.

mod callback;
mod client;
mod run;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::job::{JobFilter, JobState, JobView, Scope};
use agent_core::request::Principal;
use agent_core::schedule::ScheduleSpec;
use agent_core::secret::Secret;
use agent_core::tool::ToolRegistry;
use agent_platform::pulse::{JobViews, Pulse, PulseError, owner};
use agent_platform::records::Inventory;
use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::Url;

use super::{App, answer, resource};
use crate::auth::BearerGate;
use crate::error::{Code, HttpError};
use crate::request::{self as requests, Handled, Params, Query, parse_json, read_json_bytes};
use crate::serve::Body;

pub use client::PulseClient;
pub use upkeep::upkeep;

pub(super) use callback::{Worked, work};

/// How many callbacks are worked on at once; others are told to come back.
const AT_ONCE: usize = 256;
/// How many jobs a page has at most.
const MAX_PAGE: usize = 200;
/// How many pages are read to count somebody's jobs.
const COUNTED_PAGES: usize = 5;

/// What the application's side of the scheduler works with.
pub struct PulseSide {
    /// The scheduler; absent where its address or its secret is not set.
    client: Option<Arc<dyn Pulse>>,
    /// What is not set.
    missing: Vec<&'static str>,
    /// `PULSE_SECRET`, and the one before it.
    secrets: Vec<Secret>,
    /// Where the scheduler should call back.
    callback_url: Url,
    /// Asks for `CRON_SECRET`.
    pub(super) cron: Option<BearerGate>,
    /// How long a run that a job has started may take.
    pub(super) deadline: Duration,
    pub(super) tools: Arc<dyn ToolRegistry>,
    pub(super) inventory: Arc<dyn Inventory>,
    clock: Arc<dyn Clock>,
    running: Semaphore,
}

/// What it is made of.
pub struct PulseParts {
    /// The scheduler's address.
    pub url: Option<Url>,
    /// The scheduler's secret.
    pub secret: Option<Secret>,
    /// The one before it.
    pub secret_previous: Option<Secret>,
    /// Makes a client of an address and its secret.
    pub client: Option<Arc<dyn Pulse>>,
    /// The address that others know the application by.
    pub public_url: Url,
    /// What whoever runs jobs in the scheduler's stead presents.
    pub cron_secret: Option<Secret>,
    /// How long a run that a job has started may take.
    pub deadline: Duration,
    /// All tools; which of them an agent may use is decided for each call.
    pub tools: Arc<dyn ToolRegistry>,
    /// Everything that is stored.
    pub inventory: Arc<dyn Inventory>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl PulseSide {
    /// The application's side, of these parts.
    pub fn new(parts: PulseParts) -> Self {
        let settings = [("PULSE_URL", parts.url.is_some()), ("PULSE_SECRET", parts.secret.is_some())];
        let missing: Vec<_> = settings.into_iter().filter(|(_, set)| !set).map(|(name, _)| name).collect();
        let mut callback_url = parts.public_url;
        if let Ok(mut segments) = callback_url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "pulse", "callback"]);
        }
        Self {
            client: parts.client.filter(|_| missing.is_empty()),
            missing,
            secrets: parts.secret.into_iter().chain(parts.secret_previous).collect(),
            callback_url,
            cron: parts.cron_secret.map(|secret| BearerGate::new(Some(secret))),
            deadline: parts.deadline,
            tools: parts.tools,
            inventory: parts.inventory,
            clock: parts.clock,
            running: Semaphore::new(AT_ONCE),
        }
    }

    /// The scheduler.
    ///
    /// # Errors
    /// 503 `PULSE_NOT_CONFIGURED`.
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
                Self::new(Code::BackendUnreachable, error.to_string()).because(error)
            }
            error => Self::new(Code::BackendFailed, error.to_string()).because(error),
        }
    }
}

/// The routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Status,
    Jobs,
    Cancel,
    Reschedule,
    Callback,
}

/// The lines of the table of routes.
pub(super) fn routes<H>(handler: impl Fn(Route) -> H) -> [requests::Route<H>; 5] {
    [
        (Method::GET, "/api/pulse/status", Route::Status),
        (Method::GET, "/api/pulse/jobs", Route::Jobs),
        (Method::DELETE, "/api/pulse/jobs/{id}", Route::Cancel),
        (Method::POST, "/api/pulse/jobs/{id}/reschedule", Route::Reschedule),
        (Method::POST, "/api/pulse/callback", Route::Callback),
    ]
    .map(|(method, pattern, route)| requests::Route::new(method, pattern, handler(route)))
}

pub(super) async fn answer(app: &Arc<App>, route: Route, params: &Params, request: Request<Body>) -> Handled {
    if route == Route::Callback {
        return callback::post(app, request).await;
    }
    let (head, body) = request.into_parts();
    let query = Query::of(&head.uri);
    let principal = resource::session(app, &head, &query).await?;
    let scope = owner(&principal.company_id, &principal.user_id);
    match route {
        Route::Status => answer::json(StatusCode::OK, &status(app, scope).await),
        Route::Jobs => answer::json(StatusCode::OK, &jobs(app, &principal, &query).await?),
        Route::Cancel => {
            let cancelled = app.pulse.client()?.cancel_job(&scope, params.get("id")?).await?;
            answer::json(StatusCode::OK, &cancelled)
        }
        Route::Reschedule => {
            let pulse = app.pulse.client()?;
            let bytes = read_json_bytes(&head.headers, body, &app.body).await?;
            let schedule: ScheduleSpec = parse_json(&bytes, app.json_depth)?;
            schedule
                .resolve(app.pulse.now())
                .map_err(|error| HttpError::new(Code::InvalidRequest, error.to_string()))?;
            let moved = pulse.reschedule_job(&scope, params.get("id")?, &schedule).await?;
            answer::json(StatusCode::OK, &moved)
        }
        Route::Callback => Err(HttpError::not_found()),
    }
}

/// How it is with the scheduler.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PulseStatus {
    /// Whether the application knows a scheduler.
    configured: bool,
    /// The settings without which it does not.
    missing: Vec<&'static str>,
    /// Whether the scheduler answers and is well.
    healthy: bool,
    /// How many jobs of the caller's own are not over; of very many, those that were counted.
    job_count: usize,
    /// Where the scheduler should call back: its `CALLBACK_URL`, unless something is in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
}

async fn status(app: &App, scope: Scope) -> PulseStatus {
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
        pulse.check_pulse_health().await?;
        count(pulse, scope).await
    };
    match found.await {
        Ok(count) => (status.healthy, status.job_count) = (true, count),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%error, cause, "the scheduler is not well");
        }
    }
    status
}

async fn count(pulse: &dyn Pulse, scope: Scope) -> Result<usize, PulseError> {
    let filter = JobFilter { scope, ..JobFilter::default() };
    let (mut count, mut cursor) = (0, None);
    for _ in 0..COUNTED_PAGES {
        let page = pulse.get_jobs(&filter, cursor.as_deref(), MAX_PAGE).await?;
        count += page.jobs.iter().filter(|job| !job.state.is_final()).count();
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(count)
}

/// How a page of jobs is described.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct JobPage {
    /// The caller's own jobs, in the order of their making.
    jobs: Vec<JobShown>,
    /// Where the next page begins; absent on the last one.
    next_cursor: Option<String>,
}

/// How [`JobView`] is described.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used")]
struct JobShown {
    job_id: String,
    /// scheduled, running, retryable, paused, completed, discarded or cancelled.
    state: String,
    /// What is done, and for whom.
    payload: BTreeMap<String, Value>,
    /// `{executeAt}`, `{everyMs, anchor}` or `{cron, timezone, dst?}`.
    schedule: BTreeMap<String, Value>,
    /// When the next attempt is due, or was for a job that is over.
    execute_at: String,
    /// The occurrence that waits, runs or was the last, from 1.
    occurrence: u64,
    /// How many attempts at it have begun.
    attempt: u32,
    /// Why the last attempt failed; absent where it did not.
    last_error: Option<String>,
    /// When it was made.
    created_at: String,
}

async fn jobs(app: &App, principal: &Principal, query: &Query<'_>) -> Result<JobViews, HttpError> {
    let pulse = app.pulse.client()?;
    let text = |name| query.get(name).map(|value| value.filter(|value| !value.is_empty()).map(str::to_owned));
    let state = text("state")?.map(|name| {
        JobState::named(&name).ok_or_else(|| HttpError::invalid("state", "is none that a job can be in"))
    });
    let filter = JobFilter {
        scope: owner(&principal.company_id, &principal.user_id),
        tool: text("toolId")?,
        assignment: text("assignmentId")?,
        state: state.transpose()?,
    };
    let page = resource::page(query)?;
    let mut found = pulse.get_jobs(&filter, page.cursor.as_deref(), page.page_size()).await?;
    // Whatever answers at the scheduler's address, nobody is shown what is not theirs.
    found.jobs.retain(|job: &JobView| {
        job.payload.company_id == principal.company_id && job.payload.user_id == principal.user_id
    });
    Ok(found)
}
