//! `/api/pulse`: the application's side of the scheduler. Browsers call these endpoints instead of the scheduler,
//! whose secret stays on the server; the scheduler calls back here when a job is due.

mod agent_turn;
pub(super) mod callback;
mod handover;
pub(super) mod jobs;
mod local_run;
pub(super) mod next;
mod run;
pub(super) mod sync;
pub(super) mod tool_call;
mod upkeep;

use agent_core::request::Principal;
use agent_jobs::job::{JobFilter, JobScope};
use agent_platform::pulse::user_scope;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::service::HandlerResult;

pub(super) use upkeep::run_maintenance;

pub(super) use callback::{Completion, run_occurrence};
pub(super) use local_run::{end_step, is_busy, lease_until, run_claimed_job};

/// Tag of the operations on jobs and assignments.
pub(super) const TAG: &str = "jobs";

pub(super) async fn status(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let status = connection_status(&context.state, scope(&principal)).await;
    response::json(StatusCode::OK, &status)
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
    let link = &app.pulse;
    let mut status = PulseStatus {
        configured: link.remote.is_some(),
        missing: link.missing.clone(),
        healthy: false,
        job_count: 0,
        callback_url: link.remote.is_some().then(|| link.callback_url.to_string()),
    };
    let Some(pulse) = link.remote.as_deref() else { return status };
    let check = async {
        pulse.check_health().await?;
        pulse.count_jobs(&JobFilter { scope, open: true, ..JobFilter::default() }).await
    };
    match check.await {
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
