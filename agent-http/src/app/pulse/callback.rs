//! `POST /api/pulse/callback`: delivery of a due occurrence by the scheduler.
//!
//! Response statuses and the scheduler's reaction:
//!
//! | status | meaning | reaction |
//! |---|---|---|
//! | 200 | complete, by this call or an earlier one | the occurrence is completed |
//! | 400, 422 | permanent error: an assignment's tool that the agent may not use, invalid arguments, no backend, an outcome that is unknown | the occurrence is discarded |
//! | 410 | the agent was deleted or may not use the tool, or the assignment was deleted or disabled | the job is cancelled |
//! | 401 | the credential is missing, invalid or expired | retry |
//! | 402 | a budget is spent | retry after `Retry-After`, the end of the budget's window; not counted as an attempt. Without the header, retry |
//! | 409 | the occurrence is being run, or too many callbacks are, or the job's user was deleted, or only a newer version knows the job's kind | retry after `Retry-After`; not counted as an attempt |
//! | 429 | a limit of runs is reached | retry after `Retry-After` |
//! | 500, 502, 504 | a tool or backend failed or timed out | retry |
//! | 503 | the store is unavailable, or the process stops | retry after `Retry-After`; not counted as an attempt |

use std::sync::Arc;
use std::time::Duration;

use agent_core::tool::{FollowUp, ToolOutput};
use agent_jobs::job::{Delivery, JobKind, JobPayload};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::assignment;
use agent_platform::journal::{ActiveRun, ClaimOutcome};
use agent_platform::occurrence::{OccurrenceState, OccurrenceWork};
use agent_platform::pulse::{JobRequest, MAX_OPEN_FOLLOW_UP_JOBS, PulseError};
use agent_platform::records::{StoreError, Write};
use agent_platform::trace::{format_traceparent, job_trace};
use http::{StatusCode, request};
use serde::Deserialize;
use serde_json::json;
use tokio::time;
use tracing::Instrument;

use super::super::{App, response};
use super::TAG;
use super::run::{self, JobEffect};
use crate::app::SchedulerConnection;
use crate::auth::AuthError;
use crate::connection_permit::ConnectionPermit;
use crate::endpoint::{Operation, RequestContext, Schemas, string_schema};
use crate::error::{Code, HttpError};
use crate::request::parse_json;
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;
use crate::webhook;

/// Maximum size of a callback's body: the largest payload plus the other members.
pub(in crate::app) const MAX_BODY_BYTES: usize = 128 * 1024;
/// Time added to the run's time limit to get the claim's lease, so that the outcome can be recorded.
const LEASE_MARGIN: Duration = Duration::from_secs(30);
/// Maximum `Retry-After` while an occurrence is being run, so that its end is noticed soon.
const MAX_BUSY_RETRY_AFTER: Duration = Duration::from_secs(15);
/// `Retry-After` for a job of a kind that this version does not know.
const UNKNOWN_KIND_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Pause between two extensions of the lease of this process while an occurrence runs.
const LEASE_EXTENSION_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum delay of a follow-up, the same as that of an interval schedule.
const MIN_FOLLOW_UP_DELAY_MS: u64 = 1_000;

/// The outcome of running an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum Completion {
    /// The effect happened in this call.
    Completed,
    /// The effect had happened before this call.
    AlreadyCompleted,
}

pub(in crate::app) async fn post(context: RequestContext<App>, (): ()) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let scheduler = &app.pulse;
    let bytes = body.read_json_bytes(&head.headers).await?;
    let id = webhook::verify(&scheduler.secrets, &head.headers, &bytes, scheduler.clock.now()).map_err(
        |error| {
            tracing::warn!(%error, "a callback's signature is invalid: compare PULSE_SECRET on both sides");
            AuthError::Unauthenticated
        },
    )?;
    check_kind(&bytes)?;
    let mut delivery: Delivery = parse_json(&bytes, app.base.json_depth)?;
    if id != delivery.occurrence_key() {
        return Err(HttpError::invalid("webhook-id", "differs from the occurrence's key"));
    }
    let body = json!({"jobId": delivery.job_id, "occurrence": delivery.occurrence});
    continue_trace(&head, &mut delivery);
    let (connection, company_id) = (ConnectionPermit::of(&head), &delivery.payload.company_id);
    app.bounds.admit_callback(&connection, company_id).map_err(|_| too_many_callbacks())?;
    let completion = run_occurrence(&app, delivery, true).await?;
    let mut body = body;
    body["status"] = if completion == Completion::Completed { "done" } else { "doneBefore" }.into();
    response::json(StatusCode::OK, &body)
}

/// Checks that this version knows the job's kind. A signed callback with another kind comes from a newer version that runs
/// beside this one: its occurrence is handed back without using up an attempt, so that a newer application runs it.
///
/// # Errors
/// `Conflict` with `Retry-After`, for an unknown kind. A body that is not a delivery has no kind and is left to its parser.
fn check_kind(bytes: &[u8]) -> Result<(), HttpError> {
    #[derive(Deserialize)]
    struct DeliveredKind {
        kind: String,
    }
    let Ok(DeliveredKind { kind }) = serde_json::from_slice(bytes) else { return Ok(()) };
    if serde_json::from_value::<JobKind>(kind.into()).is_ok() {
        return Ok(());
    }
    let error = HttpError::conflict("the job's kind is known only to a newer version of the application");
    Err(error.with_retry_after(UNKNOWN_KIND_RETRY_AFTER))
}

/// Assigns the same trace to the request and the delivery: the trace of the run that created the job, otherwise the trace of the
/// request.
fn continue_trace(head: &request::Parts, delivery: &mut Delivery) {
    let trace = RequestTrace::of(head);
    match job_trace(&delivery.payload) {
        Some(own) => trace.continue_trace(own),
        None => {
            trace.continue_headers(&head.headers);
            let traceparent = Some(format_traceparent(&trace.context()));
            delivery.payload = Arc::new(JobPayload { traceparent, ..JobPayload::clone(&delivery.payload) });
        }
    }
}

/// Runs an occurrence unless it is complete. The run continues if the caller drops the future: the scheduler learns
/// the outcome at its next call, whereas an aborted run would leave its effect half done.
pub(in crate::app) async fn run_occurrence(
    app: &Arc<App>,
    delivery: Delivery,
    by_scheduler: bool,
) -> Result<Completion, HttpError> {
    delivery.payload.validate().map_err(|error| HttpError::invalid("the payload:", error))?;
    let app = app.clone();
    let execution = async move { claim_and_run(&app, &delivery, by_scheduler).await }.in_current_span();
    tokio::spawn(execution).await.map_err(HttpError::internal)?
}

async fn claim_and_run(
    app: &Arc<App>,
    delivery: &Delivery,
    by_scheduler: bool,
) -> Result<Completion, HttpError> {
    let scheduler = &app.pulse;
    let payload = &delivery.payload;
    let Some(_permit) = scheduler.running.try_acquire(&payload.company_id) else {
        return Err(too_many_callbacks());
    };
    let occurrence = (&delivery.job_id, delivery.occurrence);
    let lease = scheduler.deadline + LEASE_MARGIN;
    let (run, work) = match scheduler.journals.claim(occurrence, payload, lease).await? {
        ClaimOutcome::Done => return Ok(Completion::AlreadyCompleted),
        ClaimOutcome::Busy(remaining) => {
            let wait = remaining.clamp(Duration::from_secs(1), MAX_BUSY_RETRY_AFTER);
            return Err(HttpError::conflict("this occurrence is already in progress").with_retry_after(wait));
        }
        ClaimOutcome::Claimed(run, work) => (run, work),
    };
    let result = async {
        match work {
            OccurrenceWork::FollowUp(request) => schedule_follow_up(app, &run, *request).await,
            OccurrenceWork::Run => run_effect(app, &run, delivery).await,
        }
    };
    tokio::select! {
        result = result => result?,
        () = keep_lease(scheduler) => {}
    }
    if let Some(id) = &payload.assignment_id {
        let assignment_key = (&payload.company_id, &**id);
        let recorded =
            assignment::record_run(&*app.records, assignment_key, occurrence, by_scheduler, scheduler.now())
                .await;
        if let Err(error) = recorded {
            tracing::warn!(%error, "failed to store the latest run of an assignment");
        }
    }
    Ok(Completion::Completed)
}

/// Returns the error of an occurrence that is not tried yet, so that it uses up no attempt.
fn too_many_callbacks() -> HttpError {
    let error = HttpError::conflict("too many callbacks, or other requests of the company, are in progress");
    error.with_retry_after(MAX_BUSY_RETRY_AFTER)
}

/// Extends the lease of this process; does not return.
async fn keep_lease(scheduler: &SchedulerConnection) {
    loop {
        time::sleep(LEASE_EXTENSION_INTERVAL).await;
        if let Err(error) = scheduler.journals.extend_lease().await {
            tracing::warn!(%error, "failed to extend the lease of jobs; once it expires, others may run them");
        }
    }
}

async fn run_effect(app: &Arc<App>, run: &ActiveRun, delivery: &Delivery) -> Result<(), HttpError> {
    let scheduler = &app.pulse;
    let effect = match time::timeout(scheduler.deadline, run::run_job(app, run, delivery)).await {
        Ok(effect) => effect,
        Err(_) => {
            let detail = format!("the run timed out after {} ms", scheduler.deadline.as_millis());
            Err(HttpError::new(Code::BackendTimeout, detail))
        }
    };
    match effect {
        Ok(JobEffect::NotificationWrites(writes)) => commit_done(run, writes).await,
        Ok(JobEffect::ToolCalled(output)) => match requested_follow_up(app, delivery, &output) {
            None => commit_done(run, Vec::new()).await,
            Some(request) => {
                run.record_state(&follow_up_state(app, &request, follow_up_deadline(app))).await?;
                schedule_follow_up(app, run, request).await
            }
        },
        // The tool's own commit has recorded the occurrence as done.
        Err(error) if run.is_complete() => {
            tracing::warn!(%error, "a job's run failed after its effect was stored; it counts as done");
            Ok(())
        }
        Err(error) => {
            // If the failure cannot be recorded, this process or the next one takes the claim over.
            if let Err(store_error) = run.record_state(&OccurrenceState::Failed { at: scheduler.now() }).await
            {
                tracing::warn!(error = %store_error, "failed to store the failure of an occurrence");
            }
            Err(error)
        }
    }
}

/// Returns the time until which this attempt keeps the occurrence to schedule its follow-up.
fn follow_up_deadline(app: &App) -> jiff::Timestamp {
    app.pulse.now().saturating_add(LEASE_MARGIN).unwrap_or(jiff::Timestamp::MAX)
}

fn follow_up_state(app: &App, request: &JobRequest, until: jiff::Timestamp) -> OccurrenceState {
    let owner = Some(app.pulse.journals.process_id().to_owned());
    OccurrenceState::FollowUp { until, owner, request: Box::new(request.clone()) }
}

/// Marks the occurrence as done, in one transaction with the run's writes.
async fn commit_done(run: &ActiveRun, writes: Vec<Write>) -> Result<(), HttpError> {
    match run.complete(writes).await {
        Ok(()) => Ok(()),
        Err(error @ StoreError::Conflict { .. }) => {
            let detail = "the claim of the occurrence ended and another attempt took it over";
            Err(HttpError::conflict(detail).with_retry_after(MAX_BUSY_RETRY_AFTER).with_source(error))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the follow-up job that a tool's result requests, if it is valid.
fn requested_follow_up(app: &App, delivery: &Delivery, output: &ToolOutput) -> Option<JobRequest> {
    // The typed request, otherwise the request in the result of an external tool, which is ignored if it is invalid.
    let untyped = || serde_json::from_value(output.structured.as_ref()?.get("followUp")?.clone()).ok();
    let FollowUp { delay_ms, execute_at, arguments } = output.follow_up.clone().or_else(untyped)?;
    let mut payload = JobPayload::clone(&delivery.payload);
    payload.arguments = arguments.or(payload.arguments);
    let schedule = ScheduleSpec {
        delay_ms: delay_ms.map(|delay| delay.max(MIN_FOLLOW_UP_DELAY_MS)),
        execute_at,
        timezone: payload.timezone.clone(),
        ..ScheduleSpec::default()
    };
    let resolved = schedule.resolve(app.pulse.now()).map_err(|error| error.to_string());
    if let Err(error) = resolved.and(payload.validate().map_err(|error| error.to_string())) {
        tracing::warn!(
            error,
            tool = payload.tool_id,
            "a tool's follow-up job is invalid and is not scheduled"
        );
        return None;
    }
    // Equal for all attempts at the occurrence, so that only one follow-up is created.
    let idempotency_key = Some(format!("followUp:{}", delivery.occurrence_key()));
    let max_open_jobs = Some(MAX_OPEN_FOLLOW_UP_JOBS as u64);
    Some(JobRequest { idempotency_key, max_open_jobs, ..JobRequest::new(payload, schedule) })
}

/// Schedules the follow-up job and marks the occurrence as done. If the scheduler is unavailable, the next attempt
/// schedules the job without calling the tool again.
async fn schedule_follow_up(app: &App, run: &ActiveRun, request: JobRequest) -> Result<(), HttpError> {
    match app.pulse.client()?.schedule_job(&request).await {
        Ok(_) => {}
        Err(
            error @ (PulseError::Invalid(_)
            | PulseError::Conflict(_)
            | PulseError::LimitReached(_)
            | PulseError::NotFound),
        ) => {
            tracing::warn!(%error, "the scheduler rejected a follow-up job; it is not scheduled");
        }
        Err(error) => {
            run.record_state(&follow_up_state(app, &request, app.pulse.now())).await?;
            return Err(error.into());
        }
    }
    commit_done(run, Vec::new()).await
}

pub(in crate::app) fn describe(_: &mut Schemas) -> Operation {
    let text = string_schema;
    let body = json!({"type": "object", "required":
        ["kind", "userId", "companyId", "agentId", "jobId", "occurrence", "scheduledFor", "attempt"],
        "properties": {"kind": {"type": "string", "enum": ["tool", "agent"]}, "userId": text(),
            "companyId": text(), "agentId": text(), "toolId": text(), "assignmentId": text(),
            "arguments": {"type": "object"}, "message": text(), "todoListId": text(), "threadId": text(),
            "timezone": text(),
            "jobId": text(), "occurrence": {"type": "integer"}, "scheduledFor": text(),
            "attempt": {"type": "integer"}}});
    let done = json!({"type": "object", "required": ["status", "jobId", "occurrence"], "properties": {
        "status": text(), "jobId": text(), "occurrence": {"type": "integer"}}});
    let operation =
        Operation::new("pulseCallback", TAG, "Runs a due occurrence of a job; called by the scheduler.")
            .describe("Requires both the bearer token and the signature of Standard Webhooks.");
    ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .into_iter()
        .fold(operation, |operation, name| operation.parameter("header", name, "Standard Webhooks.", text()))
        .body(body)
        .json_response(200, "The occurrence is done, by this or an earlier call.", done)
        .problems(&[
            Code::BudgetExceeded,
            Code::Conflict,
            Code::Gone,
            Code::NoConnector,
            Code::OutcomeUnknown,
            Code::RateLimited,
            Code::BackendFailed,
            Code::PulseNotConfigured,
            Code::BackendTimeout,
        ])
}

#[cfg(test)]
mod tests {
    use agent_jobs::job::AttemptOutcome;

    use super::*;
    use crate::shutdown::shutting_down;

    #[test]
    fn a_stopping_process_releases_its_occurrences() {
        let error = HttpError::from(shutting_down());
        let status = error.code().status().as_u16();
        let outcome = AttemptOutcome::from_status(status, error.to_string(), error.retry_after());
        assert!(matches!(outcome, AttemptOutcome::Deferred { .. }), "it counts no attempt: {outcome:?}");
    }

    #[test]
    fn a_job_of_an_unknown_kind_is_released() {
        for known in [r#"{"kind":"tool"}"#, r#"{"kind":"agent","jobId":"j"}"#, r#"{"kind":7}"#, "{}", "["] {
            assert!(check_kind(known.as_bytes()).is_ok(), "{known}");
        }
        let error = check_kind(br#"{"kind":"workflow","jobId":"j"}"#).expect_err("unknown");
        assert_eq!(
            (error.code(), error.retry_after()),
            (Code::Conflict, Some(UNKNOWN_KIND_RETRY_AFTER)),
            "the scheduler counts no attempt"
        );
    }
}
