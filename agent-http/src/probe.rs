//! Health endpoints: liveness, readiness, status and metrics.
//!
//! The endpoints need no credential, so their responses contain nothing confidential.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::full;
use crate::endpoint::{Endpoint, Operation, Public, RequestContext, Schemas, ServiceState};
use crate::metrics::Metrics;
use crate::service::HandlerResult;

/// Tag of the health operations.
const TAG: &str = "health";

/// Health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthRoute {
    /// `GET /livez`: liveness; 200 while the process answers.
    Live,
    /// `GET /readyz`: readiness; 503 while the process drains.
    Ready,
    /// `GET /health`: status, version and uptime.
    Health,
    /// `GET /metrics`: metrics.
    Metrics,
}

/// Returns the health endpoints, for a service's table. `respond` makes their responses.
pub(crate) fn endpoints<S, F, Fut>(respond: F) -> [Endpoint<S>; 4]
where
    S: ServiceState,
    F: Fn(Arc<S>, HealthRoute) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    let endpoint = |path, route, describe| {
        let handler = move |context: RequestContext<S>, ()| respond(context.state, route);
        Endpoint::new(Method::GET, path, Public, handler, describe)
    };
    [
        endpoint("/livez", HealthRoute::Live, describe_live),
        endpoint("/readyz", HealthRoute::Ready, describe_ready),
        endpoint("/health", HealthRoute::Health, describe_health),
        endpoint("/metrics", HealthRoute::Metrics, describe_metrics),
    ]
}

fn describe_live(_: &mut Schemas) -> Operation {
    let live = Operation::new("live", TAG, "The process answers.");
    live.json_response(200, "It does.", status_schema(&[]))
}

fn describe_ready(_: &mut Schemas) -> Operation {
    Operation::new("ready", TAG, "Whether it may be sent traffic.")
        .json_response(200, "It may.", status_schema(&[]))
        .json_response(503, "It is draining.", status_schema(&[]))
}

fn describe_health(_: &mut Schemas) -> Operation {
    let members = [("version", "string"), ("uptimeMs", "integer"), ("service", "string")];
    Operation::new("health", TAG, "What it is.")
        .json_response(200, "It is well.", status_schema(&members))
        .json_response(503, "The scheduler cannot reach its store.", status_schema(&[]))
}

fn describe_metrics(_: &mut Schemas) -> Operation {
    let text = json!({"application/openmetrics-text": {"schema": {"type": "string"}}});
    let metrics = Operation::new("metrics", TAG, "What it has counted, as OpenMetrics text.");
    metrics.response(200, json!({"description": "The metrics.", "content": text}))
}

/// Returns the schema of a status with these other members, by name and type.
fn status_schema(members: &[(&str, &str)]) -> Value {
    let mut schema =
        json!({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}});
    for (name, kind) in members {
        schema["properties"][name] = json!({ "type": kind });
    }
    schema
}

/// State that the health endpoints report.
pub struct HealthState {
    started: Instant,
    draining: AtomicBool,
    extra: Value,
    metrics: Arc<Metrics>,
}

impl HealthState {
    /// Creates the state of a service that is ready. `extra` is an object whose members are added to `/health`.
    pub fn new(extra: Value) -> Self {
        Self { started: Instant::now(), draining: AtomicBool::new(false), extra, metrics: Arc::default() }
    }

    /// Makes readiness fail, so that no new traffic is sent.
    pub fn start_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns the service's metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the response of a health endpoint.
    pub fn respond(&self, route: HealthRoute) -> HandlerResult {
        self.respond_with(route, json!({}))
    }

    /// Returns the response with additional members for `/health`, which override its own. A `status` other than `ok`
    /// makes it a 503.
    pub fn respond_with(&self, route: HealthRoute, now: Value) -> HandlerResult {
        if route == HealthRoute::Metrics {
            return Ok(self.metrics.response());
        }
        let draining = self.draining.load(Ordering::Relaxed);
        let (mut status, mut body) = match route {
            HealthRoute::Ready if draining => {
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
