//! Payload of a job: the work to do, and the user to do it for.

use agent_core::ids::{AgentId, CompanyId, ThreadId, UserId};
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schedule::{ScheduleError, find_time_zone};

/// Kind of work that a job does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Calls one tool with fixed arguments.
    #[default]
    Tool,
    /// Runs an agent turn with a message.
    Agent,
}

/// Payload of a job. Sent to the scheduler when the job is created and returned in the callback. Unknown fields, as a
/// newer version may send them, are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobPayload {
    /// Kind of work.
    pub kind: JobKind,
    /// User on whose behalf the job runs.
    #[cfg_attr(feature = "schemars", schemars(length(min = 1, max = 256)))]
    pub user_id: UserId,
    /// Company of the user.
    #[cfg_attr(feature = "schemars", schemars(length(min = 1, max = 256)))]
    pub company_id: CompanyId,
    /// Agent that runs the turn or calls the tool.
    #[cfg_attr(feature = "schemars", schemars(length(min = 1, max = 256)))]
    pub agent_id: AgentId,
    /// Tool name; required for the kind `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// Id of the tool assignment that this job implements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    /// Arguments of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// User message of the turn; required for the kind `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Todo list that the tools work on; by default the agent's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// Thread of the user that stores the turns, for the kind `agent`; by default, the job has a separate thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemars", schemars(length(min = 1, max = 128)))]
    pub thread_id: Option<ThreadId>,
    /// IANA time zone of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// `traceparent` (W3C Trace Context) of the run that has created the job; deliveries continue its trace. An invalid one
    /// counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Validation error of a [`JobPayload`]; the text names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// An identifier is empty, too long, or contains a control character.
    #[error("{0} must have 1 to {MAX_ID_BYTES} bytes and no control character")]
    Id(&'static str),
    /// A field required for this kind is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The time zone is unknown.
    #[error(transparent)]
    Zone(ScheduleError),
    /// The serialized payload is too large; holds its size in bytes.
    #[error("the payload has {0} bytes of JSON; the limit is {MAX_PAYLOAD_BYTES}")]
    TooLarge(usize),
}

/// Maximum length of an identifier in a payload, in bytes.
const MAX_ID_BYTES: usize = 256;
/// Maximum size of a payload as JSON, in bytes.
const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

impl JobPayload {
    /// Creates the payload of a job that calls a tool without arguments.
    pub fn for_tool(
        company_id: impl Into<CompanyId>,
        user_id: impl Into<UserId>,
        agent_id: impl Into<AgentId>,
        tool_id: impl Into<String>,
    ) -> Self {
        Self {
            kind: JobKind::Tool,
            user_id: user_id.into(),
            company_id: company_id.into(),
            agent_id: agent_id.into(),
            tool_id: Some(tool_id.into()),
            assignment_id: None,
            arguments: None,
            message: None,
            todo_list_id: None,
            thread_id: None,
            timezone: None,
            traceparent: None,
        }
    }

    /// Creates the payload of a job that runs an agent turn with a message, in the thread of the job.
    pub fn for_agent(
        company_id: impl Into<CompanyId>,
        user_id: impl Into<UserId>,
        agent_id: impl Into<AgentId>,
        message: impl Into<String>,
    ) -> Self {
        let payload = Self::for_tool(company_id, user_id, agent_id, "");
        Self { kind: JobKind::Agent, tool_id: None, message: Some(message.into()), ..payload }
    }

    /// Returns the payload without its trace. Two requests for the same work differ in that alone.
    pub fn without_trace(&self) -> Self {
        Self { traceparent: None, ..self.clone() }
    }

    /// Validates the payload.
    ///
    /// # Errors
    /// The first invalid or missing field, an unknown time zone, or excess size.
    pub fn validate(&self) -> Result<(), PayloadError> {
        let ids = [
            ("userId", Some(self.user_id.as_str())),
            ("companyId", Some(self.company_id.as_str())),
            ("agentId", Some(self.agent_id.as_str())),
            ("toolId", self.tool_id.as_deref()),
            ("assignmentId", self.assignment_id.as_deref()),
            ("todoListId", self.todo_list_id.as_deref()),
            ("threadId", self.thread_id.as_deref()),
        ];
        for (field, id) in ids {
            if id.is_some_and(|id| !is_id(id)) {
                return Err(PayloadError::Id(field));
            }
        }
        match self.kind {
            JobKind::Tool if self.tool_id.is_none() => return Err(PayloadError::Missing("toolId")),
            JobKind::Agent if self.message.as_deref().is_none_or(|text| text.trim().is_empty()) => {
                return Err(PayloadError::Missing("message"));
            }
            _ => {}
        }
        if let Some(zone) = &self.timezone {
            find_time_zone(zone).map_err(PayloadError::Zone)?;
        }
        match serde_json::to_vec(self).map_or(usize::MAX, |json| json.len()) {
            bytes if bytes > MAX_PAYLOAD_BYTES => Err(PayloadError::TooLarge(bytes)),
            _ => Ok(()),
        }
    }
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_payload_of_an_agent_equals_a_parsed_one() {
        let new = JobPayload::for_agent("acme", "ada", "guide", "Good morning!");
        assert_eq!(new.validate(), Ok(()));
        let json = json!({"kind": "agent", "userId": "ada", "companyId": "acme", "agentId": "guide",
            "message": "Good morning!"});
        assert_eq!(serde_json::from_value::<JobPayload>(json).expect("a payload"), new);
    }

    #[test]
    fn a_time_zone_is_one_of_the_schedules() {
        let validate = |zone: &str| {
            let payload = json!({"kind": "tool", "userId": "u", "companyId": "c", "agentId": "a", "toolId": "t",
                "timezone": zone});
            serde_json::from_value::<JobPayload>(payload).expect("a payload").validate()
        };
        assert_eq!(validate("Europe/Berlin"), Ok(()));
        for unknown in ["Mars/Base", "localtime", "Factory", &"x".repeat(60_000)] {
            let text = validate(unknown).expect_err("no zone").to_string();
            assert!(text.len() < 200, "{} bytes", text.len());
        }
    }
}
