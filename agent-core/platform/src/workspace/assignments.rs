//! Tool assignments as stored in the workspace.

use agent_jobs::job::{Job, JobKind, JobPayload, JobScope, PayloadError};
use agent_jobs::schedule::{DstPolicy, ScheduleError, ScheduleSpec};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ListPage, collection, list_projected};
use crate::pulse::{JobRequest, user_scope};
use crate::records::{Collection, Key, ListQuery, MAX_ID_BYTES, Record, Records, StoreError};
use crate::run_tools::allowed_tools_in_run;
use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::role::RoleBlock;
use agent_core::tool::Caller;

/// Prefix of the idempotency keys of assignments' jobs.
const JOB_KEY_PREFIX: &str = "assignment:";

/// Tool call or turn that an agent runs for a user on a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Identifier, unique in the company.
    pub id: String,
    /// User for whom the tool runs.
    pub user_id: UserId,
    /// Company of the user.
    pub company_id: CompanyId,
    /// Agent that calls the tool or runs the turn.
    pub agent_id: AgentId,
    /// Kind of work; a tool call by default.
    #[serde(default)]
    pub kind: JobKind,
    /// Name of the tool; required for the kind `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// User message of the turn; required for the kind `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Arguments of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// Todo list that the work is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// Times at which the assignment runs.
    pub schedule: AssignmentSchedule,
}

/// Schedule of an assignment: one of `cron`, `everyMs` and `executeAt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSchedule {
    /// True if the assignment runs; a disabled one has no job.
    pub enabled: bool,
    /// Runs repeatedly by a cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Runs repeatedly at this interval in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// Runs once at an RFC 3339 time; without an offset, it is local to `timezone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<String>,
    /// IANA name of the time zone for `cron` and for an `executeAt` without an offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Daylight-saving policy for `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<DstPolicy>,
}

impl AssignmentSchedule {
    /// Returns the schedule as requested from the scheduler.
    pub fn spec(&self) -> ScheduleSpec {
        ScheduleSpec {
            execute_at: self.execute_at.clone(),
            delay_ms: None,
            cron: self.cron.clone(),
            every_ms: self.every_ms,
            timezone: self.timezone.clone(),
            dst: self.dst,
        }
    }
}

/// Returns the field of an assignment that makes its payload invalid, and the fault.
fn payload_fault(error: &PayloadError) -> (&'static str, String) {
    match error {
        PayloadError::Id(field) | PayloadError::Missing(field) => {
            let text = error.to_string();
            (*field, text.strip_prefix(*field).unwrap_or(&text).trim_start().to_owned())
        }
        PayloadError::Zone(error) => ("schedule", schedule_fault(error)),
        error => ("", error.to_string()),
    }
}

/// Describes the fault of a schedule. An assignment has no `delayMs`.
fn schedule_fault(error: &ScheduleError) -> String {
    match error {
        ScheduleError::NoKind => "needs one of executeAt, cron and everyMs".to_owned(),
        error => format!("is not valid: {error}"),
    }
}

impl Assignment {
    /// Validates the assignment at the time `now`. Returns the path of the first invalid field and the fault, worded to
    /// follow the path; the path is empty for a payload that is too large.
    pub fn validate(&self, now: Timestamp) -> Option<(&'static str, String)> {
        // Record ids are limited more tightly than the ids of a payload.
        let tool_id = self.tool_id.as_deref().unwrap_or("none");
        for (field, id) in [("id", self.id.as_str()), ("agentId", &self.agent_id), ("toolId", tool_id)] {
            if id.is_empty() || id.len() > MAX_ID_BYTES {
                return Some((field, format!("must have 1 to {MAX_ID_BYTES} bytes")));
            }
        }
        if let Err(error) = self.payload().validate() {
            return Some(payload_fault(&error));
        }
        // A disabled schedule may be incomplete.
        let fault = self.schedule.enabled.then(|| self.schedule.spec().resolve(now).err()).flatten();
        fault.map(|fault| ("schedule", schedule_fault(&fault)))
    }

    /// Returns the payload of the assignment's job.
    pub fn payload(&self) -> JobPayload {
        JobPayload {
            kind: self.kind,
            user_id: self.user_id.clone(),
            company_id: self.company_id.clone(),
            agent_id: self.agent_id.clone(),
            // The jobs of a tool end when the agent loses it; a turn needs none.
            tool_id: self.tool_id.clone().filter(|_| self.kind == JobKind::Tool),
            assignment_id: Some(self.id.clone()),
            arguments: self.arguments.clone(),
            message: self.message.clone(),
            todo_list_id: self.todo_list_id.clone(),
            thread_id: None,
            timezone: self.schedule.timezone.clone(),
            traceparent: None,
        }
    }

    /// Returns the scope of the assignment's user.
    pub fn scope(&self) -> JobScope {
        user_scope(&self.company_id, &self.user_id)
    }

    /// Returns true if the agent, given by its role if it exists, may do the work of the assignment.
    pub fn can_run(&self, role: Option<&RoleBlock>) -> bool {
        let may_call = |role: &RoleBlock| {
            let allowed = allowed_tools_in_run(role, Caller::Proactive);
            self.tool_id.as_deref().is_some_and(|tool| allowed.contains(tool))
        };
        role.is_some_and(|role| self.kind == JobKind::Agent || may_call(role))
    }

    /// Returns the request for the job at a version, after a number of suspensions. Versions are never reused, so the
    /// idempotency key makes a repeated request for one change harmless and separates it from later changes.
    pub(crate) fn request(&self, version: u64, suspensions: u64) -> JobRequest {
        let key = format!("{JOB_KEY_PREFIX}{}:{version}", self.id);
        let idempotency_key = Some(if suspensions == 0 { key } else { format!("{key}:{suspensions}") });
        JobRequest { idempotency_key, ..JobRequest::new(self.payload(), self.schedule.spec()) }
    }
}

/// Returns true if a job is the one that an assignment runs by. A follow-up of the assignment's tool has the same payload
/// and is a separate job.
pub fn is_assignment_job(job: &Job) -> bool {
    let key = job.idempotency.as_ref().map(|idempotency| idempotency.key.as_str());
    job.payload.assignment_id.is_some() && key.is_some_and(|key| key.starts_with(JOB_KEY_PREFIX))
}

/// Returns the record key of an assignment.
///
/// # Errors
/// [`StoreError::Invalid`] for an invalid identifier.
pub fn assignment_key(company_id: &CompanyId, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, collection::ASSIGNMENTS, id)
}

/// Returns one page of an agent's assignments, ordered by id.
///
/// # Errors
/// Errors of the store.
pub async fn list_assignments(
    records: &dyn Records,
    company_id: &CompanyId,
    agent_id: &AgentId,
    list: &ListQuery,
) -> Result<ListPage<Record<Assignment>>, StoreError> {
    let all = Collection::new(company_id, collection::ASSIGNMENTS)?;
    let of_agent = |record: Record<Assignment>| (record.value.agent_id == *agent_id).then_some(record);
    list_projected(records, &all, list, of_agent).await
}
