//! The scheduler service: stores jobs with a schedule and delivers them to the application's callback over HTTP.
//!
//! [`Scheduler`] is the state of the HTTP routes. Its [`Worker`] delivers jobs; the routes change jobs through the
//! worker, because the worker may have claimed them. Replicas over one store need no leader election: each claims due
//! jobs that no other replica has claimed.

mod counts;
mod delivery;
mod jobs;
mod metrics;
mod state;
mod wire;
mod worker;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::endpoint::{self, Endpoint};
use crate::error::ErrorFormat;
use crate::health::{self, HealthRoute};
use crate::health_endpoints;
use crate::service::{HandlerResult, HttpService};

pub use counts::JobCountCache;
pub use delivery::CallbackClient;
pub use metrics::SchedulerMetrics;
pub use state::Scheduler;
pub use worker::{Worker, WorkerLimits};

use state::PulseSecret;

/// Returns all endpoints of the scheduler.
pub(crate) fn endpoints() -> Vec<Endpoint<Scheduler>> {
    let mut all = vec![
        Endpoint::post("/jobs", PulseSecret, jobs::post, jobs::describe_post),
        Endpoint::get("/jobs", PulseSecret, jobs::list, jobs::describe_list),
        Endpoint::delete("/jobs", PulseSecret, jobs::cancel_all, jobs::describe_cancel_all),
        Endpoint::get("/jobs/count", PulseSecret, jobs::count, jobs::describe_count),
        Endpoint::get("/jobs/{id}", PulseSecret, jobs::get, jobs::describe_get),
        Endpoint::delete("/jobs/{id}", PulseSecret, jobs::cancel, jobs::describe_cancel),
        Endpoint::post("/jobs/{id}/reschedule", PulseSecret, jobs::reschedule, jobs::describe_reschedule),
        Endpoint::post("/jobs/{id}/pause", PulseSecret, jobs::pause, jobs::describe_pause),
        Endpoint::post("/jobs/{id}/resume", PulseSecret, jobs::resume, jobs::describe_resume),
        Endpoint::post("/jobs/{id}/redrive", PulseSecret, jobs::redrive, jobs::describe_redrive),
    ];
    all.extend(health_endpoints::endpoints(|scheduler: Arc<Scheduler>, route| async move {
        probe(&scheduler, route).await
    }));
    all
}

/// Creates the scheduler's HTTP service.
pub fn service(scheduler: Arc<Scheduler>) -> impl HttpService {
    endpoint::service(scheduler, endpoints(), &[crate::mcp::CORS_HEADERS], |_| ErrorFormat::Problem)
}

async fn probe(scheduler: &Scheduler, route: HealthRoute) -> HandlerResult {
    let counts = match route {
        HealthRoute::Health | HealthRoute::Metrics => scheduler.counts.current().await,
        HealthRoute::Ready => {
            let store = scheduler.worker.check_store().await;
            return scheduler.base.health.respond_checked(route, store);
        }
        HealthRoute::Live => return scheduler.base.health.respond(route),
    };
    scheduler.worker.update_gauges(counts.as_deref());
    let store = json!({"kind": scheduler.store_kind, "reachable": counts.is_some()});
    let mut now = json!({"store": store, "delivering": scheduler.worker.deliveries_in_flight()});
    match counts {
        Some(counts) => {
            now["jobs"] = counts.by_state.iter().map(|(state, n)| (state.as_str(), *n)).collect();
            now["lagMs"] = u64::try_from(counts.lag.as_millis()).unwrap_or(u64::MAX).into();
        }
        None => now["status"] = "unavailable".into(),
    }
    if route == HealthRoute::Health
        && let Err(error) = scheduler.worker.check_store().await
        && let (Value::Object(now), Value::Object(error)) = (&mut now, health::unavailable(error))
    {
        now.extend(error);
    }
    scheduler.base.health.respond_with(route, now)
}
