//! Tools that schedule and cancel later calls of other tools.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::builtin::{ADDITIVE, DESTRUCTIVE, Stores, tool};
use crate::pulse::{JobRequest, Pulse, PulseError, ScheduledJob, user_scope};
use crate::run_tools::{allowed_tools_in_run, has_grant};
use crate::trace::format_traceparent;
use crate::workspace::utc_time;
use agent_core::ids::JobId;
use agent_core::role::RoleBlock;
use agent_core::tool::{Caller, ExecutionContext, LocalToolRegistry, ToolError};
use agent_jobs::job::{JobFilter, JobOrder, JobPayload, JobScope, MAX_JOBS_PER_PAGE};
use agent_jobs::schedule::ScheduleSpec;

/// Name of the tool that schedules calls.
pub const SCHEDULE_TOOL: &str = "scheduleTool";
const CANCEL: &str = "cancelScheduledTool";

/// Maximum number of jobs that one call of `cancelScheduledTool` cancels; each takes one request to the scheduler.
const MAX_CANCELLED_JOBS: usize = 1_000;
/// Maximum number of pages of jobs that one call of `cancelScheduledTool` reads. Bounds the search also where most jobs
/// belong to assignments.
const MAX_CANCEL_PAGES: usize = 100;

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            SCHEDULE_TOOL,
            "Schedules a call of one of your tools for the user: once, after a delay or at a time, or repeatedly, by an \
             interval or a cron expression. Returns the job's id.",
            ADDITIVE,
            schedule_tool,
        ))
        .with_tool(tool(
            stores,
            CANCEL,
            "Cancels a job created by scheduleTool by its id, or all jobs that call one tool; at most 1000 per call.",
            DESTRUCTIVE,
            cancel_scheduled_tool,
        ))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ScheduleArguments {
    /// The name of the tool to call.
    #[schemars(length(min = 1, max = 128))]
    tool: String,
    /// The arguments of the tool, an object as in the tool's own definition.
    #[schemars(with = "Option<std::collections::BTreeMap<String, Value>>")]
    arguments: Option<Map<String, Value>>,
    /// Once, after this many milliseconds.
    delay_ms: Option<u64>,
    /// Once, at an RFC 3339 time; without an offset, it is local to the time zone.
    execute_at: Option<String>,
    /// Repeatedly, at this interval in milliseconds; at least 1000.
    every_ms: Option<u64>,
    /// Repeatedly, by a cron expression such as "0 9 * * 1".
    cron: Option<String>,
    /// The IANA name of the time zone; the user's own if omitted.
    timezone: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ScheduledCall {
    /// The job's id, for cancelling it.
    job_id: JobId,
    /// The time of the next call, RFC 3339 in UTC.
    execute_at: String,
}

async fn schedule_tool(
    stores: &Stores,
    context: &ExecutionContext,
    wish: ScheduleArguments,
) -> Result<ScheduledCall, ToolError> {
    let pulse = scheduler(stores, context)?;
    let role = stores.role(context).await?;
    if !can_schedule(&role, &wish.tool) || !has_grant(context, &wish.tool) {
        return Err(ToolError::NotFound(format!(
            "there is no tool named {:?} that you can schedule",
            wish.tool
        )));
    }
    let timezone = wish.timezone.or_else(|| context.timezone.clone());
    let schedule = ScheduleSpec {
        execute_at: wish.execute_at,
        delay_ms: wish.delay_ms,
        cron: wish.cron,
        every_ms: wish.every_ms,
        timezone: timezone.clone(),
        dst: None,
    };
    schedule.resolve(stores.now()).map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
    let payload = JobPayload {
        arguments: wish.arguments,
        todo_list_id: context.todo_list_id.clone(),
        timezone,
        traceparent: context.trace.as_ref().map(format_traceparent),
        ..JobPayload::for_tool(
            context.company_id.clone(),
            context.user_id.clone(),
            context.agent_id.clone(),
            wish.tool,
        )
    };
    payload.validate().map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
    let idempotency_key = context.idempotency_key.as_deref().map(|key| job_key(context, key));
    let request =
        JobRequest { idempotency_key, ..JobRequest::new(payload, schedule) }.within_open_jobs_limit();
    let ScheduledJob { job_id, execute_at } = pulse.schedule_job(&request).await?;
    Ok(ScheduledCall { job_id, execute_at: utc_time(execute_at) })
}

/// Returns the key of the job that a call creates, so that a repeated call creates it once. Idempotency keys are unique per
/// company at the scheduler, but per user in calls.
fn job_key(context: &ExecutionContext, call: &str) -> String {
    let digest = Sha256::new().chain_update(&*context.user_id).chain_update([0]).chain_update(call);
    format!("tool:{}", hex::encode(digest.finalize()))
}

/// Returns the scheduler; an error for widget visitors, who are gone when the job runs.
fn scheduler<'a>(stores: &'a Stores, context: &ExecutionContext) -> Result<&'a dyn Pulse, ToolError> {
    if context.caller == Caller::Widget {
        return Err(ToolError::Unavailable("visitors cannot schedule tool calls".to_owned()));
    }
    Ok(stores.reach.pulse.as_deref().ok_or(PulseError::NotConfigured)?)
}

/// Returns true if the agent may use the tool in a scheduled call. The scheduling tools are excluded, since a job
/// could otherwise create more jobs each time it runs.
fn can_schedule(role: &RoleBlock, name: &str) -> bool {
    name != SCHEDULE_TOOL && name != CANCEL && allowed_tools_in_run(role, Caller::Proactive).contains(name)
}

fn user_scope_of(context: &ExecutionContext) -> JobScope {
    user_scope(&context.company_id, &context.user_id)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CancelArguments {
    /// The job's id.
    job_id: Option<JobId>,
    /// The name of the tool whose jobs are all cancelled, instead of one job's id.
    tool: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CancelledCalls {
    /// The number of cancelled jobs.
    cancelled: u64,
    /// The number of them that are running and could not be stopped.
    running: u64,
}

async fn cancel_scheduled_tool(
    stores: &Stores,
    context: &ExecutionContext,
    wish: CancelArguments,
) -> Result<CancelledCalls, ToolError> {
    let pulse = scheduler(stores, context)?;
    let ids = match (wish.job_id, wish.tool) {
        (Some(id), None) => {
            let is_own_job = pulse.get_job(&user_scope_of(context), &id).await;
            let is_own_job =
                is_own_job.map(|job| is_own(&job.payload, context)).or_else(not_found_as_false)?;
            if !is_own_job {
                return Err(ToolError::NotFound(format!("there is no job {id:?}")));
            }
            vec![id]
        }
        (None, Some(tool)) => open_jobs_for_tool(pulse, context, tool).await?,
        _ => {
            let fault = "exactly one of jobId and tool must be given".to_owned();
            return Err(ToolError::InvalidArguments(fault));
        }
    };
    let mut result = CancelledCalls { cancelled: 0, running: 0 };
    for id in ids {
        match pulse.cancel_job(&user_scope_of(context), &id).await {
            Ok(cancelled) => {
                result.cancelled += 1;
                result.running += u64::from(cancelled.delivering);
            }
            Err(PulseError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(result)
}

fn not_found_as_false(error: PulseError) -> Result<bool, ToolError> {
    match error {
        PulseError::NotFound => Ok(false),
        error => Err(error.into()),
    }
}

/// Returns true if this agent created the job for this user. Jobs of assignments are excluded: they are removed with
/// the assignment.
fn is_own(payload: &JobPayload, context: &ExecutionContext) -> bool {
    payload.user_id == context.user_id
        && payload.company_id == context.company_id
        && payload.agent_id == context.agent_id
        && payload.assignment_id.is_none()
}

/// Returns the ids of the agent's own jobs for the user that call the tool and are not final, at most
/// [`MAX_CANCELLED_JOBS`]. Reads all pages before the first job is cancelled, since a cancelled job leaves the list.
async fn open_jobs_for_tool(
    pulse: &dyn Pulse,
    context: &ExecutionContext,
    tool: String,
) -> Result<Vec<JobId>, ToolError> {
    let filter = JobFilter {
        scope: user_scope_of(context),
        agent: Some(context.agent_id.clone()),
        tool: Some(tool),
        open: true,
        ..JobFilter::default()
    };
    let (mut ids, mut cursor): (Vec<JobId>, Option<String>) = (Vec::new(), None);
    for _ in 0..MAX_CANCEL_PAGES {
        let order = JobOrder::OldestFirst;
        let page = pulse.list_jobs(&filter, order, cursor.as_deref(), MAX_JOBS_PER_PAGE).await?;
        ids.extend(page.jobs.into_iter().filter(|job| is_own(&job.payload, context)).map(|job| job.job_id));
        cursor = page.next_cursor;
        if cursor.is_none() || ids.len() >= MAX_CANCELLED_JOBS {
            break;
        }
    }
    ids.truncate(MAX_CANCELLED_JOBS);
    Ok(ids)
}

impl From<PulseError> for ToolError {
    fn from(error: PulseError) -> Self {
        match error {
            PulseError::NotFound => Self::NotFound(error.to_string()),
            PulseError::Invalid(_) => Self::InvalidArguments(error.to_string()),
            PulseError::Conflict(_) => Self::Conflict(error.to_string()),
            PulseError::NotConfigured
            | PulseError::LimitReached(_)
            | PulseError::Unavailable(_)
            | PulseError::Refused(_) => Self::Unavailable(error.to_string()),
        }
    }
}
