//! The scheduler service: stores jobs with a schedule and delivers them to the application's callback over HTTP.
//!
//! [`Scheduler`] is the state of the HTTP routes. Its [`Worker`] delivers jobs; the routes change jobs through the
//! worker, because the worker may have claimed them. Replicas over one store need no leader election: each claims due
//! jobs that no other replica has claimed.

mod counts;
mod delivery;
mod jobs;
mod meters;
mod wire;
mod worker;

use std::sync::Arc;

use http::Request;
use serde_json::json;

use crate::auth::BearerAuth;
use crate::body::Body;
use crate::cors::{self, Origins};
use crate::probe::{self, HealthState};
use crate::request::{BodyLimits, RouteTable};
use crate::service::{HandlerResult, HttpService, service_fn};
use crate::{mcp, metrics};

pub use counts::JobCountCache;
pub use delivery::CallbackClient;
pub use meters::SchedulerMetrics;
pub use worker::{Worker, WorkerLimits};

pub(crate) use wire::{CancelledJobs, CreateJobRequest, JobDetails, JobList, JobStatus, ScheduledJob};

/// Shared state of the scheduler's HTTP routes.
pub struct Scheduler {
    /// The delivery worker; also tracks the jobs that this process has claimed.
    pub worker: Arc<Worker>,
    /// Cached job counts for `/health` and `/metrics`.
    pub counts: JobCountCache,
    /// Kind of the job store, as `/health` reports it.
    pub store_kind: &'static str,
    /// Checks that a request bears `PULSE_SECRET`.
    pub gate: BearerAuth,
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// Health, readiness and metrics endpoints.
    pub probe: HealthState,
    /// Exact origins that may call from a browser.
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Jobs(jobs::Route),
    Probe(probe::HealthRoute),
}

fn routes() -> RouteTable<Handler> {
    RouteTable::new(jobs::routes(Handler::Jobs).into_iter().chain(probe::routes(Handler::Probe)))
}

/// Returns the methods and patterns of all routes, for comparison with the OpenAPI description.
#[cfg(test)]
pub(crate) fn route_patterns() -> Vec<(http::Method, &'static str)> {
    routes().routes().map(|route| (route.method.clone(), route.pattern)).collect()
}

/// Creates the scheduler's HTTP service.
pub fn service(scheduler: Arc<Scheduler>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(scheduler.origins.clone(), &[], mcp::CORS_HEADERS);
    let routes = Arc::new(routes());
    let metrics = scheduler.probe.metrics().clone();
    let service = service_fn(move |request| handle(scheduler.clone(), routes.clone(), request));
    metrics::count_requests(metrics, cors.layer(service))
}

async fn handle(
    scheduler: Arc<Scheduler>,
    routes: Arc<RouteTable<Handler>>,
    request: Request<Body>,
) -> HandlerResult {
    let (handler, params) = routes.find(&request)?;
    match *handler {
        Handler::Probe(route) => probe(&scheduler, route).await,
        Handler::Jobs(route) => {
            scheduler.gate.check(request.headers())?;
            jobs::handle(&scheduler, route, &params, request).await
        }
    }
}

async fn probe(scheduler: &Scheduler, route: probe::HealthRoute) -> HandlerResult {
    let known = match route {
        probe::HealthRoute::Health | probe::HealthRoute::Metrics => scheduler.counts.current().await,
        probe::HealthRoute::Live | probe::HealthRoute::Ready => return scheduler.probe.respond(route),
    };
    scheduler.worker.update_gauges(known.as_deref());
    let store = json!({"kind": scheduler.store_kind, "reachable": known.is_some()});
    let mut now = json!({"store": store, "delivering": scheduler.worker.deliveries_in_flight()});
    match known {
        Some(counts) => {
            now["jobs"] = counts.by_state.iter().map(|(state, n)| (state.as_str(), *n)).collect();
            now["lagMs"] = u64::try_from(counts.lag.as_millis()).unwrap_or(u64::MAX).into();
        }
        None => now["status"] = "unavailable".into(),
    }
    scheduler.probe.respond_with(route, now)
}
