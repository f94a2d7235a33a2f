//! The application's side of the scheduler: its client, and the state of its callback.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::secret::Secret;
use agent_core::tool::ToolRegistry;
use agent_platform::company_permits::CompanyPermits;
use agent_platform::journal::Journals;
use agent_platform::local_pulse::LocalPulse;
use agent_platform::pulse::{Pulse, PulseError};
use agent_platform::records::Inventory;
use jiff::Timestamp;
use tokio::sync::watch;
use url::Url;

use super::super::due::CompanyRotation;
use crate::auth::BearerAuth;
use crate::error::{Code, HttpError};

/// Path of the scheduler's callback, below the application's public URL.
pub(in crate::app) const CALLBACK_PATH: &str = "/api/pulse/callback";
/// Maximum number of concurrent callbacks; further ones get 409 with `Retry-After`.
const MAX_CONCURRENT_CALLBACKS: usize = 256;
/// Maximum number of one company's callbacks in progress; several schedulers may deliver.
const MAX_COMPANY_CALLBACKS: usize = MAX_CONCURRENT_CALLBACKS / 2;

/// Connection to the scheduler: its client, and the state of its callback.
pub struct SchedulerConnection {
    /// The scheduler client; absent if the scheduler's URL or secret is not set.
    pub(in crate::app) remote: Option<Arc<dyn Pulse>>,
    /// Jobs that the application stores itself while no scheduler is configured.
    pub(in crate::app) local: Arc<LocalPulse>,
    /// Position of the rotation of `GET /api/cron`.
    pub(in crate::app) cron_rotation: CompanyRotation,
    /// Names of the settings that are missing.
    pub(in crate::app) missing: Vec<&'static str>,
    /// The current `PULSE_SECRET` and the previous one.
    pub(in crate::app) secrets: Vec<Secret>,
    /// The callback URL that the scheduler should use.
    pub(in crate::app) callback_url: Url,
    /// Checks that a request bears `CRON_SECRET`.
    pub(in crate::app) cron: Option<BearerAuth>,
    /// Time limit of a run started by a job.
    pub(in crate::app) deadline: Duration,
    pub(in crate::app) tools: Arc<dyn ToolRegistry>,
    pub(in crate::app) inventory: Arc<dyn Inventory>,
    pub(in crate::app) journals: Arc<Journals>,
    pub(in crate::app) clock: Arc<dyn Clock>,
    pub(in crate::app) running: Arc<CompanyPermits>,
    /// Number of runs of the application's own jobs under way, also for clients that have left.
    local_runs: watch::Sender<usize>,
}

/// A run of the application's own jobs, for which the process waits when it stops.
pub(in crate::app) struct LocalRunGuard(watch::Sender<usize>);

impl Drop for LocalRunGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Configuration of a [`SchedulerConnection`].
pub struct SchedulerConnectionConfig {
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

impl SchedulerConnection {
    /// Creates the application's side of the scheduler.
    pub fn new(config: SchedulerConnectionConfig) -> Self {
        let settings = [("PULSE_URL", config.url.is_some()), ("PULSE_SECRET", config.secret.is_some())];
        let missing: Vec<_> = settings.into_iter().filter(|(_, set)| !set).map(|(name, _)| name).collect();
        let mut callback_url = config.public_url;
        if let Ok(mut segments) = callback_url.path_segments_mut() {
            segments.pop_if_empty().extend(CALLBACK_PATH.split('/').skip(1));
        }
        Self {
            remote: config.client.filter(|_| missing.is_empty()),
            local: config.local,
            cron_rotation: CompanyRotation::default(),
            missing,
            secrets: config.secret.into_iter().chain(config.secret_previous).collect(),
            callback_url,
            cron: config.cron_secret.map(|secret| BearerAuth::new(Some(secret))),
            deadline: config.deadline,
            tools: config.tools,
            inventory: config.inventory,
            journals: config.journals,
            clock: config.clock,
            running: CompanyPermits::new(MAX_CONCURRENT_CALLBACKS, MAX_COMPANY_CALLBACKS),
            local_runs: watch::Sender::default(),
        }
    }

    /// Counts a run of the application's own jobs until the guard is dropped.
    pub(in crate::app) fn begin_local_run(&self) -> LocalRunGuard {
        self.local_runs.send_modify(|count| *count += 1);
        LocalRunGuard(self.local_runs.clone())
    }

    /// Waits until no run of the application's own jobs is under way.
    pub async fn drain(&self) {
        let mut local_runs = self.local_runs.subscribe();
        // The sender is this service's own.
        let _ = local_runs.wait_for(|count| *count == 0).await;
    }

    /// Returns the scheduler client.
    ///
    /// # Errors
    /// 503 `PULSE_NOT_CONFIGURED` if no scheduler is configured.
    pub(in crate::app) fn scheduler(&self) -> Result<&dyn Pulse, HttpError> {
        self.remote.as_deref().ok_or_else(|| PulseError::NotConfigured.into())
    }

    /// Returns the client for jobs of assignments and tools: the scheduler, or the application's own store if no
    /// scheduler is configured and `GET /api/cron` can run the jobs.
    ///
    /// # Errors
    /// 503 `PULSE_NOT_CONFIGURED` if nothing would run the jobs.
    pub(in crate::app) fn client(&self) -> Result<&dyn Pulse, HttpError> {
        if self.remote.is_none() && self.cron.is_some() {
            return Ok(&*self.local);
        }
        self.scheduler()
    }

    pub(in crate::app) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }
}

impl From<PulseError> for HttpError {
    fn from(error: PulseError) -> Self {
        match error {
            PulseError::NotConfigured => {
                let detail = "Pulse not configured: PULSE_URL or PULSE_SECRET is missing";
                Self::new(Code::PulseNotConfigured, detail)
            }
            PulseError::NotFound => Self::not_found(),
            PulseError::Invalid(_) => Self::new(Code::InvalidRequest, error.to_string()),
            PulseError::Conflict(_) => Self::conflict(error.to_string()),
            PulseError::LimitReached(limit) => {
                Self::conflict(error.to_string()).with_member("limit", limit.into())
            }
            PulseError::Unavailable(_) => {
                Self::new(Code::BackendUnreachable, error.to_string()).with_source(error)
            }
            error => Self::new(Code::BackendFailed, error.to_string()).with_source(error),
        }
    }
}
