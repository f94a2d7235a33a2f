//! Composition of the application's access to jobs.

use std::sync::Arc;

use agent_client::clock::TokioClock;
use agent_client::outbound::OutboundClient;
use agent_client::pulse::PulseClient;
use agent_core::tool::ToolRegistry;
use agent_http::app::{SchedulerConnection, SchedulerConnectionConfig};
use agent_platform::journal::Journals;
use agent_platform::local_pulse::LocalPulse;
use agent_platform::pulse::Pulse;

use crate::config::{AppConfig, PulseConfig};
use crate::stores::Stores;

/// Access to jobs.
pub(super) struct JobServices {
    /// Client of the scheduler, if one is configured.
    scheduler: Option<Arc<dyn Pulse>>,
    /// Jobs in the application's own store.
    local: Arc<LocalPulse>,
    /// The scheduler's client or, without a scheduler, the own jobs if `GET /api/cron` can run them.
    pub(super) for_tools: Option<Arc<dyn Pulse>>,
}

pub(super) fn job_services(config: &AppConfig, outbound: &OutboundClient, stores: &Stores) -> JobServices {
    let scheduler = pulse_client(&config.pulse, outbound);
    let local = Arc::new(LocalPulse::new(stores.jobs.clone(), Arc::new(TokioClock)));
    let fallback = config.pulse.cron_secret.is_some().then(|| local.clone() as Arc<dyn Pulse>);
    JobServices { for_tools: scheduler.clone().or(fallback), scheduler, local }
}

/// Creates the application's side of jobs.
pub(super) fn scheduler_connection(
    config: &AppConfig,
    jobs: JobServices,
    (public_url, tools): (&url::Url, &Arc<dyn ToolRegistry>),
    (stores, journals): (&Stores, &Arc<Journals>),
) -> SchedulerConnection {
    SchedulerConnection::new(SchedulerConnectionConfig {
        url: config.pulse.url.clone(),
        secret: config.pulse.secret.clone(),
        secret_previous: config.pulse.secret_previous.clone(),
        client: jobs.scheduler,
        local: jobs.local,
        public_url: public_url.clone(),
        cron_secret: config.pulse.cron_secret.clone(),
        deadline: config.pulse.deadline,
        tools: tools.clone(),
        inventory: stores.records.clone(),
        journals: journals.clone(),
        clock: Arc::new(TokioClock),
    })
}

/// Creates the scheduler client, if the scheduler's URL and secret are configured.
fn pulse_client(config: &PulseConfig, outbound: &OutboundClient) -> Option<Arc<dyn Pulse>> {
    let (url, secret) = (config.url.clone()?, config.secret.clone()?);
    Some(Arc::new(PulseClient::new(outbound.clone(), url, secret)))
}
