//! Endpoints of a service's health: liveness, readiness, status and metrics.
//!
//! The endpoints need no credential, so their responses contain nothing confidential.

use std::future::Future;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Operation, Public, RequestContext, Schemas};
use crate::health::HealthRoute;
use crate::serve::PROBE_PATHS;
use crate::service::HandlerResult;
use crate::state::ServiceState;

/// Tag of the health operations.
const TAG: &str = "health";

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
    let [live_path, ready_path, health_path] = PROBE_PATHS;
    [
        endpoint(live_path, HealthRoute::Live, describe_live),
        endpoint(ready_path, HealthRoute::Ready, describe_ready),
        endpoint(health_path, HealthRoute::Health, describe_health),
        endpoint("/metrics", HealthRoute::Metrics, describe_metrics),
    ]
}

fn describe_live(_: &mut Schemas) -> Operation {
    let live = Operation::new("live", TAG, "Liveness of the process.");
    live.json_response(200, "The process is alive.", status_schema(&[]))
}

fn describe_ready(_: &mut Schemas) -> Operation {
    Operation::new("ready", TAG, "Readiness for traffic.")
        .json_response(200, "The service is ready.", status_schema(&[]))
        .json_response(
            503,
            "The service is draining, or its store cannot be written.",
            status_schema(&[("reason", "string")]),
        )
}

fn describe_health(_: &mut Schemas) -> Operation {
    let members = [("version", "string"), ("uptimeMs", "integer"), ("service", "string")];
    Operation::new("health", TAG, "Status, version and uptime of the service.")
        .json_response(200, "The service is healthy.", status_schema(&members))
        .json_response(503, "The store cannot be read or written.", status_schema(&[("reason", "string")]))
}

fn describe_metrics(_: &mut Schemas) -> Operation {
    let text = json!({"application/openmetrics-text": {"schema": {"type": "string"}}});
    let metrics = Operation::new("metrics", TAG, "Metrics in OpenMetrics text format.");
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
