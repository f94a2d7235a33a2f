//! Health of a service: liveness, readiness, status and metrics.

use std::sync::Arc;
use std::time::Instant;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::full;
use crate::metrics::Metrics;
use crate::service::HandlerResult;
use crate::shutdown::{Shutdown, ShutdownStage};

/// Health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthRoute {
    /// `GET /livez`: liveness; 200 while the process answers.
    Live,
    /// `GET /readyz`: readiness; 503 once the shutdown has begun.
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

    /// Returns the response with additional members for `/health`, which override its own. A `status` other than `ok`
    /// makes it a 503.
    pub(crate) fn respond_with(&self, route: HealthRoute, now: Value) -> HandlerResult {
        if route == HealthRoute::Metrics {
            return Ok(self.metrics.response());
        }
        let (mut status, mut body) = match route {
            HealthRoute::Ready if self.shutdown.stage() > ShutdownStage::Running => {
                (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"}))
            }
            _ => (StatusCode::OK, json!({"status": "ok"})),
        };
        if route == HealthRoute::Health {
            body["version"] = env!("CARGO_PKG_VERSION").into();
            body["uptimeMs"] = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).into();
            for extra in [&self.extra, &now].into_iter().filter_map(Value::as_object) {
                body.as_object_mut().expect("it was made as an object").extend(extra.clone());
            }
            if body["status"] != "ok" {
                status = StatusCode::SERVICE_UNAVAILABLE;
            }
        }
        let mut response = Response::new(full(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}
