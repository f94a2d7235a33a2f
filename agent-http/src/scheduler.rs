//! The scheduler service: jobs that wait for their time, and the calls that deliver them.
//!
//! [`Scheduler`] is what the routes work with; its [`Worker`] delivers, and the routes go through it wherever
//! a job may be in its hands. Replicas over one store need no leader: each claims what is due and nobody else
//! has claimed.

mod counts;
mod delivery;
mod jobs;
mod meters;
mod wire;
mod worker;

use std::sync::Arc;

use http::Request;
use serde_json::json;

use crate::auth::BearerGate;
use crate::cors::{self, Origins};
use crate::metrics;
use crate::probe::{self, Probe};
use crate::request::{self, BodyLimits, Handled, RouteTable};
use crate::serve::{Body, HttpService};

pub use counts::Counts;
pub use delivery::Callback;
pub use meters::Meters;
pub use worker::{Worker, WorkerLimits};

pub(crate) use wire::{Acted, Cancelled, JobDetails, JobList, JobRequest, Scheduled};

/// What the scheduler's routes work with.
pub struct Scheduler {
    /// Delivers, and knows what it has in hand.
    pub worker: Arc<Worker>,
    /// How many jobs there are.
    pub counts: Counts,
    /// What kind of store the jobs are in, as `/health` names it.
    pub store_kind: &'static str,
    /// Asks for `PULSE_SECRET`.
    pub gate: BearerGate,
    /// Bounds of request bodies.
    pub body: BodyLimits,
    /// How deep a request's JSON may nest.
    pub json_depth: usize,
    /// Health.
    pub probe: Probe,
    /// The exact origins that may call from a browser.
    pub origins: Origins,
}

#[derive(Clone, Copy)]
enum Handler {
    Jobs(jobs::Route),
    Probe(probe::Route),
}

fn routes() -> RouteTable<Handler> {
    RouteTable::new(jobs::routes(Handler::Jobs).into_iter().chain(probe::routes(Handler::Probe)))
}

/// The methods and patterns of all routes, to be held against their description.
#[cfg(test)]
pub(crate) fn described() -> Vec<(http::Method, &'static str)> {
    routes().routes().map(|route| (route.method.clone(), route.pattern)).collect()
}

/// The scheduler's service.
pub fn service(scheduler: Arc<Scheduler>) -> impl HttpService {
    use tower::Layer;
    let cors = cors::layer(scheduler.origins.clone(), &[]);
    let routes = Arc::new(routes());
    let metrics = scheduler.probe.metrics().clone();
    let service = request::service(move |request| handle(scheduler.clone(), routes.clone(), request));
    metrics::counted(metrics, cors.layer(service))
}

async fn handle(
    scheduler: Arc<Scheduler>,
    routes: Arc<RouteTable<Handler>>,
    request: Request<Body>,
) -> Handled {
    let (handler, params) = routes.find(&request)?;
    match *handler {
        Handler::Probe(route) => probe(&scheduler, route).await,
        Handler::Jobs(route) => {
            scheduler.gate.check(request.headers())?;
            jobs::answer(&scheduler, route, &params, request).await
        }
    }
}

async fn probe(scheduler: &Scheduler, route: probe::Route) -> Handled {
    let known = match route {
        probe::Route::Health | probe::Route::Metrics => scheduler.counts.now().await,
        probe::Route::Live | probe::Route::Ready => return scheduler.probe.answer(route),
    };
    scheduler.worker.show(known.as_deref());
    let store = json!({"kind": scheduler.store_kind, "reachable": known.is_some()});
    let mut now = json!({"store": store, "delivering": scheduler.worker.delivering()});
    match known {
        Some(counts) => {
            now["jobs"] = counts.by_state.iter().map(|(state, n)| (state.as_str(), *n)).collect();
            now["lagMs"] = u64::try_from(counts.lag.as_millis()).unwrap_or(u64::MAX).into();
        }
        None => now["status"] = "unavailable".into(),
    }
    scheduler.probe.answer_with(route, now)
}
