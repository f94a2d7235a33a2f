//! `/api/pulse`: the application's side of the scheduler. Browsers call these endpoints instead of the scheduler,
//! whose secret stays on the server; the scheduler calls back here when a job is due.

mod agent_turn;
pub(super) mod callback;
mod handover;
pub(super) mod jobs;
pub(super) mod next;
mod run;
pub(super) mod sync;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_core::tool::ToolRegistry;
use agent_jobs::job::{JobFilter, JobScope};
use agent_platform::journal::Journals;
use agent_platform::local_pulse::LocalPulse;
use agent_platform::pulse::{Pulse, PulseError, user_scope};
use agent_platform::records::Inventory;
use http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;
use url::Url;

use super::due::CompanyRotation;
use super::{App, answer};
use crate::auth::BearerAuth;
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

pub(super) use upkeep::run_maintenance;

pub(super) use callback::{Completion, run_occurrence};

/// Path of the scheduler's callback, below the application's public URL.
pub(super) const CALLBACK_PATH: &str = "/api/pulse/callback";
/// Tag of the operations on jobs and assignments.
pub(super) const TAG: &str = "jobs";

/// Maximum number of concurrent callbacks; further ones get 429 with `Retry-After`.
const MAX_CONCURRENT_CALLBACKS: usize = 256;

/// The scheduler client and the state of the scheduler's callback.
pub struct SchedulerLink {
    /// The scheduler client; absent if the scheduler's URL or secret is not set.
    pub(super) remote: Option<Arc<dyn Pulse>>,
    /// Jobs that the application stores itself while no scheduler is configured.
    pub(super) local: Arc<LocalPulse>,
    /// Position of the rotation of `GET /api/cron`.
    pub(super) cron_rotation: CompanyRotation,
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
    /// Jobs that the application stores itself while no scheduler is configured.
    pub local: Arc<LocalPulse>,
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
            remote: parts.client.filter(|_| missing.is_empty()),
            local: parts.local,
            cron_rotation: CompanyRotation::default(),
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
    /// 503 `PULSE_NOT_CONFIGURED` if no scheduler is configured.
    pub(super) fn scheduler(&self) -> Result<&dyn Pulse, HttpError> {
        self.remote.as_deref().ok_or_else(|| PulseError::NotConfigured.into())
    }

    /// Returns the client for jobs of assignments and tools: the scheduler, or the application's own store if no
    /// scheduler is configured and `GET /api/cron` can run the jobs.
    ///
    /// # Errors
    /// 503 `PULSE_NOT_CONFIGURED` if nothing would run the jobs.
    pub(super) fn client(&self) -> Result<&dyn Pulse, HttpError> {
        if self.remote.is_none() && self.cron.is_some() {
            return Ok(&*self.local);
        }
        self.scheduler()
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
    /// Number of the caller's jobs that are not in a final state.
    job_count: u64,
    /// Expected value of the scheduler's `CALLBACK_URL`, unless a proxy is in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
}

async fn connection_status(app: &App, scope: JobScope) -> PulseStatus {
    let side = &app.pulse;
    let mut status = PulseStatus {
        configured: side.remote.is_some(),
        missing: side.missing.clone(),
        healthy: false,
        job_count: 0,
        callback_url: side.remote.is_some().then(|| side.callback_url.to_string()),
    };
    let Some(pulse) = side.remote.as_deref() else { return status };
    let found = async {
        pulse.check_health().await?;
        pulse.count_jobs(&JobFilter { scope, open: true, ..JobFilter::default() }).await
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

pub(super) fn describe_status(schemas: &mut Schemas) -> Operation {
    let status = schemas.schema_for::<PulseStatus>();
    Operation::new("pulseStatus", TAG, "Returns the state of the connection to the scheduler.")
        .describe("The status is 200 even if no scheduler is configured or reachable.")
        .json_response(200, "The configuration and the result of a health check.", status)
}
