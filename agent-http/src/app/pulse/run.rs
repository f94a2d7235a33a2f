//! Runs a job's work: a tool call or an agent's turn, on behalf of the job's user.

use std::sync::Arc;
use std::time::Duration;

use agent_core::request::Principal;
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext, NoProgress, ToolError, ToolOutput, ToolRegistry};
use agent_jobs::job::{Delivery, JobKind, JobPayload};
use agent_platform::approval_tools::UNATTENDED_REFUSAL;
use agent_platform::journal::ActiveRun;
use agent_platform::records::{RecordsExt, StoreError, Write};
use agent_platform::run_tools::{AllowedTools, allowed_tools_in_run};
use agent_platform::trace::{begin_trace, job_trace};
use agent_platform::workspace::{self, Assignment, assignment_key};
use serde_json::Value;

use super::super::App;
use super::agent_turn::{budget_refusal, run_agent_turn};
use crate::error::{Code, HttpError};

/// `Retry-After` for a job of a deleted user: the interval of the maintenance that cancels it.
const DELETED_USER_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The effect of a run.
pub(super) enum JobEffect {
    /// A tool was called.
    ToolCalled(Box<ToolOutput>),
    /// An agent's turn ended; these writes notify the user of its answer.
    NotificationWrites(Vec<Write>),
}

/// Runs the job's work.
///
/// # Errors
/// The status tells the scheduler whether to retry.
pub(super) async fn run_job(
    app: &Arc<App>,
    run: &ActiveRun,
    delivery: &Delivery,
) -> Result<JobEffect, HttpError> {
    let payload = &delivery.payload;
    let role = role(app, payload).await?;
    check_assignment(app, payload).await?;
    check_user(app, payload).await?;
    let context = context(app, delivery, &role).await?;
    match payload.kind {
        JobKind::Tool => call_tool(app, payload, &role, &context)
            .await
            .map(|output| JobEffect::ToolCalled(Box::new(output))),
        JobKind::Agent => {
            run_agent_turn(app, run, delivery, &role, context).await.map(JobEffect::NotificationWrites)
        }
    }
}

async fn role(app: &App, payload: &JobPayload) -> Result<Arc<RoleBlock>, HttpError> {
    let role = match app.roles.role(&payload.company_id, &payload.agent_id).await {
        // An invalid id belongs to no agent.
        Err(StoreError::Invalid(_)) => None,
        role => role?,
    };
    role.ok_or_else(|| HttpError::gone("the agent no longer exists"))
}

/// Returns 410 for an assignment that was deleted or disabled, in case the scheduler has not cancelled its job yet.
async fn check_assignment(app: &App, payload: &JobPayload) -> Result<(), HttpError> {
    let Some(id) = &payload.assignment_id else { return Ok(()) };
    let key = assignment_key(&payload.company_id, id)?;
    let assignment = app.records.get_as::<Assignment>(&key).await?.map(|record| record.value);
    let is_active = assignment.is_some_and(|assignment| {
        assignment.schedule.enabled
            && assignment.user_id == payload.user_id
            && assignment.agent_id == payload.agent_id
    });
    if is_active { Ok(()) } else { Err(HttpError::gone("the assignment no longer exists or is disabled")) }
}

/// Returns 409 for a deleted user, for whom a run would store new data, until maintenance has cancelled the user's jobs. A person
/// who gets the id meanwhile keeps the job, as it is handed back.
async fn check_user(app: &App, payload: &JobPayload) -> Result<(), HttpError> {
    if !workspace::is_deleted_user(&*app.records, &payload.company_id, &payload.user_id).await? {
        return Ok(());
    }
    let error = HttpError::conflict("the user was deleted, and the user's jobs are being cancelled");
    Err(error.with_retry_after(DELETED_USER_RETRY_AFTER))
}

async fn context(app: &App, delivery: &Delivery, role: &RoleBlock) -> Result<ExecutionContext, HttpError> {
    let payload = &delivery.payload;
    let timezone = match &payload.timezone {
        Some(zone) => Some(zone.clone()),
        None => {
            let user = workspace::get_user(&*app.records, &payload.company_id, &payload.user_id).await?;
            user.and_then(|user| user.timezone)
        }
    };
    let principal = Principal::new(&*payload.user_id, &*payload.company_id, Caller::Proactive);
    Ok(ExecutionContext {
        agent_name: Some(role.name.clone()).filter(|name| !name.is_empty()),
        todo_list_id: payload.todo_list_id.clone(),
        timezone,
        thread_id: delivery.job_id.as_str().into(),
        // Equal in all attempts: the journal of the occurrence and the idempotency keys of its calls are found by it.
        run_id: delivery.occurrence_key().into(),
        idempotency_key: Some(delivery.occurrence_key()),
        trace: Some(job_trace(payload).unwrap_or_else(begin_trace)),
        ..principal.agent_context(&role.id, principal.caller)
    })
}

async fn call_tool(
    app: &App,
    payload: &JobPayload,
    role: &RoleBlock,
    context: &ExecutionContext,
) -> Result<ToolOutput, HttpError> {
    let name = payload.tool_id.as_deref().unwrap_or_default();
    let allowed = allowed_tools_in_run(role, Caller::Proactive);
    // An assignment's job is cancelled by the synchronization, which creates another one when the agent has the tool again.
    if payload.assignment_id.is_none() && !allowed.contains(name) {
        return Err(HttpError::gone("the agent may not use the tool"));
    }
    let tools = AllowedTools::new(app.pulse.tools.clone(), allowed);
    let arguments = Value::Object(payload.arguments.clone().unwrap_or_default());
    match tools.call(context, name, arguments, &NoProgress).await {
        // No attempt changes that.
        Ok(output) if output.is_error && output.text == UNATTENDED_REFUSAL => {
            Err(HttpError::new(Code::InvalidRequest, UNATTENDED_REFUSAL))
        }
        Ok(ToolOutput { is_error: true, .. }) => {
            Err(HttpError::new(Code::BackendFailed, "the tool reported an error"))
        }
        Ok(output) => Ok(output),
        // The tools report an exhausted budget in a text.
        Err(error @ ToolError::Unavailable(_)) => {
            Err(budget_refusal(app, context).unwrap_or_else(|| tool_error_response(error)))
        }
        Err(error) => Err(tool_error_response(error)),
    }
}

fn tool_error_response(error: ToolError) -> HttpError {
    let text = error.to_string();
    match error {
        ToolError::Unknown(_) | ToolError::InvalidArguments(_) | ToolError::NotFound(_) => {
            HttpError::new(Code::InvalidRequest, text)
        }
        ToolError::OutcomeUnknown(_) => HttpError::new(Code::OutcomeUnknown, text),
        ToolError::StoreUnavailable(error) => error.into(),
        // Not 409, which is the answer while the occurrence is in progress elsewhere.
        ToolError::Conflict(_) | ToolError::Unavailable(_) => HttpError::new(Code::BackendFailed, text),
        error => HttpError::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_whose_store_is_unavailable_is_called_again_soon() {
        let error = tool_error_response(StoreError::unavailable("the disk is full").into());
        assert_eq!(error.code(), Code::StoreUnavailable);
        assert!(error.retry_after().is_some());
        let error = tool_error_response(ToolError::Unavailable("the bot is away".to_owned()));
        assert_eq!(error.code(), Code::BackendFailed);
    }
}
