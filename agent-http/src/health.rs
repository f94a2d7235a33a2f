//! Health of a service: liveness, readiness, status and metrics.

use std::sync::Arc;
use std::time::Instant;

use agent_platform::records::StoreError;
use http::StatusCode;
use serde_json::{Value, json};

use crate::error::{HttpError, unavailable_reason};
use crate::metrics::Metrics;
use crate::response;
use crate::service::HandlerResult;
use crate::shutdown::{Shutdown, ShutdownStage};

/// Health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthRoute {
    /// `GET /livez`: liveness; 200 while the process answers.
    Live,
    /// `GET /readyz`: readiness; 503 once the shutdown has started.
    Ready,
    /// `GET /health`: status, version and uptime.
    Health,
    /// `GET /metrics`: metrics.
    Metrics,
}

/// State that the health endpoints report.
pub struct HealthState {
    started: Instant,
    shutdown: Shutdown,
    extra: Value,
    metrics: Arc<Metrics>,
}

impl HealthState {
    /// Creates the state of a service, which is ready until `shutdown` begins. `extra` is an object whose members are
    /// added to `/health`.
    pub fn new(extra: Value, shutdown: Shutdown) -> Self {
        Self { started: Instant::now(), shutdown, extra, metrics: Arc::default() }
    }

    /// Returns the service's metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the response of a health endpoint.
    pub(crate) fn respond(&self, route: HealthRoute) -> HandlerResult {
        self.respond_with(route, json!({}))
    }

    /// Returns the response of a service whose store was checked: with an error, `/readyz` and `/health` are a 503 that
    /// names it.
    pub(crate) fn respond_checked(&self, route: HealthRoute, store: Result<(), StoreError>) -> HandlerResult {
        self.respond_with(route, store.err().map_or_else(|| json!({}), unavailable))
    }

    /// Returns the response with additional members for `/readyz` and `/health`, which override their own. A `status`
    /// other than `ok` makes it a 503.
    pub(crate) fn respond_with(&self, route: HealthRoute, members: Value) -> HandlerResult {
        if route == HealthRoute::Metrics {
            return Ok(self.metrics.response());
        }
        let is_draining = route == HealthRoute::Ready && self.shutdown.stage() > ShutdownStage::Running;
        let mut body = json!({"status": if is_draining { "draining" } else { "ok" }});
        let mut extend = |added: &Value| {
            let object = body.as_object_mut().expect("it was made as an object");
            object.extend(added.as_object().cloned().unwrap_or_default());
        };
        match route {
            HealthRoute::Ready if !is_draining => extend(&members),
            HealthRoute::Health => {
                let uptime = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
                extend(&json!({"version": env!("CARGO_PKG_VERSION"), "uptimeMs": uptime}));
                extend(&self.extra);
                extend(&members);
            }
            _ => {}
        }
        let is_ok = body["status"] == "ok";
        response::json(if is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }
}

/// Returns the members of a response that name an error of the store.
pub(crate) fn unavailable(error: StoreError) -> Value {
    let reason = unavailable_reason(&error).unwrap_or_else(|| HttpError::from(error).detail().to_owned());
    json!({"status": "unavailable", "reason": reason})
}
